"""Encoding from facts of several sites is that of one pooled file, bit for bit; what a site says is not trusted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from fedsaddle.data.cautions import cautions
from fedsaddle.data.federated import federate
from fedsaddle.data.splits import Natural
from fedsaddle.data.tables.agreed_encoding import (
    AgreedColumns,
    SiteCounts,
    SiteFacts,
    encode,
    merge_arrays,
    merge_labels,
    site_counts,
    site_facts,
)
from fedsaddle.data.tables.columns import MissingColumn
from fedsaddle.data.tables.own import from_file
from fedsaddle.data.tables.site_file import HeldOutShares, SiteFile
from fedsaddle.data.tables.small_cells import Disclosure
from fedsaddle.errors import BadInput

ALL = HeldOutShares(test=0.0)
OPTIONS = {"target": "label", "client": "hospital"}
HEAD = "age,sex,dose,ward,hospital,label"


def cells(site: str, rows: int) -> list[str]:
    """Rows with gaps, a skewed dose, and rare wards."""
    chance = np.random.default_rng(ord(site))
    made = []
    for _ in range(rows):
        age = "" if chance.random() < 0.2 else f"{chance.normal(50, 15):.1f}"
        sex = chance.choice(["f", "m", ""], p=[0.5, 0.4, 0.1])
        ward = chance.choice(["a", "b", f"only {site}"], p=[0.5, 0.4, 0.1])
        made.append(f"{age},{sex},{np.exp(3 * chance.normal()):.4f},{ward},{site},{chance.choice(['ill', 'well'])}")
    return made


SITES = {"a": cells("a", 41), "b": cells("b", 23), "c": cells("c", 60)}


def write(path: Path, rows: list[str], head: str = HEAD) -> Path:
    path.write_text("\n".join([head, *rows]) + "\n")
    return path


def through_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


def agree(files: dict[str, Path], shares: HeldOutShares = ALL, **options: Any) -> tuple[list[Any], dict[str, Any]]:
    """The rows of each site, and the encoding that the server makes from what they say, through JSON."""
    file, names = SiteFile.of_options({**OPTIONS, **options}), tuple(files)
    raws = [file.read(path, shares) for path in files.values()]
    how = Disclosure(task=options.get("task", "auto"), positive=options.get("positive"))
    told = [SiteFacts.model_validate(through_json(site_facts(raw, how).model_dump(mode="json"))) for raw in raws]
    agreed = merge_labels(told, names, how, "label")
    columns = AgreedColumns.of(told, names, file.how, file.columns)
    drafts = through_json([draft.to_dict() for draft in columns.drafts])
    counts = [SiteCounts.model_validate(through_json(site_counts(raw, drafts).model_dump())) for raw in raws]
    assert [[sum(one) for one in c.counts] for c in counts] == [columns.expected(i) for i in range(len(raws))]
    sizes = np.array([one.rows for one in told])
    agreed["features"] = [f.to_dict() for f in columns.encoding(counts, names, sizes, "hospital")]
    return raws, through_json(agreed | {"notes": columns.notes})


def site_paths(folder: Path, sites: dict[str, list[str]] = SITES, head: str = HEAD) -> dict[str, Path]:
    return {name: write(folder / f"{name}.csv", rows, head) for name, rows in sites.items()}


def pooled(folder: Path, sites: dict[str, list[str]] = SITES, **options: Any) -> Any:
    path = write(folder / "all.csv", [row for rows in sites.values() for row in rows])
    return federate(from_file(path, **OPTIONS, **options), Natural("hospital"), test_share=0)


def check_equal(folder: Path, sites: dict[str, list[str]] = SITES, **options: Any) -> dict[str, Any]:
    raws, agreed = agree(site_paths(folder, sites), **options)
    one = pooled(folder, sites, **options)
    assert agreed["features"] == through_json([feature.to_dict() for feature in one.encoding])
    tables = [encode(raw, agreed, name)[0] for raw, name in zip(raws, sites, strict=True)]
    np.testing.assert_array_equal(np.concatenate([t.x for t in tables]), one.train.x.numpy())
    assert np.concatenate([t.y for t in tables]).tolist() == one.train.y.tolist()
    assert (tables[0].classes, tables[0].features) == (one.classes, one.features)
    return agreed


CHOICES: dict[str, dict[str, Any]] = {
    "plain": {},
    "hinges and intercepts": {"hinges": 3, "site_intercept": True},
    "as they are": {"standardise": False},
    "listed": {"features": ["dose", "ward"]},
    "as categories": {"features": ["age", "sex", "ward"], "categorical": ["age"]},
    "one label against the rest": {"positive": "ill"},
}


@pytest.mark.parametrize("options", CHOICES.values(), ids=CHOICES)
def test_sites_encode_as_one_pooled_file_would(tmp_path, options):
    check_equal(tmp_path, **options)


def test_rows_without_a_label_are_left_out(tmp_path):
    sites = {name: [*rows, f"50,f,1.0,a,{name},"] for name, rows in SITES.items()}
    agreed = check_equal(tmp_path, sites)
    assert sum(agreed["counts"]) == 41 + 23 + 60


def test_a_column_that_is_empty_at_one_site(tmp_path):
    """It agrees with numbers and with categories elsewhere."""
    for column in (0, 1):
        sites = dict(SITES)
        sites["b"] = [",".join("" if k == column else c for k, c in enumerate(r.split(","))) for r in SITES["b"]]
        agreed = check_equal(tmp_path, sites)
        assert HEAD.split(",")[column] in {feature["column"] for feature in agreed["features"]}


def test_a_column_that_is_absent_at_one_site(tmp_path):
    paths = site_paths(tmp_path)
    lacking = [",".join(row.split(",")[:2] + row.split(",")[3:]) for row in SITES["a"]]
    write(paths["a"], lacking, "age,sex,ward,hospital,label")
    with pytest.raises(
        BadInput, match=r"columns of a = \"no 'dose'\": the file there lacks a column .*optional_columns"
    ):
        agree(paths)
    raws, agreed = agree(paths, optional_columns=["dose"])
    sites = SITES | {"a": [",".join(c if k != 2 else "" for k, c in enumerate(r.split(","))) for r in SITES["a"]]}
    one = pooled(tmp_path, sites)
    assert agreed["features"] == through_json([feature.to_dict() for feature in one.encoding])
    np.testing.assert_array_equal(encode(raws[0], agreed, "a")[0].x, one.train.client(0)[0].numpy())
    with pytest.raises(MissingColumn, match="features = 'dose': there is no such column"):
        agree(paths, features=["age", "dose"])


def test_columns_that_never_change_at_a_site(tmp_path):
    """One that differs between sites stays, one that is the same everywhere goes, as in a pooled file."""
    head = "age,kind,planet,hospital,label"
    sites = {
        name: [f"{row.split(',')[0]},{kind},earth,{name},{row.split(',')[-1]}" for row in SITES[name]]
        for name, kind in zip(SITES, (1, 1, 2), strict=True)
    }
    _, agreed = agree(site_paths(tmp_path, sites, head))
    assert [feature["column"] for feature in agreed["features"]][::2] == ["age", "kind"]
    assert agreed["notes"] == ["column 'planet' is left out: it has one value at all sites"]
    path = write(tmp_path / "all.csv", [row for rows in sites.values() for row in rows], head)
    one = federate(from_file(path, **OPTIONS), Natural("hospital"), test_share=0)
    assert agreed["features"] == through_json([feature.to_dict() for feature in one.encoding])


def test_the_unit_of_a_column_does_not_matter_to_the_sites(tmp_path):
    sites = {}
    for name, rows in SITES.items():
        cut = [row.split(",") for row in rows]
        sites[name] = [",".join([f"{c[0]}e-14" if c[0] else "", *c[1:]]) for c in cut]
    feature = check_equal(tmp_path, sites)["features"][0]
    assert feature["column"] == "age"
    assert 1e-14 < feature["std"] < 1e-12


def test_an_identifier_at_one_site_is_none_elsewhere(tmp_path):
    """A site with few rows cannot know it; nobody tells of the column's values that are known to be identifiers."""
    head = "who,age,hospital,label"
    sites = {
        name: [f"{name}-{i},{i % 7},{name},{'ill' if i % 3 else 'well'}" for i in range(n)]
        for name, n in (("a", 40), ("b", 6), ("c", 6))
    }
    raws, agreed = agree(site_paths(tmp_path, sites, head))
    assert {feature["column"] for feature in agreed["features"]} == {"age"}
    assert agreed["notes"] == ["column 'who' is left out: at a it looks like an identifier or free text"]
    assert "a-1" not in json.dumps(site_facts(raws[0]).model_dump())
    small = {name: rows[:12] for name, rows in sites.items()}
    _, agreed = agree(site_paths(tmp_path, small, head))
    assert "column 'who' is left out: it looks like an identifier (24 values in 24 rows)" in agreed["notes"][0]


