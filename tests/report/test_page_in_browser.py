"""The page in a real browser: it fits, can be read, shows its values, and prints."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from example_page import example_page, forest_rows, progress, site_names, slider
from hostile_page import HOSTILE, hostile_page

from fedsaddle.report.page.render import render

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")]

WIDTHS = (400, 800, 1200, 1600)
CONTRAST = Path(__file__).with_name("contrast.js").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    options = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=options)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("pages")

    def store(name: str, html: str) -> str:
        path = folder / f"{name}.html"
        path.write_text(html, encoding="utf-8")
        return path.as_uri()

    return store


@pytest.fixture
def show(browser: Any, stored: Any) -> Iterator[Any]:
    """Open a page; what it logs, asks or loads is an error."""
    contexts, faults = [], []

    def opened(name: str, html: str, *, width: int = 1200, dark: bool = False, script: bool = True) -> Any:
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if dark else "light",
            java_script_enabled=script,
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: faults.append(message.text))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("dialog", lambda dialog: (faults.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: None if request.url.startswith("file:") else faults.append(request.url))
        page.goto(stored(name, html))
        return page

    yield opened
    for context in contexts:
        context.close()
    assert faults == []


def drawing(page: Any, key: str) -> Any:
    return page.locator(f'.drawing:has([data-key="{key}"])')


def pairs(page: Any) -> dict[str, str]:
    """What the tip says: names and values."""
    return {row[0]: row[-1] for row in (r.locator("span").all_inner_texts() for r in page.locator(".tip div").all())}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("sites", [12, 200])
def test_no_width_makes_the_page_scroll_sideways(show, width, sites):
    page = show(f"page{sites}", render(example_page(sites)), width=width)
    page.locator("summary").evaluate_all("all => all.forEach(one => one.parentElement.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    beyond = "all => all.filter(one => one.getBoundingClientRect().right > innerWidth + 1).length"
    assert page.locator(".figure, p, li, figcaption, .lines, .legend, .rows:not(.heat)").evaluate_all(beyond) == 0


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_texts_do_nothing(show, text):
    page = show("hostile", render(hostile_page(text)), width=400)
    assert page.evaluate("document.documentElement.scrollWidth") == 400
    for one in page.locator(".drawing").all():
        one.focus()
        for key in ("ArrowRight", "ArrowDown", "Home"):
            page.keyboard.press(key)
    assert page.locator("script").count() == 1


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_text_and_lines_have_contrast(show, dark):
    page = show("page12", render(example_page(12)), dark=dark)
    page.locator("summary").evaluate_all("all => all.forEach(one => one.parentElement.open = true)")
    measured = page.evaluate(CONTRAST)
    assert len(measured["texts"]) > 200
    assert len(measured["lines"]) > 20
    assert [found for found in measured["texts"] if found["ratio"] < 4.5] == []
    assert [found for found in measured["lines"] if found["ratio"] < 3] == []


def test_pointing_at_a_line_chart_shows_the_values(show):
    page = show("page12", render(example_page(12)))
    chart = drawing(page, "progress")
    chart.scroll_into_view_if_needed()
    box = chart.locator(".plot").bounding_box()
    for at in (0, 17, 59):
        page.mouse.move(box["x"] + box["width"] * at / 59 + 1, box["y"] + 3)
        assert page.locator(".tip b").inner_text() == f"rounds of training: {at}"
        for name, end, seed in (("the chosen model", 0.83, 1), ("FedAvg", 0.80, 2)):
            y = progress(seed, end)[at]
            numbers = [float(n) for n in re.findall(r"[\d.]+", pairs(page)[name])]
            assert numbers == pytest.approx([y, y - 0.02, y + 0.02], abs=6e-4)
    page.mouse.move(5, 5)
    assert page.locator(".tip").is_hidden()


def test_gaps_and_far_values_are_not_made_up(show):
    page = show("page12", render(example_page(12)))
    drawing(page, "odd").focus()
    found = []
    for _ in range(5):
        page.keyboard.press("ArrowRight")
        found.append((page.locator(".tip b").inner_text(), pairs(page)))
    assert [title for title, _ in found] == [f"step size: {x}" for x in ("1", "10", "30", "100", "1,000")]
    at_one, at_ten, at_thirty, at_hundred, at_thousand = (values for _, values in found)
    assert at_one["with gaps"] == "0.10"
    assert at_ten["with gaps"] == "1.00"
    assert not {"with gaps", "far away", "empty", "one point"} & set(at_thirty)
    assert at_thirty["fifth"] == "5.20"
    assert at_hundred["one point"] == "3.00"
    assert at_hundred["fifth"].startswith("≈ ")
    assert at_thousand["far away"] == "off the chart"


def test_thin_lines_are_named(show):
    page = show("page12", render(example_page(12)))
    chart = drawing(page, "progress")
    chart.scroll_into_view_if_needed()
    box = chart.locator(".plot").bounding_box()
    best = max(range(12), key=lambda i: progress(i + 9, 0.74 + 0.012 * (i % 13))[50])
    value = progress(best + 9, 0.74 + 0.012 * (best % 13))[50]
    page.mouse.move(box["x"] + box["width"] * 50 / 59, box["y"] + box["height"] * (0.95 - value) / 0.5 - 2)
    assert float(pairs(page)[site_names(12)[best]]) == pytest.approx(value, abs=6e-4)
    chart.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert site_names(12)[1] in pairs(page)


def test_keys_walk_a_line_chart_and_say_the_values(show):
    page = show("page12", render(example_page(12)))
    drawing(page, "progress").focus()
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    said = page.locator(".unseen[role=status]").inner_text()
    assert said.startswith("rounds of training: 2; ")
    assert f"the chosen model: {progress(1, 0.83)[2]:.3f}" in said
    page.keyboard.press("End")
    assert page.locator(".tip b").inner_text() == "rounds of training: 59"
    page.keyboard.press("Escape")
    assert page.locator(".tip").is_hidden()


def test_keys_walk_rows_and_cells(show):
    page = show("page200", render(example_page(200)))
    chart = drawing(page, "forest-200")
    chart.focus()
    for _ in range(180):
        page.keyboard.press("ArrowDown")
    row = forest_rows(200)[179]
    assert page.locator(".tip b").inner_text() == row.name
    assert pairs(page)["rows"] == row.counts[0]
    assert pairs(page)["the chosen model"] == f"{row.value:.2f} ({row.low:.2f} to {row.high:.2f})"
    box, here = chart.bounding_box(), chart.locator("tr.here").bounding_box()
    assert box["y"] < here["y"] < box["y"] + box["height"]
    head = chart.locator("thead th").first.bounding_box()
    assert abs(head["y"] - box["y"]) < 3  # stays in view
    drawing(page, "missing").focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    assert page.locator(".tip b").inner_text() == site_names(2)[1]
    assert pairs(page) == {"lactate": "80 %"}
    drawing(page, "weights").focus()
    page.keyboard.press("End")
    assert pairs(page) == {"weight": "-0.12"}


def test_each_drawing_is_one_stop_of_the_tab_key(show):
    page = show("page200", render(example_page(200)))
    inside = page.locator(".drawing [tabindex], .drawing a, .drawing button, .drawing input").count()
    assert (inside, page.locator('.drawing[tabindex="0"]').count()) == (0, 6)


def test_the_slider_computes_the_figures(show):
    page = show("page12", render(example_page(12)))
    data, box = slider(), page.locator(".slider input")
    assert page.locator(".threshold details").get_attribute("open") is None

    def check(i: int) -> None:
        tp, fp = data.true_positives[i], data.false_positives[i]
        fn, tn = data.positives - tp, data.negatives - fp
        wanted = {
            "sensitivity": f"{100 * tp / data.positives:.1f} %",
            "specificity": f"{100 * tn / data.negatives:.1f} %",
            "ppv": f"{100 * tp / (tp + fp):.1f} %",
            "npv": f"{100 * tn / (tn + fn):.1f} %",
            "alarms": f"{100 * (tp + fp) / (data.positives + data.negatives):.1f}",
        }
        shown = page.locator("[data-figure]").evaluate_all("all => all.map(c => [c.dataset.figure, c.textContent])")
        assert dict(shown) == wanted
        assert page.locator(".slider .at").inner_text() == f"{100 * data.thresholds[i]:.1f} %"
        words = page.locator(".slider .words").inner_text()
        assert f"Of 100 rows with the outcome, {100 * tp / data.positives:.0f} are found" in words

    chosen = min(range(120), key=lambda i: abs(data.thresholds[i] - data.chosen))
    check(chosen)
    box.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    check(chosen + 2)
    page.keyboard.press("End")
    check(119)
    page.get_by_text("Back to the run's threshold").click()
    check(chosen)


def test_without_scripts_the_page_is_complete(show):
    page = show("page12", render(example_page(12)), script=False)
    assert page.locator(".slider").is_hidden()
    assert page.locator(".threshold table.plain").last.is_visible()
    assert page.locator(".copy").is_hidden()
    assert page.locator(".chart details summary").first.is_visible()


def printed(page: Any, folder: Path) -> tuple[list[str], list[float]]:
    """The text and the share of ink of each page on paper."""
    path = folder / "page.pdf"
    page.pdf(path=str(path), prefer_css_page_size=True)
    told = subprocess.run(["pdfinfo", str(path)], capture_output=True, text=True, check=True).stdout
    assert "A4" in told
    texts = subprocess.run(["pdftotext", "-layout", str(path), "-"], capture_output=True, text=True, check=True).stdout
    subprocess.run(["pdftoppm", "-r", "30", "-gray", str(path), str(folder / "sheet")], check=True)
    pictures = [file.read_bytes() for file in sorted(folder.glob("sheet*.pgm"))]
    pixels = [picture.split(b"255\n", 1)[1] for picture in pictures]
    return texts.split("\f")[:-1], [sum(p < 250 for p in sheet) / len(sheet) for sheet in pixels]


@pytest.mark.skipif(shutil.which("pdftoppm") is None, reason="needs poppler")
@pytest.mark.parametrize(("sites", "most"), [(12, 7), (200, 20)])
def test_it_prints_on_a4(show, tmp_path, sites, most):
    page = show(f"page{sites}", render(example_page(sites)), dark=True)
    texts, ink = printed(page, tmp_path)
    assert len(texts) == len(ink) <= most
    assert min(ink) > 0.003
    assert max(ink) < 0.4  # light, though the screen is dark
    for title, end in (
        ("AUROC on validation rows, round by round", "rounds of training"),
        ("Eight styles over a log axis", "step size"),
        ("Predicted and observed risk", "predicted risk"),
        ("Columns with the largest weights", "urine output"),
        ("Missing cells by site and column", "Hull"),
    ):
        (sheet,) = [text for text in texts if title in text]
        assert end in sheet[sheet.index(title) :]
    whole = "\n".join(texts)
    names = site_names(sites)
    assert all(re.search(rf"^\s*{name}\s", whole, re.MULTILINE) for name in names)
    assert "Raise an alarm at" not in whole
    assert "54.5 %" in whole  # the last row of the slider's table
    started = next(i for i, text in enumerate(texts) if f"AUROC at each of {sites} sites" in text)
    ended = next(i for i, text in enumerate(texts) if "A square is a site" in text)
    assert all("value (interval)" in text for text in texts[started : ended + 1])
