"""Tables as they come: what each odd file, cell and column is read as, or refused with."""

from __future__ import annotations

import builtins
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from odd_cells import CELLS, COLUMNS
from odd_files import BINARY, FORMATS, FRAMES
from odd_tables import Odd, text_of, write

from fedsaddle.data.tables.columns import RawColumn, RawTable, summarised
from fedsaddle.data.tables.own import from_file
from fedsaddle.data.tables.read import read_table
from fedsaddle.errors import BadInput, FedSaddleError

ODD = [*FORMATS, *BINARY, *FRAMES, *CELLS, *COLUMNS]


def cells(column: RawColumn) -> list[Any]:
    """The cells as numbers or text, None for those that are missing."""
    if column.numbers is not None:
        return [None if np.isnan(v) else v for v in column.numbers.tolist()]
    assert column.codes is not None
    return [None if c < 0 else column.categories[c] for c in column.codes]


def check(table: RawTable, odd: Odd) -> None:
    read = {c.name: cells(c) for c in table.features}
    for name, values in odd.values.items():
        assert read[name] == [v if v is None or isinstance(v, str) else pytest.approx(v, rel=1e-12) for v in values]
    assert not set(odd.gone) & set(read)
    for fragment in odd.notes:
        assert any(fragment in note for note in table.notes), (fragment, table.notes)
    if odd.labels is not None:
        assert table.roles["label"].tolist() == odd.labels
    assert all("\n" not in note for note in table.notes)
    for column in table.features:
        assert len(column.missing) == table.rows
        assert list(column.categories) == sorted(set(column.categories))
        assert column.codes is None or (column.codes.dtype == np.int32 and column.codes.max() < len(column.categories))
        assert column.numbers is None or column.numbers.dtype == np.float64


def test_a_parquet_file_without_sites_or_labels_is_refused(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    whole = {"site": ["a", "b"] * 4, "x": list(range(8)), "y": [0, 1, 1, 0] * 2}
    for name, said in (
        ("site", "row 1, column 'site' = '': the cell is empty"),
        ("y", "column 'y' = '': has no label"),
    ):
        pq.write_table(pa.table({**whole, name: pa.nulls(8)}), tmp_path / "t.parquet")
        with pytest.raises(BadInput, match=said):
            from_file(tmp_path / "t.parquet", client="site")


def test_many_notes_are_folded() -> None:
    wide = {f"c{k}": [k, k] for k in range(3000)} | {f"when{k}": ["2020-01-01", "2020-01-02"] for k in range(2000)}
    table = read_table(pd.DataFrame({**wide, "x": [1, 2], "y": ["a", "b"]}), roles={"label": "y"})
    assert len(table.notes) == 5000
    lines = summarised(table.notes)
    assert lines[0].startswith("column 'c0' is left out: it is 0 in all rows; ")
    assert lines[0].endswith("(the same for 2,999 more columns, such as 'c1', 'c2', 'c3')")
    assert "(the same for 1,999 more columns, such as 'when1', 'when2', 'when3')" in lines[1]
    assert len("\n".join(lines)) < 1000
    few = table.notes[:5]
    assert summarised(few) == list(few)
    odd = [f"{'x' * k}: a note of its own" for k in range(50)]
    assert summarised(odd)[-1] == "and 30 more notes like these"


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: odd.name)
def test_odd_tables(odd: Odd, tmp_path: Path) -> None:
    if odd.file.endswith(".xlsx"):
        pytest.importorskip("openpyxl")
    source = write(odd, tmp_path)
    if not odd.error:
        check(read_table(source, roles={"label": "y"}, **odd.how), odd)
        return
    with pytest.raises(FedSaddleError) as caught:
        read_table(source, roles={"label": "y"}, **odd.how)
    said = str(caught.value)
    for fragment in odd.error:
        assert fragment in said
    assert said.isprintable()  # so one line, without escapes
    assert len(said) < 1500


def test_there_are_many_odd_tables() -> None:
    assert len(ODD) >= 73
    assert len({odd.name for odd in ODD}) >= len(ODD) - 2


