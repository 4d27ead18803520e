"""The page of the benchmark, from numbers written by hand."""

import json
from pathlib import Path

import pytest

from resnets.text import printable
from tools.tables import depth, performance
from tools.tables import pages as tables
from tools.tables import targets as aims
from tools.tables.ratios import Spread, compute_ratio

ROOT = Path(__file__).parents[2]
GIB = 2**30
ORIGIN = {
    "rounds": 3,
    "commit": "0123456789abcdef",
    "began": "2026-01-02T03:04:05+00:00",
    "machine": {"cpu": "A CPU", "cores": 2},
    "versions": {"torch": "2.13.0", "timm": "1.0.30", "keras": None},
}


def write(results, section, **lines):
    (results / "bench").mkdir(exist_ok=True)
    told = {"lines": {name.replace("_", " "): {**ORIGIN, **line} for name, line in lines.items()}}
    (results / "bench" / f"{section}.json").write_text(json.dumps(told))


def line(**contestants):
    return {"contestants": {name: {"seconds": seconds} for name, seconds in contestants.items()}}


def test_a_spread_is_the_median_and_the_quartiles():
    assert Spread.of([1, 2, 3, 4, 9]) == Spread(3, 2, 4)
    assert Spread.of([5.0]) == Spread(5, 5, 5)
    assert str(Spread(1.234, 1.2, 1.3)) == "1.23 (1.20 to 1.30)"
    assert str(Spread(12.34, 12.34, 12.34)) == "12.3"


def test_ratios_are_taken_round_by_round():
    """The machine is half as fast in the second round; the ratio does not see it."""
    drifting = line(timm=[3, 6, 3], fast=[2, 4, 2])
    assert compute_ratio(drifting, "timm", "fast") == Spread(1.5, 1.5, 1.5)
    assert compute_ratio(drifting, "timm", "nobody") is None


def test_a_contestant_that_lost_rounds_has_no_ratio():
    with pytest.raises(ValueError, match="shorter"):
        compute_ratio(line(timm=[3, 6, 3], fast=[2, 4]), "timm", "fast")


def test_steps_show_speeds_and_the_share_of_the_convolutions(tmp_path):
    found = line(timm=[4, 4, 4], plain=[4, 5, 4], fast=[2, 2, 2], roofline=[1, 1, 1])
    found["contestants"]["keras"] = {"reason": "keras is not installed"}
    write(tmp_path, "step", a_net=found)
    page = performance.TABLES["bench-step"](tmp_path)
    assert "| times as fast as timm | ours, plain PyTorch | ours, fast | keras |" in page
    assert "| a net | 1.00 (0.90 to 1.00) | 2.00 | - | 0.25 | 0.25 (0.23 to 0.25) | 0.50 |" in page
    assert "keras: keras is not installed (a net)." in page
    assert "*rounds: 3; A CPU with 2 cores; torch 2.13.0; timm 1.0.30; commit 0123456789; 2026-01-02.*" in page


def test_memory_shows_peaks_and_what_they_cost(tmp_path):
    found = line(timm=[2, 2], lean=[1, 1])
    found["contestants"]["timm"]["peak"] = [8 * GIB] * 2
    found["contestants"]["lean"] |= {"peak": [2 * GIB] * 2, "foretold": [1.8 * GIB] * 2}
    write(tmp_path, "memory", a_net=found)
    page = performance.TABLES["bench-memory"](tmp_path)
    assert "| a net | timm | 8.00 | - | 1.00 | 1.00 |" in page
    assert "| a net | ours, lean | 2.00 | 0.90 | 4.00 | 2.00 |" in page


def deep(net, layers, seconds, order="full_preact", unit="basic"):
    held = {mode: {"seconds": [seconds], "build": [seconds], "first": [seconds], "peak": [GIB]} for mode in aims.MODES}
    return {"net": net, "layers": layers, "unit": unit, "order": order, "contestants": held}


def test_depth_is_told_a_layer_and_drawn(tmp_path):
    write(tmp_path, "depth", small=deep("a", 20, 1.0), large=deep("b", 200, 11.0), v1=deep("c", 20, 3.0, "original"))
    page = performance.TABLES["bench-depth"](tmp_path)
    assert "| large | 200 | basic | 1.10 | 1.10 | 1.10 | 1.10 | 1.10 | 1.00 | 1.00 | 1.00 |" in page
    assert "| v1 | 20 | basic | 1.00 |" in page
    path = depth.draw(tmp_path)
    first = path.read_bytes()
    assert depth.draw(tmp_path).read_bytes() == first
    assert b"fast, basic" in first
    held = depth.series(json.loads((tmp_path / "bench" / "depth.json").read_text())["lines"], "seconds")
    assert held["basic", "lean"] == ([20, 200], [1.0, 11.0])


