"""What is said of the rows before training: each line, and silence where there is nothing to say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

import fedsaddle as fs
from fedsaddle.data.cautions import SitesSeen, cautions, cautions_of_run, cautions_of_sites
from fedsaddle.data.splits import Iid, Natural


def table(sizes: dict[str, int], positives: dict[str, int] | None = None, seed: int = 0) -> pd.DataFrame:
    """Sites of those sizes, a third of whose rows or the named number are positive."""
    rng, parts = np.random.default_rng(seed), []
    for site, n in sizes.items():
        up = (positives or {}).get(site, n // 3)
        parts.append(
            pd.DataFrame({"site": site, "lab": rng.lognormal(0, 0.5, n), "y": ["ill"] * up + ["well"] * (n - up)})
        )
    return pd.concat(parts, ignore_index=True)


def said(frame: pd.DataFrame) -> list[str]:
    made = fs.from_frame(frame, site="site", label="y", positive="ill")
    return cautions(fs.federate(made, Natural("site"), 0, 0.2, True, 0.16))


def test_nothing_is_said_of_plain_sites():
    assert said(table({"a": 100, "b": 90, "c": 200})) == []


def test_a_site_with_one_class_only():
    assert said(table({"a": 100, "b": 90, "c": 60}, {"c": 0})) == ["site 'c' has training rows of one class only"]
    assert said(table({"a": 100, "b": 90, "c": 60}, {"c": 60})) == ["site 'c' has training rows of one class only"]


def test_sites_with_few_positives():
    found = said(table({"a": 100, "b": 90, "c": 60, "d": 60}, {"c": 4, "d": 3}))
    assert found[0].startswith("2 sites (c, d) have fewer than 5 training rows that are 'ill': they count in the pool")
    assert len(found) == 1


def test_tiny_sites_are_named_but_not_all_of_them():
    sizes = {"a": 300, "b": 300} | {f"t{i}": 9 for i in range(7)}
    assert "7 sites (t0, t1, t2, t3, t4, ...) have fewer than 10 training rows" in said(table(sizes))


@pytest.mark.parametrize("factor", [1000.0, 1 / 1000, 88.4])
@pytest.mark.parametrize("sizes", [(100, 100, 100), (400, 300, 200, 40, 150), (60, 60, 60, 600)])
def test_other_units_at_one_site(factor, sizes):
    frame = table({f"s{i}": n for i, n in enumerate(sizes)})
    frame["lab"] += 5
    assert said(frame) == []
    at = frame["site"] == f"s{len(sizes) - 1}"
    frame.loc[at, "lab"] *= factor
    found = said(frame)
    assert len(found) == 1, found
    assert found[0].startswith(f"column 'lab' at site 's{len(sizes) - 1}' is far from the other sites (mean ")
    assert found[0].endswith("other units there?")


def test_shifted_sites_are_no_other_units():
    frame = table({"a": 100, "b": 90, "c": 200, "d": 50})
    for k, site in enumerate("abcd"):
        frame.loc[frame["site"] == site, "lab"] += 0.2 * k
    assert said(frame) == []


def test_few_positives_in_all():
    made = fs.from_frame(table({"a": 200, "b": 200}, {"a": 6, "b": 5}), site="site", label="y", positive="ill")
    data = fs.federate(made, Natural("site"), 0, 0.2, True, 0.16)
    train, validation, test = (int(part.y.sum()) for part in (data.train, data.validation, data.test))
    found = cautions(data)
    assert found[0] == (
        f"only {train} of {len(data.train.y)} training rows are 'ill': too few to learn from or to measure with; "
        "every figure below is uncertain"
    )
    assert f"only {validation} of the validation rows are 'ill': figures on them say little" in found
    assert f"only {test} of the test rows are 'ill': figures on them say little" in found


def seen(*labels: tuple[int, int]) -> SitesSeen:
    counts = np.array(labels)
    return SitesSeen([f"s{i}" for i in range(len(counts))], counts.sum(axis=1), ("no", "yes"), counts)


def test_one_positive_among_many():
    found = cautions_of_sites(seen((50_000, 0), (49_999, 1)))
    assert found[0].startswith("only 1 of 100,000 training rows are 'yes': too few to learn from")
    assert "site 's0' has training rows of one class only" in found
    assert any(line.startswith("site 's1' has fewer than 5 training rows that are 'yes'") for line in found)
    assert cautions_of_sites(seen((50_000, 20), (49_980, 10))) == ["only 30 of 100,010 training rows are 'yes'"]
    assert cautions_of_sites(seen((20, 50_000), (10, 49_980)))[0] == "only 30 of 100,010 training rows are 'no'"


def test_names_cannot_write_to_the_terminal():
    sites = SitesSeen(["a\x1b[2J", "b\nwarning: all is well"], np.array([3, 4]))
    (line,) = cautions_of_sites(sites)
    assert line == "2 sites (a\\x1b[2J, b\\nwarning: all is well) have fewer than 10 training rows"


def test_columns_of_zeros_and_ones_have_no_units():
    chance = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "site": np.repeat([f"h{i}" for i in range(30)], 40),
            "rare": (chance.random(1200) < 0.01).astype(int),
            "often": chance.integers(0, 2, 1200),
            "dose": chance.normal(5, 1, 1200),
            "y": chance.integers(0, 2, 1200),
        }
    )
    frame.loc[frame.site == "h3", ["rare", "often"]] = 1
    frame.loc[frame.site == "h3", "dose"] *= 1000
    data = fs.federate(fs.from_frame(frame, site="site", label="y"), Natural("site"), stratify=True)
    lines = [line for line in cautions(data) if "other units" in line]
    assert len(lines) == 1
    assert "column 'dose' at site 'h3'" in lines[0]


@pytest.mark.parametrize(
    ("cells", "caught"),
    [
        (lambda y: y.map({"ill": 1, "well": 0}), True),
        (lambda y: y.map({"ill": -3.5, "well": 8.25}), True),
        (lambda y: y.map({"ill": "in hospital", "well": "at home"}), True),
        (lambda y: [f"{v} {i % 3}" for i, v in enumerate(y)], True),  # six words, each of one class
        (lambda y: y.map({"ill": 1.0, "well": None}), True),  # known of the ill only
        (lambda y: [float(v == "ill") if i else 2.0 for i, v in enumerate(y)], True),
        (lambda y: [v if i % 9 else "other" for i, v in enumerate(y)], False),
        (lambda y: [f"word {i % 4}" for i in range(len(y))], False),
    ],
)
def test_a_column_that_is_the_label(cells, caught):
    frame = table({"a": 100, "b": 90, "c": 60})
    frame["leak"] = cells(frame["y"])
    found = [line for line in said(frame) if "separates" in line]
    assert len(found) == caught
    if caught:
        assert found[0].startswith(
            "column 'leak' alone separates 'ill' from 'well' in all training rows: if it is the "
        )


def test_cautions_of_any_run():
    made = fs.from_frame(table({"a": 100, "b": 90}), site="site", label="y", positive="ill")
    data = fs.federate(made, Natural("site"), 0, 0.2, True)
    assert cautions_of_run(data) == []
    one = replace(data, test=replace(data.test, y=torch.zeros_like(data.test.y)))
    assert cautions_of_run(one) == [
        "all test rows are 'well': there is no AUROC or average precision without both classes"
    ]
    assert cautions_of_run(fs.load("iris", split="iid", clients=3)) == []
    x, y = np.random.default_rng(0).normal(size=(60, 4)), np.arange(60) % 2
    x[:, 2] = y
    arrays = fs.federate(fs.from_arrays(x, y), Iid(3), 0, 0.2)
    assert [line.split(" alone")[0] for line in cautions_of_run(arrays)] == ["column 'x2'"]
