"""Groups of rows that all sites agreed on: columns under `data.groups` whose values the config lists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedsaddle.config.schema import Config
from fedsaddle.metrics.subgroups import GroupFigures
from fedsaddle.metrics.sum_decisions import groups_of_sums
from fedsaddle.metrics.sum_figures import SummedScores

MOST = 40  # groups, of all columns together


def agreed_groups(config: Config) -> list[tuple[str, str]]:
    """Column and value of each group; columns without listed values under `[data.categories]` have none.

    Score counts by group are small at a site, so that there are none without secure aggregation.
    """
    options = config.data.options() if config.data.name == "file" else {}
    listed = options.get("categories") or {}
    if not config.privacy.secure_aggregation:
        return []
    found = [(column, str(value)) for column in options.get("groups") or () for value in listed.get(column) or ()]
    return found[:MOST]


@dataclass(frozen=True)
class ColumnGroups:
    """The figures of the groups of one column."""

    column: str
    groups: tuple[GroupFigures, ...]


def figures_of_groups(
    whole: SummedScores, agreed: Sequence[tuple[str, str]], sums: Sequence[SummedScores], cut: int | None
) -> list[ColumnGroups]:
    """The figures of the groups of each column.

    Args:
        whole: All rows.
        agreed: Column and value of each group.
        sums: The rows of each group.
        cut: The first bin of those called positive; None: no threshold.
    """
    found = []
    for column in dict.fromkeys(column for column, _ in agreed):
        own = {value: one for (name, value), one in zip(agreed, sums, strict=True) if name == column}
        found.append(ColumnGroups(column, groups_of_sums(whole, own, cut)))
    return found