def test_nothing_measured_is_said_and_drawn_nowhere(tmp_path):
    assert performance.TABLES["bench-step"](tmp_path) == performance.NOT_YET
    assert depth.draw(tmp_path) is None
    assert {row[-1] for row in aims.list_rows(tmp_path)} == {"not measured"}


def told(results, what):
    return next(row for row in aims.list_rows(results) if row[0].startswith(what))


@pytest.mark.parametrize(("ours", "verdict"), [(1.5, "more than that"), (2.0, "yes"), (3.0, "no")])
def test_an_aim_of_speed(tmp_path, ours, verdict):
    write(tmp_path, "step", **{"resnet50, batch 8": line(timm=[4.0], fast=[ours])})
    assert told(tmp_path, "resnet50, training")[1:] == ["1.8", "2.2", f"{4 / ours:.2f}", verdict]


def test_less_memory_counts_only_at_no_more_time(tmp_path):
    found = line(timm=[4.0], lean=[4.0], min=[6.0])
    for name, gib in (("timm", 10), ("lean", 5), ("min", 2)):
        found["contestants"][name]["peak"] = [gib * GIB]
    write(tmp_path, "memory", **{"preresnet1001, batch 64": found})
    what = "preresnet1001, batch 64"
    assert told(tmp_path, what)[3:] == ["2.00 in lean, at 1.00 times timm's speed", "yes"]
    found["contestants"]["lean"]["seconds"] = [5.0]
    write(tmp_path, "memory", **{"preresnet1001, batch 64": found})
    assert told(tmp_path, what)[3:] == ["5.00 in min, at 0.67 times timm's speed", "no"]


@pytest.mark.parametrize(("gib", "verdict"), [(1.9, "more than that"), (2.0, "yes"), (3.0, "no")])
def test_an_aim_to_stay_under(tmp_path, gib, verdict):
    found = {"contestants": {"lean": {"peak": [4 * GIB]}, "min": {"peak": [gib * GIB]}}}
    write(tmp_path, "memory", **{"preresnet1001, batch 128": found})
    expected = ["under 3 GiB", "under 2 GiB", f"{gib:.2f} GiB in min", verdict]
    assert told(tmp_path, "preresnet1001, batch 128")[1:] == expected


def test_the_start_is_held_against_seconds_and_told_as_a_ratio(tmp_path):
    write(tmp_path, "startup", a_new_process=line(**{"import torch": [2.0], "resnets --help": [0.2]}))
    assert told(tmp_path, "`resnets")[3:] == ["`import torch` takes 10.0 times as long", "yes"]


@pytest.mark.parametrize(
    ("errors", "text", "verdict"),
    [
        ((5.8, 6.0, 6.2), "3 seeds 6.00 %", "yes"),
        ((5.8, 6.0, 6.3), "3 seeds 6.03 %", "no"),
        ((5, 5), "2 seeds 5.00 %", "no"),
    ],
)
def test_the_race_counts_only_if_three_seeds_reach_94_per_cent(tmp_path, errors, text, verdict):
    write(tmp_path, "race94", race=line(**{"airbench94_muon": [12.0], "cifar-94": [10.0]}))
    path = tmp_path / "bench" / "race94.json"
    path.write_text(path.read_text().replace('"race"', '"preresnet12_w48, to the end of the recipe"'))
    (tmp_path / "cifar").mkdir()
    runs = [{"result": {"test": {"shifted": {"error": error}}}} for error in errors]
    (tmp_path / "cifar" / "preresnet12_w48-cifar-94.json").write_text(json.dumps({"runs": runs}))
    assert told(tmp_path, "CIFAR-10 to 94 %")[3:] == [f"1.20, mean test error of {text} with six views", verdict]


def test_the_error_of_make_train_is_that_of_the_published_runs():
    results = ROOT / "results"
    runs = json.loads((results / "cifar" / "preresnet12_w32-cifar-quick.json").read_text())["runs"]
    middle = sorted(run["result"]["test"]["error"] for run in runs)[len(runs) // 2]
    row = told(results, "test error of `make train`")
    assert row[1:3] == ["under 9.5 %", "under 8.75 %"]
    assert f"median {middle:.2f} %" in row[3]


def test_the_page_has_every_table_once():
    text = (ROOT / "docs" / "performance.md").read_text()
    for name in performance.TABLES:
        assert text.count(f"<!-- results: {name} -->") == 1
    assert tables.fill_page(text, ROOT / "results") == text, "run `make tables`"
    assert printable(text.replace("\n", "")) == text.replace("\n", "")