def test_numbers_here_and_categories_there(tmp_path):
    paths = site_paths(tmp_path)
    write(paths["b"], [",".join(["old", *row.split(",")[1:]]) for row in SITES["b"]])
    with pytest.raises(BadInput, match=r"column 'age' of a = 'numbers': but categories at b; .*`categorical`"):
        agree(paths)
    _, agreed = agree(paths, categorical=["age"])
    assert {"old"} <= {feature.get("category") for feature in agreed["features"]}


def test_a_file_that_changed_after_the_agreement_is_refused(tmp_path):
    paths = site_paths(tmp_path)
    _, agreed = agree(paths)
    file = SiteFile.of_options(OPTIONS)
    for rows, head, said in (
        ([",".join(["old", *row.split(",")[1:]]) for row in SITES["a"]], HEAD, "column 'age' = 'category'"),
        ([row.partition(",")[2] for row in SITES["a"]], HEAD.partition(",")[2], "column 'age' = None"),
    ):
        raw = file.read(write(paths["a"], rows, head), ALL)
        with pytest.raises(BadInput, match=f"{said}: is no longer what the sites agreed on"):
            encode(raw, agreed, "a")


def test_labels_that_do_not_fit(tmp_path):
    paths = site_paths(tmp_path)
    write(paths["b"], [",".join([*row.split(",")[:-1], "1"]) for row in SITES["b"]])
    with pytest.raises(BadInput, match="target of b = 'numbers': other sites have texts"):
        agree(paths)
    same = {name: write(path, [f"{r.rpartition(',')[0]},ill" for r in SITES[name]]) for name, path in paths.items()}
    with pytest.raises(BadInput, match="classes of all sites = "):
        agree(same)
    with pytest.raises(BadInput, match="positive = 'dead': is not a value of column 'label'; there are: ill, well"):
        agree(site_paths(tmp_path), positive="dead")


