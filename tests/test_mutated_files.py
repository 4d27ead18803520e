"""Valid JSON of any other shape: whatever a file is changed to, a command shows it, names what is wrong, or both."""

import copy
import json
import random
import shutil
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from resnets.cli import main
from test_records import make_run
from tools.tables import pages as tables

ROOT = Path(__file__).parents[1]
OTHERS = [
    None, True, 0, -1, 2.5, 1e308, -1e308, float("nan"), float("inf"), 1e-320, 2**63, -(2**70), 10**400, 10**4400,
    "", "x", "$$", "_", "\ud800", "\udcff", "\x1b[0m\0", "a" * 5000, [], {}, [[]], [None], [1, 2], {"a": 1},
]  # fmt: skip


@contextmanager
def any_digits():
    """Python refuses to write integers as long as those that it must refuse to read here."""
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        yield
    finally:
        sys.set_int_max_str_digits(before)


def places(value, way=()):
    """The way to every value, the outer ones first."""
    yield way
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*way, key))


def mutated(text, draw):
    """JSON with one value deleted, renamed, wrapped, buried or replaced by another."""
    data = copy.deepcopy(json.loads(text))
    depth = draw.choice([1, 2, 3, 4, 6])
    way = draw.choice([way for way in places(data) if len(way) <= depth])
    if not way:
        data = draw.choice(OTHERS)
    else:
        holder = data
        for key in way[:-1]:
            holder = holder[key]
        change, last = draw.randrange(8), way[-1]
        if change == 0:
            del holder[last]
        elif change == 1 and isinstance(holder, dict):
            holder["another key"] = holder.pop(last)
        elif change == 2:
            holder[last] = [holder[last]]
        elif change == 3:
            for _ in range(draw.choice([70, 300])):
                holder[last] = [holder[last]]
        else:
            holder[last] = draw.choice(OTHERS)
    with any_digits():
        return json.dumps(data)


def run_command(*words):
    """A command whose every ending is a code that it chose, with a sentence where that is not 0."""
    code = main([str(word) for word in words])
    assert code in (0, 1, 2)
    return code


@pytest.mark.parametrize("file", ["config.json", "result.json", "metrics.jsonl"])
def test_any_run_is_listed_drawn_and_collected_or_named(tmp_path, capsys, file):
    draw = random.Random(file)
    good, bad = make_run(tmp_path / "runs", "good"), make_run(tmp_path / "runs", "bad")
    lines = (good.path / file).read_text().splitlines()
    codes = set()
    for i in range(40):
        if file == "metrics.jsonl":
            at = draw.randrange(len(lines))
            text = "\n".join([*lines[:at], mutated(lines[at], draw), *lines[at + 1 :]]) + "\n"
        else:
            text = mutated("\n".join(lines), draw)
        (bad.path / file).write_text(text)
        code = run_command("runs", tmp_path / "runs")
        told = capsys.readouterr()
        assert "good" in told.out
        assert code == (0 if "bad" in told.out else 1)
        assert ("left out" in told.err) == bool(code)
        codes.add(code)
        run_command("results", bad.path, "-o", tmp_path / "r.json")
        if i % 8 == 0:
            run_command("plot", bad.path, "-o", tmp_path / "a.svg")
            run_command("eval", bad.path, "--data", "synthetic:64")  # which has no weights
            run_command("analyze", bad.path, "--data", "synthetic:64")
    assert codes == {0, 1}


@pytest.mark.parametrize(
    "source",
    [
        "hour/plain110-cifar10",
        "hour/resnet110-cifar10",
        "cifar/preresnet20-cifar-quick",
        "analysis/orders/propagation",
        "analysis/units/20-basic",
    ],
)
def test_any_result_is_on_the_page_or_named(tmp_path, capsys, source):
    draw = random.Random(source)
    text = (ROOT / "results" / f"{source}.json").read_text()
    path = tmp_path / "results" / f"{source}.json"
    path.parent.mkdir(parents=True)
    (tmp_path / "results" / "hour").mkdir(exist_ok=True)
    shutil.copy(ROOT / "results" / "hour" / "plain20-cifar10.json", tmp_path / "results" / "hour")
    codes = set()
    for _ in range(12):
        path.write_text(mutated(text, draw))
        codes.add(run_command("report", tmp_path / "results", "-o", tmp_path / "a.html"))
        assert (tmp_path / "a.html").stat().st_size > 10_000
        if path.parent.name == "hour":
            words = ("reproduce", "plain-cifar", "--rows", "plain20-cifar10", "--results", tmp_path / "results")
            codes.add(run_command(*words, "--out", tmp_path / "runs", "--dry-run"))
    assert codes <= {0, 1}
    assert 1 in codes


def test_any_measurement_makes_a_table_or_is_named(tmp_path, capsys):
    draw = random.Random(0)
    names = ("README.md", "docs/performance.md", "docs/use.md", "docs/training.md")
    for _ in range(40):
        shutil.rmtree(tmp_path, ignore_errors=True)
        sources = [path for folder in ("bench", "imagenet", "transfer") for path in _published(folder)]
        source = draw.choice(sources)
        path = tmp_path / source.relative_to(ROOT)
        path.parent.mkdir(parents=True)
        path.write_text(mutated(source.read_text(), draw))
        (tmp_path / "docs").mkdir()
        for name in names:
            shutil.copy(ROOT / name, tmp_path / name)
        code = tables.main([str(tmp_path)])
        assert code in (0, 2)
        assert (str(path) in capsys.readouterr().err) == (code == 2)


def _published(folder):
    return sorted((ROOT / "results" / folder).glob("*.json"))
