"""The figures of each client at the end of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedsaddle.metrics.intervals import Interval
from fedsaddle.metrics.target import main_part_name
from fedsaddle.report.page.charts import Axis, Bar, ForestRow, bars, forest
from fedsaddle.report.page.parts import Block, Chart, Section, Table, Text
from fedsaddle.report.sections.client_names import named, trained_and_tested
from fedsaddle.report.sections.numbers import axis, cased, count, guarded, is_share, percent, short, titled, wilson
from fedsaddle.report.stored_run import StoredRun

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
    """A client with the figures of its rows."""

    name: str
    rows: int | None
    figures: Mapping[str, float | None]

    def interval(self, measure: str) -> Interval | None:
        """Of an accuracy, Wilson's from its rows."""
        value = self.figures.get(measure)
        if measure != "accuracy" or value is None or not self.rows:
            return None
        return wilson(value * self.rows, self.rows)


@guarded
def clients(run: StoredRun) -> Section | None:
    """Accuracy or loss of each client; the sections of the ranking say more of a run on two classes."""
    if run.test is not None:
        return None
    part = main_part_name(
        run.summary if any(p in run.summary for p in ("test", "validation", "train")) else run.history[-1]
    )
    spread = run.summary.get(part) or run.history[-1].get(part)
    if not spread or (set(spread) == {"loss"} and "auroc" in (run.summary.get("pooled") or {})):
        return None
    measure = "accuracy" if "accuracy" in spread else next(iter(spread))
    rows = {"test": "test rows", "validation": "validation rows", "train": "training rows"}[part]
    blocks: list[Block] = [Text(_in_words(spread[measure], measure, rows))]
    found = clients_of(run, part)
    if found:
        blocks.append(_chart(found, measure, rows))
    elif deciles := (run.summary.get("clients") or {}).get(part, {}).get("deciles"):
        blocks.append(_deciles(deciles[measure], measure, run.summary["clients"][part]["clients"], rows))
    blocks.append(_spread_table(spread, rows))
    return Section("clients", "Each client", blocks)


def clients_of(run: StoredRun, part: str) -> list[Client]:
    """The clients with rows of that part, as the summary or else the last evaluation lists them."""
    listed = (run.summary.get("clients") or {}).get(part)
    if listed is not None and "measures" not in listed:
        return []  # too many to be listed
    measures: Mapping[str, Any] = listed["measures"] if listed else _last(run, part)
    if not measures:
        return []
    n = len(next(iter(measures.values())))
    rows: list[int | None] = list(listed["rows"]) if listed else [None] * n
    names = named(trained_and_tested(run), n)
    every = [Client(names[i], rows[i], {m: v[i] for m, v in measures.items()}) for i in range(n)]
    return [client for client in every if any(v is not None for v in client.figures.values())]


def _last(run: StoredRun, part: str) -> Mapping[str, Any]:
    return run.history[-1].get("clients", {}).get(part, {}) if run.history else {}


def worst_first(found: list[Client], measure: str) -> list[Client]:
    """The clients that have the measure, the worst first."""
    sign = 1 if is_share(measure) else -1
    there = [c for c in found if c.figures.get(measure) is not None]
    return sorted(there, key=lambda c: sign * float(c.figures[measure] or 0.0))


def _in_words(spread: Mapping[str, float], measure: str, rows: str) -> str:
    show = percent if is_share(measure) else short
    words = (
        f"On {rows} the mean {cased(measure)} over clients is {show(spread['mean'])}; the worst client has "
        f"{show(spread['worst'])}, the best {show(spread['best'])}, and the worst tenth of the clients "
        f"{show(spread['bottom10'])} on average."
    )
    if measure == "accuracy":
        words += (
            f" Of 100 rows the model gets {100 * spread['mean']:.0f} right at the average client, and "
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
        note += " Lines are 95 % intervals (Wilson's) from each client's number of rows, taken as independent."
        if wide:
            note += (
                f" {count(wide, 'client has', 'clients have')} an interval wider than 20 points: too few rows to judge."
            )
        drawn = _forest(order, measure)
    else:
        values = [Bar(c.name, float(c.figures[measure] or 0.0), _value(c, measure)) for c in order]
        drawn = bars(values, axis(cased(measure), [0.0, *(b.value for b in values)]), key="clients")
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
        return percent(value) if is_share(measure) else short(value)
    return f"{percent(value)} ({percent(interval.low, 0)} to {percent(interval.high, 0)})"


def _forest(order: list[Client], measure: str) -> Any:
    rows = []
    for client in order:
        found, counts = client.interval(measure), ["–" if client.rows is None else f"{client.rows:,}"]
        low, high = (None, None) if found is None else (found.low, found.high)
        rows.append(ForestRow(client.name, counts, client.figures[measure], low, high))
    return forest(rows, Axis(measure, 0.0, 1.0, percent=True), heads=["client", "rows"], key="clients")


def _table(order: list[Client]) -> Table:
    measures = list(order[0].figures)
    heads = ["client", "rows", *map(cased, measures)]
    rows = [[c.name, "–" if c.rows is None else f"{c.rows:,}", *(_value(c, m) for m in measures)] for c in order]
    return Table(heads, rows)


def _deciles(values: list[float], measure: str, clients: int, rows: str) -> Chart:
    """Many clients: a bar for each tenth."""
    show = percent if is_share(measure) else short
    if not is_share(measure):
        values = values[::-1]
    names = ["worst", *(f"{10 * k} % have this or worse" for k in range(1, 10)), "best"]
    drawn = [Bar(name, value, show(value)) for name, value in zip(names, values, strict=True)]
    return Chart(
        f"{titled(cased(measure))} over {clients:,} clients",
        bars(drawn, axis(cased(measure), [0.0, *values], share=is_share(measure)), key="clients"),
        f"Half of the clients have {show(values[5])} or {'more' if is_share(measure) else 'less'}; one tenth has "
        f"{show(values[1])} or worse.",
        Table(["clients", cased(measure)], [[name, show(value)] for name, value in zip(names, values, strict=True)]),
        note=f"Too many clients to list: figures that a tenth, two tenths ... of them do not reach, on {rows}.",
    )


def _spread_table(spread: Mapping[str, Mapping[str, float]], rows: str) -> Table:
    measures = list(spread)
    lines = [[name, *(_show(spread[m].get(key), m, key) for m in measures)] for key, name in STATISTICS.items()]
    return Table([f"on {rows}", *map(cased, measures)], lines, caption="How the clients differ")


def _show(value: float | None, measure: str, key: str) -> str:
    return percent(value) if is_share(measure) and key != "std" else short(value)