def test_only_training_rows_are_told_of(tmp_path):
    """Another cell in a held-out row changes nothing that a site says."""
    file, shares = SiteFile.of_options(OPTIONS), HeldOutShares(test=0.25, validation=0.2, stratify=True)
    path = write(tmp_path / "a.csv", SITES["a"])
    raw = file.read(path, shares)
    parts = [set(raw.parts[part][1].tolist()) for part in ("train", "validation", "test")]
    assert sorted(parts[0] | parts[1] | parts[2]) == list(range(41))
    assert sum(map(len, parts)) == 41
    changed = list(SITES["a"])
    for row in parts[1] | parts[2]:
        changed[row] = ",".join(["99999.9", *changed[row].split(",")[1:]])
    again = file.read(write(path, changed), shares)
    assert site_facts(again) == site_facts(raw)
    told = site_facts(raw)
    assert (told.rows, told.validation_rows, told.test_rows) == tuple(map(len, parts))
    changed[min(parts[0])] = ",".join(["99999.9", *changed[min(parts[0])].split(",")[1:]])
    assert site_facts(file.read(write(path, changed), shares)) != site_facts(raw)


def test_no_row_is_told(tmp_path):
    raws, _ = agree(site_paths(tmp_path))
    told = json.dumps([site_facts(raw).model_dump() for raw in raws])
    doses = [row.split(",")[2] for rows in SITES.values() for row in rows]
    assert not [dose for dose in doses if dose.rstrip("0") in told]


