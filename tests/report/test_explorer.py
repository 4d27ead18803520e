"""The unit explorer: its data are the committed analyses and results, and the page keeps its promises."""

import json
import re
from html import unescape
from pathlib import Path

import pytest

from resnets import records
from resnets.cli import main
from resnets.describe.drawing import kinds
from resnets.papers.tables import EXPERIMENTS
from resnets.papers.variants import Variant, list_groups, list_variants, variant_of
from resnets.report.page.chart import POINTS
from resnets.report.page.equations import find_constant, write_addition, write_after
from resnets.report.page.explorer import LESSONS, START, collect, write_key
from resnets.report.page.inputs import read_inputs
from resnets.unit_spec import KERNELS, parse_shortcut

ROOT = Path(__file__).parents[2]
UNITS = ROOT / "results" / "analysis" / "units"
MOST = 3_000_000  # bytes of the page
NAMESPACES = {"http://www.w3.org/2000/svg"}  # a name and no address: the browser fetches nothing


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """The text of the page of the committed results."""
    out = tmp_path_factory.mktemp("page") / "report.html"
    assert main(["report", str(ROOT / "results"), "-o", str(out)]) == 0
    return out.read_text()


@pytest.fixture(scope="module")
def data():
    return collect(read_inputs([ROOT / "results"]))


def test_the_committed_analyses_have_every_variant():
    assert {path.stem for path in UNITS.glob("*.json")} == {f"{layers}-{kernels}" for layers, kernels in list_groups()}
    for layers, kernels in list_groups():
        found = records.SIGNALS.read(UNITS / f"{layers}-{kernels}.json")
        there = [Variant(one["shortcut"], one["order"], kernels, layers) for one in found["signals"]]
        assert there == list(list_variants(layers, kernels))
        assert not found["provenance"]["commit"].endswith("+")
    assert sum(path.stat().st_size for path in UNITS.glob("*.json")) < 2_000_000


def test_the_explorer_has_the_numbers_of_the_files(data):
    for layers, kernels in list_groups():
        file = json.loads((UNITS / f"{layers}-{kernels}.json").read_text())
        group = data["signals"][f"{layers}-{kernels}"]
        assert (group["at"], group["spans"]) == (file["at"], file["spans"])
        for one in file["signals"]:
            shown = group["units"][f"{one['shortcut']}|{one['order']}"]
            assert shown == {name: one[name] for name in shown}


def test_the_product_of_a_constant_factor_is_its_power():
    """Equations (7) and (8) for identity, scaling and plain nets, in float64 here."""
    checked = 0
    for layers, kernels in list_groups():
        file = json.loads((UNITS / f"{layers}-{kernels}.json").read_text())
        for one in file["signals"]:
            factor = find_constant(parse_shortcut(one["shortcut"]))
            if factor is None:
                continue
            for first, last in file["spans"]:
                for i, at in enumerate(file["at"]):
                    if first <= at <= last:
                        assert one["product"][i] == pytest.approx(factor ** (last - at), rel=1e-3)
                        checked += 1
    assert checked > 5000


def test_every_variant_has_the_picture_of_info(data):
    for kernels in KERNELS:
        for variant in list_variants(56, kernels):
            (usual, *_) = kinds(variant.spec.units())
            assert data["pictures"][f"{variant.shortcut}|{variant.order}|{kernels}"] == usual.picture.to_dict()


def test_rows_of_the_papers_have_their_number_and_ours_at_the_best_budget(data):
    inputs = read_inputs([ROOT / "results"])
    for experiment in EXPERIMENTS.values():
        for cell in experiment.cells:
            variant = variant_of(cell.row) if cell.row else None
            if variant is None:
                continue
            shown = data["rows"][write_key(variant)]
            assert shown["row"] == cell.row.name
            one = inputs.find_best(cell.row.name)
            assert ("ours" in shown) == (one is not None)
            if one:
                run = next(run for run in one.runs if "failed" not in run["result"])
                assert shown["budget"] == one.budget
                assert f"{len(one.runs)} seed" in shown["ours"]
                steps, losses = run["curves"]["loss"]
                assert len(shown["curves"]["loss"]["x"]) <= POINTS + 1
                for step, loss in zip(*shown["curves"]["loss"].values(), strict=True):
                    assert loss == pytest.approx(losses[steps.index(step)], rel=1e-3)
                assert shown["size"] == run["signal"]["size"]
    assert data["rows"]["identity|full_preact|bottleneck|1001"]["paper"] == "4.92 %"
    assert data["rows"]["plain|original|basic|110"]["paper"] == "fails"


