"""Missing cells by column and site, from the facts that sites told before the first round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fedsaddle.data.tables.agreed_encoding import SiteFacts


class MissingCells(NamedTuple):
    """Of a column: the share of missing cells among all training rows, and of those sites that told any."""

    share: float
    sites: dict[str, float]


def missing_told(told: Sequence[SiteFacts], names: Sequence[str]) -> dict[str, MissingCells]:
    """The columns of which a site told missing cells; fewer than `minimum_cell` are not told.

    Args:
        told: The facts of each site.
        names: Of the sites.
    """
    rows = sum(facts.rows for facts in told)
    counts: dict[str, dict[str, int]] = {}
    for name, facts in zip(names, told, strict=True):
        for column in facts.columns:
            if column.missing:
                counts.setdefault(column.name, {})[name] = column.missing
    sizes = {name: facts.rows for name, facts in zip(names, told, strict=True)}
    return {
        column: MissingCells(
            sum(own.values()) / rows, {name: round(missing / sizes[name], 4) for name, missing in own.items()}
        )
        for column, own in counts.items()
    }
