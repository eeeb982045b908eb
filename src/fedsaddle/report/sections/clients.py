"""Figures of each client and of each class at the end of a run, and the weights λ of the clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from markupsafe import Markup

from fedsaddle.documents.summary import ClientDeciles, ClientFigures, Measures, PartName, Spread
from fedsaddle.metrics.intervals import Interval, wilson_share
from fedsaddle.report.page.charts import (
    MOST_POINTS,
    Bar,
    ChartAxis,
    ForestRow,
    Line,
    axis_for,
    bars,
    forest,
    line_chart,
    picked,
)
from fedsaddle.report.page.parts import Block, Chart, PageTable, Section, Text
from fedsaddle.report.stored_run import StoredRun
from fedsaddle.report.words import PARTS, cased, is_share, many, percent, short, titled
from fedsaddle.text import visible


def named(names: Sequence[str], clients: int) -> list[str]:
    """Names of clients; numbers where there are too few names.

    Args:
        names: As far as they are known.
        clients: How many there are.

    Examples:
        >>> named(["A"], 2)
        ['A', 'client 2']
    """
    return [*map(visible, names[:clients]), *(f"client {i + 1}" for i in range(len(names), clients))]


def trained_and_tested(run: StoredRun) -> tuple[str, ...]:
    """The clients of a run: those that were trained on, then those that are for the test only.

    Args:
        run: The run.
    """
    return run.site_names or (*run.client_names, *(run.split.test_clients if run.split else {}))


LISTED = 200
SCROLLED = 40
STATISTICS = {
    "worst": "worst client",
    "bottom10": "worst tenth of the clients, mean",
    "mean": "mean over clients",
    "global": "all rows together",
    "best": "best client",
    "std": "standard deviation over clients",
}


@dataclass(frozen=True)
class Client:
    """A client with the figures of its rows.

    Args:
        name: Of the client.
        rows: Number of rows; None if the run does not know.
        figures: By measure.
    """

    name: str
    rows: int | None
    figures: Mapping[str, float | None]

    def interval(self, measure: str) -> Interval | None:
        """Wilson's interval of an accuracy; None for other measures.

        Args:
            measure: Such as "accuracy".
        """
        value = self.figures.get(measure)
        if measure != "accuracy" or value is None or not self.rows:
            return None
        return wilson_share(value * self.rows, self.rows)


def clients(run: StoredRun) -> Section | None:
    """Accuracy or loss of each client; None for runs on two classes, which have other sections.

    Args:
        run: The run.
    """
    if run.test is not None:
        return None
    if run.evaluation is None:
        return None
    part, spread = run.evaluation.main_part, run.evaluation.main_measures
    pooled = run.run_summary.pooled if run.run_summary else None
    if not spread or (set(spread) == {"loss"} and "auroc" in (pooled or {})):
        return None
    measure = "accuracy" if "accuracy" in spread else next(iter(spread))
    rows = PARTS[part]
    blocks: list[Block] = [Text(_in_words(spread[measure], measure, rows))]
    found = clients_of(run, part)
    if found:
        blocks.append(_chart(found, measure, rows))
    elif isinstance(many_clients := _listed(run, part), ClientDeciles) and measure in many_clients.deciles:
        blocks.append(_deciles(many_clients.deciles[measure], measure, many_clients.clients, rows))
    blocks.append(_spread_table(spread, rows))
    return Section("clients", "Each client", blocks)


def clients_of(run: StoredRun, part: PartName) -> list[Client]:
    """The clients with rows of a part, as the summary or else the last evaluation lists them.

    Args:
        run: The run.
        part: "test", "validation" or "train".
    """
    listed = _listed(run, part)
    if isinstance(listed, ClientDeciles):
        return []  # too many to be listed
    last = run.history[-1].clients.get(part, {}) if run.history else {}
    measures = listed.measures if listed is not None else last
    if not measures:
        return []
    n = len(next(iter(measures.values())))
    rows: list[int | None] = [*listed.rows] if listed is not None else [None] * n
    names = named(trained_and_tested(run), n)
    every = [Client(names[i], rows[i], {m: v[i] for m, v in measures.items()}) for i in range(n)]
    return [client for client in every if any(v is not None for v in client.figures.values())]


def _listed(run: StoredRun, part: PartName) -> ClientFigures | ClientDeciles | None:
    return run.finished.clients.get(part) if run.finished else None


def worst_first(found: list[Client], measure: str) -> list[Client]:
    """The clients that have a measure, the worst first.

    Args:
        found: The clients.
        measure: Such as "accuracy".
    """
    sign = 1 if is_share(measure) else -1
    there = [c for c in found if c.figures.get(measure) is not None]
    return sorted(there, key=lambda c: sign * float(c.figures[measure] or 0.0))


def _in_words(spread: Spread, measure: str, rows: str) -> str:
    show = partial(percent, digits=1) if is_share(measure) else short
    words = (
        f"On {rows} the mean {cased(measure)} over clients is {show(spread['mean'])}; the worst client has "
        f"{show(spread['worst'])}, the best {show(spread['best'])}, and the worst tenth of the clients "
        f"{show(spread['bottom10'])} on average."
    )
    if measure == "accuracy":
        words += (
            f" The model classifies {100 * spread['mean']:.0f} of 100 rows correctly at the average client, and "
            f"{100 * spread['worst']:.0f} at the worst."
        )
    return words


def _chart(found: list[Client], measure: str, rows: str) -> Chart:
    order = worst_first(found, measure)[:LISTED]
    shown = f" The {LISTED} worst of {len(found):,} clients are listed." if len(found) > LISTED else ""
    worst, best = order[0], order[-1]
    words = f"The worst is {worst.name} with {_value(worst, measure)}; "
    words += f"the best {'of them ' if shown else ''}is {best.name} with {_value(best, measure)}.{shown}"
    note = f"{titled(cased(measure))} on {rows}, worst client first."
    if measure == "accuracy":
        wide = sum((i.high - i.low) > 0.2 for c in order if (i := c.interval(measure)) is not None)
        note += " Lines are 95 % intervals (Wilson's) from each client's number of rows, treated as independent."
        if wide:
            note += f" {many(wide, 'client has', 'clients have')} an interval wider than 20 points: too few rows."
        drawn = _forest(order, measure)
    else:
        values = [Bar(c.name, float(c.figures[measure] or 0.0), _value(c, measure)) for c in order]
        drawn = bars(values, axis_for(cased(measure), [0.0, *(b.value for b in values)]), key="clients")
    return Chart(
        f"{titled(cased(measure))} of each client",
        drawn,
        words,
        _table(order),
        note,
        scrolls=len(order) > SCROLLED,
    )


def _value(client: Client, measure: str) -> str:
    value, interval = client.figures.get(measure), client.interval(measure)
    if interval is None:
        return percent(value, 1) if is_share(measure) else short(value)
    return f"{percent(value, 1)} ({percent(interval.low, 0)} to {percent(interval.high, 0)})"


def _forest(order: list[Client], measure: str) -> Markup:
    rows = []
    for client in order:
        found, counts = client.interval(measure), ["–" if client.rows is None else f"{client.rows:,}"]
        low, high = (None, None) if found is None else (found.low, found.high)
        rows.append(ForestRow(client.name, counts, client.figures[measure], low, high))
    return forest(rows, ChartAxis(measure, 0.0, 1.0, percent=True), heads=["client", "rows"], key="clients")


def _table(order: list[Client]) -> PageTable:
    measures = list(order[0].figures)
    heads = ["client", "rows", *map(cased, measures)]
    rows = [[c.name, "–" if c.rows is None else f"{c.rows:,}", *(_value(c, m) for m in measures)] for c in order]
    return PageTable(heads, rows)


def _deciles(values: list[float], measure: str, clients: int, rows: str) -> Chart:
    """Deciles of many clients."""
    show = partial(percent, digits=1) if is_share(measure) else short
    if not is_share(measure):
        values = values[::-1]
    names = ["worst", *(f"{10 * k} % have this or worse" for k in range(1, 10)), "best"]
    drawn = [Bar(name, value, show(value)) for name, value in zip(names, values, strict=True)]
    return Chart(
        f"{titled(cased(measure))} over {clients:,} clients",
        bars(drawn, axis_for(cased(measure), [0.0, *values], share=is_share(measure)), key="clients"),
        f"Half of the clients have {show(values[5])} or {'more' if is_share(measure) else 'less'}; one tenth has "
        f"{show(values[1])} or worse.",
        PageTable(
            ["clients", cased(measure)], [[name, show(value)] for name, value in zip(names, values, strict=True)]
        ),
        note=f"Deciles over the clients, which are too many to list, on {rows}.",
    )


def _spread_table(spread: Measures, rows: str) -> PageTable:
    measures = list(spread)
    lines = [[name, *(_show(spread[m].get(key), m, key) for m in measures)] for key, name in STATISTICS.items()]
    return PageTable([f"on {rows}", *map(cased, measures)], lines, caption="How the clients differ")


def _show(value: float | None, measure: str, key: str) -> str:
    return percent(value, 1) if is_share(measure) and key != "std" else short(value)


def classes(run: StoredRun) -> Section | None:
    """Accuracy of each class, for runs that classify rows.

    Args:
        run: The run.
    """
    counted = run.finished.classes if run.finished else None
    if counted is None or len(counted.counts) < 2:
        return None
    rows = "test rows" if counted.part == "test" else "training rows"
    lines = [(visible(name), c.rows, c.correct) for name, c in counted.counts.items()]
    lines.sort(key=lambda line: line[2] / line[1])
    shares = [k / n for _, n, k in lines]
    worst, best, mean = lines[0], lines[-1], sum(shares) / len(shares)
    std = (sum((s - mean) ** 2 for s in shares) / len(shares)) ** 0.5
    never = sum(k == 0 for _, _, k in lines)
    words = (
        f"Of 100 {rows} of class {worst[0]} the model classifies {100 * shares[0]:.0f} correctly, the fewest of "
        f"{many(len(lines), 'class', 'classes')}; of class {best[0]} {100 * shares[-1]:.0f}, the most. The "
        f"mean over classes is {percent(mean, 1)}, "
        f"the standard deviation {100 * std:.1f} points."
    )
    blocks = [Text(words)]
    if never:
        said = "class is" if never == 1 else "classes are"
        blocks.append(Text(f"{never:,} {said} never predicted correctly.", "caution"))
    intervals = [wilson_share(k, n) for _, n, k in lines]
    shown = list(zip(lines, intervals, strict=True))[:LISTED]
    chart = Chart(
        "Accuracy of each class",
        forest(
            [ForestRow(name, [f"{n:,}"], i.value, i.low, i.high) for (name, n, _), i in shown],
            ChartAxis("accuracy", 0.0, 1.0, percent=True),
            heads=["class", "rows"],
            reference=mean,
            key="classes",
        ),
        f"Worst is {worst[0]} with {percent(shares[0], 1)}, best {best[0]} with {percent(shares[-1], 1)}.",
        PageTable(
            ["class", "rows", "correct", "accuracy", "95 % interval"],
            [
                [name, f"{n:,}", f"{k:,}", percent(i.value, 1), f"{percent(i.low, 1)} to {percent(i.high, 1)}"]
                for (name, n, k), i in shown
            ],
        ),
        note=(
            f"Over the {rows} of all clients together, worst class first. Lines are 95 % intervals (Wilson's) of each "
            "class, with rows treated as independent; the reference line is the mean over classes."
        ),
        scrolls=len(shown) > SCROLLED,
    )
    return Section("classes", "Each class", [*blocks, chart])


NAMED = 8  # clients with a colour of their own
FAINT = 40  # clients with a line
STYLES = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")


def mixture(run: StoredRun) -> Section | None:
    """The weights of the clients, for algorithms that weight them by their losses.

    Args:
        run: The run.
    """
    records = [r for r in run.history if r.mixture]
    if not records:
        return None
    final = records[-1].mixture
    names = named(trained_and_tested(run), len(final))
    order = sorted(range(len(final)), key=lambda i: (-final[i], i))
    at = [records[k] for k in picked(len(records), MOST_POINTS)]
    rounds = [r.round for r in at]

    def of(clients: Sequence[int]) -> list[float]:
        return [float(sum(r.mixture[i] for i in clients)) for r in at]

    lines = [Line(names[i], rounds, of([i]), style) for i, style in zip(order, STYLES, strict=False)]
    lines += [Line(names[i], rounds, of([i]), "faint") for i in order[NAMED:FAINT]]
    rest = order[FAINT:]
    if rest:
        lines.append(Line(f"the other {len(rest):,} clients together", rounds, of(rest), "guide"))
    equal = 1 / len(final)
    top = order[0]
    words = (
        f"At the end {names[top]} has the largest weight, {percent(final[top], 1)}; equal weights would be "
        f"{percent(equal, 1)} each. {sum(v > 2 * equal for v in final):,} of {len(final):,} clients have more than "
        f"twice that, {sum(v < equal / 100 for v in final):,} less than a hundredth."
    )
    chart = Chart(
        "Weights λ over the rounds",
        line_chart(
            lines,
            ChartAxis("round", 0, rounds[-1]),
            axis_for("weight λ", [v for line in lines for v in line.y], share=True),
            key="mixture",
        ),
        words,
        PageTable(
            ["client", "final weight λ", "against equal weights"],
            [[names[i], percent(final[i], 2), f"{final[i] / equal:.2f} ×"] for i in order[:LISTED]],
        ),
        note="Clients with a high loss gain weight, so that the model improves there.",
    )
    about = Text("This algorithm gives more weight to clients with a higher loss. The weights sum to 100 %.")
    return Section("weights", "Which clients counted most", [about, chart])
