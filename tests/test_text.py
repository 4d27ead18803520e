"""What leaves for a terminal: no name can command it, forge a line or crash the command."""

import ast
import io
import json
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

import resnets
from resnets.cli import main
from resnets.cli.prediction_output import Csv, Json, Prediction, Table
from resnets.progress import Console
from resnets.text import json_text, print_json, print_lines, print_table

ROOT = Path(resnets.__file__).parent
# a colour, a title, C1's CSI, a line of its own, a tab, two directions of writing, markup, half a character
NASTY = "a\x1b[31m\x1b]0;t\x07\x9b5m\nresnets: forged\t\r\u202eb\u2066c[bold]d[/bold]\udcffe\x7f"
HARMFUL = [chr(i) for i in (*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))]


def harmless(text: str, lines: int) -> bool:
    """So many lines, none of which holds anything but characters to be seen."""
    return len(text.splitlines()) == text.count("\n") == lines and all(map(str.isprintable, text.splitlines()))


def test_no_other_module_prints():
    """`print`, `sys.stdout.write` and rich's markup are in one place, so that no caller can forget to escape."""
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and path != ROOT / "text.py":
                called = ast.unparse(node.func)
                assert called not in ("print", "sys.stdout.write", "sys.stderr.write"), f"{path}:{node.lineno}"


@pytest.mark.parametrize("harm", HARMFUL, ids=lambda c: f"{ord(c):x}")
def test_lines_and_tables_escape_what_commands_a_terminal(capsys, harm):
    print_lines(f"a{harm}b")
    print_table(("name", "size"), [(f"a{harm}b", "1")], right=("size",))
    out = capsys.readouterr().out
    assert harmless(out, 3)
    assert out.count(f"a{ascii(harm)[1:-1]}b") == 2


def test_lines_are_exact_otherwise(capsys):
    print_lines("réseau 日本 [bold]x[/]", 7, Path("a/b"))
    print_lines()
    assert capsys.readouterr().out == "réseau 日本 [bold]x[/]\n7\na/b\n\n"


def test_an_encoding_without_the_characters_is_no_error():
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    print_lines("réseau\udcff", file=out)
    out.flush()
    assert out.buffer.getvalue() == rb"r\xe9seau\udcff" + b"\n"


@pytest.mark.parametrize("name", [NASTY, *HARMFUL, "\ud800", "é"], ids=ascii)
def test_json_is_exact_ascii_and_printable(capsys, name):
    print_json({name: [name]})
    out = capsys.readouterr().out
    assert json.loads(out) == {name: [name]}
    assert out.isascii()
    assert all(map(str.isprintable, out.split("\n")))
    assert json_text([float("nan"), (float("inf"), 1.5)]) == "[null, [null, 1.5]]"


def test_answers_of_all_forms():
    found = Prediction(f"{NASTY}.png", (0, 1), (NASTY, "=cmd|' /C calc'!A0"), (0.75, 0.25))
    written = {}
    for form in (Table, Json, Csv):
        out = io.StringIO()
        writer = form(out)
        writer.write(found)
        writer.close()
        written[form] = out.getvalue()
    assert harmless(written[Table], 3)
    assert harmless(written[Csv], 3)
    [told] = json.loads(written[Json])
    assert (told["file"], told["classes"][0]["name"]) == (f"{NASTY}.png", NASTY)


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@SUM(1)", "\t=1", "\r=1", "'=1"])
def test_no_cell_of_text_is_a_formula_and_numbers_stay_numbers(name):
    import csv

    out = io.StringIO()
    Csv(out).write(Prediction(name, (0, 1), (name, "cat"), (0.5, 0.25)))
    first, second = list(csv.DictReader(io.StringIO(out.getvalue())))
    assert first["file"] == first["class"] == "'" + name.replace("\t", r"\t").replace("\r", r"\r")
    assert (first["rank"], first["label"], first["probability"]) == ("1", "0", "0.500000")
    assert second["class"] == "cat"


def test_the_bar_of_a_fetch(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "300")
    with Console().task(f"testing on {NASTY}\\", 3) as advance:
        advance(3)
    shown = sys.stderr.getvalue()
    assert "[bold]d[/bold]" in shown
    assert not any(harm in shown for harm in ("\x1b[31m", "\x1b]0;", "\x9b", "\u202e", "\u2066", "forged\t"))


# --- the commands -----------------------------------------------------------------------------


@pytest.fixture
def shown(capsys):
    """What a command prints, whatever comes of it, is harmless; returns it."""

    def run(*words: object) -> str:
        main(list(map(str, words)))
        told = capsys.readouterr()
        for text in (told.out, told.err):
            assert not any(harm in text for harm in HARMFUL if harm != "\n"), text
            assert "\udcff" not in text
            assert not any(line.startswith("resnets: forged") for line in text.splitlines()), text
        return told.out + told.err

    return run


