"""The comparison itself: every small change to a folder is told, on the machine of the recording and elsewhere."""

from __future__ import annotations

import copy
import json

import pytest
from golden_folder import DOUBLE, HERE, SAME, as_text, differences, kept

RECORDED = json.loads((HERE / "simulation.json").read_text())


def changed(path: str, change):
    found = copy.deepcopy(RECORDED)
    *keys, last = path.split("/")
    at = found
    for key in keys:
        at = at[int(key) if isinstance(at, list) else key]
    change(at, int(last) if isinstance(at, list) else last)
    return found


def larger(at, key):
    at[key] *= 1 + 1e-6


def gone(at, key):
    del at[key]


def whole(at, key):
    at[key] = float(at[key])


def other(at, key):
    at[key] = f"other {at[key]}"


CHANGES = [
    ("summary/test/loss/worst", larger, ["summary.test.loss.worst"]),
    ("summary/ledger", gone, ["summary.ledger: is gone"]),
    ("summary/rounds", whole, ["summary.rounds: 12.0, not 12"]),
    ("summary/algorithm", other, ["summary.algorithm: 'other DRFA'"]),
    ("metrics/3/mixture/1", larger, ["metrics[3].mixture[1]"]),
    ("metrics/5", gone, ["metrics: 5 entries, not 6"]),
    ("model/tensors/1.weight/values/7", larger, ["model.tensors.1.weight.values[7]"]),
    ("files/2", gone, ["files: "]),
    ("predictions/probability/9", larger, ["predictions.probability[9]"]),
]


@pytest.mark.parametrize("tolerance", [SAME, DOUBLE])
@pytest.mark.parametrize(("path", "change", "said"), CHANGES, ids=[f"{c[1].__name__} {c[0]}" for c in CHANGES])
def test_a_change_is_told(path, change, said, tolerance):
    wrong = list(differences(RECORDED, changed(path, change), tolerance, digests=tolerance == SAME))
    assert [line.startswith(start) for line, start in zip(wrong, said, strict=True)] == [True]


def test_digests_count_on_the_machine_of_the_recording():
    found = changed("model/sha256", other)
    assert [line.partition(":")[0] for line in differences(RECORDED, found, SAME)] == ["model.sha256"]
    assert not list(differences(RECORDED, found, SAME, digests=False))


def test_nothing_is_told_of_the_same_folder():
    assert not list(differences(RECORDED, json.loads(as_text(RECORDED)), 0.0))
    assert not list(differences({"value": 0.0}, {"value": 1e-10}, DOUBLE, digests=False))
    nan = {"value": float("nan"), "others": [float("inf"), None]}
    assert not list(differences(nan, copy.deepcopy(nan), SAME))


@pytest.mark.parametrize(("one", "other"), [(float("inf"), 1.0), (float("nan"), 1.0), (1, True), (["a", "a"], ["a"])])
def test_values_of_another_kind(one, other):
    for recorded, found in ((one, other), (other, one)):
        assert list(differences({"value": recorded}, {"value": found}, SAME))


def test_what_is_dropped():
    document = {"seconds": 1.0, "cells": [{"runs": [{"seconds": 1.0, "seed": 0}]}], "ledger": {"bytes_up": 3}}
    assert kept(document) == {"cells": [{"runs": [{"seed": 0}]}], "ledger": {"bytes_up": 3}}
    assert kept({"sites": {"north": {"bytes_up": 3, "answered": 1}}}) == {"sites": {"north": {"answered": 1}}}
