"""What is printed and written for others is one line, and no program."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from fedsaddle.data.splits.partition import visible_name
from fedsaddle.errors import BadInput, Diverged, FedSaddleError, MissingData
from fedsaddle.processes import available_memory
from fedsaddle.report.plots import label
from fedsaddle.report.tables import cell
from fedsaddle.text import safe_cell, shortened, visible


@given(st.text(st.characters()))
def test_all_text_becomes_one_printable_line(text):
    shown = visible(text)
    assert shown.isprintable()
    assert shown == text or not text.isprintable()
    assert visible_name(text).isprintable()
    assert str(BadInput(text, text, text)).isprintable()
    shown.encode()


def test_what_is_printable_stays():
    assert visible("São Paulo, 東京, Ωμέγα, C:\\data") == "São Paulo, 東京, Ωμέγα, C:\\data"
    assert visible("a\x1b[0m\n\u202eb\udcff\U000e0001") == "a\\x1b[0m\\n\\u202eb\\udcff\\U000e0001"
    assert visible_name(" ") == "space"


def test_messages_are_lines_that_end():
    assert str(MissingData("a\nb")) == "a\\nb"
    assert len(str(FedSaddleError("x" * 100_000))) < 4100
    assert len(str(BadInput("k" * 100_000, "v" * 100_000, "no"))) < 900
    assert str(Diverged(3, "g\x1b")).startswith("client 3 sent a 'g\\x1b'")
    assert BadInput("a\n", 1, "b\n").key == "a\n"
    assert shortened("abc", 3) == "abc"


def test_tables_and_plots():
    assert cell("[red]a\x1b") == r"\[red]a\x1b"
    assert label("a$b\n") == r"a\$b\n"
    figure = Figure()
    figure.text(0, 0, label("\u202e$\\frac{$\x00"))
    figure.savefig(io.BytesIO(), format="png")


@pytest.mark.parametrize("text", ["=1+1", "+a", "-a", "@sum(a)", "\tx", "\rx", "-1+1", "\t1", "=cmd|' /C calc'!A0"])
def test_formulas_are_quoted(text):
    assert safe_cell(text) == f"'{text}"


@pytest.mark.parametrize("text", ["", "a", "-1", "+2.5e-3", "-inf", "0", "a=b", "'=1", " =1"])
def test_other_cells_stay(text):
    assert safe_cell(text) == text


@given(st.text(st.characters(exclude_categories=("Cs",))))
def test_a_cell_written_and_read_begins_with_no_formula(text):
    out = io.StringIO()
    csv.writer(out).writerow([safe_cell(text)])
    (read,) = next(csv.reader(io.StringIO(out.getvalue(), newline="")), [""])
    if read.startswith(("=", "+", "-", "@", "\t", "\r")):
        float(read)


def test_there_is_some_memory():
    assert 1 << 20 < available_memory() < 1 << 60
