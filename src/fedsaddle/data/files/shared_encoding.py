"""The encoding that several sites share: each site reports facts about its rows, never rows, and all encode alike.

The facts of a site are its numbers of rows; its labels and their counts; for each numeric feature the count, the mean
and the sum of squared deviations; for each text feature its values. They determine the same classes, scaling and
one-hot columns as one pooled file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedsaddle.data.files.cells import MAX_AUTO_CLASSES, need_numbers, numbers, whole
from fedsaddle.data.files.encode import Scale, one_hot, ordinal
from fedsaddle.data.files.site_file import RawRows
from fedsaddle.data.files.tables import two_classes
from fedsaddle.data.table import Array, Table
from fedsaddle.errors import BadInput

MAX_VALUES = 1000  # distinct labels or texts that a site may report
Facts = dict[str, Any]


def site_facts(raw: RawRows, standardise: bool) -> Facts:
    """The facts about this site's rows."""
    return {
        "rows": len(raw.train),
        "test_rows": len(raw.test),
        "validation_rows": len(raw.validation),
        "target": _labels(raw),
        "features": [_feature(raw, name, standardise) for name in raw.features],
    }


def _labels(raw: RawRows) -> Facts:
    values = whole(raw.columns[raw.target], raw.target)
    if values.dtype.kind == "f":
        return {"kind": "real"}
    found, at = np.unique(values, return_inverse=True)
    if len(found) > MAX_VALUES:
        return {"kind": "real"}
    counts = np.bincount(at[raw.train], minlength=len(found))
    return {
        "kind": "text" if values.dtype.kind == "U" else "whole",
        "values": found.tolist(),
        "counts": counts.tolist(),
    }


def _feature(raw: RawRows, name: str, standardise: bool) -> Facts:
    column = raw.columns[name]
    if column.dtype.kind == "U" and numbers(column, name) is None:
        found = np.unique(column)
        if len(found) > MAX_VALUES:
            raise BadInput(
                f"different values of column '{name}'",
                len(found),
                "too many for a text feature; leave it out of `features`",
            )
        return {"name": name, "texts": found.tolist()}
    x = need_numbers(column, name)
    known: Facts = {"name": name, "shape": list(x.shape[1:])}
    if standardise:
        axis = None if x.ndim > 2 else 0
        mean = np.mean(x, axis=axis, dtype=np.float64)
        known |= {"count": x.size if axis is None else len(x), "mean": np.asarray(mean).tolist()}
        known["squares"] = np.asarray(np.square(x - mean).sum(axis=axis)).tolist()
    return known


def merge_facts(
    facts: Sequence[Facts],
    names: Sequence[str],
    task: str = "auto",
    positive: str | int | bool | None = None,
    target: str = "y",
) -> Facts:
    """The encoding for the facts of all sites, given in the order of `names`.

    With `positive`, that value of the column `target` is class 1 and all others are class 0.
    """
    columns = [[f["name"] for f in one["features"]] for one in facts]
    for name, own in zip(names, columns, strict=True):
        if own != columns[0]:
            raise BadInput(f"columns of {name}", own, f"{names[0]} has {columns[0]}; all sites need the same ones")
    values, counts = _classes([one["target"] for one in facts], names, task)
    labels: Facts = {"values": values, "classes": values, "counts": counts}
    if positive is not None:
        index, both = two_classes([str(v) for v in values or ()], positive, target)
        others = sum(counts) - counts[index]
        labels = {"values": values, "classes": list(both), "counts": [others, counts[index]], "positive": index}
    features = [_merge_feature([one["features"][k] for one in facts], names) for k in range(len(columns[0]))]
    return {**labels, "features": features}


