from __future__ import annotations

import builtins
import csv
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fit_features import fit_transform

from fedsaddle.data.federated import federate
from fedsaddle.data.splits import Iid, Natural
from fedsaddle.data.table import Dataset, Encoded
from fedsaddle.data.tables.own import from_file, from_frame
from fedsaddle.errors import BadInput, MissingData

HEADER = ["age", "colour", "client", "y"]
ROWS: list[list[Any]] = [
    [30, "red", "south", "sick"],
    [40, "blue", "north", "well"],
    [50, "red", "north", "sick"],
    [60, "green", "south", "well"],
    [70, "blue", "south", "well"],
]


def _csv(path: Path, rows: list[list[Any]] | None = None, header: list[str] | None = None) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header or HEADER, *(ROWS if rows is None else rows)])
    return path


def _parquet(path: Path, rows: list[list[Any]] | None = None) -> Path:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = zip(*(ROWS if rows is None else rows), strict=True)
    pq.write_table(pa.table(dict(zip(HEADER, map(list, columns), strict=True))), path)
    return path


def _changed(row: int, column: str, cell: Any) -> list[list[Any]]:
    rows = [list(r) for r in ROWS]
    rows[row][HEADER.index(column)] = cell
    return rows


@pytest.fixture(params=[".csv", ".parquet"])
def write(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    writer = {".csv": _csv, ".parquet": _parquet}[request.param]
    return lambda rows=None: writer(tmp_path / f"rows{request.param}", rows)


def _check_five_rows(data: Dataset) -> None:
    table = fit_transform(data).train
    assert table.features == ("age", "colour=blue", "colour=red", "colour=other")
    assert table.x.tolist() == [[30, 0, 1, 0], [40, 1, 0, 0], [50, 0, 1, 0], [60, 0, 0, 1], [70, 1, 0, 0]]
    assert table.classes == ("sick", "well")
    assert table.y.tolist() == [0, 1, 0, 1, 1]
    assert table.columns["client"].tolist() == ["south", "north", "north", "south", "south"]
    assert table.columns["colour"].tolist() == ["red", "blue", "red", "green", "blue"]


def test_csv_and_parquet_give_the_same_table(write: Any) -> None:
    data = from_file(write(), standardise=False)
    _check_five_rows(data)
    federated = federate(data, Natural("client"), test_share=0)
    assert federated.names == ("north", "south")
    assert federated.train.sizes.tolist() == [2, 3]


def test_a_frame_gives_the_same_table() -> None:
    frame = pd.DataFrame(ROWS, columns=HEADER)
    _check_five_rows(from_frame(frame, site="client", label="y", standardise=False))
    with pytest.raises(BadInput, match="frame = 'list': must be a pandas DataFrame"):
        from_frame(ROWS, site="client", label="y")  # type: ignore[arg-type]


def test_numbers_are_standardised_and_categories_are_not(write: Any) -> None:
    x = fit_transform(from_file(write())).train.x
    np.testing.assert_allclose(x[:, 0], (np.arange(5) - 2) / np.sqrt(2), rtol=1e-6)
    assert set(x[:, 1:].ravel()) == {0, 1}


def test_only_training_rows_settle_the_features(tmp_path: Path) -> None:
    chance = np.random.default_rng(0)
    rows = [[f"{chance.normal():.3f}", chance.choice(["red", "blue"]), f"c{i % 2}", i % 3 % 2] for i in range(60)]

    def made(rows: list[list[Any]]) -> Any:
        return federate(from_file(_csv(tmp_path / "rows.csv", rows)), Natural(), test_share=0.3, validation_share=0.1)

    first = made(rows)
    assert first.test_rows is not None
    changed = [["77", "green", *row[2:]] if i in set(first.test_rows.tolist()) else row for i, row in enumerate(rows)]
    again = made(changed)
    assert again.encoding == first.encoding
    assert (again.train.x == first.train.x).all()
    assert again.test.x[:, 0].tolist() == [5.0] * len(first.test_rows), "cut to five deviations"


def test_features_can_be_chosen(write: Any) -> None:
    assert fit_transform(from_file(write(), features=["colour"])).train.features == (
        "colour=blue",
        "colour=red",
        "colour=other",
    )
    both = fit_transform(from_file(write(), features=["client", "age"])).train
    assert both.features == ("client=north", "age")


def test_a_test_file_is_encoded_like_the_training_file(tmp_path: Path) -> None:
    train = _csv(tmp_path / "train.csv")
    test = _csv(tmp_path / "test.csv", [["north", 80, "well", "pink"]], ["client", "age", "y", "colour"])
    data = from_file(train, test_path=test)
    made = fit_transform(data).test
    assert made is not None
    np.testing.assert_allclose(made.x, [[3 / np.sqrt(2), 0, 0, 1]], rtol=1e-6)
    assert made.y.tolist() == [1]
    federated = federate(data, Natural())
    assert federated.test is not None
    assert federated.test.sizes.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (["north", 90, "dead", "red"], "test target 'y' = 'dead'"),
        (["west", 90, "well", "red"], "test client in 'client' = 'west'"),
        (["north", "old", "well", "red"], r"column 'age' = \['old'\]: holds no numbers"),
    ],
)
def test_test_rows_that_do_not_fit_are_refused(tmp_path: Path, row: list[Any], message: str) -> None:
    train = _csv(tmp_path / "train.csv")
    test = _csv(tmp_path / "test.csv", [row], ["client", "age", "y", "colour"])
    with pytest.raises(BadInput, match=message):
        from_file(train, test_path=test)
    short = _csv(tmp_path / "short.csv", [[1, 2]], ["client", "age"])
    with pytest.raises(BadInput, match="target = 'y': there is no such column"):
        from_file(train, test_path=short)


