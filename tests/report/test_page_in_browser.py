"""The page in a real browser: it draws, it answers clicks, it complains of nothing and asks the network for nothing."""

import shutil

import pytest

from resnets.cli import main
from resnets.papers.tables import EXPERIMENTS

pytest.importorskip("plotly", reason="the page needs resnets[report]")
driver = pytest.importorskip("playwright.sync_api", reason="make test-browser installs the driver")
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium; make test-browser installs one"),
]
PATIENCE = 180_000  # milliseconds, for a machine that does other things
BOX = "#from-resnet110-cifar10__budget_hour"


@pytest.fixture(scope="module")
def browser():
    with driver.sync_playwright() as play:
        running = play.chromium.launch(executable_path=CHROMIUM, timeout=PATIENCE)
        yield running
        running.close()


@pytest.fixture
def visit(browser, made_results, tmp_path):
    """Opens the page of the made-up results; at the end nothing may have been complained of or asked for."""
    out = tmp_path / "report.html"
    said, asked, contexts = [], [], []

    def open_page(width=1280, **settings):
        assert main(["report", str(made_results), "-o", str(out)]) == 0
        context = browser.new_context(viewport={"width": width, "height": 900}, **settings)
        contexts.append(context)
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(out.as_uri())
        page.locator("#curves-figure1").scroll_into_view_if_needed()
        page.wait_for_selector("#curves-figure1 .drawn .main-svg")
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
    assert not first.locator("ul").is_visible()
    first.locator("summary").click()
    assert "there is no result of" in first.locator("ul").inner_text()


def test_a_figure_zooms_tells_its_points_and_hides_curves(visit):
    page = visit()
    figure = page.locator("#curves-figure1 .plot")
    box = figure.locator(".nsewdrag").first.bounding_box()
    middle = box["y"] + box["height"] / 2
    point = figure.locator(".scatterlayer .point").first.bounding_box()
    page.mouse.move(point["x"], point["y"])
    page.mouse.move(point["x"] + point["width"] / 2, point["y"] + point["height"] / 2, steps=3)
    assert "seed 0, iteration 10" in figure.locator(".hovertext").text_content()
    span = "() => document.querySelector('#curves-figure1 .js-plotly-plot').layout.xaxis.range"
    before = page.evaluate(span)
    page.mouse.move(box["x"] + box["width"] / 3, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 2 / 3, middle, steps=5)
    page.mouse.up()
    page.wait_for_function(f"before => ({span})()[1] < before[1]", arg=before)
    figure.locator(".legendtoggle").first.click()
    page.wait_for_function("() => !document.querySelector('#curves-figure1 .scatterlayer .trace')")


def test_a_phone_scrolls_tables_and_not_the_page(visit):
    page = visit(width=390, has_touch=True, is_mobile=True)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert page.evaluate("document.querySelector('#curves-figure1 .js-plotly-plot').layout.dragmode") is False


def test_every_name_of_a_figure_is_seen(visit, made_results, write):
    """Eleven rows on a phone: no list of names that has to be scrolled, and room left for the curves."""
    for cell in EXPERIMENTS["table1"].cells:
        write(made_results, cell, "hour", (60.0,))
    page = visit(width=390)
    drawn = page.locator("#signals section", has_text="The rows of v2 Table 1, budget hour").locator("figure").first
    drawn.scroll_into_view_if_needed()
    names = drawn.locator(".legendtext")
    names.last.wait_for()
    assert names.count() == 11
    bars = drawn.locator(".legend .scrollbar").evaluate_all("bars => bars.map(bar => bar.getBBox().height)")
    assert max(bars, default=0) == 0
    assert drawn.locator(".nsewdrag").first.bounding_box()["height"] > 150


def test_dark_mode_turns_text_in_figures_light_and_print_turns_it_back(visit):
    page = visit(color_scheme="dark")
    text = "#curves-figure1 .xtick text"
    assert colour(page, "body", "backgroundColor") == "rgb(18, 20, 23)"
    assert colour(page, text, "fill") == "rgb(230, 230, 230)"
    page.emulate_media(media="print")
    assert colour(page, text, "fill") == "rgb(0, 0, 0)"
    assert page.locator(BOX).is_visible()  # on paper nothing can be clicked
    page.emulate_media(media="screen")
    assert page.pdf().startswith(b"%PDF")
    assert page.locator("figure.plot:not(.drawn)").count() == 0  # printing draws what was not seen yet
