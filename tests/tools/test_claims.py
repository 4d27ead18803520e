"""README's claims, chart and Table 1 as bars, from made-up results; and the estimated costs of the tables."""

import json

import pytest

import resnets
from resnets.describe.drawing import draw_kinds, kinds
from resnets.papers.tables import EXPERIMENTS
from tools.tables import claims, scale
from tools.tables import pages as tables

GIB = 2**30
ORIGIN = {
    "rounds": 2,
    "machine": {"cpu": "CPU", "cores": 2},
    "versions": {"torch": "2"},
    "commit": "c",
    "began": "2026-01-01",
}


@pytest.fixture
def results(tmp_path):
    """timm takes twice and three times as long as ours, and ten times the memory."""
    bench = tmp_path / "bench"
    bench.mkdir()
    step = {
        "preresnet20, batch 128": {"timm": {"seconds": [2.0, 4.0]}, "fast": {"seconds": [1.0, 2.0]}},
        "preresnet164, batch 128": {"timm": {"seconds": [3.0, 3.0]}, "fast": {"seconds": [1.0, 1.0]}},
    }
    peaks = {"timm": (20.0, 3.0), "lean": (8.0, 1.0), "min": (2.0, 2.0)}
    memory = {claims.DEEPEST: {w: {"peak": [g * GIB] * 2, "seconds": [s] * 2} for w, (g, s) in peaks.items()}}
    for name, lines in (("step", step), ("memory", memory)):
        record = {"lines": {line: {"contestants": found, **ORIGIN} for line, found in lines.items()}}
        (bench / f"{name}.json").write_text(json.dumps(record))
    return tmp_path


def test_claims_are_what_was_measured(results):
    speed, memory, papers = claims.write_claims(results).splitlines()
    assert "**2.0 to 3.0 times as fast as timm** in training 2 networks" in speed
    assert "on 2 cores of an CPU" in speed
    assert "**1001 layers in 2.0 GiB** at batch 128, where timm takes 20.0 GiB and 1.5 times as long" in memory
    rows = {row for experiment in EXPERIMENTS.values() for row in experiment.rows}
    assert f"{len(EXPERIMENTS)} tables and figures with {len(rows)} rows, 0 of which have been run" in papers


def test_without_measurements_nothing_is_claimed(tmp_path):
    assert claims.write_claims(tmp_path).count("Not measured yet") == 2
    assert "Not measured yet" in claims.write_chart(tmp_path)
    assert "has not been run yet" in claims.write_bars(tmp_path)
    claims.draw(tmp_path)
    assert not list(tmp_path.rglob("*.svg"))


def test_the_chart_is_drawn_for_light_and_dark(results):
    pytest.importorskip("matplotlib")
    claims.draw(results)
    light, dark = ((results / "bench" / f"claims{theme}.svg").read_text() for theme in ("", "-dark"))
    for text in (light, dark):
        assert "preresnet164" in text
        assert "20.0 GiB" in text
    assert "#e6e6e6" in dark
    assert "preresnet20 2.00, preresnet164 3.00" in claims.write_chart(results)


def test_a_page_in_a_folder_links_from_there(results):
    page = "<!-- results: claims-chart -->\n<!-- end -->\n<!-- results: claims -->\n<!-- end -->"
    for folder, root, docs in (("", "", "docs/"), ("docs", "../", ""), ("docs/tutorials", "../../", "../")):
        text = tables.fill_page(page, results, folder)
        assert f'src="{root}results/bench/claims.svg"' in text
        assert f"]({docs}performance.md)" in text


def test_the_unit_is_the_one_that_info_draws():
    info = draw_kinds(kinds(resnets.spec_of("preresnet110").units()))
    _, title, *drawn, _ = claims.write_unit(None).splitlines()
    assert title == "v1: resnet110            v2: preresnet110"
    assert len(drawn) > 12
    for line in drawn:
        assert line[25:] in info


def test_costs_follow_from_multiply_adds():
    """Table 2's original unit of 110 layers by hand: 253 million multiply-adds, 64,000 steps of 128, five runs."""
    row = next(row for row in EXPERIMENTS["table1"].rows if row.name == "resnet110-cifar10")
    cost = scale.price(row)
    training = 5 * 64_000 * 128 * 3 * 253e6
    assert cost.operations == pytest.approx(training, rel=0.1)  # and the tests after each epoch
    assert cost.operations > training
    assert cost.seconds == pytest.approx(2 * cost.operations / (19.5e12 * 0.4), rel=1e-6)
    name, rows, operations, one, eight = scale.write_line("table1", [EXPERIMENTS["table1"]])
    assert (name, rows) == ("table1", str(len(EXPERIMENTS["table1"].rows)))
    assert float(operations) > 10 * cost.operations  # eleven rows, one of them without a shortcut
    assert float(one) > float(eight) > float(one) / 8
