"""Odd tables: what stands in a file or a frame, and what reading it must give."""

from __future__ import annotations

import csv
import gzip
import io
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

Values = Sequence[Any]  # one per row, None: missing


@dataclass(frozen=True, eq=False)
class Odd:
    """A file (its name and its bytes, text or a writer) or a frame, and what is expected of it."""

    name: str
    content: bytes | str | pd.DataFrame | Callable[[Path], None]
    values: Mapping[str, Values] = field(default_factory=dict)
    notes: Sequence[str] = ()  # each must be part of one of the notes
    error: Sequence[str] = ()  # each must be part of the one line
    gone: Sequence[str] = ()  # columns that are left out
    labels: Values | None = None
    file: str = "t.csv"
    how: Mapping[str, Any] = field(default_factory=dict)


def column(*cells: str, name: str = "x", delimiter: str = ",") -> str:
    """A CSV text of one feature column and a label."""
    quoted = [f'"{cell}"' if delimiter in cell else cell for cell in (name, *cells)]
    return "".join(f"{cell}{delimiter}{label}\n" for cell, label in zip(quoted, ["y", *"abababab" * 200], strict=False))


def numbered(n: int, form: str = "{}", name: str = "x", start: int = 0) -> str:
    return column(*[form.format(i + start) for i in range(n)], name=name)


def parquet(columns: Callable[[Any], Mapping[str, Any]], **how: Any) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table(dict(columns(pa))), path, **how)

    return write


