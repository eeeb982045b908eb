"""The coefficients of a linear model by column, ratios with intervals, and the intercepts of the sites."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from safetensors import SafetensorError, safe_open

from fedsaddle.data.table import Encoded
from fedsaddle.documents.summary import Coefficient, Coefficients
from fedsaddle.report.page.charts import Bar, ChartAxis, ForestRow, Line, axis_for, bars, forest, line_chart
from fedsaddle.report.page.parts import Block, Chart, PageTable, Section
from fedsaddle.report.stored_run import StoredRun
from fedsaddle.report.words import decimal
from fedsaddle.text import visible

MOST_BARS = 30
MOST_SITES = 40
MOST_CURVES = 6
STYLES = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")
ODDS, SCORE = "log odds", "score"
UNITS = {
    ODDS: "Log odds: +0.7 doubles the odds of the outcome, −0.7 halves them.",
    SCORE: "The score ranks rows; it is no probability, so that only signs and relative sizes mean something.",
}
NOTE = (
    " Of a numeric column the effect of one standard deviation is shown. For categories, the effect is the difference "
    "between two bars; a value that is not listed has 0. All other columns are held fixed, so that correlated columns "
    "share their effect. The weights were shrunk towards 0 in training; they describe the model, are not causal and "
    "have no intervals."
)
RATIO_OF = {"odds ratio": "the odds of the outcome", "rate ratio": "the rate", "hazard ratio": "the hazard"}
PENALTY = (
    " The fit has a small penalty, which shrinks effects; intervals and p-values treat it as a normal prior, so that "
    "they are calibrated on average over the columns, and less so for a single strong effect among few rows."
)
ASSOCIATIONS = (
    " Each p-value is of one column (Wald test), without a correction for multiple tests. These are associations given "
    "the other columns, not causal effects."
)


@dataclass(frozen=True)
class Effect:
    """What one feature adds to the log odds, or to the score.

    Args:
        feature: Of the encoded table.
        change: Its weight.
    """

    feature: Encoded
    change: float

    @property
    def name(self) -> str:
        """The feature, in words."""
        f = self.feature
        if f.kind == "number":
            return f"{visible(f.column)}, per {'standard deviation of its logarithm' if f.log else f'{f.std:.3g}'}"
        words = {"missing": "is missing", "other": "is another value", "category": f"is {visible(f.category)}"}
        return f"{visible(f.column)} {words.get(f.kind, f.kind)}"


def effects(run: StoredRun) -> Section | None:
    """Ratios of the exact regression, and weights of a linear model, as changes of the log odds or of a score.

    Args:
        run: The run.
    """
    if run.outcome_summary is not None:
        own = run.outcome_summary.coefficients
        blocks = [] if own is None else _with_intervals(own, run.outcome_summary.choice)
        return Section("effects", "What the model looks at", blocks) if blocks else None
    read, unit = linear_effects(run), unit_of(run)
    summary, trees = run.search_summary, importances(run)
    found, choice = (summary.coefficients, summary.choice) if summary else (None, "")
    if not read and found is None and not trees:
        return None
    hinged = {e.feature.column for e in read if e.feature.kind == "hinge"}
    plain = [e for e in read if e.feature.kind != "site" and e.feature.column not in hinged]
    plain.sort(key=lambda e: -abs(e.change))
    blocks = [] if found is None else _with_intervals(found, choice)
    blocks += [_importances(trees)] if trees else []
    if plain and (found is None or found.of != choice):
        blocks.append(_bars_of_columns(plain, unit))
    if hinged:
        blocks.append(_curves(read, hinged, unit))
    sites = [e for e in read if e.feature.kind == "site"]
    if sites:
        blocks.append(_intercepts(sites, unit))
    return Section("effects", "What the model looks at", blocks)


def strongest(found: Coefficients) -> list[Coefficient]:
    """The coefficients, the one that is furthest from no effect in standard errors first.

    Args:
        found: Of the summary.
    """
    return sorted(found.listed, key=lambda one: -abs(one.estimate / one.standard_error))


def shown_value(found: Coefficients, value: float) -> float:
    """An estimate or a bound as it is shown: a ratio, or the difference itself.

    Args:
        found: Of the summary.
        value: On the scale of the linear predictor.
    """
    return value if found.measure == "difference" else math.exp(min(value, 700.0))


def shown(found: Coefficients, value: float) -> str:
    """The same as text, with three digits.

    Args:
        found: Of the summary.
        value: On the scale of the linear predictor.
    """
    value = shown_value(found, value)
    if value == 0:
        return "0"
    return decimal(value, max(2 - math.floor(math.log10(abs(value))), 0)) if 1e-3 < abs(value) < 1e5 else f"{value:.3g}"


def p_text(p: float) -> str:
    """A p-value.

    Args:
        p: Between 0 and 1.

    Examples:
        >>> p_text(0.03268), p_text(1e-9)
        ('0.033', '< 0.001')
    """
    return "< 0.001" if p < 0.001 else f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


def _with_intervals(found: Coefficients, choice: str) -> list[Block]:
    ordered, plural = strongest(found), f"{found.measure}s"
    ratio = found.measure != "difference"
    drawn = []
    for one in ordered[:MOST_BARS]:
        value, low, high = (shown_value(found, v) for v in (one.estimate, *one.interval))
        drawn.append(ForestRow(visible(one.name), (), value, low, high))
    values = [v for row in drawn for v in (row.value, row.low, row.high)]
    axis = axis_for(found.measure, [v if v is None else min(max(v, 0.01), 100.0) for v in values], log=ratio)
    axis = axis if ratio else axis_for(found.measure, [*values, 0.0])
    rows = [
        (
            visible(one.name),
            shown(found, one.estimate),
            " to ".join(shown(found, end) for end in one.interval),
            f"{one.standard_error:.3g}",
            p_text(one.p_value),
        )
        for one in ordered
    ]
    error = "standard error of its logarithm" if ratio else "standard error"
    said = "; ".join(f"{row[0]} {row[1]} ({row[2]})" for row in rows[:3])
    other = f" The chosen model is another: {visible(choice)}." if choice != found.of else ""
    patients = "" if found.patients is None else f" of {found.patients:,} patients, whose rows count together"
    what = (
        f"Each compares {RATIO_OF[found.measure]} of two rows that differ only in this column, by the named unit; 1 is "
        "no effect. "
        if ratio
        else "Each is the mean change of the outcome for the named unit, with all other columns equal. "
    )
    if found.against is not None:
        what += f"The class in front of each name is compared with {visible(found.against)!r}. "
    more = f" The {MOST_BARS} clearest of {len(rows)} are drawn; the table has all." if len(rows) > MOST_BARS else ""
    blocks: list[Block] = [
        Chart(
            title=f"{plural[0].upper()}{plural[1:]} with 95 % intervals",
            svg=forest(drawn, axis, heads=["column"], reference=1.0 if ratio else 0.0, key="ratios"),
            description=f"{found.measure.capitalize()} of {len(drawn)} effects. The clearest: {said}.",
            table=PageTable(("column", found.measure, "95 % interval", error, "p"), rows),
            note=f"{what}They are of {visible(found.of)}, on {found.rows:,} training rows{patients}.{other}"
            + (PENALTY if found.penalty else "")
            + ASSOCIATIONS
            + more,
        )
    ]
    if found.sites:
        blocks.append(_influence(found))
    return blocks


def _influence(found: Coefficients) -> PageTable:
    whole = {one.name: one.estimate for one in found.listed}
    rows = [
        (
            visible(one.site),
            f"{one.rows:,}",
            visible(one.coefficient),
            shown(found, whole[one.coefficient]),
            shown(found, one.estimate),
            decimal(one.change, 1, sign=True),
        )
        for one in sorted(found.sites, key=lambda one: -abs(one.change))
    ]
    heads = ("site left out", "its rows", "column that changes most", found.measure, "without it", "standard errors")
    return PageTable(heads, rows, caption="Without each site: does one site decide an effect?", folded=True)


def unit_of(run: StoredRun) -> str:
    """What the weights add to: log odds if scores are calibrated or trained as such, else a score.

    Args:
        run: The run.
    """
    fitted = run.finished is not None and run.finished.probabilities is not None
    trained = run.setting("problem", "loss") in ("logistic", "cross-entropy") and not run.is_search
    return ODDS if fitted or trained else SCORE


def linear_effects(run: StoredRun) -> list[Effect]:
    """The weights of a model that is one linear layer over the encoded features; empty for other models.

    Args:
        run: The run.
    """
    if not run.features or not run.files.model.exists():
        return []
    try:
        with safe_open(run.files.model, "np") as file:
            weights = [file.get_tensor(k) for k in file.keys() if k.endswith("weight")]  # noqa: SIM118
    except (SafetensorError, OSError):
        return []
    if len(weights) != 1 or weights[0].shape != (1, len(run.features)):
        return []
    fitted = run.finished.probabilities if run.finished else None
    slope = 1.0 if fitted is None else fitted.slope
    return [Effect(f, slope * float(w)) for f, w in zip(run.features, weights[0][0], strict=True)]


def importances(run: StoredRun) -> list[tuple[str, float]]:
    """Each column's share of what the splits of boosted trees gained, the largest first; empty for other models.

    Args:
        run: The run.
    """
    if not run.features or not run.files.model.exists():
        return []
    try:
        with safe_open(run.files.model, "np") as file:
            if not {"feature", "gain"} <= set(file.keys()):
                return []
            feature, gain = (file.get_tensor(name).ravel() for name in ("feature", "gain"))
    except (SafetensorError, OSError):
        return []
    total: dict[str, float] = {}
    for at, amount in zip(feature.astype(int), gain, strict=True):
        name = run.features[at].column if at < len(run.features) else ""
        total[name] = total.get(name, 0.0) + float(amount)
    whole = sum(total.values()) or 1.0
    return sorted(((visible(name), value / whole) for name, value in total.items() if value), key=lambda p: -p[1])


def _importances(found: Sequence[tuple[str, float]]) -> Chart:
    shown = found[:MOST_BARS]
    rows = [(name, f"{100 * share:.1f} %") for name, share in found]
    strongest = ", ".join(f"{name} ({share})" for name, share in rows[:3])
    return Chart(
        title="Columns: share of what the trees gain",
        svg=bars(
            [Bar(name, 100 * share, f"{100 * share:.0f} %") for name, share in shown],
            ChartAxis("% of the gain", 0, 100 * max(share for _, share in shown)),
            key="importances",
        ),
        description=f"Bars of {len(shown)} columns. The largest: {strongest}.",
        table=PageTable(("column", "share"), rows),
        note="The share of the reduction in training loss from splits on this column. It shows no direction, and "
        "of two strongly correlated columns it may name either.",
    )


def _bars_of_columns(plain: Sequence[Effect], unit: str) -> Chart:
    shown, rest = plain[:MOST_BARS], len(plain) - MOST_BARS
    strongest = ", ".join(f"{e.name} ({decimal(e.change, sign=True)})" for e in shown[:3])
    more = f" The {MOST_BARS} strongest of {len(plain)} are drawn; the table has all." if rest > 0 else ""
    return Chart(
        title=f"Columns: change of the {unit}",
        svg=bars([_bar(e.name, e.change) for e in shown], _axis([e.change for e in shown], unit), key="effects"),
        description=f"Bars of {len(shown)} weights. The strongest: {strongest}.",
        table=_table("column", [(e.name, e.change) for e in plain], unit),
        note=UNITS[unit] + NOTE + more,
    )


def _intercepts(sites: Sequence[Effect], unit: str) -> Chart:
    ordered = sorted(sites, key=lambda e: -e.change)
    middle = float(np.median([e.change for e in ordered]))
    few = len(ordered) > MOST_SITES
    shown = ordered if not few else [*ordered[: MOST_SITES // 2], *ordered[-MOST_SITES // 2 :]]
    rows = [(visible(e.feature.category), decimal(e.change, 3, sign=True)) for e in ordered]
    most, least = rows[0], rows[-1]
    text = (
        f"Intercepts of {len(ordered)} sites, from {most[1]} at {most[0]} to {least[1]} at {least[0]}, "
        f"median {decimal(middle, sign=True)}."
    )
    drawn = (
        f" The {MOST_SITES // 2} highest and the {MOST_SITES // 2} lowest are drawn; the table has all." if few else ""
    )
    return Chart(
        title="Intercepts of the sites",
        svg=bars(
            [_bar(visible(e.feature.category), e.change) for e in shown],
            _axis([e.change for e in shown], unit),
            key="intercepts",
        ),
        description=text,
        table=_table("site", [(visible(e.feature.category), e.change) for e in ordered], unit),
        note="The intercept of a site has what the columns do not explain: other patients, treatment or coding. "
        "The fewer rows a site has, the more it is shrunk towards 0. A new site gets the mean of all, weighted by rows."
        + drawn,
    )


def _curves(read: Sequence[Effect], hinged: set[str], unit: str) -> Chart:
    """Columns with a nonlinear effect: the sum of their line and hinges over two standard deviations each way."""
    z = np.linspace(-2, 2, 41)
    found = []
    for column in hinged:
        y = np.zeros_like(z)
        for e in read:
            if e.feature.column == column and e.feature.kind in ("number", "hinge"):
                y = y + e.change * (z if e.feature.kind == "number" else np.maximum(z - e.feature.knot, 0))
        found.append((visible(column), y - float(np.interp(0, z, y))))
    found.sort(key=lambda pair: -float(np.ptp(pair[1])))
    shown = found[:MOST_CURVES]
    lines = [Line(name, z.tolist(), y.tolist(), STYLES[k]) for k, (name, y) in enumerate(shown)]
    low, high = min(float(y.min()) for _, y in shown), max(float(y.max()) for _, y in shown)
    at = (-2, -1, 0, 1, 2)
    rows = [(name, *(decimal(float(v), 3, sign=True) for v in np.interp(at, z, y))) for name, y in found]
    return Chart(
        title="Columns with a nonlinear effect",
        svg=line_chart(
            lines,
            ChartAxis("standard deviations from the mean of the column", -2, 2),
            ChartAxis(f"change of the {unit}", *_room(low, high)),
            key="bends",
        ),
        description=f"Curves of {len(shown)} of {len(found)} columns; the widest range has {shown[0][0]}.",
        table=PageTable(("column", "−2 SD", "−1 SD", "mean", "+1 SD", "+2 SD"), rows),
        note="Each curve is 0 at the mean of its column. " + UNITS[unit] + NOTE,
    )


def _bar(name: str, value: float) -> Bar:
    return Bar(name, value, decimal(value, sign=True), "first" if value >= 0 else "second")


def _table(what: str, changes: Sequence[tuple[str, float]], unit: str) -> PageTable:
    rows = [(name, decimal(change, 3, sign=True), f"{np.exp(change):.2f}") for name, change in changes]
    return (
        PageTable((what, unit, "odds ratio"), rows)
        if unit == ODDS
        else PageTable((what, unit), [row[:2] for row in rows])
    )


def _axis(values: Sequence[float], unit: str) -> ChartAxis:
    return ChartAxis(f"change of the {unit}", *_room(min(0.0, *values, 0.0), max(0.0, *values, 0.0)))


def _room(low: float, high: float) -> tuple[float, float]:
    """A slightly wider range, which is never empty."""
    edge = 0.08 * (high - low) or 1.0
    return low - edge, high + edge
