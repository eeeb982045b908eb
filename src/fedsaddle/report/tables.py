"""Tables for the terminal."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedsaddle.documents.summary import (
    PARTS,
    Budget,
    Figures,
    GroupLosses,
    RunSummary,
    SearchSummary,
    StoredFigure,
    ThresholdFigures,
)
from fedsaddle.metrics.selection import STATISTICS, bounds_in, is_side
from fedsaddle.report.words import bounds, plus_minus
from fedsaddle.text import visible

if TYPE_CHECKING:
    from fedsaddle.report.paired import SideBySide


def console() -> Console:
    """A console on standard output; 120 columns wide where it is not a terminal."""
    console = Console()
    return console if real_terminal(console) else Console(width=120)


def real_terminal(console: Console) -> bool:
    """Whether it is a terminal, rather than a file that FORCE_COLOR makes look like one.

    Args:
        console: Of rich.
    """
    return console.is_terminal and (not os.environ.get("FORCE_COLOR") or console.file.isatty())


def cell(name: object) -> str:
    """A name as plain text of a table: control characters and markup are escaped.

    Args:
        name: The text.
    """
    return escape(visible(name))


def megabytes(n: int) -> str:
    """A number of bytes in MB; two decimals below 100 MB.

    Args:
        n: Number of bytes.

    Examples:
        >>> megabytes(1_234_567)
        '1.23 MB'
    """
    return f"{n / 1e6:,.2f} MB" if n < 1e8 else f"{n / 1e6:,.0f} MB"


def one_run(summary: RunSummary) -> Table:
    """The summary of a run: every measure and statistic, and the costs.

    Args:
        summary: Of the run.
    """
    ledger = summary.ledger
    title = f"{cell(summary.algorithm)}: {summary.rounds} rounds, {summary.stopped}"
    if summary.target_round:
        title += f" ({cell(summary.target)} in round {summary.target_round})"
    cost = (
        f"{ledger.exchanges:,} exchanges, {megabytes(ledger.bytes_down)} down, "
        f"{megabytes(ledger.bytes_up)} up, {ledger.samples:,} samples, {summary.seconds:.1f} s"
    )
    if summary.select is not None:
        title += f", best round {summary.selected_round} by {summary.select}"
    tested = "" if summary.validation is None else "test: "
    for figures, head in ((summary.pooled_validation, "validation: "), (summary.pooled, tested)):
        if figures:
            cost = head + ", ".join(_with_errors(figures)) + "\n" + cost
    for line in counted_lines(summary):
        cost = line + "\n" + cost
    if (budget := budget_line(summary.privacy)) is not None:
        cost = budget + "\n" + cost
    if ranks_only(summary):  # the value of a min-max or pairwise objective says nothing to a reader
        return _headline(title, cost)
    table = Table(title=title, caption=cost, title_justify="left", caption_justify="left")
    table.add_column("")
    for statistic in STATISTICS:
        table.add_column(statistic, justify="right")
    for part in PARTS:
        for measure, values in (summary.measures(part) or {}).items():
            table.add_row(f"{part} {cell(measure)}", *(f"{values[s]:.4f}" for s in STATISTICS))
    return table


def counted_lines(summary: RunSummary) -> list[str]:
    """Notes on the figures of a deployed run: sites without score counts, and why there are only bounds.

    Args:
        summary: Of the run.
    """
    scores, lines = summary.scores, list[str]()
    if scores is None:
        return lines
    if missing := scores.without_counts:
        names = ", ".join(map(cell, missing[:10])) + (", ..." if len(missing) > 10 else "")
        lines.append(f"score counts of {names} are missing: too few rows of a class, or no reply")
    if scores.thresholds is not None and not scores.summed:
        lines.append("only bounds are known, as sites merge small counts (minimum_cell)")
    return lines


def budget_line(budget: Budget | None) -> str | None:
    """The privacy budget that was spent; None if the run is not private.

    Args:
        budget: Of the summary.
    """
    if budget is None or budget.epsilon_spent is None:
        return None
    return (
        f"privacy: ε = {budget.epsilon_spent:.3g} of {budget.epsilon:g} spent "
        f"(δ = {budget.delta:g}, for each {cell(budget.unit)})"
    )


def ranks_only(summary: RunSummary) -> bool:
    """Whether a run optimises a ranking: it has an AUROC, and the only measure of its clients is the objective.

    Args:
        summary: Of the run.
    """
    pooled = summary.pooled or {}
    return ("auroc" in pooled or "auroc_low" in pooled) and set(summary.main_measures) == {"loss"}


def _headline(title: str, text: str) -> Table:
    """Lines without columns."""
    table = Table.grid()
    for line in (title, *text.split("\n")):
        table.add_row(line)
    return table


ROW_HEADS = {  # of `several_runs`
    "auroc": "AUROC",
    "within_site_auroc": "within sites",
    "average_precision": "AP",
    "brier_score": "Brier",
    "log_loss": "log loss",
}
FIGURES = {
    "auroc": "AUROC, pooled",
    "within_site_auroc": "AUROC, within sites",
    "average_precision": "average precision",
    "partial_auroc": "partial AUROC, FPR <= 0.3",
    "worst_site_loss": "worst site's log loss",
    "worst_group_loss": "worst group's log loss",
    "accuracy": "accuracy",
}


def against_fedavg(gaps: Figures) -> str:
    """Whether the differences from FedAvg are significant, on the pooled rows and within sites.

    Args:
        gaps: Ours minus FedAvg's, with intervals.
    """
    words = {1: "significantly better", -1: "significantly worse", 0: "undecided"}
    pooled, within = (_decided(gap) for gap in (gaps.auroc, gaps.within_site_auroc))
    if pooled is None:
        return "undecided"
    if within is None or within == pooled:
        where = "" if within is None else " and within sites" if pooled else " or within sites"
        if pooled:
            return f"{words[pooled]} on the pooled rows{where}"
        return f"too few test rows to decide which is better, pooled{where}"
    if not within:
        return (
            f"{words[pooled]} on the pooled rows only; within sites, where rows of the same site are compared, it is "
            "undecided"
        )
    if not pooled:
        return f"{words[within]} within sites; on the pooled rows it is undecided"
    return f"{words[pooled]} on the pooled rows, but {words[within]} within sites"


def _decided(gap: StoredFigure | None) -> int | None:
    """1 or -1 where an interval is above or below 0, else 0; None without an interval."""
    if gap is None or gap.interval is None:
        return None
    return 1 if gap.interval[0] > 0 else -1 if gap.interval[1] < 0 else 0


def choice_table(summary: SearchSummary) -> Table:
    """The result of a search on the test rows: the choice, FedAvg, tuned the same way, and their difference.

    Args:
        summary: Of the search.
    """
    threshold, rows, pooled = summary.threshold, summary.rows, summary.pooled
    caption = [
        f"chosen for {cell(summary.aim)}: {cell(summary.choice)}",
        cell(summary.reason),
        *([] if summary.groups is None else worst_groups(summary.groups)),
        *([] if summary.choice == "FedAvg" else [f"AUROC against FedAvg: {against_fedavg(pooled.difference)}"]),
        f"probability >= {threshold.probability:.3f} ({threshold.reason}): {_at_threshold(summary)}",
        f"{rows['train'].rows:,} training, {rows['validation'].rows:,} validation, {rows['test'].rows:,} test "
        f"rows ({rows['test'].positives:,} positive); {summary.trials} trials in {summary.seconds:.0f} s",
    ]
    table = Table(
        title="test rows, with 95 % intervals",
        caption="\n".join(caption),
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("")
    for head in ("the choice", "FedAvg, tuned alike", "difference"):
        table.add_column(head, justify="right")
    for key, name in FIGURES.items():
        if key == "worst_group_loss" and summary.groups is None:
            continue
        cells = [_figure(getattr(side, key)) for side in (pooled.choice, pooled.fedavg)]
        table.add_row(name, *cells, _figure(getattr(pooled.difference, key, None), sign="+"))
    return table


def worst_groups(found: GroupLosses) -> list[str]:
    """Which group is served worst by either model, and the mixture that the choice was trained for.

    Args:
        found: The groups of the test rows.
    """
    said = [
        f"{who}: {cell(name)}"
        for who, name in (("the choice", found.worst_by_choice), ("FedAvg", found.worst_by_fedavg))
    ]
    lines = [f"worst of {len(found.losses)} groups, by {', '.join(said)} (intervals allow for having picked it)"]
    if found.mixture:
        largest = sorted(found.mixture.items(), key=lambda item: -item[1])[:5]
        lines.append("trained for the mixture " + ", ".join(f"{cell(name)} {share:.2f}" for name, share in largest))
    return lines


def _at_threshold(summary: SearchSummary) -> str:
    """The figures of the threshold on the test rows; with few alarms their number in place of a predictive value."""
    found = summary.threshold.test or ThresholdFigures()
    said = [f"{name.replace('_', ' ')} {value:.3g}" for name, value in found if value is not None]
    alarms = round((found.alarms_per_100 or 0) * summary.rows["test"].rows / 100)
    if alarms and found.positive_predictive_value is None:
        said.append(f"only {alarms} {'alarm' if alarms == 1 else 'alarms'}, too few for a predictive value")
    return ", ".join(said)


def _figure(figure: StoredFigure | None, sign: str = "") -> str:
    """A figure and its interval."""
    if figure is None:
        return ""
    value, low_high = f"{figure.value:{sign}.4f}", figure.interval
    return value if low_high is None else f"{value} [{low_high[0]:{sign}.3f}, {low_high[1]:{sign}.3f}]"


def _with_errors(pooled: Mapping[str, float]) -> list[str]:
    """Pooled measures as text, with ± their error bound where they have one, or the bounds alone."""
    known = {name.removesuffix("_low"): bounds_in(pooled, name.removesuffix("_low")) for name in pooled}
    texts = [f"{cell(name)} {bounds(*both)}" for name, both in known.items() if both is not None]
    for name, value in pooled.items():
        base = name.rpartition("_")[0]
        if is_side(name) and (base in pooled or known.get(base) is not None):
            continue
        error = pooled.get(f"{name}_error")
        texts.append(f"{cell(name)} {value:.4g}" if error is None else f"{cell(name)} {plus_minus(value, error)}")
    return texts


def of_sites(summary: RunSummary) -> Table:
    """A deployed run by site: replies, faults, bytes sent, and the fields that the server sees per site.

    Args:
        summary: Of the run.
    """
    fields = [name for name, visibility in summary.ledger.fields.items() if visibility != "averaged"]
    seen = cell(", ".join(fields) or "nothing")
    told = "means and own figures" if summary.scores is not None and summary.scores.summed else "means and score counts"
    table = Table(
        title="sites",
        caption=f"Visible to the server per site: {seen}; at evaluations each site's {told}",
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("site")
    for head in ("answered", "left out", "down", "up"):
        table.add_column(head, justify="right")
    table.add_column("why left out")
    for name, line in (summary.sites or {}).items():
        reasons = "; ".join(f"{reason} ({n})" for reason, n in line.left_out.items())
        counts = [str(line.answered), str(sum(line.left_out.values()))]
        table.add_row(cell(name), *counts, megabytes(line.bytes_down), megabytes(line.bytes_up), cell(reasons[:100]))
    return table


def several_runs(summaries: Mapping[str, RunSummary | SearchSummary], compared: SideBySide, title: str = "") -> Table:
    """Several runs, one per row: comparable figures, on the test rows if there are any, and the costs.

    Args:
        summaries: By name.
        compared: Their comparable figures.
        title: Of the table.
    """
    table = Table(title=title, title_justify="left")
    sides, measure = compared.sides, compared.measure
    rows = {key: head for key, head in ROW_HEADS.items() if any(key in side.rows for side in sides.values())}
    clients = {"worst": f"worst {measure}", "bottom10": "bottom 10 %", "mean": "mean", "std": "std"}
    if measure is None:
        clients = {}
    elif rows:
        clients = {"worst": "worst acc." if measure == "accuracy" else f"worst {measure}"}
    mixed = len({side.tuned for side in sides.values()}) > 1
    aimed = not rows or any(summary.target_round is not None for summary in summaries.values())
    table.add_column("run", overflow="fold")
    heads = [*rows.values(), *clients.values(), *(["step"] if mixed else []), "rounds", *(["target"] if aimed else [])]
    for head in [*heads, *(() if rows else ("exchanges",)), "up", "seconds"]:
        table.add_column(head, justify="right")
    for name, summary in summaries.items():
        side, ledger = sides[name], summary.ledger
        cells = [_or_dash(side.rows.get(key)) for key in rows] + [_or_dash(side.clients.get(key)) for key in clients]
        cells += ["tuned" if side.tuned else "as set"] if mixed else []
        reached = "" if summary.target_round is None else f"round {summary.target_round}"
        cells += [str(summary.rounds), *([reached] if aimed else [])]
        cost = [f"{ledger.exchanges:,}", megabytes(ledger.bytes_up), f"{summary.seconds:.1f}"]
        table.add_row(cell(name), *cells, *cost[bool(rows) :])
    return table


def _or_dash(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
