"""Files of runs before intervals had a shape of their own, read as if they were written today."""

from __future__ import annotations

from typing import Any

from fedsaddle.metrics.ranking import FEW
from fedsaddle.stored import Record


def current_roc(stored: Record) -> Record:
    """roc.json with each figure as `{"value", "interval"}`; one that has this shape is returned as it is.

    The older one has plain AUROCs with an `interval` beside them, also of sites with fewer than five rows of a class.
    """
    models = stored.get("models")
    if not isinstance(models, dict) or not models or not all(map(_is_older, models.values())):
        return stored
    gap = stored.get("difference")
    older = isinstance(gap, dict) and "pooled_auroc" in gap
    return {
        **stored,
        "models": {name: _model(model) for name, model in models.items()},
        "difference": {"name": "pooled", "auroc": _figure(gap, "pooled_auroc")} if older else None,
    }


def current_feature(stored: Record) -> Record:
    """An entry of features.json with its kind; the older ones were numbers or categories, and did not say so."""
    if "kind" in stored:
        return stored
    return {**stored, "kind": "number" if stored.get("category") is None else "category"}


def _is_older(model: Any) -> bool:
    pooled = model.get("pooled") if isinstance(model, dict) else None
    return isinstance(pooled, dict) and isinstance(pooled.get("auroc"), float)


def _model(model: Record) -> Record:
    return {
        **model,
        "pooled": _ranked(model["pooled"]),
        "clients": [_ranked(client) for client in model.get("clients", ())],
        "within_site_auroc": None,
    }


def _ranked(found: Record) -> Record:
    counts = {key: found.get(key) for key in ("name", "positives", "negatives")}
    few = min(found.get("positives", 0), found.get("negatives", 0)) < FEW
    own = None if few else _figure(found, "auroc")
    return {**counts, "few": few, "auroc": own, "average_precision": None, "partial_auroc": None}


def _figure(found: Any, key: str) -> Record | None:
    value, ends = found.get(key), found.get("interval")
    return None if value is None or ends is None else {"value": value, "interval": ends}
