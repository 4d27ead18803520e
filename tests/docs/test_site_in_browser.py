"""The site in a browser, from a web server and from files: search finds, nothing foreign is asked for, phones fit."""

import shutil
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

driver = pytest.importorskip("playwright.sync_api", reason="make test-browser installs the driver")
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium; make test-browser installs one"),
]
PATIENCE = 180_000  # milliseconds, for a machine that does other things


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture(params=["server", "files"])
def address(request, site):
    """Where the site begins."""
    if request.param == "files":
        yield site.as_uri()
        return
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=site)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def browser():
    with driver.sync_playwright() as play:
        running = play.chromium.launch(executable_path=CHROMIUM, timeout=PATIENCE)
        yield running
        running.close()


@pytest.fixture
def page(browser, address):
    said, asked = [], []
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    yield page
    context.close()
    assert said == []
    assert [url for url in asked if not url.startswith((address, "data:", "blob:", "about:"))] == []


def test_search_finds_a_page_and_opens_it(page, address):
    page.goto(f"{address}/index.html")
    page.locator(".md-search__input").click()
    page.keyboard.type("bottleneck", delay=20)
    results = page.locator(".md-search-result__link")
    results.first.wait_for(state="visible")
    assert "bottleneck" in results.first.inner_text().lower()
    results.filter(has_text="Glossary").first.click()
    page.wait_for_url("**/glossary.html*")


def test_pages_fit_a_phone_and_follow_the_dark_mode(page, address):
    page.set_viewport_size({"width": 390, "height": 800})
    page.emulate_media(color_scheme="dark")
    for name in ("index", "api", "performance", "scale", "tutorials/equation", "examples/detect"):
        page.goto(f"{address}/{name}.html")
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= 390, name
    page.goto(f"{address}/results.html")
    shown = page.locator("picture img").first.evaluate("e => e.currentSrc")
    assert shown.endswith("-dark.svg")
