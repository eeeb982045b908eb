"""Encoding from facts of several sites is that of one pooled file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fedsaddle.data.files.shared_encoding import encode, merge_facts, site_facts
from fedsaddle.data.files.site_file import read_site
from fedsaddle.data.files.tables import from_file
from fedsaddle.errors import BadInput

HEAD = "age,sex,dose,hospital,label\n"
SITES = {
    "a": [(30, "f", 0.5, "a", "ill"), (41, "m", 0.25, "a", "ill"), (53, "f", 9.0, "a", "ill")],
    "b": [(29, "m", 1e6, "b", "well"), (77, "m", 3.5, "b", "ill")],
    "c": [(18, "x", 1.0, "c", "well"), (19, "f", 7.0, "c", "well"), (90, "f", 2.0, "c", "sick")],
}


def write(path: Path, rows) -> Path:
    path.write_text(HEAD + "".join(",".join(map(str, row)) + "\n" for row in rows))
    return path


def told(folder: Path, sites=SITES, **options):
    raws = [
        read_site(write(folder / f"{name}.csv", rows), "label", "hospital", **options) for name, rows in sites.items()
    ]
    return raws, [json.loads(json.dumps(site_facts(raw, standardise=True))) for raw in raws]


def test_sites_encode_as_one_pooled_file_would(tmp_path):
    raws, said = told(tmp_path, test_share=0.0)
    agreed = json.loads(json.dumps(merge_facts(said, tuple(SITES))))
    tables = [encode(raw, agreed)[0] for raw in raws]
    pooled = from_file(
        write(tmp_path / "all.csv", [r for rows in SITES.values() for r in rows]), "label", "hospital"
    ).train
    np.testing.assert_allclose(np.concatenate([t.x for t in tables]), pooled.x, rtol=1e-6, atol=1e-7)
    assert np.concatenate([t.y for t in tables]).tolist() == pooled.y.tolist()
    assert tables[0].classes == pooled.classes
    assert tables[0].features == pooled.features
    assert agreed["counts"] == [4, 1, 3]


def test_one_label_against_the_rest(tmp_path):
    raws, said = told(tmp_path, test_share=0.0)
    agreed = json.loads(json.dumps(merge_facts(said, tuple(SITES), positive="ill")))
    tables = [encode(raw, agreed)[0] for raw in raws]
    rows = [r for rows in SITES.values() for r in rows]
    pooled = from_file(write(tmp_path / "all.csv", rows), "label", "hospital", positive="ill").train
    assert np.concatenate([t.y for t in tables]).tolist() == pooled.y.tolist() == [1, 1, 1, 0, 1, 0, 0, 0]
    assert tables[0].classes == pooled.classes == ("not ill", "ill")
    assert agreed["counts"] == [4, 4]
    with pytest.raises(BadInput, match="positive = 'dead': is no value of column 'label'; there are: ill, sick, well"):
        merge_facts(said, tuple(SITES), positive="dead", target="label")


def test_every_class_is_held_out_alike(tmp_path):
    rows = [(30 + i, "f", 0.5, "a", "ill" if i % 5 == 0 else "well") for i in range(40)]
    raw = read_site(write(tmp_path / "a.csv", rows), "label", "hospital", test_share=0.25, stratify=True)
    labels = raw.columns["label"]
    assert [(labels[part] == "ill").sum() for part in (raw.train, raw.test)] == [6, 2]
    assert sorted([*raw.train, *raw.test]) == list(range(40))
    np.savez(tmp_path / "r.npz", x=np.ones((4, 2)), y=np.array([0.5, 1.5, 2.0, 3.0]))
    with pytest.raises(BadInput, match="stratify = True: needs data with one class a row"):
        read_site(tmp_path / "r.npz", stratify=True)


def test_a_column_that_keeps_rows_together(tmp_path):
    rows = [(30 + i, f"p{i // 4}", 0.5, "a", "ill" if i % 5 == 0 else "well") for i in range(40)]
    path = write(tmp_path / "a.csv", rows)
    raw = read_site(path, "label", "hospital", test_share=0.3, stratify=True, together="sex")
    assert raw.features == ("age", "dose")
    assert len(raw.test) == 12
    assert {r // 4 for r in raw.train}.isdisjoint({r // 4 for r in raw.test})
    with pytest.raises(BadInput, match="together = 'nobody'"):
        read_site(path, "label", "hospital", together="nobody")


def test_arrays_of_pictures(tmp_path):
    chance = np.random.default_rng(0)
    parts = {"a": chance.normal(2, 3, (5, 1, 4, 4)), "b": chance.normal(5, 1, (7, 1, 4, 4))}
    raws = []
    for name, x in parts.items():
        np.savez(tmp_path / f"{name}.npz", x=x, y=np.arange(len(x)) % 3, x_test=x[:2], y_test=np.array([0, 1]))
        raws.append(read_site(tmp_path / f"{name}.npz"))
    agreed = merge_facts([site_facts(raw, True) for raw in raws], tuple(parts))
    (train, _, test), _ = (encode(raw, agreed) for raw in raws)
    assert train.x.shape == (5, 1, 4, 4)
    assert len(test) == 2
    assert agreed["counts"] == [5, 4, 3], "of training rows"


def test_no_row_is_told(tmp_path):
    _, said = told(tmp_path)
    text = json.dumps(said)
    assert "1000000.0" not in text
    assert "77" not in text


def test_held_out_rows(tmp_path):
    raws, said = told(tmp_path, test_share=0.4)
    assert [(s["rows"], s["test_rows"]) for s in said] == [(2, 1), (1, 1), (2, 1)]
    assert sum(merge_facts(said, tuple(SITES))["counts"]) == 5
    assert not set(raws[0].train) & set(raws[0].test)


NUMBERS = {"kind": "whole", "values": [1], "counts": [2]}
ONE_CLASS = {"kind": "text", "values": ["a"], "counts": [1]}
BAD = {
    "another column": ("columns of b", lambda s: s[1]["features"].pop()),
    "texts where others have numbers": ("column 'age' of a", lambda s: s[1]["features"][0].update(texts=["x"])),
    "numbers for labels": ("target of b", lambda s: s[1].update(target=NUMBERS)),
    "one class": ("classes of all sites", lambda s: [x.update(target=ONE_CLASS) for x in s]),
}


@pytest.mark.parametrize(("complaint", "spoil"), BAD.values(), ids=BAD)
def test_sites_that_do_not_fit(tmp_path, complaint, spoil):
    _, said = told(tmp_path)
    spoil(said)
    with pytest.raises(BadInput) as reason:
        merge_facts(said, tuple(SITES))
    assert str(reason.value).startswith(complaint)


def test_regression_targets(tmp_path):
    for name in "ab":
        np.savez(tmp_path / f"{name}.npz", x=np.ones((4, 2)) * np.arange(4)[:, None], y=np.array([0.5, 1.5, 2.0, 3.0]))
    raws = [read_site(tmp_path / f"{name}.npz") for name in "ab"]
    agreed = merge_facts([site_facts(raw, False) for raw in raws], "ab")
    assert agreed["classes"] is None
    assert encode(raws[0], agreed)[0].y.dtype == np.float32