def test_every_class_is_held_out_alike(tmp_path):
    rows = [f"{30 + i % 9}.5,f,0.5,a,a,{'ill' if i % 5 == 0 else 'well'}" for i in range(40)]
    raw = SiteFile.of_options(OPTIONS).read(write(tmp_path / "a.csv", rows), HeldOutShares(0.25, stratify=True))
    labels = raw.sources[0].labels
    assert [(labels[raw.parts[part][1]] == "ill").sum() for part in ("train", "test")] == [6, 2]
    np.savez(tmp_path / "r.npz", x=np.ones((4, 2)), y=np.array([0.5, 1.5, 2.0, 3.0]))
    with pytest.raises(BadInput, match="stratify = True: needs data with one class a row"):
        SiteFile().read(tmp_path / "r.npz", HeldOutShares(stratify=True))


def test_a_column_that_keeps_rows_together(tmp_path):
    rows = [f"{30 + i},p{i // 4},0.{i % 7},w,a,{'ill' if i % 5 == 0 else 'well'}" for i in range(40)]
    path = write(tmp_path / "a.csv", rows)
    file = SiteFile.of_options({**OPTIONS, "together": "sex"})
    raw = file.read(path, HeldOutShares(0.3, stratify=True))
    assert "sex" not in {column.name for column in site_facts(raw).columns}
    train, test = raw.train, raw.parts["test"][1]
    assert len(test) == 12
    assert {r // 4 for r in train}.isdisjoint({r // 4 for r in test})
    with pytest.raises(BadInput, match="together = 'nobody'"):
        SiteFile.of_options({**OPTIONS, "together": "nobody"}).read(path, ALL)


def test_a_test_file(tmp_path):
    test = write(tmp_path / "test.csv", SITES["c"][:9])
    raw = SiteFile.of_options(OPTIONS).read(write(tmp_path / "a.csv", SITES["a"]), HeldOutShares(0.5), test)
    assert [raw.count(part) for part in ("train", "validation", "test")] == [41, 0, 9]
    _, agreed = agree(site_paths(tmp_path))
    held = encode(raw, agreed, "a")[2]
    rows = SITES["c"][:9]
    assert held.y.tolist() == [row.endswith("well") for row in rows]


def test_arrays_of_pictures(tmp_path):
    chance = np.random.default_rng(0)
    parts = {"a": chance.normal(2, 3, (5, 1, 4, 4)), "b": chance.normal(5, 1, (7, 1, 4, 4))}
    raws = []
    for name, x in parts.items():
        np.savez(tmp_path / f"{name}.npz", x=x, y=np.arange(len(x)) % 3, x_test=x[:2], y_test=np.array([0, 1]))
        raws.append(SiteFile().read(tmp_path / f"{name}.npz", HeldOutShares()))
    told = [site_facts(raw) for raw in raws]
    agreed = through_json(merge_labels(told, "ab", Disclosure(), "y") | {"array": merge_arrays(told, "ab")})
    tables = [encode(raw, agreed, name) for raw, name in zip(raws, "ab", strict=True)]
    every = np.concatenate(list(parts.values()))
    np.testing.assert_allclose(
        np.concatenate([t[0].x for t in tables]), (every - every.mean()) / every.std(), rtol=1e-5, atol=1e-6
    )
    assert [len(part) for part in tables[0]] == [5, 0, 2]
    assert agreed["counts"] == [5, 4, 3], "of training rows"
    np.savez(tmp_path / "b.npz", x=np.ones((3, 5)), y=np.arange(3))
    told[1] = site_facts(SiteFile().read(tmp_path / "b.npz", ALL))
    with pytest.raises(BadInput, match=r"shape of rows of b = \[5\]: other sites have \[1, 4, 4\]"):
        merge_arrays(told, "ab")


def test_regression_targets(tmp_path):
    for name in "ab":
        np.savez(tmp_path / f"{name}.npz", x=np.ones((4, 2)) * np.arange(4)[:, None], y=np.array([0.5, 1.5, 2.0, 3.0]))
    raws = [SiteFile.encoded_already().read(tmp_path / f"{name}.npz", ALL) for name in "ab"]
    told = [site_facts(raw) for raw in raws]
    agreed = merge_labels(told, "ab", Disclosure(), "y") | {"array": merge_arrays(told, "ab")}
    assert agreed["classes"] is None
    table = encode(raws[0], agreed, "a")[0]
    assert table.y.dtype == np.float32
    assert table.x[:, 0].tolist() == [0, 1, 2, 3], "as they were"


SPOILT = {
    "a count below 0": lambda told: told["columns"][0].update(count=-1),
    "a mean that is NaN": lambda told: told["columns"][0].update(plain=[float("nan"), 1.0, 0.0]),
    "a sum of squares below 0": lambda told: told["columns"][0].update(plain=[0.0, -1.0, 0.0]),
    "moments without cubes": lambda told: told["columns"][0].update(plain=[0.0, 1.0]),
    "a mean that no cell can have": lambda told: told["columns"][0].update(plain=[1e300, 1.0, 0.0]),
    "more cells than rows": lambda told: told["columns"][0].update(count=10_000),
    "a count that is text": lambda told: told["columns"][1]["counts"].update(f="3"),
    "more labels than rows": lambda told: told["target"]["counts"].__setitem__(0, 77),
    "a label without a count": lambda told: told["target"]["counts"].pop(),
    "labels of another kind": lambda told: told["target"].update(kind="whole"),
    "a column twice": lambda told: told["columns"].append(told["columns"][0]),
    "no columns": lambda told: told.update(columns=[]),
    "columns and an array": lambda told: told.update(array={"shape": [2]}),
    "an unknown kind": lambda told: told["columns"][0].update(kind="rows"),
    "rows": lambda told: told.update(cells=[[1, 2]]),
    "a number of rows that is huge": lambda told: told.update(rows=10**400),
    "no rows": lambda told: told.update(rows=0),
}  # fmt: skip


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
def test_malformed_facts_are_refused(tmp_path, spoil):
    raw = SiteFile.of_options(OPTIONS).read(write(tmp_path / "a.csv", SITES["a"]), ALL)
    told = site_facts(raw).model_dump(mode="json")
    assert SiteFacts.model_validate(told) == site_facts(raw)
    spoil(told)
    with pytest.raises(ValidationError):
        SiteFacts.model_validate(told)


@pytest.mark.parametrize("counts", [[[1, 2]], [[-1] * 400], [["1"] * 400], [None], None])
def test_malformed_counts_are_refused(counts):
    SiteCounts.model_validate({"counts": [[1] * 400]})
    with pytest.raises(ValidationError):
        SiteCounts.model_validate({"counts": counts})


def test_simulated_sites_get_cautions(tmp_path):
    sites = {name: list(rows) for name, rows in SITES.items()} | {"d": cells("d", 30), "e": cells("e", 7)}
    sites["c"] = [",".join([f"{float(r.split(',')[0] or 50) * 12}", *r.split(",")[1:]]) for r in sites["c"]]
    sites["d"] = [f"{row.rpartition(',')[0]},ill" for row in sites["d"]]
    lines = "\n".join(cautions(pooled(tmp_path, sites)))
    assert "column 'age' at site 'c' is far from the other sites" in lines
    assert "site 'd' has training rows of one class only" in lines
    assert "site 'e' has fewer than 10 training rows" in lines