def _classes(facts: Sequence[Facts], names: Sequence[str], task: str) -> tuple[list[Any] | None, list[int]]:
    """The sorted labels and their counts; None for a regression target."""
    kinds = {one["kind"] for one in facts}
    if "text" in kinds and len(kinds) > 1:
        odd = next(name for name, one in zip(names, facts, strict=True) if one["kind"] != "text")
        raise BadInput(
            f"target of {odd}", "numbers", "other sites have texts; write the labels in the same way at all sites"
        )
    values = sorted({v for one in facts for v in one.get("values", [])})
    if task == "regression" or (task == "auto" and ("real" in kinds or len(values) > MAX_AUTO_CLASSES)):
        return None, []
    if "real" in kinds:
        raise BadInput("task", task, "the target has real values; use 'regression'")
    if len(values) < 2:
        raise BadInput("classes of all sites", values, "training needs two classes or more; choose another target")
    total = dict.fromkeys(values, 0)
    for one in facts:
        for value, count in zip(one["values"], one["counts"], strict=True):
            total[value] += count
    return values, list(total.values())


def _merge_feature(facts: Sequence[Facts], names: Sequence[str]) -> Facts:
    first, texts = facts[0], ["texts" in one for one in facts]
    if any(texts) and not all(texts):
        odd = names[texts.index(False)]
        raise BadInput(
            f"column '{first['name']}' of {odd}",
            "numbers",
            "other sites have texts; write it in the same way at all sites",
        )
    if all(texts):
        return {"name": first["name"], "texts": sorted({t for one in facts for t in one["texts"]})}
    for name, one in zip(names, facts, strict=True):
        if one["shape"] != first["shape"]:
            remedy = f"{names[0]} has {first['shape']}; all sites need the same"
            raise BadInput(f"shape of rows of {name}", one["shape"], remedy)
    merged: Facts = {"name": first["name"], "shape": first["shape"]}
    if "mean" in first:
        n = sum(one["count"] for one in facts)
        means = [np.asarray(one["mean"]) for one in facts]
        mean = sum(one["count"] * m for one, m in zip(facts, means, strict=True)) / n
        squares = sum(
            np.asarray(one["squares"]) + one["count"] * np.square(m - mean) for one, m in zip(facts, means, strict=True)
        )
        scale = Scale.from_moments(np.asarray(mean), np.sqrt(np.asarray(squares) / n))
        merged |= {"mean": scale.mean.tolist(), "std": scale.std.tolist()}
    return merged


def encode(raw: RawRows, encoding: Mapping[str, Any]) -> tuple[Table, Table, Table]:
    """Encode this site's training, validation and test rows; the last two tables may be empty."""
    blocks, names = [], []
    for feature in encoding["features"]:
        block, new = _encode_column(raw.columns[feature["name"]], feature)
        blocks.append(block)
        names += new
    x = blocks[0] if len(blocks) == 1 else np.concatenate(blocks, axis=1)
    y, classes = _codes(raw, encoding)
    features = names if len(names) == int(np.prod(x.shape[1:])) else []
    parts = (raw.train, raw.validation, raw.test)
    train, validation, test = (Table.of(x[rows], y[rows], None, classes, features) for rows in parts)
    train.check()
    for held in (validation, test):
        if len(held):
            held.check()
    return train, validation, test


def _encode_column(column: Array, feature: Mapping[str, Any]) -> tuple[Array, list[str]]:
    name = feature["name"]
    if "texts" in feature:
        return one_hot(column.astype(str), np.array(feature["texts"])), [f"{name}={text}" for text in feature["texts"]]
    x = need_numbers(column, name)
    x = x[:, None] if x.ndim == 1 else x
    if "mean" not in feature:
        return x.astype(np.float32), [name]
    return Scale(np.asarray(feature["mean"]), np.asarray(feature["std"])).apply(x), [name]


def _codes(raw: RawRows, encoding: Mapping[str, Any]) -> tuple[Array, tuple[str, ...]]:
    column = raw.columns[raw.target]
    if encoding["classes"] is None:
        return need_numbers(column, raw.target), ()
    known = np.array(encoding["values"])
    codes = ordinal(whole(column, raw.target).astype(known.dtype), known)
    if (codes < 0).any():
        raise BadInput(
            f"column '{raw.target}'",
            str(column[int(np.argmin(codes))]),
            "is not among the classes of the run; correct the label",
        )
    y = (codes == encoding["positive"]).astype(np.int64) if "positive" in encoding else codes
    return y, tuple(str(c) for c in encoding["classes"])
