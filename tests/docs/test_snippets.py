"""The Python code of README, pages and docstrings runs, on small data; so do the cheap commands and the notebooks."""

import contextlib
import doctest
import inspect
import io
import json
import re
import shlex

import pytest

import resnets
from resnets.cli import main
from tests.docs.pages import NOTEBOOKS, PAGES, ROOT, find_blocks, find_commands, name_page
from tests.docs.stand_ins import LINES, make_names, replace_words

WITH_PYTHON = [page for page in PAGES if find_blocks(page.read_text(), "python")]
CHEAP = re.compile(
    r"resnets (models|info|runs|data check (pictures|voc:cells)|reproduce --list|predict (cat\.jpg|holiday/)$|"
    r"predict .*--weights runs/NAME|eval runs/NAME --per-class --mistakes)"
)


@pytest.mark.parametrize("page", WITH_PYTHON, ids=name_page)
def test_python_code_of_a_page_runs(page, scratch, capsys):
    names = make_names()
    for block in find_blocks(page.read_text(), "python"):
        exec(compile(replace_words(block), name_page(page), "exec"), names)


PUBLIC = [name for name in resnets.__all__ if name != "__version__"]


@pytest.mark.parametrize("name", PUBLIC)
def test_examples_of_docstrings_run_and_print_what_they_say(name, scratch):
    text = inspect.getdoc(getattr(resnets, name))
    examples = doctest.DocTestParser().get_examples(replace_words(text), name)
    assert examples, f"the docstring of resnets.{name} needs an example"
    names = make_names()
    for example in examples:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(example.source, f"resnets.{name}", "single"), names)
        if example.want:
            checker = doctest.OutputChecker()
            assert checker.check_output(example.want, printed.getvalue(), doctest.ELLIPSIS), printed.getvalue()


def list_cheap_commands():
    lines = dict.fromkeys(line for page in PAGES for line in find_commands(page.read_text()))
    return [line for line in lines if CHEAP.match(line) and not re.search(r"resnet50\.safetensors|boxes\.png", line)]


@pytest.mark.filterwarnings("ignore:This DataLoader")  # on a machine of one core
@pytest.mark.parametrize("line", list_cheap_commands())
def test_cheap_commands_of_pages_run(line, scratch, capsys):
    for word, stand_in in LINES.items():
        line = line.replace(word, stand_in)
    assert main(shlex.split(line)[1:]) == 0
    assert capsys.readouterr().out.strip()


def test_enough_commands_are_run():
    assert len(list_cheap_commands()) > 15


SMALL = {  # in notebooks
    "synthetic:2000": "synthetic:64",
    "epochs=4": "iterations=2",
    '"epochs": 10': '"iterations": 2',
    '"batch": 30': '"batch": 6',
    'length="300it"': 'length="2it"',
    "resnet56": "resnet20",
    "range(80)": "range(8)",
    "i < 60": "i < 4",
    '(("train", 30), ("val", 20))': '(("train", 6), ("val", 2))',
}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(path, tmp_path, monkeypatch, capsys):
    """On smaller data than a reader runs them on, and without a kernel."""
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("Agg")
    monkeypatch.chdir(tmp_path)
    names = make_names()
    for cell in json.loads(path.read_text())["cells"]:
        code = "".join(cell["source"])
        if cell["cell_type"] == "code":
            for word, small in SMALL.items():
                code = code.replace(word, small)
            exec(compile(code, path.name, "exec"), names)
    pyplot.close("all")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_hold_pictures_and_nothing_of_the_machine_that_ran_them(path):
    text = path.read_text()
    cells = json.loads(text)["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= 2
    assert not [output for output in outputs if output["output_type"] == "error" or output.get("name") == "stderr"]
    assert not re.search(r"/(root|home|tmp|work)/", text)
    assert len(text) < 400_000
    counts = [cell["execution_count"] for cell in cells if cell["cell_type"] == "code"]
    assert counts == list(range(1, len(counts) + 1)), "run `make notebooks`"
    assert {"train", "fine-tune", "analyze", "detect"} <= {path.stem for path in NOTEBOOKS}
    assert (ROOT / "examples").is_dir()
