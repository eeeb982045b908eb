"""Columns whose values are groups: how cells become names, and which rows they stay with."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fedsaddle as fs
from fedsaddle.data.splits import Natural
from fedsaddle.data.table import GROUP
from fedsaddle.errors import BadInput


def frame(rows=120, **columns):
    rng = np.random.default_rng(0)
    known = {
        "hospital": np.arange(rows) % 3, "age": rng.integers(20, 90, rows), "sex": np.arange(rows) % 2,
        "ill": rng.random(rows) < 0.4, "x": rng.normal(size=rows),
    }  # fmt: skip
    return pd.DataFrame(known | columns)


def groups(table, column, **options):
    data = fs.from_frame(table, site="hospital", label="ill", groups=[column], **options)
    return data.train.columns[GROUP + column]


def test_numbers_are_cut_into_quarters_of_the_rows():
    table = frame()
    found = groups(table, "age")
    names, counts = np.unique(found, return_counts=True)
    assert len(names) == 4
    assert counts.max() - counts.min() <= 12  # ties stay together
    for name in names:
        own = table.age[found == name]
        if name.startswith("up to "):
            assert own.max() == int(name.removeprefix("up to "))
        elif name.endswith(" or more"):
            assert own.min() == int(name.removesuffix(" or more"))
        else:
            assert [own.min(), own.max()] == [int(end) for end in name.split(" to ")]


def test_few_numbers_and_words_are_groups_as_they_are():
    assert set(groups(frame(), "sex")) == {"0", "1"}
    assert set(groups(frame(stage=np.arange(120) % 10 / 2), "stage")) == {f"{k / 2:g}" for k in range(10)}
    assert set(groups(frame(race=["a", "b", "c"] * 40), "race")) == {"a", "b", "c"}
    assert set(groups(frame(flag=[True, False] * 60), "flag")) == {"true", "false"}


def test_missing_cells_are_a_group():
    table = frame(race=["a", None, "", "b"] * 30)
    assert (groups(table, "race") == "(missing)").sum() == 60
    table.loc[:9, "age"] = np.nan
    assert (groups(table, "age") == "(missing)").tolist() == [True] * 10 + [False] * 110
    assert set(groups(frame(empty=[None] * 120), "empty")) == {"(missing)"}


def test_the_smallest_of_many_groups_are_one():
    words = [f"w{min(k, 24)}" for k in range(120)]  # w24 is by far the largest
    found = groups(frame(race=words), "race")
    assert len(set(found)) == 20
    assert "w24" in found
    assert (found == "(other)").sum() == 24 - 18
    twenty = groups(frame(race=[f"w{k % 20}" for k in range(120)]), "race")
    assert "(other)" not in twenty


def test_dates_and_skewed_numbers_have_names_too():
    dates = pd.date_range("2025-01-01", periods=120)
    for column in (dates, dates.strftime("%Y-%m-%d")):
        names = set(groups(frame(seen=column), "seen"))
        assert "up to 2025-01-30" in names
        assert len(names) == 4
    zeros = groups(frame(dose=np.r_[np.zeros(100), np.arange(1, 21)]), "dose")
    assert set(zeros) == {"up to 0", "1 or more"}
    close = groups(frame(dose=1000 + np.arange(120) / 1e6), "dose")
    assert len(set(close)) == 4


def test_a_dropped_column_is_a_group_and_no_feature():
    data = fs.from_frame(frame(), site="hospital", label="ill", groups=["sex"], drop=["sex"])
    split = fs.federate(data, Natural("hospital"), test_share=0.3, validation_share=0.2)
    assert not any("sex" in name for name in split.features)
    table = frame()
    for rows, found in ((split.test_rows, split.test_groups), (split.validation_rows, split.validation_groups)):
        assert found["sex"].tolist() == table.sex.astype(str).to_numpy()[rows].tolist()
    assert split.without_test().test_groups == {}


def test_a_group_column_that_is_not_dropped_stays_a_feature():
    data = fs.from_frame(frame(), site="hospital", label="ill", groups=["age"])
    assert "age" in fs.federate(data, Natural("hospital")).features


def test_rows_without_a_label_take_their_groups_with_them(tmp_path):
    table = frame(race=[f"r{k % 4}" for k in range(120)])
    table["ill"] = table.ill.astype(object)
    table.loc[::5, "ill"] = None
    path = tmp_path / "t.csv"
    table.to_csv(path, index=False)
    data = fs.from_file(path, target="ill", client="hospital", task="classes", groups=["race"])
    split = fs.federate(data, Natural("hospital"), test_share=0.4)
    assert split.test_groups["race"].tolist() == table.race.to_numpy()[split.test_rows].tolist()


def test_an_official_test_file_has_the_quarters_of_both(tmp_path):
    for name, rows in (("train", slice(0, 90)), ("test", slice(90, None))):
        frame()[rows].to_csv(tmp_path / f"{name}.csv", index=False)
    data = fs.from_file(
        tmp_path / "train.csv", target="ill", client="hospital", test_path=tmp_path / "test.csv", groups=["age"]
    )
    assert set(data.test.columns[GROUP + "age"]) <= set(data.train.columns[GROUP + "age"])


@pytest.mark.parametrize(
    ("column", "remedy"), [("aeg", "did you mean 'age'"), ("ill", "another role"), ("hospital", "role")]
)
def test_columns_that_cannot_be_groups_are_refused(column, remedy):
    with pytest.raises(BadInput, match=remedy):
        groups(frame(), column)
    with pytest.raises(BadInput, match="groups"):
        fs.from_frame(frame(), site="hospital", label="ill", groups="age")


def test_odd_cells_among_numbers_make_words_of_all():
    cells = [str(k) for k in range(118)] + ["n1", "n2"]
    found = groups(frame(code=cells), "code", drop=["code"])
    assert "(other)" in found
