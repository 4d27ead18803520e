"""README and docs: links, commands, Python code and names in them are those of the package."""

import ast
import importlib.metadata
import importlib.util
import inspect
import re
import shlex

import pytest

import resnets
from resnets.analysis.propagation import Propagation
from resnets.cli import COMMANDS
from resnets.cli.parser import Parser
from resnets.experiments.plan import find_experiments
from resnets.options import fields_of
from resnets.other_systems import OTHERS
from resnets.papers.tables import EXPERIMENTS
from resnets.zoo import NETWORKS, NetworkOptions
from tests.docs.pages import BLOCK, PAGES, ROOT, find_blocks, find_commands, find_lines, name_page

each_page = pytest.mark.parametrize("page", PAGES, ids=name_page)


def find_names(text: str) -> set[str]:
    """Dotted names such as `resnets.zoo.CIFAR`, in code and between backticks."""
    inline = re.findall(r"`(resnets\.[^`]+)`", BLOCK.sub("", text))
    return {
        name for code in [*find_blocks(text, "python"), *inline] for name in re.findall(r"\bresnets(?:\.\w+)+", code)
    }


def resolve(name: str) -> object:
    """What a dotted name means; modules are imported."""
    found: object = resnets
    parts = name.split(".")
    for i, part in enumerate(parts[1:], 2):
        if not hasattr(found, part):
            importlib.import_module(".".join(parts[:i]))
        found = getattr(found, part)
    return found


@each_page
def test_commands_parse(page):
    parser = Parser(prog="resnets")
    commands = parser.add_subparsers(parser_class=Parser)
    for add in COMMANDS:
        add(commands)
    for command in find_commands(page.read_text()):
        words = shlex.split(command)[1:]
        args = parser.parse_args(words)  # an unknown option is a SystemExit or a UserError
        if words[0] == "reproduce" and args.file:
            assert (ROOT / args.file).exists()
        elif words[0] == "reproduce" and not args.list and args.names not in (["detection"], ["signals"]):
            find_experiments(args.names)


@each_page
def test_other_commands_exist(page):
    """Targets of make, modules behind `python -m`, and extras behind `pip install`."""
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    extras = set(importlib.metadata.metadata("resnets").get_all("Provides-Extra"))
    text = page.read_text()
    inline = re.findall(r"`((?:make|python -m|pip install) [^`]+)`", BLOCK.sub("", text))
    for line in [*find_lines(text), *inline]:
        words = line.split()
        if words[:1] == ["make"] and len(words) > 1:
            assert words[1] in targets, line
        if match := re.search(r"python\s+-m\s+((?:tools|benchmarks)[\w.]*)", line):
            assert importlib.util.find_spec(match[1]), line
        if match := re.search(r"pip install .*\[([\w,]+)\]", line):
            assert set(match[1].split(",")) <= extras, line


@each_page
def test_python_is_python(page):
    for block in find_blocks(page.read_text(), "python"):
        ast.parse(block)


@each_page
def test_names_exist(page):
    for name in find_names(page.read_text()) - {"resnets.json"}:  # a file inside a .pt2
        resolve(name)


def test_keywords_of_the_verbs_in_python_code_exist():
    """A call such as `resnets.evaluate(net, ten_crop=True)` has keywords that the function takes."""
    verbs = ("load", "evaluate", "predict", "analyze", "export", "convert", "reproduce", "open_data")
    blocks = [block for page in PAGES for block in find_blocks(page.read_text(), "python")]
    calls = [node for block in blocks for node in ast.walk(ast.parse(block)) if isinstance(node, ast.Call)]
    met = set()
    for call in calls:
        name = ast.unparse(call.func).removeprefix("resnets.")
        if ast.unparse(call.func).startswith("resnets.") and name in verbs:
            met.add(name)
            known = inspect.signature(getattr(resnets, name)).parameters
            for keyword in call.keywords:
                assert keyword.arg in known, f"{name}({keyword.arg}=)"
    assert met == set(verbs)


# --- the map of the papers --------------------------------------------------------------------


def test_symbols_of_the_paper_map_exist():
    words = set(re.findall(r"`([^`]+)`", (ROOT / "docs" / "paper-map.md").read_text()))
    unknown = [word for word in sorted(words) if not any(is_kind(word) for is_kind in KINDS)]
    assert not unknown
    assert len(words) > 50


def is_command(word: str) -> bool:
    """A command or an option; the experiments of `reproduce` must exist."""
    if word.startswith("resnets reproduce ") and not {"detection", "signals"} & set(word.split()):
        return bool(find_experiments(re.split(" --", word)[0].split()[2:]))
    return word.startswith(("resnets ", "--"))


def is_file(word: str) -> bool:
    return "/" in word and ((ROOT / word).exists() or (ROOT / "src" / "resnets" / word).exists())


def is_choice(word: str) -> bool:
    """A field of a network, alone or with a value that it takes; or such a value alone, after another one."""
    field, _, value = word.partition("=")
    if field in fields_of(NetworkOptions):
        return not value or bool(resnets.spec_of("resnet50", **{field: eval(value, vars(resnets.unit_spec).copy())}))
    helps = " ".join(each.metadata["help"] for each in fields_of(NetworkOptions).values())
    return word.startswith('"') and word.strip('"') in helps


def is_symbol(word: str) -> bool:
    """A public name, an attribute of a network, a unit or an order, a shortcut, or a number of `analyze`."""
    net = resnets.create("preresnet20", blocks=1)
    known = {"ResNet": net, "Unit": net.units[0], "Spec": net.spec, "Order": resnets.unit_spec.ORDERS["original"]}
    owner, _, rest = word.removesuffix("()").partition(".")
    if owner in known:
        return not rest or hasattr(known[owner], rest)
    if re.fullmatch(r"[\w.]+", word) and word not in NETWORKS and "." in word:
        return resolve(word if owner == "resnets" else f"resnets.{word}") is not None
    return owner.partition("(")[0] in resnets.__all__ or word in {
        *inspect.get_annotations(Propagation),
        *vars(Propagation),
    }


def is_named(word: str) -> bool:
    """A network or an experiment."""
    return word in NETWORKS or word in OTHERS or word in EXPERIMENTS


KINDS = (is_command, is_file, is_choice, is_named, is_symbol)