def test_lessons_compare_units_that_were_analysed(data):
    for pair in (START, *LESSONS.values()):
        for variant in pair:
            assert variant in list_variants(variant.layers, variant.kernels)


def test_signals_of_trained_rows_are_shown_with_their_row(made_results):
    path = made_results / "analysis" / "units" / "20-basic.json"
    trained = json.loads(path.read_text()) | {"row": "resnet110-cifar10", "budget": "hour", "trained_with_seed": 0}
    del trained["signals"][1]
    (made_results / "trained.json").write_text(json.dumps(trained))
    row = collect(read_inputs([made_results]))["rows"]["identity|original|basic|110"]
    assert row["trained"]["gradient"] == trained["signals"][0]["gradient"]
    (made_results / "again.json").write_text(json.dumps(trained))
    with pytest.raises(Exception, match="hold the same signals"):
        read_inputs([made_results])


@pytest.mark.parametrize(
    ("shortcut", "words"),
    [
        ("identity", "yl=xl+ℱ(xl,𝒲l)"),
        ("scale:0.5:0.5", "yl=0.5xl+0.5ℱ(xl,𝒲l)"),
        ("scale:0.5:1", "yl=0.5xl+ℱ(xl,𝒲l)"),
        ("exclusive_gate:-6", "yl=(1−g(xl))xl+g(xl)ℱ(xl,𝒲l)"),
        ("shortcut_gate:0", "yl=(1−g(xl))xl+ℱ(xl,𝒲l)"),
        ("conv1x1", "yl=Wsxl+ℱ(xl,𝒲l)"),
        ("dropout:0.5", "yl=ml⊙xl+ℱ(xl,𝒲l)"),
        ("plain", "yl=ℱ(xl,𝒲l)"),
    ],
)
def test_equation_1_has_the_shortcut_filled_in(shortcut, words):
    assert re.sub("<[^>]*>", "", write_addition(parse_shortcut(shortcut))) == words


def test_equation_2_has_f_filled_in():
    found = {order: re.sub("<[^>]*>", "", write_after(order)) for order in ("original", "bn_after_add", "full_preact")}
    assert found == {"original": "xl+1=ReLU(yl)", "bn_after_add": "xl+1=ReLU(BN(yl))", "full_preact": "xl+1=yl"}


# --- the whole page ---------------------------------------------------------------------------


def test_the_page_is_small_and_names_no_address(published):
    assert len(published.encode()) < MOST
    assert set(re.findall(r"\bhttps?://[^\s\"'<>)]*", published)) <= NAMESPACES
    assert not re.search(r"\b(fetch|XMLHttpRequest|WebSocket|EventSource|sendBeacon|import)\s*\(", published)
    assert not re.search(r"@import|url\(", published)
    assert "default-src 'none'" in unescape(published)


def test_every_link_of_the_published_page_leads_somewhere(published, read_page):
    page = read_page(published)
    assert page.targets <= set(page.ids)
    assert len(set(page.ids)) == len(page.ids)
    assert not page.outside
    assert len(page.explorer["signals"]) == len(list_groups())


def test_the_colours_of_charts_are_those_of_the_style_sheet(published):
    from resnets.report.page.chart import COLOURS

    found = re.findall(r"^\.c(\d) \{ --mark: (#[0-9a-f]{6}); \}$", published, re.MULTILINE)
    assert found == [(str(i), colour) for i, colour in enumerate(COLOURS)]
