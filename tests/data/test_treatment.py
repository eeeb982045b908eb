"""How columns become features, by hand: fills, logs, cuts, flags, rare categories, hinges and sites."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fedsaddle as fs
from fedsaddle.data.splits import Natural
from fedsaddle.data.table import Encoded
from fedsaddle.data.tables.columns import RawColumn
from fedsaddle.data.tables.features import TableFeatures
from fedsaddle.data.tables.treatment import CLIP, Treatment

STEP = 10 / 400  # the width of a bin, in standard deviations: medians are agreed by counts


def fitted(column: RawColumn, how: Treatment = Treatment(), sites: int = 2):  # noqa: B008
    """The features of one column, and their values, with its rows spread over some sites."""
    table = TableFeatures((column,), how)
    rows = np.arange(len(column.missing))
    parts = np.array_split(rows, sites)
    names = [f"s{i}" for i in range(sites)]
    found = table.fit(parts, names)
    return found.encoding, found.apply(table, parts, names)


def numbers(*cells: float) -> RawColumn:
    return RawColumn("v", np.array(cells, dtype=np.float64))


def test_a_plain_column_is_standardised_and_gaps_have_the_median():
    rng = np.random.default_rng(0)
    cells = rng.normal(50, 4, 300)
    cells[:12] = np.nan
    (number, missing), x = fitted(numbers(*cells))
    there = cells[12:]
    assert (number.kind, missing.kind) == ("number", "missing")
    assert [number.mean, number.std] == pytest.approx([there.mean(), there.std()])
    assert number.fill == pytest.approx(np.median(there), abs=STEP * there.std())
    assert x[12:, 0] == pytest.approx((there - there.mean()) / there.std(), abs=1e-6)
    assert x[:12, 0] == pytest.approx((number.fill - number.mean) / number.std, abs=1e-6)
    assert x[:, 1].tolist() == [1.0] * 12 + [0.0] * 288


@pytest.mark.parametrize("sites", [1, 2, 7])
def test_the_number_of_sites_does_not_matter(sites):
    cells = np.random.default_rng(0).lognormal(0, 2, 200)
    one, x = fitted(numbers(*cells), sites=1)
    other, z = fitted(numbers(*cells), sites=sites)
    assert [f.kind for f in one] == [f.kind for f in other]
    np.testing.assert_allclose(x, z, atol=1e-6)


def test_nine_gaps_have_no_flag():
    assert len(fitted(numbers(*[np.nan] * 9, *range(50)))[0]) == 1
    assert len(fitted(numbers(*[np.nan] * 10, *range(50)))[0]) == 2


def test_a_skewed_column_is_logged_and_what_is_far_out_is_cut():
    cells = np.exp(np.random.default_rng(0).normal(0, 2, 400))
    (number,), x = fitted(numbers(*cells))
    logs = np.log1p(cells)
    assert number.log
    assert x[:, 0] == pytest.approx(np.clip((logs - logs.mean()) / logs.std(), -CLIP, CLIP), abs=1e-5)
    both = np.concatenate([cells, -cells])  # symmetric: no log
    assert not fitted(numbers(*both))[0][0].log
    far = fitted(numbers(*np.random.default_rng(1).normal(size=400), 40.0, -40.0))[1]
    assert (far.max(), far.min()) == (CLIP, -CLIP)


def test_a_constant_column_is_zero():
    (number,), x = fitted(numbers(*[0.1] * 40))
    assert number.std == 1.0
    assert np.abs(x).max() < 1e-6
    _, x = fitted(numbers(*[0.1] * 40, *[np.nan] * 20))
    assert x[:, 0] == pytest.approx(x[0, 0], abs=2 * STEP)
    assert x[40:, 1].all()


@pytest.mark.parametrize("unit", [1e-11, 1e-12, 1e-15, 1e-30, 1e-120])
def test_the_unit_of_a_column_does_not_matter(unit):
    cells = np.random.default_rng(0).normal(3, 1, 300)
    cells[:12] = np.nan
    _, x = fitted(numbers(*cells))
    _, small = fitted(numbers(*(cells * unit)))
    np.testing.assert_allclose(small, x, atol=1e-5)


def test_hinges_bend_at_the_quartiles():
    cells = np.random.default_rng(0).normal(size=2000)
    features, x = fitted(numbers(*cells), Treatment(hinges=3))
    assert [f.kind for f in features] == ["number", "hinge", "hinge", "hinge"]
    z = (cells - cells.mean()) / cells.std()
    for k, share in enumerate((0.25, 0.5, 0.75), 1):
        assert features[k].knot == pytest.approx(np.quantile(z, share), abs=STEP)
        assert x[:, k] == pytest.approx(np.maximum(z - features[k].knot, 0), abs=1e-6)
    assert [f.kind for f in fitted(numbers(*[0, 1, 2] * 50), Treatment(hinges=3))[0]] == ["number"]  # too few values


def test_without_standardising_numbers_are_only_filled():
    cells = [3.0, np.nan, 5.0, 1e6]
    (number,), x = fitted(numbers(*cells), Treatment(standardise=False))
    assert x[[0, 2, 3], 0].tolist() == [3.0, 5.0, 1e6]
    assert np.isfinite(x).all()
    assert (number.log, number.clip) == (False, None)


def words(**counts: int) -> RawColumn:
    names = tuple(sorted(name for name in counts if name != "missing"))
    codes = [np.full(n, names.index(name) if name != "missing" else -1) for name, n in counts.items()]
    return RawColumn("w", None, np.concatenate(codes).astype(np.int32), names)


@pytest.mark.parametrize(
    ("counts", "features"),
    [
        ({"a": 30, "b": 20, "c": 10}, ["w=a", "w=b", "w=c"]),
        ({"a": 30, "b": 20, "c": 9, "d": 2}, ["w=a", "w=b", "w=other"]),
        ({"a": 30, "b": 20}, ["w=b"]),  # of two values one feature, that of the rarer
        ({"a": 30, "b": 20, "missing": 9}, ["w=b"]),
        ({"a": 30, "b": 20, "missing": 10}, ["w=a", "w=b", "w missing"]),
        ({"a": 4, "b": 3, "c": 2}, ["w=a", "w=b", "w=other"]),  # all are rare: the two most frequent
        ({"a": 30, "missing": 30}, ["w=a", "w missing"]),
    ],
)
def test_categories(counts, features):
    found, x = fitted(words(**counts))
    assert [f.name for f in found] == features
    names = np.repeat(list(counts), list(counts.values()))
    kept = {f.category for f in found}
    for k, f in enumerate(found):
        expected = {
            "category": names == f.category,
            "other": ~np.isin(names, [*kept, "missing"]),
            "missing": names == "missing",
        }[f.kind]
        assert x[:, k].tolist() == expected.astype(float).tolist()


def test_sites_have_intercepts_and_a_new_one_their_shares():
    table = TableFeatures((numbers(*range(20)),), Treatment(site_intercept=True))
    parts = [np.arange(12), np.arange(12, 15)]
    found = table.fit(parts, ["a", "b"])
    assert [(f.category, f.unknown) for f in found.encoding if f.kind == "site"] == [("a", 0.8), ("b", 0.2)]
    x = found.apply(table, [*parts, np.arange(15, 20)], ["a", "b", "new"])
    assert x[:, 1:].tolist() == [[1, 0]] * 12 + [[0, 1]] * 3 + [pytest.approx([0.8, 0.2])] * 5


def test_training_rows_alone_settle_the_treatment():
    rng = np.random.default_rng(0)
    n = 200
    frame = pd.DataFrame({"s": rng.choice(["a", "b"], n), "v": rng.normal(size=n), "w": rng.choice(list("xyz"), n)})
    frame["y"] = rng.random(n) < 0.4

    def made(table: pd.DataFrame) -> fs.FederatedData:
        data = fs.from_frame(table, site="s", label="y", hinges=3, site_intercept=True)
        return fs.federate(data, Natural("s"), 0, 0.2, True, 0.2)

    first = made(frame)
    held = np.concatenate([first.validation_rows, first.test_rows])
    assert len(held) + len(first.train_rows) == n
    changed = frame.copy()
    changed.loc[held, "v"] = 1e9
    changed.loc[held, "w"] = "other"
    second = made(changed)
    assert first.encoding == second.encoding
    assert (first.train.x == second.train.x).all()
    assert not (first.test.x == second.test.x).all()


def test_a_feature_survives_json():
    for feature in (
        Encoded("v", log=True, mean=0.5, std=2.0, clip=5.0, fill=0.25, written="decimal comma"),
        Encoded("v", "hinge", knot=-0.5, clip=5.0),
        Encoded("w", "other", known=("a", "b")),
        Encoded("s", "site", category="north", unknown=0.3),
    ):
        assert Encoded.from_dict(feature.to_dict()) == feature
