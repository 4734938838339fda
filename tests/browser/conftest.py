"""A real Chromium with the network off, and reports to open in it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from adaptive_labels.lab.report import write_report
from run_maker import Maker, three_methods

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)

# Among 40 classes, so that the maps have to be thinned and zoomed.
CLASSES = [
    "AT", "DE", "BE", "NL", "<script>window.hacked = 1</script>", '"><img src=x onerror="window.hacked = 1">',
    "C & A", "ascii​\u2028line", *(f"class_{i:02d}" for i in range(32)),
]  # fmt: skip


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """The browser, one for all tests; without it or its driver they are skipped."""
    playwright = pytest.importorskip("playwright.sync_api", reason="the driver of the browser, playwright, is missing")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium on this machine")
    with playwright.sync_playwright() as driver:
        # Chromium's own sandbox cannot be had by root or in most containers; the pages are our own.
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reports")


@pytest.fixture(scope="session")
def page_file(folder: Path) -> Path:
    """Three methods by two seeds, with classes whose names are markup."""
    return write_report(three_methods(Maker(folder / "runs"), CLASSES, seeds=2), folder / "a report with spaces.html")


@pytest.fixture(scope="session")
def large_file(folder: Path) -> Path:
    """More classes than a map shows."""
    classes = [f"class {i}" for i in range(130)]
    run = Maker(folder / "large").whole("alr", 0, classes=classes, examples=2600)
    return write_report([run], folder / "large.html")


@pytest.fixture
def visit(chromium: Any) -> Iterator[Callable[..., Any]]:
    """Opens a file from the disk; whatever the page says, asks for or shows in a window of its own is in ``events``."""
    contexts = []

    def open_file(path: Path, width: int = 1200, **options: Any) -> Any:
        context = chromium.new_context(offline=True, viewport={"width": width, "height": 800}, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.events = []
        page.on("console", lambda message: page.events.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: page.events.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (page.events.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: page.events.append(f"request: {request.url}"))
        page.goto(path.as_uri())
        return page

    yield open_file
    for context in contexts:
        context.close()