@pytest.mark.parametrize("cell", ["", "NA", "?", "NaN", None])
def test_a_missing_number_is_the_median(write: Any, cell: Any) -> None:
    rows = [[None if row[0] == 50 else float(row[0]), *row[1:]] if cell is None else row for row in ROWS]
    if cell is not None:
        rows = [[cell if row[0] == 50 else str(row[0]), *row[1:]] for row in ROWS]
    x = fit_transform(from_file(write(rows), standardise=False, features=["age"])).train.x
    assert x[[0, 1, 3, 4], 0].tolist() == [30, 40, 60, 70]
    assert 39.5 < x[2, 0] < 60.5, "to the width of a bin"


def test_missing_cells_are_flagged_and_rare_categories_pooled(tmp_path: Path) -> None:
    rows = [
        [i / 7 if i % 4 else "", ["a", "b", "", f"rare {i % 2}"][i % 10 % 4], f"c{i % 2}", i % 3 % 2] for i in range(80)
    ]
    data = federate(from_file(_csv(tmp_path / "rows.csv", rows)), Natural(), test_share=0)
    kinds = [(feature.column, feature.kind, feature.category) for feature in data.encoding]
    assert ("age", "missing", None) in kinds
    assert ("colour", "missing", None) in kinds
    assert ("colour", "category", "a") in kinds
    flag = data.features.index("age missing")
    assert data.train.x[:, flag].sum() == 20


def test_a_row_without_a_label_is_left_out_and_a_site_must_be_named(write: Any) -> None:
    data = from_file(write(_changed(2, "y", "")))
    assert data.train.y.tolist() == [0, 1, 1, 1]
    assert any("1 rows have no label in column 'y'" in note for note in data.notes)
    with pytest.raises(BadInput, match="row 3, column 'client' = '': the cell is empty"):
        from_file(write(_changed(2, "client", "")))


