"""The page in a real browser: it draws, it answers clicks and keys, it complains of nothing and asks the network for
nothing, and axe-core finds nothing that keeps people out."""

import json
import os
import shutil
from pathlib import Path

import pytest

from resnets.cli import main

driver = pytest.importorskip("playwright.sync_api", reason="make test-browser installs the driver")
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium; make test-browser installs one"),
]
PATIENCE = 180_000  # milliseconds, for a machine that does other things
BOX = "#from-resnet110-cifar10__budget_hour"
ROOT = Path(__file__).parents[2]
AXE = ROOT / "build" / "axe" / "node_modules" / "axe-core" / "axe.min.js"
WIDTHS = {"phone": 390, "tablet": 820, "desktop": 1440}


@pytest.fixture(scope="module")
def browser():
    with driver.sync_playwright() as play:
        sandbox = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
        running = play.chromium.launch(executable_path=CHROMIUM, timeout=PATIENCE, args=sandbox)
        yield running
        running.close()


@pytest.fixture
def visit(browser, made_results, tmp_path):
    """Opens the page of results; at the end nothing may have been complained of or asked for."""
    out = tmp_path / "report.html"
    said, asked, contexts = [], [], []

    def open_page(results=made_results, width=1280, place="", **settings):
        assert main(["report", str(results), "-o", str(out)]) == 0
        context = browser.new_context(viewport={"width": width, "height": 900}, **settings)
        contexts.append(context)
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(out.as_uri() + place)
        page.wait_for_selector("#found .plot > svg")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert said == []
    assert [url for url in asked if not url.startswith((out.as_uri(), "data:", "blob:"))] == []


def colour(page, selector, what):
    return page.eval_on_selector(selector, f"e => getComputedStyle(e).{what}")


def test_clicks_open_where_a_number_comes_from_and_the_reasons_of_a_verdict(visit):
    page = visit()
    assert not page.locator(BOX).is_visible()
    page.locator("#table1 td button").first.click()
    assert "resnets reproduce table1 --budget hour" in page.locator(BOX).inner_text()
    page.locator(f"{BOX} .close").click()
    assert not page.locator(BOX).is_visible()
    page.locator("#table1 td button").first.press("Enter")  # by the keyboard too
    page.keyboard.press("Escape")
    assert not page.locator(BOX).is_visible()
    first = page.locator("#observations details").first
    assert not first.locator("ul").first.is_visible()
    first.locator("summary").press("Enter")
    assert "there is no result of" in first.locator("ul").first.inner_text()


def test_a_chart_tells_its_values_and_hides_lines(visit):
    page = visit()
    chart = page.locator("#curves-figure1 .chart")
    drawing = chart.locator(".plot > svg")
    drawing.focus()
    for expected in ("at 20: dashed 2, 85", "at 30: dashed 1.5, 80"):  # from the first point on
        page.keyboard.press("ArrowRight")
        assert chart.locator("output").inner_text() == expected
    box = drawing.bounding_box()
    page.mouse.move(box["x"] + box["width"] - 45, box["y"] + 100)
    assert chart.locator("output").inner_text() == "at 40: dashed 1.2, 70"
    assert chart.locator(".line").count() == 2
    button = chart.locator(".legend button")
    button.press("Enter")
    assert button.get_attribute("aria-pressed") == "false"
    assert chart.locator(".line").count() == 0
    button.press("Enter")
    assert chart.locator(".line").count() == 2


def test_the_explorer_shows_what_the_keyboard_chooses(visit):
    page = visit(place="#explorer=identity|original|basic|20;scale:0.5:1|original|basic|20")
    one, other = page.locator("[data-side=a]"), page.locator("[data-side=b]")
    assert one.locator(".product").all_text_contents() == ["1", "1"]
    assert other.locator(".product").all_text_contents() == ["0.125", "0.125"]  # 0.5 to the third, in (7) and (8)
    assert other.locator(".unit-drawing").get_attribute("aria-label").endswith("After the addition: ReLU.")
    assert "let through 12.5 % of the signal" in other.locator(".meaning").inner_text()
    assert "fails" not in one.locator(".facts").inner_text()
    layers = one.locator("select[name=layers]")
    layers.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert layers.input_value() == "110"
    facts = one.locator(".facts").inner_text()
    assert "6.61 % (v2 Table 1)" in facts
    assert "60.20 ± 0.14" in facts
    assert "2 seeds" in facts
    assert "identity%7Coriginal%7Cbasic%7C110" in page.url
    assert page.locator("[data-chart=training] .line").count() == 2  # the loss and the error of A


