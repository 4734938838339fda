"""Draw the picture of the README from a fresh comparison: `make pictures`.

It is the first screen of the report of `alr compare towns`, 1,280 pixels wide. Finished runs are not run again.
"""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

from adaptive_labels import compare
from adaptive_labels.lab.report import write_report

IMAGES = Path(__file__).parent / "images"
WIDTH, HEIGHT = 1280, 960


def main(out: Path) -> None:
    """Compare in ``out``, and take the picture of the report."""
    report = write_report(compare("towns", out=out), out / "report.html")
    browsers = filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome")))
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=next(browsers, None), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.goto(report.resolve().as_uri())
        page.screenshot(path=IMAGES / "report.png")
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs"))