WORDS = st.text("abcéü,;|\t\"' \n", max_size=8).map(lambda w: f"w{w}".rstrip())
NUMBERS = st.floats(-(2.0**99), 2.0**99) | st.integers(-(10**6), 10**6)


@given(
    rows=st.lists(st.tuples(st.none() | NUMBERS, st.none() | WORDS, WORDS), min_size=1, max_size=12),
    delimiter=st.sampled_from(",;\t|"),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "latin-1"]),
    line_end=st.sampled_from(["\n", "\r\n"]),
)
@settings(max_examples=150, deadline=None)
def test_plain_tables_survive(rows: list[Any], delimiter: str, encoding: str, line_end: str) -> None:
    written = [["" if c is None else c if isinstance(c, str) else repr(c) for c in row] for row in rows]
    text = text_of([["x", "z", "y"], *written], delimiter, line_end)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.csv"
        path.write_bytes(text.encode(encoding))
        table = read_table(path, roles={"label": "y"}, features=["x", "z"])
    x, z = table.features
    assert cells(x) == [v if v is None else pytest.approx(v, rel=1e-14) for v in (row[0] for row in rows)]
    assert cells(z) == [row[1] for row in rows]
    assert table.roles["label"].tolist() == [row[2] for row in rows]
    assert table.rows == len(rows)


@given(junk=st.binary(max_size=200), name=st.sampled_from(["t.csv", "t.csv.gz", "t.parquet", "t.xlsx"]))
@settings(max_examples=200, deadline=None)
def test_junk_is_refused_in_one_line(junk: bytes, name: str) -> None:
    start = {"t.csv": b"x,y\n", "t.csv.gz": b"\x1f\x8b\x08", "t.parquet": b"PAR1", "t.xlsx": b"PK\x03\x04"}[name]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(start + junk)
        said = ""
        try:
            read_table(path, roles={"label": "y"}, numeric=["x"])
        except FedSaddleError as error:
            said = str(error)
    assert said.isprintable()


@pytest.mark.parametrize(("module", "name", "extra"), [("pyarrow", "t.pq", "parquet"), ("openpyxl", "t.xlsx", "excel")])
def test_a_reader_that_is_not_installed_is_named(
    module: str, name: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def refuse(wanted: str, *rest: Any, **how: Any) -> Any:
        if wanted.split(".")[0] == module:
            raise ImportError(wanted)
        return real(wanted, *rest, **how)

    (tmp_path / name).write_bytes(b"PAR1")
    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(BadInput, match=rf'pip install "\.\[{extra}\]"'):
        read_table(tmp_path / name, roles={"label": "y"})


def test_what_is_no_table_is_refused() -> None:
    with pytest.raises(BadInput, match="source = 'int'"):
        read_table(3, roles={"label": "y"})  # type: ignore[arg-type]


def test_a_file_and_its_frame_give_the_same_table(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"age": rng.normal(60, 9, 50).round(1), "sex": rng.choice(["m", "f"], 50), "y": rng.integers(0, 2, 50)}
    )
    frame.loc[::7, "age"] = np.nan
    frame.loc[::9, "sex"] = None
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    tables = [read_table(s, roles={"label": "y"}) for s in (frame, tmp_path / "t.csv", tmp_path / "t.parquet")]
    for table in tables[1:]:
        assert [(c.name, c.kind, cells(c)) for c in table.features] == [
            (c.name, c.kind, cells(c)) for c in tables[0].features
        ]
        assert table.roles["label"].tolist() == tables[0].roles["label"].tolist()


def test_ten_thousand_sites(tmp_path: Path) -> None:
    sites = [f"site {i}" for i in range(10_000)]
    (tmp_path / "t.csv").write_text("site,x,y\n" + "".join(f"{s},{i % 11},a\n" for i, s in enumerate(sites)))
    table = read_table(tmp_path / "t.csv", roles={"label": "y", "site": "site"})
    assert table.roles["site"].tolist() == sites