def test_missing_columns_get_a_hint(write: Any) -> None:
    with pytest.raises(BadInput, match=r"target = 'Y1'.*the columns are: 'age', 'colour', 'client', 'y'"):
        from_file(write(), target="Y1")
    with pytest.raises(BadInput, match=r"client = 'clinet'.*did you mean 'client'"):
        from_file(write(), client="clinet")
    with pytest.raises(BadInput, match=r"features = 'color'.*did you mean 'colour'"):
        from_file(write(), features=["age", "color"])
    with pytest.raises(BadInput, match="features = 'y': is the label column"):
        from_file(write(), features=["age", "y"])


def test_missing_and_strange_files(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match=r"nowhere\.csv does not exist"):
        from_file(tmp_path / "nowhere.csv")
    with pytest.raises(MissingData, match=r"nowhere\.npz does not exist"):
        from_file(tmp_path / "nowhere.npz")
    odd = tmp_path / "rows.doc"
    odd.write_bytes(b"PK")
    with pytest.raises(BadInput, match=r"must end in \.csv"):
        from_file(odd)
    fake = tmp_path / "fake.parquet"
    fake.write_bytes(b"not parquet")
    with pytest.raises(BadInput, match="not a readable Parquet file"):
        from_file(fake)
    for content, message in (
        (b"", "line of column names"),
        (b"age,client,y\n", "at least one row"),
        (b"age,y,age\n1,2,3\n", "column name = 'age': stands twice"),
        (b"age,client,y\n1,2,3\n1,2,3,4\n", "cells in row 2 = 4"),
        (b"age,client,y\n" + b"x" * 200_000 + b",2,3\n", "longest cell|not a CSV file"),
    ):
        path = tmp_path / "rows.csv"
        path.write_bytes(content)
        with pytest.raises(BadInput, match=message):
            from_file(path)