NAME = NASTY.replace("\udcff", "")  # a safetensors file holds UTF-8
FILE = NASTY.replace("/", "")


@pytest.fixture
def weights(tmp_path) -> Path:
    """A network whose name, classes and origin are a stranger's."""
    net = resnets.create("resnet20", num_classes=2, depth=8)
    path = tmp_path / "net.safetensors"
    resnets.save_weights(net, path)
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        metadata = file.metadata()
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    spec = {**json.loads(metadata["resnets.spec"]), "name": NAME}
    metadata |= {"resnets.spec": json.dumps(spec), "classes": json.dumps([NAME, "=1"])}
    save_file(tensors, path, metadata)
    return path


@pytest.fixture
def pictures(tmp_path) -> Path:
    root = tmp_path / f"data{FILE}"
    for i, name in enumerate(("=x", FILE)):
        (root / name).mkdir(parents=True)
        Image.new("RGB", (40, 40), (99 * i, 0, 9)).save(root / name / "a.png")
        (root / name / f"{FILE}.png").write_bytes(b"no picture")
    return root


def test_commands_on_foreign_weights_and_pictures(shown, weights, pictures, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "[bold]d[/bold]" in shown("info", weights)
    assert "[bold]d[/bold]" in shown("predict", pictures, "--weights", weights, "--engine", "plain")
    assert r"\x1b[31m" in shown("predict", pictures, "--weights", weights, "--csv")
    shown("predict", pictures, "--weights", weights, "--json")
    shown("eval", weights, "--data", pictures, "--bad-images", "skip")
    shown("eval", weights, "--data", pictures)
    shown("import", weights, "-o", tmp_path / f"{FILE}.safetensors")
    assert "cannot be decoded" in shown("data", "check", pictures)
    assert "no run in" in shown("runs", pictures)
    shown("train", NASTY)
    shown(NASTY)
    shown("train", "resnet20", "--data", tmp_path / NASTY)
    shown("report", tmp_path / NASTY)


def test_a_run_of_strange_names(shown, pictures, tmp_path):
    for bad in pictures.glob("*/a?*.png"):
        bad.unlink()
    data = tmp_path / f"both{FILE}"
    for part in ("train", "val"):
        shutil.copytree(pictures, data / part)
    runs = tmp_path / FILE
    words = ["--recipe", "scratch", "--length", "2it", "--batch", "2", "--out", runs, "--device", "cpu"]
    said = shown("train", "resnet20", "--depth", "8", "--data", data, *words)
    assert "run:" in said
    assert "finished" in shown("runs", runs)
    shown("results", runs, "-o", tmp_path / "results" / "x.json")
    shown("report", tmp_path / "results", "-o", tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text("utf-8")
    assert r"\x1b[31m" in page
    assert not any(harm in page for harm in ("\x1b[31m", "\u202eb", "\nresnets: forged", "\udcff"))
    shown("analyze", next(runs.glob("*/config.json")).parent)


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_a_name_that_no_encoding_has_is_no_traceback(tmp_path, encoding):
    name = os.fsencode(tmp_path) + b"/\xff\xe9.png"
    with open(name, "wb"):
        pass
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    for form in ("--json", "--csv"):
        command = [sys.executable, "-m", "resnets", "predict", name, form]
        done = subprocess.run(command, env=environment, capture_output=True, check=False)
        assert b"Traceback" not in done.stderr
        assert done.returncode == 1
        assert rb"\udcff" in done.stderr
        done.stdout.decode("utf-8")
        if form == "--json":
            assert os.fsencode(json.loads(done.stdout)[0]["file"]) == name


def test_a_table_on_a_terminal_interprets_no_markup():
    ours, theirs = pty.openpty()
    code = "from resnets.text import print_table; print_table(('a[bold]', 'b'), [('[red]x[/]\\x1b[5m', '\\n')])"
    done = subprocess.run([sys.executable, "-c", code], stdout=theirs, env={**os.environ, "TERM": "xterm"}, check=True)
    os.close(theirs)
    text = os.read(ours, 65536).decode()
    os.close(ours)
    assert done.returncode == 0
    assert "a[bold]" in text
    assert r"[red]x[/]\x1b[5m" in text
    assert "\x1b[5m" not in text


def test_the_strange_names_are_in_the_weights(weights):
    """Else the tests above would try nothing."""
    from resnets.weights.networks import read_spec

    assert read_spec(weights).name == NAME
    assert torch.is_tensor(resnets.load(weights).classifier.weight)
