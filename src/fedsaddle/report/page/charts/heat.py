"""Heat maps: a table whose cells are shaded by their share."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

from fedsaddle.report.page.charts.forest import name_cell
from fedsaddle.report.page.markup import tag

_MANY = 16  # columns beyond which cells have no room for a number
_WIDE = 6  # columns beyond which their heads stand upright
_SHADES = ((0.73, "deep"), (0.63, "mid"))  # where dark or light text has enough contrast, see the style sheet


def heat_map(
    rows: Sequence[str], columns: Sequence[str], shares: Sequence[Sequence[float]], *, key: str = ""
) -> Markup:
    """Shares from 0 to 1 as shades, with the number in each cell where there is room."""
    upright = len(columns) > _WIDE or any(len(name) > 10 for name in columns)
    kinds = ["rows", "heat", *["upright"] * upright, *["dense"] * (len(columns) > _MANY)]
    heads = (tag("th", tag("bdi", name), scope="col") for name in columns)
    body = (
        tag("tr", name_cell(name), *(_cell(share) for share in cells))
        for name, cells in zip(rows, shares, strict=False)
    )
    table = tag(
        "table",
        tag("thead", tag("tr", tag("td"), *heads)),
        tag("tbody", *body),
        class_=" ".join(kinds),
        data_kind="cells",
        data_key=key or None,
    )
    return tag("div", table, class_="wide")


def _cell(share: float) -> Markup:
    if not math.isfinite(share):
        return tag("td", "–")
    shade = min(max(share, 0.0), 1.0)
    kind = next((name for least, name in _SHADES if shade >= least), None)
    return tag("td", percent(share), style=f"--share:{shade:.3g}", class_=kind)


def percent(share: float) -> str:
    """A share as a percentage that is not rounded to 0 or 100.

    Example:
        >>> percent(0.123), percent(0.001), percent(0.999)
        ('12', '<1', '>99')
    """
    if 0 < share < 0.005:
        return "<1"
    return ">99" if 0.995 <= share < 1 else f"{100 * share:.0f}"
