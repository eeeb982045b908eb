"""Several runs on one page: side by side, in pairs against the first, their learning curves, and the demo's page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from fedsaddle.documents.stored import Round
from fedsaddle.files import Record, make_folder, write_atomically
from fedsaddle.metrics.intervals import Interval
from fedsaddle.metrics.ranking import RankingDifference
from fedsaddle.metrics.selection import is_side
from fedsaddle.report.page.charts import (
    MOST_POINTS,
    ChartAxis,
    ForestRow,
    Line,
    axis_for,
    forest,
    heat_map,
    line_chart,
    picked,
    thinned,
)
from fedsaddle.report.page.parts import Block, Bullets, Chart, Figure, Page, PageTable, Section, Text
from fedsaddle.report.page.render import render
from fedsaddle.report.paired import (
    ROW_FIGURES,
    PairedClients,
    SideBySide,
    difference_of_clients,
    difference_on_rows,
    differing_settings,
    probabilities_on_rows,
    same_loss,
    side_by_side,
)
from fedsaddle.report.sections.ranking import two_classes
from fedsaddle.report.stored_run import StoredRun
from fedsaddle.report.words import PARTS, amount, cased, is_share, many, percent, short, titled
from fedsaddle.text import shortened, visible

STYLES = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")
FigureOf = Callable[[Round], float | None]


def curves_together(runs: Mapping[str, StoredRun]) -> Section | None:
    """Measures that all runs have: of all rows together, and of the worst and the mean client.

    Args:
        runs: By name.
    """
    histories = {name: run.history for name, run in runs.items() if len(run.history) > 1}
    if len(histories) < 2:
        return None
    found = [*_pooled(histories), *_of_clients(histories, same_loss(runs))]
    blocks: list[Block] = [chart for chart in found if chart is not None]
    return Section("curves", "How training went", blocks) if blocks else None


def together(
    title: str, label: str, histories: Mapping[str, Sequence[Round]], figure: FigureOf, key: str
) -> Chart | None:
    """A line for each run; None where fewer than two have the figure.

    Args:
        title: Of the chart.
        label: Of the y axis.
        histories: By run.
        figure: Of an evaluation; None where it has none.
        key: Of the drawing.
    """
    lines = []
    styles = [*STYLES[: len(histories)], *["faint"] * max(0, len(histories) - len(STYLES))]
    for (name, history), style in zip(histories.items(), styles, strict=True):
        points = [(r.round, v) for r in history if (v := figure(r)) is not None]
        if len(points) > 1:
            at = picked(len(points), MOST_POINTS)
            lines.append(Line(name, thinned([p[0] for p in points], at), thinned([p[1] for p in points], at), style))
    if len(lines) < 2:
        return None
    values = [v for line in lines for v in line.y]
    log = not is_share(label) and min(values) > 0 and max(values) > 100 * min(values)
    y = axis_for(label, values, share=is_share(label.lower()), log=log)
    ends = ", ".join(f"{line.name} {short(line.y[-1])}" for line in lines)
    return Chart(
        title,
        line_chart(lines, ChartAxis("round", 0, max(line.x[-1] for line in lines)), y, key=key),
        f"In the last evaluation: {ends}.",
        PageTable(
            ["run", "first evaluation", "best", "last evaluation"],
            [[line.name, *map(short, (line.y[0], _best(line.y, label), line.y[-1]))] for line in lines],
        ),
    )


def _best(values: Sequence[float], label: str) -> float:
    return max(values) if is_share(label.lower()) else min(values)


def _pooled(histories: Mapping[str, Sequence[Round]]) -> list[Chart | None]:
    validated = all(h[-1].pooled_validation is not None for h in histories.values())

    def of(record: Round) -> dict[str, float]:
        return (record.pooled_validation if validated else record.pooled) or {}

    def figure(measure: str) -> FigureOf:
        return lambda record: of(record).get(measure)

    shared = [m for m in of(next(iter(histories.values()))[-1]) if not is_side(m)]
    skipped = ("partial_auroc_30", "partial_auroc_50", "two_way_partial_auroc", "best_site_auroc", "std_site_auroc")
    where = " of the validation rows" if validated else ""
    return [
        together(f"{titled(cased(m))}{where}", cased(m), histories, figure(m), f"pooled-{m}")
        for m in shared
        if m not in skipped
    ]


def _of_clients(histories: Mapping[str, Sequence[Round]], losses: bool) -> list[Chart | None]:
    """Accuracies or, where all runs have the same one, losses."""
    parts = {h[-1].main_part for h in histories.values()}
    if len(parts) > 1:
        return []
    (part,) = parts
    measures = [
        m
        for m in ("accuracy", *(["loss"] if losses else []))
        if all(m in h[-1].main_measures for h in histories.values())
    ]

    def of(measure: str, statistic: str) -> FigureOf:
        return lambda record: (record.measures(part) or {}).get(measure, {}).get(statistic)

    names = {"worst": "worst client", "mean": "mean over clients"}
    return [
        together(f"{titled(m)}, {name}, on {PARTS[part]}", f"{m}, {name}", histories, of(m, s), f"{m}-{s}")
        for m in measures[:1]
        for s, name in names.items()
    ]


LISTED = 200
SCROLLED = 40
SETTINGS = 40
ACROSS = 6
ERRORS = ("brier_score", "log_loss")  # of probabilities
SEED = ("run.seed", "seed", "trial.run.seed")
FIGURES = {
    "auroc": "AUROC, all rows",
    "within_site_auroc": "AUROC, within sites",
    "average_precision": "average precision",
    "partial_auroc": "partial AUROC, FPR <= 0.3",
}


def write_comparison(runs: Mapping[str, StoredRun], path: Path) -> Path:
    """Write the page of several runs to a file.

    Args:
        runs: By name.
        path: The HTML file.
    """
    make_folder("html", path.parent)
    write_atomically(path, render(comparison_page(runs)).encode())
    return path


def comparison_page(runs: Mapping[str, StoredRun]) -> Page:
    """The page of several runs.

    Args:
        runs: By name; the others are compared with the first.
    """
    shown = {visible(name): run for name, run in runs.items()}
    first, *others = shown
    compared = side_by_side(shown)
    on_rows = {name: difference_on_rows(shown[name], shown[first]) for name in others}
    of_clients = {name: difference_of_clients(shown[name], shown[first]) for name in others}
    sections = [
        _side_by_side(shown, compared),
        _rows(shown, first, {k: v for k, v in on_rows.items() if v is not None}),
        _clients(first, {k: v for k, v in of_clients.items() if v is not None}),
        curves_together(shown),
        _settings(shown),
    ]
    return Page(
        title=f"{many(len(shown), 'run')} compared",
        subtitle=", ".join(shown),
        answers=[Text(_answer(name, first, on_rows[name], of_clients[name])) for name in others],
        cautions=[*_cautions(shown, on_rows, of_clients), *(f"{titled(note)}." for note in compared.notes)],
        sections=[section for section in sections if section is not None],
        footer="Made by FedSaddle from the folders of the runs.",
    )


def _answer(name: str, first: str, rows: RankingDifference | None, clients: PairedClients | None) -> str:
    """Which run is better, in a sentence."""
    if rows is not None and rows.auroc is not None:
        return f"{name} against {first}, on the same test rows: {_verdict(rows.auroc, 'AUROC', better=1)}"
    if clients is not None:
        better = 1 if is_share(clients.measure) else -1
        what = f"mean {cased(clients.measure)} of {many(len(clients.names), 'client')}"
        said = _verdict(clients.mean, what, better=better)
        equal = len(clients.names) - clients.better - clients.worse
        return (
            f"{name} against {first}: {said} It is better at {clients.better:,} clients, worse at {clients.worse:,}"
            + (f", equal at {equal:,}." if equal else ".")
        )
    return f"{name} and {first} were not evaluated on the same rows or clients: there is no paired comparison."


def _verdict(gap: Interval, figure: str, *, better: int) -> str:
    ends = sorted((better * gap.low, better * gap.high))
    said = "significantly better" if ends[0] > 0 else "significantly worse" if ends[1] < 0 else ""
    if gap.low == gap.high == 0:
        return f"no difference in {figure}."
    return f"difference in {figure} {_signed(gap, '95 % interval ')}: {said or 'not significant'}."


def _signed(gap: Interval | None, head: str = "") -> str:
    if gap is None:
        return "–"
    if not abs(gap.low) < float("inf"):
        return f"{gap.value:+.3f}"
    return f"{gap.value:+.3f} ({head}{gap.low:+.3f} to {gap.high:+.3f})"


def _cautions(
    runs: Mapping[str, StoredRun],
    rows: Mapping[str, RankingDifference | None],
    clients: Mapping[str, PairedClients | None],
) -> list[str]:
    found = [
        f"{name}: {visible(line)}; it is left out of this page." for name, run in runs.items() for line in run.damage
    ]
    apart = differing_settings(runs)
    if apart and set(apart) <= set(SEED):
        found.append("These runs have the same settings except the seed: differences are due to chance.")
    elif any(key in SEED for key in apart):
        found.append("The runs have different seeds: part of the differences is due to chance.")
    if len(runs) > 2 and any(gap is not None for gap in (*rows.values(), *clients.values())):
        found.append(
            f"There are {len(runs) - 1} comparisons, each with its own 95 % interval: one of many may be significant "
            "by chance."
        )
    done = ("finished", "target", "patience")
    unfinished = [n for n, run in runs.items() if run.finished is None or run.finished.stopped not in done]
    if unfinished:
        found.append(f"Not finished: {', '.join(unfinished)}.")
    if any(gap is not None for gap in clients.values()):
        found.append(
            "An interval over clients covers the sampling of the clients; it does not cover the variation of the runs "
            "with the seed."
        )
    return found


def _side_by_side(runs: Mapping[str, StoredRun], compared: SideBySide) -> Section:
    heads, rows = ["run", "algorithm", "rounds"], [[n, visible(r.name), _cost(r, "rounds")] for n, r in runs.items()]
    columns: dict[str, list[str]] = {"AUROC, 95 % interval": [_auroc(run) for run in runs.values()]}
    parts = {run.finished.main_part for run in runs.values() if run.finished}
    sides = list(compared.sides.values())
    for key, name in ROW_FIGURES.items():
        if key != "auroc":
            columns[name] = [short(side.rows.get(key)) for side in sides]
    names = {"worst": "worst client", "bottom10": "worst tenth", "mean": "mean client", "std": "spread"}
    for statistic, name in names.items():
        columns[f"{compared.measure}, {name}"] = [short(side.clients.get(statistic)) for side in sides]
    if len({side.tuned for side in sides}) > 1:
        columns["step"] = ["chosen on validation rows" if side.tuned else "as set, not tuned" for side in sides]
    columns |= {
        "exchanges": [_cost(run, "exchanges") for run in runs.values()],
        "sent to the server": [_cost(run, "bytes_up") for run in runs.values()],
        "seconds": [_cost(run, "seconds") for run in runs.values()],
    }
    for head, cells in columns.items():
        if any(cell != "–" for cell in cells):
            heads.append(head)
            rows = [[*row, cell] for row, cell in zip(rows, cells, strict=True)]
    if len(runs) <= ACROSS:  # a column for each run is easier to read
        heads, *rows = ([head, *cells] for head, *cells in zip(heads, *rows, strict=True))
    where = " or ".join(PARTS[part] for part in sorted(parts))
    return Section(
        "side-by-side", "Side by side", [PageTable(heads, rows, caption=f"Figures of clients are on {where}")]
    )


def _cost(run: StoredRun, what: Literal["rounds", "exchanges", "bytes_up", "seconds"]) -> str:
    summary = run.finished
    if summary is None:
        return "–"
    return {
        "rounds": f"{summary.rounds:,}",
        "exchanges": f"{summary.ledger.exchanges:,}",
        "bytes_up": amount(summary.ledger.bytes_up),
        "seconds": f"{summary.seconds:,.0f}",
    }[what]


def _auroc(run: StoredRun) -> str:
    found = two_classes(run)
    if found is not None and found.choice.pooled.auroc is not None:
        own = found.choice.pooled.auroc
        return f"{own.value:.3f} ({own.low:.3f} to {own.high:.3f})"
    return short(run.run_summary.main_pooled.get("auroc") if run.run_summary else None)


def _rows(runs: Mapping[str, StoredRun], first: str, gaps: Mapping[str, RankingDifference]) -> Section | None:
    """Differences on the same rows."""
    if not gaps:
        return None
    about = (
        f"Each run minus {first}, on the same test rows: a paired difference is more precise than either figure. "
        "Intervals are at 95 %, clustered by patient where patients are known."
    )
    lines = [[name, *(_signed(getattr(gap, key)) for key in FIGURES)] for name, gap in gaps.items()]
    heads = [f"minus {first}", *FIGURES.values()]
    errors = {name: probabilities_on_rows(runs[name], runs[first]) for name in gaps}
    if any(errors.values()):
        heads += [f"{ROW_FIGURES[key]}, lower is better" for key in ERRORS]
        lines = [[*line, *(_signed(errors[line[0]].get(key)) for key in ERRORS)] for line in lines]
    blocks: list[Block] = [Text(about), PageTable(heads, lines)]
    blocks += [_sites(name, first, gap) for name, gap in gaps.items() if any(c.auroc for c in gap.clients)]
    return Section("same-rows", "Row by row", blocks)


def _sites(name: str, first: str, gap: RankingDifference) -> Chart:
    there = sorted((c for c in gap.clients if c.auroc is not None), key=lambda c: c.auroc.value if c.auroc else 0.0)
    rows = [ForestRow(visible(c.name), [], *_ends(c.auroc)) for c in there[:LISTED]]
    if gap.auroc is not None:
        rows.append(ForestRow("all rows", [], gap.auroc.value, gap.auroc.low, gap.auroc.high, kind="total"))
    ahead = sum(c.auroc is not None and c.auroc.low > 0 for c in there)
    behind = sum(c.auroc is not None and c.auroc.high < 0 for c in there)
    ends = [v for row in rows for v in (row.low, row.high) if v is not None]
    return Chart(
        f"{name} minus {first}: AUROC at each site",
        forest(rows, _around_zero("difference in AUROC", ends), heads=["site"], reference=0.0, key=f"sites-{name}"),
        f"{name} is significantly better at {ahead} of {many(len(there), 'site')}, and worse at {behind}.",
        PageTable(["site", "difference in AUROC"], [[visible(c.name), _signed(c.auroc)] for c in there[:LISTED]]),
        note="Sites with fewer than five rows of a class have no figure.",
        scrolls=len(rows) > SCROLLED,
    )


def _ends(gap: Interval | None) -> tuple[float | None, float | None, float | None]:
    return (None, None, None) if gap is None else (gap.value, gap.low, gap.high)


def _around_zero(label: str, values: list[float]) -> ChartAxis:
    found = axis_for(label, [0.0, *values])
    return ChartAxis(label, min(found.low, min([0.0, *values])), found.high)


def _clients(first: str, gaps: Mapping[str, PairedClients]) -> Section | None:
    """Differences of the same clients."""
    if not gaps:
        return None
    lines = []
    for name, gap in gaps.items():
        equal = len(gap.names) - gap.better - gap.worse
        lines.append([name, cased(gap.measure), _signed(gap.mean), str(gap.better), str(gap.worse), str(equal)])
    heads = [
        f"minus {first}",
        "measure",
        "mean difference over clients, 95 % interval",
        "better at",
        "worse at",
        "equal at",
    ]
    blocks: list[Block] = [PageTable(heads, lines)]
    blocks += [_client_chart(name, first, gap) for name, gap in gaps.items()]
    return Section("same-clients", "Client by client", blocks)


def _client_chart(name: str, first: str, gap: PairedClients) -> Chart:
    sign = 1 if is_share(gap.measure) else -1
    order = sorted(range(len(gap.names)), key=lambda i: sign * gap.gains[i])[:LISTED]
    rows = [
        ForestRow(gap.names[i], [short(float(gap.theirs[i])), short(float(gap.ours[i]))], float(gap.gains[i]))
        for i in order
    ]
    mean = gap.mean
    if abs(mean.low) < float("inf"):
        both = [short(float(side.mean())) for side in (gap.theirs, gap.ours)]
        rows.append(ForestRow("mean over clients", both, mean.value, mean.low, mean.high, kind="total"))
    ends = [v for row in rows for v in (row.value, row.low, row.high) if v is not None]
    worst = order[0]
    return Chart(
        f"{name} minus {first}: {cased(gap.measure)} at each client",
        forest(
            rows,
            _around_zero(f"difference in {cased(gap.measure)}", ends),
            heads=["client", shortened(first, 24), shortened(name, 24)],
            reference=0.0,
            key=f"clients-{name}",
        ),
        f"The largest loss of {name} is at {gap.names[worst]}: {gap.gains[worst]:+.3f}.",
        PageTable(
            ["client", first, name, "difference"],
            [[gap.names[i], short(gap.theirs[i]), short(gap.ours[i]), f"{gap.gains[i]:+.3f}"] for i in order],
        ),
        note="The mean has a 95 % interval over clients (Student's). "
        + ("Below 0 is worse." if sign > 0 else "A loss: below 0 is better."),
        scrolls=len(rows) > SCROLLED,
    )


def _settings(runs: Mapping[str, StoredRun]) -> Section | None:
    """What is not the same in the configs."""
    if not all(run.config for run in runs.values()):
        return None
    apart = differing_settings(runs)
    if not apart:
        return Section("settings", "Settings", [Text("All settings of the runs are the same.")])
    rows = [[visible(key), *(visible(shortened(v, 80)) or "–" for v in own)] for key, own in apart.items()][:SETTINGS]
    blocks: list[Block] = [PageTable(["setting", *runs], rows, caption="Settings that differ")]
    if len(apart) > SETTINGS:
        blocks.append(Bullets([f"{len(apart) - SETTINGS:,} more settings differ."]))
    return Section("settings", "Settings that differ", blocks)


History = Sequence[Record]
Curve = Callable[[Record], float]


def write_demo_page(
    path: Path,
    seeds: Mapping[str, Sequence[History]],
    means: Mapping[str, History],
    sites: Sequence[str],
    seconds: float,
) -> Path:
    """Write the page.

    Args:
        path: the file.
        seeds: of each algorithm, the history of each seed.
        means: their mean over the seeds.
        sites: the names of the sites.
        seconds: how long it took.
    """
    write_atomically(path, render(demo_page(seeds, means, sites, seconds)).encode())
    return path


def demo_page(
    seeds: Mapping[str, Sequence[History]], means: Mapping[str, History], sites: Sequence[str], seconds: float
) -> Page:
    """The page of the demo.

    Args:
        seeds: Of each algorithm, the history of each seed.
        means: Their mean over the seeds.
        sites: The names of the sites.
        seconds: How long it took.
    """
    last = {name: history[-1]["test"]["accuracy"] for name, history in means.items()}
    best = max(last, key=lambda name: float(last[name]["worst"]))
    rounds, runs = next(iter(means.values()))[-1]["round"], len(next(iter(seeds.values())))
    return Page(
        title="Four algorithms, ten sites, one of them upside down",
        subtitle=f"The demo of FedSaddle: {rounds} rounds, {runs} seeds, {seconds:.0f} s",
        answers=[
            Text(
                "1,797 handwritten digits are spread over ten simulated sites, one of which scans them upside down. "
                "Plain "
                f"averaging (FedAvg) gets {percent(last['FedAvg']['mean'], 1)} right at the mean site, but "
                f"{percent(last['FedAvg']['worst'], 1)} at the worst.",
                head="What is the question?",
            ),
            Text(
                f"{best} has the best worst site: {percent(last[best]['worst'], 1)} there, and "
                f"{percent(last[best]['mean'], 1)} "
                "at the mean site.",
                head="What helps?",
            ),
        ],
        figures=[
            Figure(f"worst site, {name}", percent(own["worst"], 1), "test accuracy") for name, own in last.items()
        ],
        sections=[_client_table(last), _demo_curves(seeds), _demo_sites(means, sites)],
        footer="Made by fedsaddle demo; all rows were on one machine.",
    )


def _client_table(last: Mapping[str, Mapping[str, float]]) -> Section:
    base = last["FedAvg"]["worst"]
    rows = []
    for name, own in last.items():
        gain = "" if name == "FedAvg" else f"{100 * (own['worst'] - base):+.1f} points"
        rows.append([name, percent(own["worst"], 1), gain, percent(own["mean"], 1), f"{100 * own['std']:.1f} points"])
    heads = ["algorithm", "worst site", "against FedAvg", "mean of sites", "spread over sites"]
    return Section("figures", "At the end", [PageTable(heads, rows, caption="Test accuracy, mean over the seeds")])


def _demo_curves(seeds: Mapping[str, Sequence[History]]) -> Section:
    worst = _seeds_chart("Worst site", seeds, lambda record: float(record["test"]["accuracy"]["worst"]), "worst")
    mean = _seeds_chart("Mean of the sites", seeds, lambda record: float(record["test"]["accuracy"]["mean"]), "mean")
    return Section("curves", "Over the rounds", [worst, mean])


def _seeds_chart(title: str, seeds: Mapping[str, Sequence[History]], curve: Curve, key: str) -> Chart:
    """A line for each algorithm: its mean, with a band from the lowest to the highest seed."""
    lines = []
    for (name, histories), style in zip(seeds.items(), STYLES, strict=False):
        at = picked(len(histories[0]), MOST_POINTS)
        y = np.array([[curve(history[k]) for k in at] for history in histories])
        rounds = [int(histories[0][k]["round"]) for k in at]
        low, high = y.min(axis=0).tolist(), y.max(axis=0).tolist()
        lines.append(Line(name, rounds, y.mean(axis=0).tolist(), style, low, high))
    values = [v for line in lines for v in (*(line.low or ()), *(line.high or ()))]
    return Chart(
        title,
        line_chart(
            lines, ChartAxis("round", 0, lines[0].x[-1]), axis_for("test accuracy", values, share=True), key=key
        ),
        ", ".join(f"{line.name} ends at {percent(line.y[-1], 1)}" for line in lines) + ".",
        PageTable(["algorithm", "last round", "lowest seed", "highest seed"], [_last_of(line) for line in lines]),
        note="Means over the seeds; bands reach from the lowest to the highest seed.",
    )


def _last_of(line: Line) -> list[str]:
    low, high = line.low or line.y, line.high or line.y
    return [line.name, percent(line.y[-1], 1), percent(low[-1], 1), percent(high[-1], 1)]


def _demo_sites(means: Mapping[str, History], sites: Sequence[str]) -> Section:
    columns = {name: history[-1]["clients"]["test"]["accuracy"] for name, history in means.items()}
    shares = [[float(own[i]) for own in columns.values()] for i in range(len(sites))]
    worst = {name: int(np.argmin(own)) for name, own in columns.items()}
    chart = Chart(
        "Right answers in per cent",
        heat_map(list(sites), list(columns), shares, key="sites"),
        "; ".join(f"{name} is worst at {sites[i]} with {percent(columns[name][i], 1)}" for name, i in worst.items())
        + ".",
        PageTable(
            ["site", *columns], [[site, *(percent(v, 1) for v in row)] for site, row in zip(sites, shares, strict=True)]
        ),
        note="Test accuracy of each site at the end, mean over the seeds.",
    )
    return Section("sites", "Each site", [chart])