def broken_parquet(path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"x": list(map(str, range(5000))), "y": ["a", "b"] * 2500}), path)
    data = bytearray(path.read_bytes())
    data[200 : len(data) // 2] = b"\xff" * (len(data) // 2 - 200)
    path.write_bytes(bytes(data))


def same_parquet_column_twice(path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_arrays([pa.array([1, 2])] * 2 + [pa.array(["a", "b"])], names=["x", "x", "y"]), path)


def excel(rows: Sequence[Sequence[Any]], more: Sequence[str] = ()) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        import openpyxl

        book = openpyxl.Workbook()
        for row in rows:
            book.active.append(list(row))
        for title in more:
            book.create_sheet(title)
        book.save(path)

    return write


def zip_without_sheets(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as parts:
        parts.writestr("hello.txt", "no sheet")


def folder(path: Path) -> None:
    path.mkdir()


def nothing(path: Path) -> None:
    """Write no file at all."""


ROWS = "age,sex,y\n30,m,a\n40,f,b\n"
READ = {"age": [30, 40], "sex": ["m", "f"]}
N30 = [str(i % 7) for i in range(30)]
LONG = [f"the patient came in with {w} and was sent home after a while" for w in ("pain", "fever", "cough")]

FORMATS = [
    Odd("comma", ROWS, READ),
    Odd("semicolon", ROWS.replace(",", ";"), READ),
    Odd("tab", ROWS.replace(",", "\t"), READ, file="t.tsv"),
    Odd("bar", ROWS.replace(",", "|"), READ, file="t.txt"),
    Odd("capital suffix", ROWS, READ, file="T.CSV"),
    Odd("gzip", gzip.compress(ROWS.encode()), READ, file="t.csv.gz"),
    Odd("gzip of tabs", gzip.compress(ROWS.replace(",", "\t").encode()), READ, file="t.tsv.gz"),
    Odd("UTF-8 with a mark", ROWS.encode("utf-8-sig"), READ),
    Odd("UTF-16", ROWS.encode("utf-16"), READ),
    Odd("UTF-16 big end", b"\xfe\xff" + ROWS.encode("utf-16-be"), READ),
    Odd("Latin-1", "stadt,y\nKöln,a\nBonn,b\n".encode("latin-1"), {"stadt": ["Köln", "Bonn"]}, ["not UTF-8"]),
    Odd("byte that Windows lacks", b"x,y\n\x81\xe9,a\nb,b\n", {"x": ["\x81é", "b"]}, ["Latin-1"]),
    Odd("Windows line ends", ROWS.replace("\n", "\r\n"), READ),
    Odd("old Mac line ends", ROWS.replace("\n", "\r"), READ),
    Odd("no line end at the end", ROWS.rstrip(), READ),
    Odd("blank lines", "\n\n" + ROWS.replace("\n", "\n\n") + "\n  \n", READ),
    Odd("sep line of Excel", "sep=;\n" + ROWS.replace(",", ";"), READ),
    Odd(
        "quotes", '"age","s,x","y"\n"30","a ""b""","a"\n"40","c\nd","b"\n', {"age": [30, 40], "s,x": ['a "b"', "c\nd"]}
    ),
    Odd("spaces around cells", " age , sex ,y\n 30 , m , a\n 40 ,f,b\n", READ, labels=["a", "b"]),
    Odd("given delimiter wins", "a,b;y\n1;u\n2;v\n", {"a,b": [1, 2]}, how={"delimiter": ";"}),
    Odd("delimiter that is not ASCII", ROWS.replace(",", "§"), READ, how={"delimiter": "§"}),
    Odd("delimiter of two", ROWS, error=["delimiter = ',,'", "one character"], how={"delimiter": ",,"}),
    Odd("last column with gaps", "y,a,b\nu,1,\nv,2,3\n", {"a": [1, 2], "b": [None, 3]}),
    Odd("delimiter at each line's end", "a,y,\n1,u,\n2,v,\n", {"a": [1, 2]}, ["column 3"], gone=["column 3"]),
    Odd("index of pandas", ",a,y\n0,5,u\n1,7,v\n", {"a": [5, 7], "column 1": [0, 1]}, ["no name"]),
    Odd(
        "labels to the letter",
        "a,y\n1,007\n2,7.0\n3,NA\n4, \n5,none\n",
        {"a": [1, 2, 3, 4, 5]},
        labels=["007", "7.0", "", "", "none"],
    ),
    Odd("labels that look like numbers", "a,y\n1,007\n2,01\n3,1\n", {"a": [1, 2, 3]}, labels=["007", "01", "1"]),
    Odd("short row", "a,b,y\n1,2,u\n3,4\n", error=["cells in row 2 = 2", "names 3 columns"]),
    Odd("long row", "a,b,y\n1,2,u\n3,4,v,9\n", error=["cells in row 2 = 4"]),
    Odd("all rows too long", "a,y\n1,u,5\n2,v,6\n", error=["cells in row 1 = 3"]),
    Odd("all rows too short", "a,b,y\n1,u\n2,v\n", error=["cells in row 1 = 2"]),
    Odd("short row among quotes", 'a,b,y\n"1,5",2,u\n3,v\n', error=["cells in row 2 = 2"]),
    Odd("short and long rows", "a,b,y\n1,2,u\n3,v\n4,5,w,6\n", error=["cells in row 2 = 2"]),
    Odd("open quote", 'a,y\n1,u\n"2,v\n3,w\n', error=["not a CSV file", "quotes"]),
    Odd("empty file", b"", error=["path", "is empty"]),
    Odd("blank file", b" \n\n", error=["path", "is empty"]),
    Odd("header only", "a,b,y\n", error=["at least one row"]),
    Odd("NUL bytes", b"a,y\n1,u\n\x00\x00,v\n", error=["NUL bytes"]),
    Odd("NUL bytes far down", b"a,y\n" + b"12345678,u\n" * 100_000 + b"\x00,v\n", error=["NUL bytes"]),
    Odd("broken gzip", gzip.compress(ROWS.encode() * 50)[:40], error=["gzip"], file="t.csv.gz"),
    Odd("broken deflate", gzip.compress(ROWS.encode())[:12] + b"\xff" * 30, error=["gzip"], file="t.csv.gz"),
    Odd("no gzip", ROWS, error=["gzip"], file="t.csv.gz"),
    Odd("broken UTF-16", ROWS.encode("utf-16") + b"\x00", error=["utf-16", "UTF-8"]),
    Odd("cell of ten megabytes", "a,y\n" + "z" * 10_000_000 + ",u\n1,v\n", error=["not a CSV file"]),
    Odd(
        "huge cell far down",
        "a,y\n" + "b,u\n" * 300_000 + "z" * 1_000_000 + ",u\n",
        error=["longest cell of column 'a' = 1000000"],
    ),
    Odd("folder", folder, error=["is a folder"]),
    Odd("no file", nothing, error=["does not exist"]),
    Odd("long path", nothing, error=["cannot be a file", "..."], file="x" * 5000 + ".csv"),
    Odd("unknown suffix", "x", error=["must end in .csv"], file="t.sav"),
    Odd("a folder's picture", b"\x89PNG\r\n\x1a\n\xff\xd8,y\n", error=["label = 'y'"], file="t.csv"),
]

BINARY = [
    Odd(
        "Parquet",
        parquet(lambda pa: {"i": pa.array([1, None], pa.int32()), "s": ["u", None], "y": ["a", "b"]}),
        {"i": [1, None], "s": ["u", None]},
        file="t.parquet",
    ),
    Odd(
        "Parquet of many types",
        parquet(
            lambda pa: {
                "d": pa.array([Decimal("1.50"), None]),
                "b": pa.array([True, False]),
                "day": pa.array([date(1970, 1, 3), None]),
                "at": pa.array([datetime(1970, 1, 2, 12), datetime(1970, 1, 1)]),
                "c": pa.array(["u", "v"]).dictionary_encode(),
                "y": pa.array([2**60 + 1, 7]),
            }
        ),
        {"d": [1.5, None], "b": ["true", "false"], "day": [2, None], "at": [1.5, 0], "c": ["u", "v"]},
        ["days since"],
        labels=["1152921504606846977", "7"],
        file="t.pq",
    ),
    Odd(
        "Parquet text of numbers",
        parquet(lambda pa: {"x": ["1,5", "2,5", None], "y": ["a", "b", "a"]}),
        {"x": [1.5, 2.5, None]},
        ["decimal comma"],
        file="t.parquet",
    ),
    Odd(
        "Parquet lists",
        parquet(lambda pa: {"x": [[1], [2]], "z": [1, 2], "y": ["a", "b"]}),
        {"z": [1, 2]},
        ["list<"],
        gone=["x"],
        file="t.parquet",
    ),
    Odd(
        "Parquet lists by name",
        parquet(lambda pa: {"x": [[1], [2]], "y": ["a", "b"]}),
        error=["type of column 'x'"],
        file="t.parquet",
        how={"features": ["x"]},
    ),
    Odd(
        "Parquet without rows",
        parquet(lambda pa: {"x": pa.array([], pa.int64()), "y": pa.array([], pa.string())}),
        error=["no rows"],
        file="t.parquet",
    ),
    Odd("no Parquet", b"PAR1 is not enough", error=["not a readable Parquet"], file="t.parquet"),
    Odd("Parquet with broken pages", broken_parquet, error=["not a readable Parquet"], file="t.parquet"),
    Odd("Parquet, one name twice", same_parquet_column_twice, error=["column name = 'x'", "twice"], file="t.parquet"),
    Odd(
        "Excel",
        excel(
            [["x", "when", "y"], [1, datetime(1970, 1, 2), "a"], [None, None, None], ["NA", datetime(1970, 1, 3), "b"]],
            more=["other"],
        ),
        {"x": [1, None], "when": [1, 2]},
        ["first sheet", "days since"],
        labels=["a", "b"],
        file="t.xlsx",
    ),
    Odd(
        "Excel, labels are whole",
        excel([["x", "y"], [1.5, 0], [2.5, 1]]),
        {"x": [1.5, 2.5]},
        labels=["0", "1"],
        file="t.xlsx",
    ),
    Odd("Excel without rows", excel([["x", "y"]]), error=["at least one more row"], file="t.xlsx"),
    Odd("no zip", b"not a zip", error=["not a readable .xlsx"], file="t.xlsx"),
    Odd("zip without sheets", zip_without_sheets, error=["not a readable .xlsx"], file="t.xlsx"),
]

Y2 = {"y": ["a", "b"]}
FRAMES = [
    Odd(
        "nullable",
        pd.DataFrame(
            {
                "i": pd.array([1, None], "Int64"),
                "b": pd.array([True, None], "boolean"),
                "s": pd.array(["u", None], "string"),
                "f": np.float32([0.5, np.nan]),
                **Y2,
            }
        ),
        {"i": [1, None], "b": ["true", None], "s": ["u", None], "f": [0.5, None]},
    ),
    Odd("category of numbers", pd.DataFrame({"x": pd.Categorical([3, 1]), **Y2}), {"x": ["3", "1"]}),
    Odd(
        "dates",
        pd.DataFrame({"x": pd.to_datetime(["1970-01-02", None]), "z": pd.to_timedelta([1, 36], "h"), **Y2}),
        {"x": [1, None], "z": [1 / 24, 1.5]},
        ["days since"],
    ),
    Odd(
        "dates with a zone",
        pd.DataFrame({"x": pd.to_datetime(["1970-01-02T01:00+01:00", "1970-01-03T01:00+01:00"]), **Y2}),
        {"x": [1, 2]},
    ),
    Odd(
        "mixed objects",
        pd.DataFrame({"x": pd.Series([1, "2.5", Decimal(3), None, "n/a"], dtype=object), "y": list("ababa")}),
        {"x": [1, 2.5, 3, None, None]},
    ),
    Odd(
        "Python numbers",
        pd.DataFrame({"x": pd.Series([1, 2.5, None], dtype=object), "y": list("aba")}),
        {"x": [1, 2.5, None]},
    ),
    Odd(
        "index that repeats",
        pd.DataFrame({"x": pd.Series(["a", 1, 2, 3], dtype=object), "y": list("abab")}, index=None).set_index(
            pd.Index([0, 0, 1, 1])
        ),
        {"x": [None, 1, 2, 3]},
        ["missing"],
        how={"numeric": ["x"]},
    ),
    Odd("names that are numbers", pd.DataFrame({0: [1.0, 2.0], "y": ["a", "b"]}), {"0": [1, 2]}),
    Odd(
        "names in levels",
        pd.DataFrame([[1, 2]], columns=pd.MultiIndex.from_tuples([("a", "b"), ("a", "y")])),
        error=["flatten"],
    ),
    Odd("name twice", pd.DataFrame([[1, 2, 3]], columns=["a", "a", "y"]), error=["column name = 'a'", "twice"]),
    Odd("lists", pd.DataFrame({"x": [[1], [2]], "z": [1, 2], **Y2}), {"z": [1, 2]}, ["list"], gone=["x"]),
    Odd("complex numbers", pd.DataFrame({"x": [1j, 2j], "z": [1, 2], **Y2}), {"z": [1, 2]}, ["complex"], gone=["x"]),
    Odd("no rows", pd.DataFrame({"x": [], "y": []}), error=["no rows"]),
    Odd("whole labels beside gaps", pd.DataFrame({"x": [1, 2], "y": [1.0, np.nan]}), {"x": [1, 2]}, labels=["1", ""]),
    Odd(
        "infinity in a frame",
        pd.DataFrame({"x": [1.0, np.inf], **Y2}),
        error=["row 2, column 'x' = inf", "--numeric 'x'"],
    ),
    Odd(
        "a number too large",
        pd.DataFrame({"x": pd.Series([1, 10**400], dtype=object), **Y2}),
        error=["row 2, column 'x'"],
    ),
]

MARKERS = [
    "NA",
    "N/A",
    "n/a",
    "NaN",
    "nan",
    "NULL",
    "null",
    "None",
    ".",
    "?",
    "-",
    "--",
    "#N/A",
    "missing",
    "",
    "  ",
    '""',
]
ISO = [["1970-01-02", 1], ["1970-01-02T12:00", 1.5], ["1970-01-02 06:00:00.0Z", 1.25], ["1970-01-02T01:00+01:00", 1]]
CELLS = [
    Odd("missing among numbers", column("1", *MARKERS, "2"), {"x": [1, *[None] * len(MARKERS), 2]}),
    Odd("missing among words", column("u", *MARKERS, "v"), {"x": ["u", *[None] * len(MARKERS), "v"]}),
    Odd("unknown among numbers", column("1", "unknown", "2"), {"x": [1, None, 2]}),
    Odd("unknown among odd numbers", column("1", "Unknown ", ">2"), {"x": [1, None, 2]}),
    Odd("unknown among words", column("u", "unknown", "v"), {"x": ["u", "unknown", "v"]}),
    Odd("plus and minus", column("+", "-", "+", "NA"), {"x": ["+", "-", "+", None]}),
    Odd(
        "limits",
        column("1", ">90", "<0.5", ">=4", "4+", "≤ 3", "2", "7", "8"),
        {"x": [1, 90, 0.5, 4, 4, 3, 2, 7, 8]},
        ["read '4+', '<0.5', '>90'", "--categorical 'x'"],
    ),
    Odd("only limits are bins", column("<18", "18-30", ">65"), {"x": ["<18", "18-30", ">65"]}),
    Odd("thousands", column("1,234", "12", "1,234,567.5"), {"x": [1234, 12, 1234567.5]}, ["thousands"]),
    Odd("thousands by spaces", column("1 234", "12", "2\u202f345"), {"x": [1234, 12, 2345]}, ["thousands"]),
    Odd("thousands by quotes", column("1'234", "12", "2’345.5"), {"x": [1234, 12, 2345.5]}, ["thousands"]),
    Odd("decimal commas", column("1,5", "2", "-0,25"), {"x": [1.5, 2, -0.25]}, ["decimal comma"]),
    Odd("decimal commas that could be thousands", column("0,123", "1,234"), {"x": [0.123, 1.234]}, ["decimal comma"]),
    Odd(
        "decimal commas after semicolons",
        column("1,234", "2,345", delimiter=";"),
        {"x": [1.234, 2.345]},
        ["decimal comma"],
    ),
    Odd(
        "points part thousands",
        column("1.234,5", "1.000", "2"),
        {"x": [1234.5, 1000, 2]},
        ["thousands", "decimal comma"],
    ),
    Odd(
        "points part thousands in a file with decimal commas",
        "n,x,y\n150.000;1,5;a\n80.500;2,5;b\n".replace("n,x,y", "n;x;y"),
        {"n": [150000, 80500], "x": [1.5, 2.5]},
        ["thousands"],
    ),
    Odd(
        "thousands after tabs",
        column("1,234", "2,345", delimiter="\t"),
        {"x": [1234, 2345]},
        ["thousands"],
        file="t.tsv",
    ),
    Odd("both commas", column("1,5", "1.5", "2"), error=["column 'x'", "1,5", "--numeric 'x'"]),
    Odd("one unit", column("12 mg", "5mg", "7"), {"x": [12, 5, 7]}, ["unit 'mg'"]),
    Odd("per cent", column("12%", "5.5 %"), {"x": [12, 5.5]}, ["unit '%'"]),
    Odd("dollars", column("$12", "$1,500"), {"x": [12, 1500]}, ["unit '$'", "thousands"]),
    Odd("compound unit", column("1.2 mg/dl", ">20 mg/dL"), {"x": [1.2, 20]}, ["unit 'mg/dl'"]),
    Odd("mixed units", column("12 mg", "5 g"), error=["column 'x' = ['g', 'mg']", "different units", "--drop 'x'"]),
    Odd(
        "mixed units, numeric", column("12 mg", "5 g", "6 mg"), {"x": [12, None, 6]}, ["'5 g'"], how={"numeric": ["x"]}
    ),
    Odd("stages are no units", column("1A", "2B", "1A"), {"x": ["1A", "2B", "1A"]}),
    Odd("true minus", column("−5", "3"), {"x": [-5, 3]}),
    Odd("powers", column("1e3", "2.5E-1", ".5", "5."), {"x": [1000, 0.25, 0.5, 5]}),
    Odd(
        "odd cells",
        column("1", "2", "3", "high", "see note"),
        error=[
            "column 'x' = ['high', 'see note']",
            "--numeric 'x' (odd cells become missing)",
            "--categorical 'x'",
            "--drop 'x'",
        ],
    ),
    Odd("six odd cells show five", column(*"123456", *[f"w{i}" for i in range(6)]), error=["'w4']"]),
    Odd("odd cells, numeric", column("1", "2", "high"), {"x": [1, 2, None]}, ["'high'"], how={"numeric": ["x"]}),
    Odd("odd cells, categorical", column("1", "2", "high"), {"x": ["1", "2", "high"]}, how={"categorical": ["x"]}),
    Odd("numbers, categorical", column("01", "2", "01"), {"x": ["01", "2", "01"]}, how={"categorical": ["x"]}),
    Odd("words, numeric", column("u", "v"), error=["column 'x'", "holds no numbers"], how={"numeric": ["x"]}),
    Odd("odd cell far down", column(*["1", "2"] * 400, "ward"), error=["column 'x' = ['ward']"]),
    Odd("mostly words", column("1", "red", "blue"), {"x": ["1", "red", "blue"]}),
    Odd("infinity", column("1", "inf"), error=["column 'x'", "inf", "not a finite"]),
    Odd(
        "infinity beside odd cells", column("1", ">2", "-Infinity"), error=["column 'x' = ['-Infinity']", "not finite"]
    ),
    Odd("infinity, numeric", column("1", "inf", "2"), {"x": [1, None, 2]}, ["infinite"], how={"numeric": ["x"]}),
    Odd("too large for single precision", column("1", "1e300"), error=["row 2, column 'x' = 1e+300"]),
    Odd("true and false", column("TRUE", "false", "NA"), {"x": ["true", "false", None]}),
    Odd("yes and no", column("yes", "no", "yes"), {"x": ["yes", "no", "yes"]}),
    Odd("case alone differs", column("F", "f", "m"), {"x": ["F", "f", "m"]}, ["only in case", "'F', 'f'"]),
    Odd(
        "ISO dates and times",
        column(*[c for c, _ in ISO]),
        {"x": [v for _, v in ISO]},
        ["days since 1970-01-01", "--categorical 'x'"],
    ),
    Odd("day first", column("17/11/2026", "01/02/1970"), {"x": [20774, 31]}, ["days since"]),
    Odd("month first", column("11/17/2026", "01/02/1970"), {"x": [20774, 1]}, ["days since"]),
    Odd("points: day first", column("01.02.1970", "17.11.2026"), {"x": [31, 20774]}, ["days since"]),
    Odd("points alone: day first", column("01.02.1970", "02.02.1970"), {"x": [31, 32]}, ["days since"]),
    Odd("named months", column("2-Jan-1970", "Nov 17, 2026", "03FEB1970"), {"x": [1, 20774, 33]}, ["days since"]),
    Odd("half days", column("1/13/1970 12:00 AM", "1/14/1970 6:00 pm"), {"x": [12, 13.75]}, ["days since"]),
    Odd(
        "either day or month first",
        column("01/02/1970", "03/04/1970"),
        error=["column 'x'", "cannot be told apart", "2026-11-17", "--drop 'x'"],
    ),
    Odd("both day and month first", column("17/11/2026", "11/17/2026"), error=["both orders"]),
    Odd("years of two digits", column("17/11/26", "18/11/26"), error=["two digits"]),
    Odd("no such day", column("2026-02-30", "2026-02-28"), error=["column 'x' = ['2026-02-30']", "not dates"]),
    Odd(
        "no such day, numeric",
        column("1970-02-30", "1970-01-02"),
        {"x": [None, 1]},
        ["1970-02-30"],
        how={"numeric": ["x"]},
    ),
    Odd("date among words", column("1970-01-02", "1970-01-03", "later"), error=["['later']"]),
    Odd(
        "ambiguous dates, categorical",
        column("01/02/1970", "03/04/1970"),
        {"x": ["01/02/1970", "03/04/1970"]},
        how={"categorical": ["x"]},
    ),
    Odd("times of the day", column("06:30", "18:00:00"), {"x": [6.5, 18]}, ["hours of the day"]),
]

TWO = "x,z,y\n" + "".join(f"{x},{x % 3},{'ab'[x % 2]}\n" for x in range(30))
COLUMNS = [
    Odd(
        "identifier of text",
        "x,z,y\n" + "".join(f"p{i}q,{i % 3},a\n" for i in range(30)),
        {"z": [i % 3 for i in range(30)]},
        ["column 'x' is left out", "identifier", "--categorical"],
        gone=["x"],
    ),
    Odd(
        "identifier by name",
        "x,patient_id,y\n" + "".join(f"{i % 3},{(i * 7919) % 10007},a\n" for i in range(30)),
        {"x": [i % 3 for i in range(30)]},
        ["'patient_id' is left out"],
        gone=["patient_id"],
    ),
    Odd("running number", TWO, {"z": [i % 3 for i in range(30)]}, ["'x' is left out"], gone=["x"]),
    Odd("running number, asked for", TWO, {"x": list(range(30))}, how={"features": ["x"]}),
    Odd("running number, numeric", TWO, {"x": list(range(30))}, how={"numeric": ["x"]}),
    Odd(
        "different amounts are no identifier",
        numbered(30, "{}7", "fluid"),
        {"fluid": [int(f"{i}7") for i in range(30)]},
    ),
    Odd("few rows are no identifier", numbered(5), {"x": [0, 1, 2, 3, 4]}),
    Odd(
        "free text",
        "x,z,y\n" + "".join(f"{t},{i},a\n" for i, t in enumerate(LONG * 2)),
        {"z": [0, 1, 2, 3, 4, 5]},
        ["free text"],
        gone=["x"],
    ),
    Odd(
        "free text, asked for",
        "x,z,y\n" + "".join(f"{t},{i},a\n" for i, t in enumerate(LONG * 2)),
        {"x": LONG * 2},
        how={"features": ["x"]},
    ),
    Odd(
        "too many categories",
        "x,z,y\n" + "".join(f"v{i % 1001}q,{i % 5},a\n" for i in range(2002)),
        {"z": [i % 5 for i in range(2002)]},
        ["1,001 categories"],
        gone=["x"],
    ),
    Odd(
        "constant",
        "x,w,z,y\n5,u,1,a\n5,u,2,b\n",
        {"z": [1, 2]},
        ["'x' is left out: it is 5 in all rows", "'w' is left out: it is 'u'"],
        gone=["x", "w"],
    ),
    Odd(
        "constant, asked for",
        "x,w,z,y\n5,u,1,a\n5,u,2,b\n",
        {"x": [5, 5], "w": ["u", "u"]},
        how={"features": ["x", "w"]},
    ),
    Odd("marked or blank", column("yes", "", "yes"), {"x": ["yes", None, "yes"]}, ["'yes' or missing"]),
    Odd("all missing", "x,z,y\n,1,a\nNA,2,b\n", {"z": [1, 2]}, ["'x' is left out: all cells are missing"], gone=["x"]),
    Odd("all missing, asked for", "x,z,y\n,1,a\nNA,2,b\n", {"x": [None, None]}, how={"features": ["x"]}),
    Odd(
        "optional and absent",
        column("1", "2"),
        {"x": [1, 2], "lactate": [None, None]},
        ["'lactate' is not in the table"],
        how={"optional": ["lactate"]},
    ),
    Odd(
        "optional, listed and absent",
        column("1", "2"),
        {"lactate": [None, None]},
        how={"features": ["x", "lactate"], "optional": ["lactate"]},
    ),
    Odd(
        "optional, absent and categorical",
        column("1", "2"),
        {"unit": [None, None]},
        how={"optional": ["unit"], "categorical": ["unit"]},
    ),
    Odd(
        "near duplicates",
        "c,f,y\n" + "".join(f"{c},{c * 1.8 + 32},a\n" for c in [36.6, 37.1, 40.2, 35.9] * 5),
        {"c": [36.6, 37.1, 40.2, 35.9] * 5},
        ["'c' and 'f' say nearly the same", "--drop 'f'"],
    ),
    Odd(
        "same categories",
        "c,f,y\n" + "m,1x,a\nf,2x,a\nf,2x,b\n" * 4,
        {"c": ["m", "f", "f"] * 4},
        ["'c' and 'f' say nearly the same"],
    ),
    Odd("nothing is left", "x,y\n5,a\n5,b\n", error=["no column is left", "'x' is left out"]),
    Odd("role that is not there", "x,died\n1,a\n", error=["label = 'y'", "no such column", "'x', 'died'"]),
    Odd(
        "feature that is not there", ROWS, error=["features = 'agee'", "did you mean 'age'"], how={"features": ["agee"]}
    ),
    Odd("numeric that is not there", ROWS, error=["numeric = 'Age'", "did you mean 'age'"], how={"numeric": ["Age"]}),
    Odd(
        "categorical that is not there",
        ROWS,
        error=["categorical = 'sexx'", "did you mean 'sex'"],
        how={"categorical": ["sexx"]},
    ),
    Odd("drop that is not there", ROWS, error=["drop = 'ag'", "did you mean 'age'"], how={"drop": ["ag"]}),
    Odd(
        "in two lists",
        ROWS,
        error=["categorical = 'age'", "`numeric` too"],
        how={"numeric": ["age"], "categorical": ["age"]},
    ),
    Odd(
        "dropped and asked for",
        ROWS,
        error=["drop = 'age'", "`features` too"],
        how={"features": ["age"], "drop": ["age"]},
    ),
    Odd("dropped label", ROWS, error=["drop = 'y'", "label column"], how={"drop": ["y"]}),
    Odd("label as a feature", ROWS, error=["features = 'y'", "label column"], how={"features": ["y"]}),
    Odd("one name as a list", ROWS, error=["drop = 'age'", "must be a list"], how={"drop": "age"}),
    Odd("dropped", ROWS, {"sex": ["m", "f"]}, gone=["age"], how={"drop": ["age"]}),
    Odd("name twice", "x, x,y\n1,2,a\n", error=["column name = 'x'", "twice"]),
    Odd("name with an escape", '"a\x1b[31m\nb",y\n1,a\nhigh,b\n2,a\n', error=["'a\\x1b[31m\\nb'"]),
    Odd(
        "many columns are not all listed",
        ",".join(f"c{i}" for i in range(500)) + "\n" + ",".join("1" * 500) + "\n",
        error=["and 480 more"],
    ),
]

ODD = [*FORMATS, *BINARY, *FRAMES, *CELLS, *COLUMNS]


def write(odd: Odd, folder: Path) -> Path | pd.DataFrame:
    """The source that `read_table` gets."""
    if isinstance(odd.content, pd.DataFrame):
        return odd.content
    path = folder / odd.file
    if isinstance(odd.content, str):
        path.write_bytes(odd.content.encode())
    elif isinstance(odd.content, bytes):
        path.write_bytes(odd.content)
    else:
        odd.content(path)
    return path


def text_of(rows: Sequence[Sequence[str]], delimiter: str, line_end: str) -> str:
    """The rows as CSV text, quoted where it must be."""
    out = io.StringIO(newline="")
    csv.writer(out, delimiter=delimiter, lineterminator=line_end).writerows(rows)
    return out.getvalue()
