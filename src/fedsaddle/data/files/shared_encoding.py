"""How rows are encoded when they lie at several sites: each tells facts, never rows, and all encode alike.

What a site tells: its numbers of rows; the labels that occur and how often; of every numeric feature the count, mean
and summed squared deviation; of every text feature the values that occur. From these come the classes, the scaling and
the 0/1 columns that one pooled file would have given.
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

MAX_VALUES = 1000  # different labels or texts that a site may tell
Facts = dict[str, Any]


def site_facts(raw: RawRows, standardise: bool) -> Facts:
    """What this site tells of its rows."""
    return {
        "rows": len(raw.train),
        "test_rows": len(raw.test),
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
            raise BadInput(f"different values of column '{name}'", len(found), "leave it out of `features`")
        return {"name": name, "texts": found.tolist()}
    x = need_numbers(column, name)
    said: Facts = {"name": name, "shape": list(x.shape[1:])}
    if standardise:
        axis = None if x.ndim > 2 else 0
        mean = np.mean(x, axis=axis, dtype=np.float64)
        said |= {"count": x.size if axis is None else len(x), "mean": np.asarray(mean).tolist()}
        said["squares"] = np.asarray(np.square(x - mean).sum(axis=axis)).tolist()
    return said


def merge_facts(
    told: Sequence[Facts],
    names: Sequence[str],
    task: str = "auto",
    positive: str | int | bool | None = None,
    target: str = "y",
) -> Facts:
    """The encoding that fits the facts of all sites, in the order of their names.

    With `positive`, that value of the column `target` is class 1 and all others are class 0.
    """
    columns = [[f["name"] for f in each["features"]] for each in told]
    for name, own in zip(names, columns, strict=True):
        if own != columns[0]:
            raise BadInput(f"columns of {name}", own, f"{names[0]} has {columns[0]}; all sites need the same ones")
    values, counts = _classes([each["target"] for each in told], names, task)
    labels: Facts = {"values": values, "classes": values, "counts": counts}
    if positive is not None:
        index, both = two_classes([str(v) for v in values or ()], positive, target)
        others = sum(counts) - counts[index]
        labels = {"values": values, "classes": list(both), "counts": [others, counts[index]], "positive": index}
    features = [_merge_feature([each["features"][k] for each in told], names) for k in range(len(columns[0]))]
    return {**labels, "features": features}


def _classes(told: Sequence[Facts], names: Sequence[str], task: str) -> tuple[list[Any] | None, list[int]]:
    """The labels in order and how often each occurs; None for a regression target."""
    kinds = {each["kind"] for each in told}
    if "text" in kinds and len(kinds) > 1:
        odd = next(name for name, each in zip(names, told, strict=True) if each["kind"] != "text")
        raise BadInput(f"target of {odd}", "numbers", "other sites have texts; write the labels alike")
    values = sorted({v for each in told for v in each.get("values", [])})
    if task == "regression" or (task == "auto" and ("real" in kinds or len(values) > MAX_AUTO_CLASSES)):
        return None, []
    if "real" in kinds:
        raise BadInput("task", task, "the target has values that are no classes; use 'regression'")
    if len(values) < 2:
        raise BadInput("classes of all sites", values, "a single class leaves nothing to learn; choose another target")
    total = dict.fromkeys(values, 0)
    for each in told:
        for value, count in zip(each["values"], each["counts"], strict=True):
            total[value] += count
    return values, list(total.values())


def _merge_feature(told: Sequence[Facts], names: Sequence[str]) -> Facts:
    texts = ["texts" in each for each in told]
    if any(texts) and not all(texts):
        odd = names[texts.index(False)]
        raise BadInput(f"column '{told[0]['name']}' of {odd}", "numbers", "other sites have texts; write it alike")
    if all(texts):
        return {"name": told[0]["name"], "texts": sorted({t for each in told for t in each["texts"]})}
    for name, each in zip(names, told, strict=True):
        if each["shape"] != told[0]["shape"]:
            raise BadInput(f"shape of rows of {name}", each["shape"], f"{names[0]} has {told[0]['shape']}")
    said: Facts = {"name": told[0]["name"], "shape": told[0]["shape"]}
    if "mean" in told[0]:
        n = sum(each["count"] for each in told)
        means = [np.asarray(each["mean"]) for each in told]
        mean = sum(each["count"] * m for each, m in zip(told, means, strict=True)) / n
        squares = sum(
            np.asarray(each["squares"]) + each["count"] * np.square(m - mean)
            for each, m in zip(told, means, strict=True)
        )
        scale = Scale.from_moments(np.asarray(mean), np.sqrt(np.asarray(squares) / n))
        said |= {"mean": scale.mean.tolist(), "std": scale.std.tolist()}
    return said


def encode(raw: RawRows, agreed: Mapping[str, Any]) -> tuple[Table, Table]:
    """This site's training and test rows, encoded as agreed; the test table may be empty."""
    blocks, names = [], []
    for how in agreed["features"]:
        block, new = _encode_column(raw.columns[how["name"]], how)
        blocks.append(block)
        names += new
    x = blocks[0] if len(blocks) == 1 else np.concatenate(blocks, axis=1)
    y, classes = _codes(raw, agreed)
    features = names if len(names) == int(np.prod(x.shape[1:])) else []
    train, test = (Table.of(x[rows], y[rows], None, classes, features) for rows in (raw.train, raw.test))
    train.check()
    if len(test):
        test.check()
    return train, test


def _encode_column(column: Array, how: Mapping[str, Any]) -> tuple[Array, list[str]]:
    name = how["name"]
    if "texts" in how:
        return one_hot(column.astype(str), np.array(how["texts"])), [f"{name}={text}" for text in how["texts"]]
    x = need_numbers(column, name)
    x = x[:, None] if x.ndim == 1 else x
    if "mean" not in how:
        return x.astype(np.float32), [name]
    return Scale(np.asarray(how["mean"]), np.asarray(how["std"])).apply(x), [name]


def _codes(raw: RawRows, agreed: Mapping[str, Any]) -> tuple[Array, tuple[str, ...]]:
    column = raw.columns[raw.target]
    if agreed["classes"] is None:
        return need_numbers(column, raw.target), ()
    known = np.array(agreed["values"])
    codes = ordinal(whole(column, raw.target).astype(known.dtype), known)
    if (codes < 0).any():
        raise BadInput(f"column '{raw.target}'", str(column[int(np.argmin(codes))]), "is no class of the agreed ones")
    y = (codes == agreed["positive"]).astype(np.int64) if "positive" in agreed else codes
    return y, tuple(str(c) for c in agreed["classes"])