def test_the_explorer_offers_only_what_was_analysed(visit):
    page = visit()
    unit = page.locator("[data-side=b]")
    unit.locator("select[name=layers]").select_option("1001")
    assert unit.locator("select[name=kernels]").input_value() == "bottleneck"
    disabled = unit.locator("select[name=shortcut] option").evaluate_all(
        "all => all.filter(o => o.disabled).map(o => o.value)"
    )
    assert disabled == ["plain", "conv1x1", "dropout:0.5:false"]
    unit.locator("select[name=layers]").select_option("56")
    unit.locator("select[name=shortcut]").select_option("plain")
    assert unit.locator("select[name=order] option:not(:disabled)").count() == 1
    page.locator(".lessons button", has_text="1001 layers").press("Enter")
    assert unit.locator("select[name=order]").input_value() == "full_preact"


def test_every_unit_of_the_published_page_is_drawn_with_its_numbers(visit):
    """Chooses every shortcut, order and form of F at 110 layers, and compares the product shown with the file."""
    page = visit(results=ROOT / "results")
    shown = page.evaluate(
        """() => {
          const unit = document.querySelector("[data-side=b]");
          const data = JSON.parse(document.getElementById("explorer-data").textContent);
          const found = {};
          for (const key of Object.keys(data.pictures)) {
            const [shortcut, order, kernels] = key.split("|");
            for (const option of unit.querySelectorAll("option")) option.disabled = false;
            for (const [name, value] of Object.entries({ shortcut, order, kernels, layers: "110" })) {
              unit.querySelector(`select[name=${name}]`).value = value;
            }
            unit.dispatchEvent(new Event("change"));
            const boxes = unit.querySelectorAll(".unit-drawing rect").length;
            found[key] = [unit.querySelector(".product").textContent, boxes];
          }
          return found;
        }"""
    )
    checked = 0
    for path in (ROOT / "results" / "analysis" / "units").glob("110-*.json"):
        file = json.loads(path.read_text())
        first = next(a for a, b in file["spans"] if b > a)
        for one in file["signals"]:
            text, boxes = shown[f"{one['shortcut']}|{one['order']}|{file['kernels']}"]
            mantissa, _, power = text.partition(" · 10")
            digits = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
            value = float(mantissa) * 10 ** int(power.translate(digits) or 0)
            assert value == pytest.approx(one["product"][file["at"].index(first)], rel=6e-3)
            assert boxes >= 2
            checked += 1
    assert checked == len(shown)


@pytest.mark.parametrize("width", WIDTHS)
def test_no_width_scrolls_the_page_sideways(visit, width):
    page = visit(results=ROOT / "results", width=WIDTHS[width])
    assert page.evaluate("document.documentElement.scrollWidth") == WIDTHS[width]
    for drawing in page.locator(".unit-drawing").all():
        assert drawing.bounding_box()["width"] <= WIDTHS[width]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", ["phone", "desktop"])
def test_axe_finds_no_barrier(visit, scheme, width):
    """Contrast, names, landmarks, order of headings: every rule of axe-core, with all folds open."""
    if not AXE.exists():
        pytest.skip("there is no axe-core; make test-browser installs it")
    page = visit(results=ROOT / "results", width=WIDTHS[width], color_scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    page.wait_for_function("() => [...document.querySelectorAll('.plot')].every(p => p.querySelector('svg'))")
    page.evaluate(AXE.read_text())
    found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    barriers = [
        (one["id"], one["nodes"][0]["target"], one["nodes"][0]["failureSummary"]) for one in found["violations"]
    ]
    assert barriers == []


def test_dark_mode_turns_text_in_charts_light_and_print_turns_it_back(visit):
    page = visit(color_scheme="dark")
    text = "#found .plot .title"
    assert colour(page, "body", "backgroundColor") == "rgb(18, 20, 23)"
    assert colour(page, text, "fill") == "rgb(230, 230, 230)"
    page.emulate_media(media="print")
    assert colour(page, text, "fill") == "rgb(0, 0, 0)"
    assert page.locator(BOX).is_visible()  # on paper nothing can be clicked
    page.emulate_media(media="screen")
    assert page.pdf().startswith(b"%PDF")
    assert page.locator(".plot:not(:has(svg))").count() == 0  # printing draws what was not seen yet
