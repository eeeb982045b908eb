"""The page of a report: what others wrote stays text, drawings have words, and odd values draw."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import math
import re
from collections import Counter
from html.parser import HTMLParser
from importlib.resources import files
from typing import Any, get_args

import pytest
from example_page import example_page
from hostile_page import HOSTILE, hostile_page
from markupsafe import Markup

from fedsaddle.report.page.charts import Bar, ChartAxis, ForestRow, Line, bars, forest, heat_map, line_chart
from fedsaddle.report.page.parts import (
    Block,
    Chart,
    Page,
    PageTable,
    Section,
    ThresholdSlider,
    clean,
    compact,
    tag,
)
from fedsaddle.report.page.render import KINDS, column_kinds, render


class Elements(HTMLParser):
    """What a page is made of, as a browser reads it."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.open: list[str] = []
        self.unbalanced: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in {"meta", "input", "br", "col"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.unbalanced.append(tag)

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def handle_comment(self, data: str) -> None:
        self.unbalanced.append(f"comment {data}")

    @property
    def skeleton(self) -> Counter[tuple[str, tuple[str, ...]]]:
        """Elements and the names of their attributes, which no text may change."""
        return Counter((name, tuple(sorted(attributes))) for name, attributes in self.found)

    def having(self, key: str) -> list[dict[str, str | None]]:
        return [attributes for _, attributes in self.found if key in attributes]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_what_others_wrote_stays_text(text):
    usual, found = Elements(render(hostile_page("plain"))), Elements(render(hostile_page(text)))
    assert found.unbalanced == found.open == []
    assert {name for name, _ in found.skeleton} <= {name for name, _ in usual.skeleton}
    assert {key for _, attributes in found.found for key in attributes} <= {"title"} | {
        key for _, attributes in usual.found for key in attributes
    }
    shown = clean(text)
    if shown.strip():
        assert sum(shown in piece for piece in found.text) > 40


def test_a_longer_name_adds_a_title_alone():
    usual, found = Elements(render(hostile_page("plain"))), Elements(render(hostile_page("a name of 23 characters")))
    without = Counter((name, tuple(key for key in keys if key != "title")) for name, keys in found.skeleton.elements())
    assert without == usual.skeleton


@pytest.mark.parametrize("text", ["plain", *HOSTILE], ids=range(len(HOSTILE) + 1))
def test_a_page_can_be_written_and_has_no_hidden_characters(text):
    html = render(hostile_page(text))
    html.encode("utf-8")
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", html)


@pytest.mark.parametrize("sites", [12, 200])
def test_a_page_holds_together(sites):
    page = example_page(sites)
    html = render(page)
    found = Elements(html)
    assert found.unbalanced == found.open == []
    ids = [str(attributes["id"]) for attributes in found.having("id")]
    assert len(ids) == len(set(ids))
    for key in ("href", "for", "list", "aria-labelledby", "aria-describedby"):
        assert {str(attributes[key]).removeprefix("#") for attributes in found.having(key)} <= set(ids)
    assert not {name for name, _ in found.found} & {"link", "img", "iframe", "object", "embed", "base", "form", "image"}
    assert not found.having("src")
    assert "http" not in re.sub('http-equiv="', "", html)
    assert len(html.encode()) < 500_000


def test_nothing_is_loaded_and_only_our_script_runs():
    html = render(hostile_page("plain"))
    script = html[html.index("<script>") + 8 : html.rindex("</script>")]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = next(str(a["content"]) for _, a in Elements(html).found if a.get("http-equiv"))
    assert "default-src 'none'" in policy
    assert f"script-src 'sha256-{digest}'" in policy
    assert html.count("<script") == 1
    assert "\r" not in html


def test_every_chart_has_words_and_its_table():
    page = example_page(12)
    charts = [block for section in page.sections for block in section.blocks if isinstance(block, Chart)]
    found = Elements(render(page))
    text = " ".join(found.text)
    drawings = [a for a in found.having("class") if a["class"] == "drawing"]
    assert len(drawings) == len(charts)
    for chart, drawing in zip(charts, drawings, strict=True):
        assert drawing["tabindex"] == "0"
        assert drawing["role"] == ("img" if chart.table else "group")
        assert drawing["aria-labelledby"]
        assert drawing["aria-describedby"]
        assert chart.description in text
    tables = sum(chart.table is not None for chart in charts)
    assert sum(name == "details" for name, _ in found.found) == tables + 1  # and that of the slider


def test_sections_of_the_same_key_have_anchors_of_their_own():
    sections = [Section(key, "title", ()) for key in ("a b", "a-b", "", "page", "", "<>")]
    ids = [a["id"] for name, a in Elements(render(Page("t", "", (), sections=sections))).found if name == "section"]
    assert ids == ["a-b", "a-b-2", "section", "page-2", "section-2", "section-3"]


@pytest.mark.parametrize(
    ("cells", "is_numeric"),
    [
        (["1", "2.5", "–"], True),
        (["0.82 (0.64 to 0.92)", "1"], True),
        (["12 %", "< 1 %", "1,204", "-3", "−3", "1e-05"], True),
        (["3 of 12", "12 of 12"], True),
        (["yes", "no"], False),
        (["3 sites that differ", "none"], False),
        (["2026-11-17", "x"], False),
        (["", "-"], False),
    ],
)
def test_columns_of_numbers(cells, is_numeric):
    assert column_kinds(PageTable(("a", "b"), [("1", cell) for cell in cells])) == ["", "n" if is_numeric else ""]


def test_ragged_tables_and_empty_pages_render():
    render(Page("", "", ()))
    render(
        Page("t", "", (), sections=(Section("a", "A", (PageTable(("a",), (("1", "2", "3"), ())), PageTable((), ()))),))
    )
    empty = ThresholdSlider((), (), (), 0, 0, 0.5, PageTable((), ()))
    render(Page("t", "", (), sections=(Section("a", "A", (empty,)),)))


AXES = [
    ChartAxis("flat", 0.5, 0.5),
    ChartAxis("zero", 0, 0),
    ChartAxis("turned", 1, 0),
    ChartAxis("odd", math.nan, math.inf),
    ChartAxis("log", 0, 100, log=True),
    ChartAxis("log below", -5, -1, log=True),
    ChartAxis("log flat", 10, 10, log=True),
    ChartAxis("tiny", 1e-9, 3e-9),
    ChartAxis("huge", -1e12, 1e15, percent=True),
    ChartAxis("wide log", 1e-12, 1e12, log=True),
    ChartAxis("narrow", 1e6, 1e6 + 1e-6),
]


@pytest.mark.parametrize("axis", AXES, ids=lambda axis: axis.label)
def test_odd_axes_and_values_draw(axis):
    values = [math.nan, math.inf, -math.inf, 0.0, -1.0, 1e300, 0.5, 1e-300]
    lines = [
        Line("all", values, values[::-1], "first", values, values, markers=True),
        Line("apart", values, values, "unknown style", values, values, joined=False),
        Line("none", [], []),
        Line("shorter", [1.0, 2.0, 3.0], [1.0]),
    ]
    rows = [ForestRow("a", (), v, w, v, kind) for v in values for w in values for kind in ("row", "total")]
    rows.append(ForestRow("second", ("1", "2", "3"), None, second=(math.nan, 0.0, 1.0)))
    drawings = (
        line_chart(lines, axis, axis, square=True),
        line_chart([], axis, axis),
        forest(rows, axis, heads=("site", "rows"), reference=math.nan),
        forest([], axis, heads=(), reference=0.5),
        bars([Bar("b", v) for v in values], axis),
        heat_map(["a"], ["x"] * 20, [values]),
        heat_map([], [], []),
    )
    for drawing in drawings:
        assert isinstance(drawing, Markup)
        for _, attributes in Elements(drawing).found:
            for key in ("d", "x", "x1", "x2", "y", "width", "style"):
                assert not re.search("nan|inf", str(attributes.get(key, "")).replace("linear", ""))


def test_lines_are_at_their_places():
    drawing = line_chart([Line("a", [0, 5, 10], [1, math.nan, 2])], ChartAxis("x", 0, 10), ChartAxis("y", 1, 2))
    (path,) = Elements(drawing).having("data-name")
    assert path["d"] == "M0 1000M1000 0"
    marks = [(a["x"], a["y"]) for name, a in Elements(drawing).found if name == "use"]
    assert marks == [("0%", "100%"), ("100%", "0%")]
    band = line_chart(
        [Line("a", [1, 100], [1, 1], "first", [0, 1], [1, 2])], ChartAxis("x", 1, 100, log=True), ChartAxis("y", 0, 2)
    )
    assert 'd="M0 500L1000 0L1000 500L0 1000"' in band


@pytest.mark.parametrize(
    ("axis", "texts"),
    [
        (ChartAxis("", 0, 1), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
        (ChartAxis("", 0, 1, percent=True), ["0 %", "20 %", "40 %", "60 %", "80 %", "100 %"]),
        (ChartAxis("", 1, 1000, log=True), ["1", "10", "100", "1,000"]),
        (ChartAxis("", -0.1, 0.1), ["−0.10", "−0.05", "0.00", "0.05", "0.10"]),
        (ChartAxis("", 0, 12000), ["0", "2,000", "4,000", "6,000", "8,000", "10,000", "12,000"]),
        (ChartAxis("", 0.2, 7, log=True), ["0.3", "1", "3"]),
    ],
)
def test_ticks_are_round(axis, texts):
    assert axis.tick_texts(axis.ticks()) == texts


def test_a_forest_says_its_values():
    rows = [ForestRow("a", ("10",), 0.823, 0.641, 0.92), ForestRow("b", ("3",), None, why_not="too few")]
    said = " ".join(Elements(forest(rows, ChartAxis("AUROC", 0.5, 1.0), heads=("site", "rows"))).text)
    assert "0.82 (0.64 to 0.92)" in said
    assert "too few" in said


def test_a_large_page_stays_small():
    assert len(render(example_page(200)).encode()) < 400_000


def test_markup_escapes_everything_else():
    assert tag("p", "<b>", tag("i", 'x"y'), None, title='"<', hidden=True, lang=None) == Markup(
        '<p title="&#34;&lt;" hidden>&lt;b&gt;<i>x&#34;y</i></p>'
    )
    assert [compact(v) for v in (1.0, 0.256, -0.001, 100.0, 3)] == ["1", "0.26", "0", "100", "3"]


def test_every_field_of_a_page_is_in_the_hostile_one():
    """A new part or field must be added to `hostile_page` above."""
    page, missing = hostile_page("\u2603"), []

    def walk(thing: Any) -> None:
        if dataclasses.is_dataclass(thing):
            for field in dataclasses.fields(thing):
                value = getattr(thing, field.name)
                if isinstance(value, str) and field.type == "str" and "\u2603" not in value:
                    missing.append((type(thing).__name__, field.name, value))
                walk(value)
        elif isinstance(thing, (tuple, list)):
            for item in thing:
                walk(item)

    walk(page)
    assert {(name, field) for name, field, _ in missing} <= {("Text", "kind")}


def test_every_kind_of_block_has_its_template():
    """A class that is renamed without its template would leave its blocks out of every page."""
    names = {kind.__name__ for kind in get_args(Block)}
    template = (files("fedsaddle.report.page") / "templates" / "blocks.html").read_text(encoding="utf-8")
    assert set(re.findall(r'kind == "(\w+)"', template)) == set(KINDS) == names
    table = PageTable(["name", "rows"], [["A", "12"]], "Rows")
    assert "<td" in render(Page("A page", "of a table", (), sections=[Section("rows", "Rows", [table])]))
