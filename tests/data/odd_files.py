"""Odd files and frames."""

from __future__ import annotations

import gzip
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
from odd_tables import (
    ROWS,
    Odd,
    broken_parquet,
    excel,
    folder,
    nothing,
    parquet,
    same_parquet_column_twice,
    zip_without_sheets,
)

READ = {"age": [30, 40], "sex": ["m", "f"]}

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
    Odd("row of a control character", "a,y\n\x0b\n", error=["cells in row 1 = 1"]),
    Odd("short row among quotes", 'a,b,y\n"1,5",2,u\n3,v\n', error=["cells in row 2 = 2"]),
    Odd("short and long rows", "a,b,y\n1,2,u\n3,v\n4,5,w,6\n", error=["cells in row 2 = 2"]),
    Odd("open quote", 'a,y\n1,u\n"2,v\n3,w\n', error=["not a CSV file", "quotes"]),
    Odd("row of a million cells", "a,y\n" + "," * 1_200_000 + "\n", error=["cells in row 1 = 1200001"]),
    Odd(
        "wide",
        ",".join(f"c{i}" for i in range(2000)) + ",y\n" + ("0," * 2000 + "u\n" + "1," * 2000 + "v\n"),
        {"c1999": [0, 1]},
    ),
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
        "Parquet without any label",
        parquet(lambda pa: {"x": pa.array([1, 2]), "y": pa.nulls(2)}),
        {"x": [1, 2]},
        file="t.parquet",
        labels=["", ""],
    ),
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
        "all missing",
        pd.DataFrame({"s": pd.array([None, None], "string"), "x": [1, 2], **Y2}),
        {"x": [1, 2]},
        ["'s' is left out: all cells are missing"],
    ),
    Odd("fractions", pd.DataFrame({"x": [Fraction(1, 2), Fraction(1, 4)], **Y2}), {"x": [0.5, 0.25]}),
    Odd("complex cells", pd.DataFrame({"x": [1j, "a"], "z": [1, 2], **Y2}), {"z": [1, 2]}, ["its type is complex"]),
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
