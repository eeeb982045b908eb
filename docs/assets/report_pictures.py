"""Photograph example-report.html for the documentation: report-top.png and report-sites.png.

python docs/assets/report_pictures.py [FOLDER]

Needs Chromium and `pip install ".[browser]"`. The first is the top of the page, light; the second the threshold slider
and the plot of the sites, dark.
"""

from __future__ import annotations

import shutil
import sys
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

HERE = Path(__file__).parent
PAGE = HERE / "example-report.html"
TOP, SITES = "report-top.png", "report-sites.png"
WIDTH, COLOURS = 1200, 64


def top(page: Page) -> bytes:
    """From the title to the cautions."""
    return page.screenshot(
        clip={"x": 0, "y": 0, "width": WIDTH, "height": _end(page, ".cautions") + 24}, full_page=True
    )


def sites(page: Page) -> bytes:
    """The slider, and below it the sites."""
    parts = [page.locator(selector).first.screenshot() for selector in (".slider", "#sites figure")]
    return _below(*(Image.open(BytesIO(part)) for part in parts))


def _end(page: Page, selector: str) -> float:
    box = page.locator(selector).first.bounding_box()
    assert box is not None, f"there is no {selector} on the page"
    return box["y"] + box["height"]


def _below(*parts: Image.Image) -> bytes:
    edge, ground = 24, parts[-1].convert("RGB").getpixel((0, 0))
    size = max(part.width for part in parts) + 2 * edge, sum(part.height + edge for part in parts) + edge
    sheet, y = Image.new("RGB", size, ground), edge
    for part in parts:
        sheet.paste(part.convert("RGB"), (edge, y))
        y += part.height + edge
    file = BytesIO()
    sheet.save(file, "png")
    return file.getvalue()


def main(folder: Path = HERE) -> None:
    """Take both pictures."""
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, scheme, take in ((TOP, "light", top), (SITES, "dark", sites)):
            page = browser.new_page(viewport={"width": WIDTH, "height": 900}, color_scheme=scheme)
            page.goto(PAGE.as_uri())
            few = Image.open(BytesIO(take(page))).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
            few.save(folder / name, optimize=True)
            print(f"{name}: {(folder / name).stat().st_size:,} bytes")
        browser.close()


if __name__ == "__main__":
    main(*(Path(path) for path in sys.argv[1:2]))
