"""The finished report in the documentation: it stands alone, and the page that explains it keeps in step."""

from __future__ import annotations

import html
import os
import re
import runpy
import shutil
from pathlib import Path

import pandas as pd
import pytest

from fedsaddle.report import comparison

ROOT = Path(__file__).parents[2]
ASSETS = ROOT / "docs" / "assets"
EXAMPLE, SCRIPT = ASSETS / "example-report.html", ASSETS / "example_report.py"
SECTIONS = Path(comparison.__file__).with_name("sections")
MOST_BYTES, MOST_BYTES_OF_PICTURE = 300_000, 200_000
TABLE = Path(os.environ.get("FEDSADDLE_DATA", "none"), "tables", "uci-heart-disease.csv")


def titles(page: str) -> list[str]:
    return [html.unescape(found) for found in re.findall(r'<h2 id="[^"]*--title">(.*?)(?: *<a|</h2>)', page)]


def text_of(page: str) -> str:
    """What can be read, with single spaces."""
    bare = re.sub(r"<(script|style).*?</\1>", " ", page, flags=re.S)
    return " ".join(html.unescape(re.sub(r"<[^>]*>", "", bare)).split())


@pytest.fixture(scope="module")
def example() -> str:
    return EXAMPLE.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def explained() -> str:
    return (ROOT / "docs" / "report.md").read_text(encoding="utf-8")


def test_the_example_is_one_file_without_links_to_elsewhere(example):
    assert len(example.encode()) < MOST_BYTES
    assert "<html" in example
    links = re.findall(r"""(?:href|src|action|srcset)\s*=\s*["']?([^"'\s>]+)""", example)
    assert links
    assert [link for link in links if not link.startswith(("#", "data:"))] == []
    assert not re.findall(r"@import|url\(\s*['\"]?(?!data:|#)", example)


def test_the_example_names_no_path_of_a_machine(example):
    found = re.findall(r"(?<![\w<./-])/(?:home|root|tmp|work|usr|opt|var|mnt|Users)/[\w./-]*|[A-Z]:\\\\\w+", example)
    assert found == []


def test_every_section_of_a_report_is_explained(example, explained):
    shown = titles(example)
    assert len(shown) > 10
    written = [
        title
        for file in sorted(SECTIONS.glob("*.py"))
        for title in re.findall(r'Section\("[\w-]+", "([^"]+)"', file.read_text(encoding="utf-8"))
    ]
    assert set(shown) <= set(written), "make the example again: docs/assets/example_report.py"
    assert [title for title in dict.fromkeys(written) if title not in explained] == []


def test_what_is_quoted_stands_in_the_example(example, explained):
    quoted = re.findall(r"^> (.+)$", explained, re.M)
    assert len(quoted) > 4
    text = text_of(example)
    assert [line for line in quoted if line not in text] == []


def test_the_command_is_the_one_that_made_it(example, explained):
    command = runpy.run_path(str(SCRIPT))["COMMAND"]
    assert command in explained
    assert command in text_of(example)


def test_codes_become_words_and_zeros_that_mean_nothing_become_gaps():
    script = runpy.run_path(str(SCRIPT))
    codes = {name: [1.0, 0.0] for name in ("fbs", "exang", "restecg", "label", "sex")}
    codes |= {name: [3.0, None] for name in ("cp", "slope", "thal", "ca", "thalach", "oldpeak", "age")}
    table = script["in_words"](
        pd.DataFrame(codes | {"chol": [0.0, 200.0], "trestbps": [120.0, 0.0], "site": ["a", "b"]})
    )
    assert table["heart_disease"].tolist() == ["yes", "no"]
    assert table["sex"].tolist() == ["male", "female"]
    assert table["chest_pain"].isna().tolist() == [False, True]
    assert table["cholesterol"].isna().tolist() == [True, False]
    assert table["resting_blood_pressure"].isna().tolist() == [False, True]


@pytest.mark.parametrize("name", ["report-top.png", "report-sites.png"])
def test_the_pictures_are_small(name):
    content = (ASSETS / name).read_bytes()
    assert content.startswith(b"\x89PNG")
    assert len(content) < MOST_BYTES_OF_PICTURE


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.skipif(not TABLE.exists(), reason="needs tables/uci-heart-disease.csv in FEDSADDLE_DATA")
def test_the_example_can_be_made_again(tmp_path, example):
    runpy.run_path(str(SCRIPT))["main"](TABLE, tmp_path / "again.html")
    again = (tmp_path / "again.html").read_text(encoding="utf-8")
    assert titles(again) == titles(example)


@pytest.mark.slow
def test_the_pictures_can_be_taken_again(tmp_path):
    pytest.importorskip("playwright.sync_api")
    if shutil.which("chromium") is None:
        pytest.skip("needs Chromium")
    runpy.run_path(str(ASSETS / "report_pictures.py"))["main"](tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report-sites.png", "report-top.png"]