def test_a_byte_order_mark_blank_lines_and_another_delimiter_are_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes("\ufeffage; client; y\n1; a; 0\n\n2.5; b; 1\n".encode())
    table = fit_transform(from_file(path, delimiter=";", standardise=False)).train
    assert table.x.ravel().tolist() == [1, 2.5]
    assert table.columns["client"].tolist() == ["a", "b"]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("a,client,y\n1,x,0\n\n2,z\n", "cells in row 2 = 2: the first line names 3 columns"),
        ("a,client,y\n1,x,0\n  \n2,z,1,5\n", "cells in row 2 = 4"),
        ("a,client,y\n1,x,0,9\n2,z,1,9\n", "cells in row 1 = 4"),
        ("a,client,y,note\n1,x,0,\n2,z,1\n", "cells in row 2 = 3"),
        ('a,client,y\n1,x,0\n2,"z,1\n3,x,0\n', "is not a CSV file .*check the quotes"),
    ],
)
def test_rows_with_a_wrong_number_of_cells_are_named(tmp_path: Path, lines: str, message: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(lines, encoding="utf-8")
    with pytest.raises(BadInput, match=message):
        from_file(path)


def test_cells_stay_text_where_pandas_would_judge_them(tmp_path: Path) -> None:
    lines = 'a, client, y, note\n1, 007, "yes, sir",\n\n2, 07, no, x\n10, north, "say ""no""", nan\n'
    path = tmp_path / "rows.csv"
    path.write_text(lines, encoding="utf-8")
    table = fit_transform(from_file(path, features=["a"], standardise=False)).train
    assert table.columns["client"].tolist() == ["007", "07", "north"]
    assert table.classes == ("no", 'say "no"', "yes, sir")
    assert table.x.ravel().tolist() == [1, 2, 10]


@pytest.mark.parametrize("delimiter", ["\t", "|", " ", "§"])
def test_delimiters(tmp_path: Path, delimiter: str) -> None:
    path = tmp_path / "rows.txt"
    path.write_text("a,client,y\n1,x,0\n2,z,1\n".replace(",", delimiter), encoding="utf-8")
    assert fit_transform(from_file(path, delimiter=delimiter, standardise=False)).train.x.ravel().tolist() == [1, 2]
    path.write_text("a,client,y\n1,x,0\n2,z\n".replace(",", delimiter), encoding="utf-8")
    with pytest.raises(BadInput, match="cells in row 2 = 2"):
        from_file(path, delimiter=delimiter)


def test_importing_the_readers_does_not_import_pandas() -> None:
    code = "import sys; import fedsaddle.data.tables.own, fedsaddle.data.pictures; print('pandas' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "False"


def test_parquet_without_pyarrow_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _parquet(tmp_path / "rows.parquet")
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(BadInput, match=r'pip install "\.\[parquet\]"'):
        from_file(path)


def test_parquet_types(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "rows.parquet"
    columns = {
        "flag": pa.array([True, False, True]),
        "small": pa.array([1, 2, 3], pa.int8()),
        "kind": pa.array(["a", "b", "a"]).dictionary_encode(),
        "price": pa.array([Decimal("1.5"), Decimal("2.5"), Decimal("0.5")]),
        "client": pa.array([1, 2, 2]),
        "y": pa.array([0.5, 1.5, 2.5]),
    }
    pq.write_table(pa.table(columns), path)
    table = fit_transform(from_file(path, standardise=False)).train
    assert table.features == ("flag=false", "small", "kind=b", "price")
    assert table.x.tolist() == [[0, 1, 0, 1.5], [1, 2, 1, 2.5], [0, 3, 0, 0.5]]
    assert (table.classes, table.y.tolist()) == ((), [0.5, 1.5, 2.5])
    assert table.columns["client"].tolist() == ["1", "2", "2"]
    pq.write_table(pa.table(columns).slice(0, 0), path)
    with pytest.raises(BadInput, match=r"has no rows|at least one row"):
        from_file(path)
    pq.write_table(pa.table({**columns, "odd": pa.array([[1], [2], [3]])}), path)
    assert any("column 'odd' is left out: its type is" in note for note in from_file(path).notes)


def _targets(tmp_path: Path, cells: list[Any], **options: Any) -> Dataset:
    rows = [[i / 2, "c", i % 2, cell] for i, cell in enumerate(cells)]
    return from_file(_csv(tmp_path / "rows.csv", rows), **options)


def test_what_is_a_class_and_what_a_number(tmp_path: Path) -> None:
    whole = _targets(tmp_path, [3, 7, 3, 10]).train
    assert (whole.classes, whole.y.tolist()) == (("3", "7", "10"), [0, 1, 0, 2])
    assert _targets(tmp_path, [3, 7, 3, 10], task="regression").train.y.tolist() == [3, 7, 3, 10]
    assert _targets(tmp_path, [0.5, 1, 2, 3]).train.classes == ()
    assert _targets(tmp_path, list(range(101))).train.classes == ()
    assert len(_targets(tmp_path, list(range(101)), task="classes").train.classes) == 101
    with pytest.raises(BadInput, match=r"classes of 'y' = .*single class"):
        _targets(tmp_path, ["same"] * 4)
    with pytest.raises(BadInput, match="row 2, column 'y' = 'high': is not a number"):
        _targets(tmp_path, [1, "high", 2, 3], task="regression")
    with pytest.raises(BadInput, match="task = 'ranking'"):
        _targets(tmp_path, [1, 2], task="ranking")


def test_client_names(tmp_path: Path) -> None:
    def clients(ids: list[Any]) -> list[Any]:
        rows = [[i, "c", who, i % 2] for i, who in enumerate(ids)]
        return list(from_file(_csv(tmp_path / "rows.csv", rows)).train.columns["client"].tolist())

    assert clients([10, 9, 10]) == ["10", "9", "10"]
    assert clients(["007", "7", "07"]) == ["007", "7", "07"]
    assert clients(["1" * 30, "2"]) == ["1" * 30, "2"]
    with pytest.raises(BadInput, match=r"clients in column 'client'.*one client is no federation"):
        clients(["a", "a"])


def test_without_a_client_column(tmp_path: Path) -> None:
    path = _csv(tmp_path / "rows.csv", [[1, 0], [2, 1], [3, 0], [4, 1]], ["age", "y"])
    data = federate(from_file(path, client=None), Iid(2), test_share=0)
    assert data.train.sizes.tolist() == [2, 2]


def test_one_odd_cell_among_numbers_is_named(tmp_path: Path) -> None:
    rows = [[i if i else "oops", "c", i % 2, i % 2] for i in range(1500)]
    path = _csv(tmp_path / "rows.csv", rows)
    with pytest.raises(BadInput, match=r"column 'age' = \['oops'\]: are not numbers as the other cells are"):
        from_file(path)
    assert np.isfinite(fit_transform(from_file(path, numeric=["age"])).train.x).all()


def test_huge_numbers_are_named_not_turned_into_infinity(tmp_path: Path) -> None:
    path = _csv(tmp_path / "rows.csv", _changed(1, "age", "1e300"))
    for standardise in (True, False):
        with pytest.raises(BadInput, match=r"row 2, column 'age' = 1e\+300: is not a finite number"):
            from_file(path, standardise=standardise)


def test_the_positive_value_is_class_1(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("client,a,y\n" + "".join(f"{i % 2},{i},{'yes' if i < 3 else 'no'}\n" for i in range(9)))
    assert from_file(path).train.classes == ("no", "yes")
    turned = from_file(path, positive="no").train
    assert turned.classes == ("yes", "no")
    assert turned.y.tolist() == [0, 0, 0, 1, 1, 1, 1, 1, 1]
    with pytest.raises(BadInput, match="positive = 'maybe': is not a value of column 'y'; there are: no, yes"):
        from_file(path, positive="maybe")


@pytest.mark.parametrize(("cells", "positive"), [("012", 2), ("abc", "c")])
def test_one_value_against_all_others(tmp_path: Path, cells: str, positive: int | str) -> None:
    path = tmp_path / "t.csv"
    path.write_text("client,a,y\n" + "".join(f"{i % 2},{i},{cells[i % 3]}\n" for i in range(9)))
    table = from_file(path, positive=positive).train
    assert table.y.tolist() == [0, 0, 1] * 3
    assert table.classes == (f"not {positive}", str(positive))


def test_truth_values_name_the_positive(tmp_path: Path) -> None:
    for cells in (("False", "True"), ("false", "true"), ("0", "1")):
        path = tmp_path / "t.csv"
        path.write_text("client,a,y\n" + "".join(f"{i % 2},{i},{cells[i % 2]}\n" for i in range(8)))
        assert from_file(path, positive=True).train.y.tolist() == [0, 1] * 4


def test_the_encoding_makes_the_features_again(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("client,age,sex,y\n" + "".join(f"{i % 2},{i * i},{'fm'[i % 2]},{i % 3}\n" for i in range(9)))
    data = fit_transform(from_file(path, hinges=2))
    assert [(e.column, e.kind) for e in data.encoding] == [
        ("age", "number"),
        ("sex", "category"),
        ("age", "hinge"),
        ("age", "hinge"),
    ]
    age, first = data.encoding[0], data.encoding[2]
    z = np.array([(i * i - age.mean) / age.std for i in range(9)])
    assert data.train.x[:, 0] == pytest.approx(z, abs=1e-6)
    assert data.train.x[:, 2] == pytest.approx(np.maximum(z - first.knot, 0), abs=1e-6)
    assert [Encoded.from_dict(e.to_dict()) for e in data.encoding] == list(data.encoding)
    plain = fit_transform(from_file(path, standardise=False)).encoding[0]
    assert (plain.mean, plain.std) == (0.0, 1.0)


def test_an_intercept_for_each_site(tmp_path: Path) -> None:
    data = federate(from_file(_csv(tmp_path / "rows.csv"), site_intercept=True), Natural(), test_share=0)
    assert data.features[-2:] == ("client=north", "client=south")
    assert data.train.x[:, -2:].tolist() == [[1, 0]] * 2 + [[0, 1]] * 3
    assert [feature.unknown for feature in data.encoding[-2:]] == [0.4, 0.6]
