"""Plots of runs, drawn without a display: learning curves, mixtures, and ROC curves of one model or of two."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.table import Table
from torch import Tensor

from fedsaddle.array_types import Floats
from fedsaddle.data.federated import FederatedData
from fedsaddle.data.store import Stacked
from fedsaddle.documents.files import RunFiles
from fedsaddle.errors import BadInput
from fedsaddle.files import Record, make_folder, write_atomically, write_json
from fedsaddle.metrics.intervals import Interval
from fedsaddle.metrics.ranking import (
    FEW,
    Band,
    Ranking,
    RankingDifference,
    RankingFigures,
    client_band,
    difference,
    pooled_band,
    rank,
)
from fedsaddle.metrics.selection import main_part_name, pooled_part
from fedsaddle.problems.protocols import Ranks
from fedsaddle.report.tables import cell
from fedsaddle.text import safe_cell, visible

UNITS = {
    "round": "round",
    "exchanges": "exchanges",
    "bytes_down": "bytes down",
    "bytes_up": "bytes up",
    "samples": "samples",
    "local_steps": "local steps",
    "seconds": "seconds in rounds",
}
COLOURS = ("#1b6ca8", "#d1495b", "#edae49", "#3c887e", "#7b5ea7", "#6b6b6b", "#2f4858", "#a26769")
History = Sequence[Record]


def save(figure: Figure, path: Path) -> Path:
    """Write a figure atomically, in the format of the path's suffix; PNG without one.

    Args:
        figure: Of matplotlib.
        path: The file to write.

    Raises:
        BadInput: if matplotlib does not write that format.
    """
    kind = path.suffix.lstrip(".").lower() or "png"
    if kind not in figure.canvas.get_supported_filetypes():
        raise BadInput("path", str(path), "has an unknown picture format; end the name in .png, .svg or .pdf")
    make_folder("path", path.parent)
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=130)
    write_atomically(path, buffer.getvalue())
    return path


def label(name: str) -> str:
    """A name for matplotlib: control characters are visible, and dollar signs escaped.

    Args:
        name: Any text.
    """
    return visible(name).replace("$", r"\$")


def axes_of(figure: Figure, rows: int = 1, columns: int = 1, heights: Sequence[float] | None = None) -> list[Axes]:
    """The axes of a grid of panels, row by row, each with a light grid.

    Args:
        figure: Of matplotlib.
        rows: Number of rows.
        columns: Number of columns.
        heights: Of the rows, relative to each other; None: equal.
    """
    panels: list[Axes] = figure.subplots(rows, columns, squeeze=False, height_ratios=heights).ravel().tolist()
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    return panels


def main_measure(history: History) -> tuple[str, str]:
    """The part and the measure to plot: ("test", "accuracy") if there are test rows and accuracies.

    Args:
        history: Of a run.
    """
    part = main_part_name(history[-1])
    return part, "accuracy" if "accuracy" in history[-1][part] else "loss"


def curve(history: History, statistic: str, measure: str, part: str) -> tuple[list[int], list[float]]:
    """The rounds, and the values of one statistic over the clients.

    Args:
        history: Of a run.
        statistic: Such as "worst".
        measure: Such as "accuracy".
        part: "test", "validation" or "train".
    """
    records = [r for r in history if part in r]
    return [r["round"] for r in records], [r[part][measure][statistic] for r in records]


def pooled(runs: Mapping[str, History], measure: str, path: Path, *, x: str = "round", title: str = "") -> Path:
    """Plot one pooled measure of one or several runs; logarithmic where it falls by a factor of 100.

    Args:
        runs: histories by name.
        measure: a key of the records' "pooled", or "pooled_validation" in a run with validation rows.
        path: the file to write.
        x: the cost on the x axis, a key of `UNITS`.
        title: above the plot.

    Raises:
        BadInput: for an unknown `x`, or a run without the measure.
    """
    if x not in UNITS:
        raise BadInput("x", x, f"choose one of {', '.join(UNITS)}")
    figure = Figure(figsize=(6.4, 4), layout="constrained")
    (axes,) = axes_of(figure)
    lowest, highest = float("inf"), 0.0
    for (name, history), colour in zip(runs.items(), COLOURS * 3, strict=False):
        measures = pooled_part(history[-1])
        if measure not in measures:
            raise BadInput("measure", measure, f"the run {name!r} has {', '.join(measures) or 'no pooled measure'}")
        there = [r for r in history if measure in pooled_part(r)]  # of some rounds only bounds may be known
        values = [pooled_part(r)[measure] for r in there]
        axes.plot([r[x] for r in there], values, color=colour, label=label(name))
        lowest, highest = min(lowest, *values), max(highest, *values)
    if 0 < lowest < highest / 100:
        axes.set_yscale("log")
    axes.set(xlabel=UNITS[x], ylabel=measure.replace("_", " "), title=label(title))
    if len(runs) > 1:
        figure.legend(frameon=False, loc="outside lower center", ncols=2, fontsize=9)
    return save(figure, path)


def progress(history: History, path: Path, title: str = "") -> Path:
    """Plot the worst, mean and best client over the rounds.

    Args:
        history: Of the run.
        path: The file to write.
        title: Above the plot.
    """
    part, measure = main_measure(history)
    figure = Figure(figsize=(6.4, 4), layout="constrained")
    (axes,) = axes_of(figure)
    rounds, best = curve(history, "best", measure, part)
    _, worst = curve(history, "worst", measure, part)
    axes.fill_between(rounds, worst, best, color=COLOURS[0], alpha=0.15, lw=0, label="worst to best client")
    axes.plot(*curve(history, "mean", measure, part), color=COLOURS[0], label="mean over clients")
    axes.plot(rounds, worst, color=COLOURS[1], label="worst client")
    axes.set(xlabel="round", ylabel=f"{part} {measure}", title=label(title))
    axes.legend(frameon=False)
    return save(figure, path)


def comparison(runs: Mapping[str, History], path: Path, title: str = "") -> Path:
    """Plot several runs over the rounds: the worst client, the mean and the standard deviation, a panel each.

    Args:
        runs: Histories by name.
        path: The file to write.
        title: Above the plot.
    """
    part, measure = main_measure(next(iter(runs.values())))
    figure = Figure(figsize=(12, 3.8), layout="constrained")
    panels = axes_of(figure, 1, 3)
    for axes, statistic, head in zip(
        panels, ("worst", "mean", "std"), ("worst client", "mean over clients", "standard deviation"), strict=True
    ):
        for (name, history), colour in zip(runs.items(), COLOURS * 3, strict=False):
            axes.plot(*curve(history, statistic, measure, part), color=colour, label=label(name))
        axes.set(xlabel="round", ylabel=f"{part} {measure}", title=head)
    panels[0].legend(frameon=False)
    figure.suptitle(label(title))
    return save(figure, path)


def clients(runs: Mapping[str, History], names: Sequence[str], path: Path) -> Path | None:
    """Plot the last evaluation of each run as a bar for each client; None without their values or with over 60.

    Args:
        runs: Histories by name.
        names: Of the clients.
        path: The file to write.
    """
    part, measure = main_measure(next(iter(runs.values())))
    if any(part not in h[-1].get("clients", {}) for h in runs.values()) or len(names) > 60:
        return None
    figure = Figure(figsize=(max(6.4, 0.5 * len(names)), 4), layout="constrained")
    (axes,) = axes_of(figure)
    width = 0.8 / len(runs)
    for k, (name, history) in enumerate(runs.items()):
        values = [0.0 if v is None else v for v in history[-1]["clients"][part][measure]]
        axes.bar([i + k * width for i in range(len(values))], values, width, color=COLOURS[k % 8], label=label(name))
    axes.set_xticks([i + 0.4 - width / 2 for i in range(len(names))], [*map(label, names)], rotation=45, ha="right")
    axes.set(ylabel=f"{part} {measure}")
    axes.legend(frameon=False, ncols=len(runs), loc="lower left", bbox_to_anchor=(0, 1))
    return save(figure, path)


def mixture(history: History, names: Sequence[str], path: Path) -> Path | None:
    """Plot the mixture λ over the rounds; None if the algorithm has none.

    Args:
        history: Of the run.
        names: Of the clients.
        path: The file to write.
    """
    records = [r for r in history if "mixture" in r]
    if not records:
        return None
    figure = Figure(figsize=(6.4, 4), layout="constrained")
    (axes,) = axes_of(figure)
    rounds = [r["round"] for r in records]
    for i in range(len(records[0]["mixture"])):
        shown = label(names[i]) if len(names) <= 12 else None
        axes.plot(rounds, [r["mixture"][i] for r in records], color=COLOURS[i % 8], lw=1, label=shown)
    axes.set(xlabel="round", ylabel="mixture λ", title="weight of each client")
    if len(names) <= 12:
        axes.legend(frameon=False, fontsize=7, ncols=2)
    return save(figure, path)


MAX_SITES = 20  # in the terminal's table
MAX_CURVES = 8  # in the plot; the curves of more sites are shown as a band
MAX_POINTS = 400  # of a curve in roc.json
WITHIN = "within sites"
COLUMNS = {"AUROC": "auroc", "average precision": "average_precision", "partial AUROC": "partial_auroc"}

Rankings = Mapping[str, Ranking]  # by the model's name, the first one compared with the second


def ranking_of(problem: object, model: Tensor, data: FederatedData) -> Ranking | None:
    """The ranking of the test rows, or of the training rows without any; None without two classes.

    Args:
        problem: Of the run.
        model: Its flat parameters.
        data: Of the run.
    """
    rows, names = (data.train, data.names) if data.test is None else (data.test, data.test_names)
    scores = scores_of(problem, model, rows) if len(data.classes) == 2 else None
    if scores is None:
        return None
    units = data.test_units if data.test is not None else None
    return rank(scores, rows.y.numpy(), rows.offsets, names, units=units)


def scores_of(problem: object, model: Tensor, rows: Stacked) -> Floats | None:
    """The scores of rows of two classes, higher for likely positives; None for other problems.

    Args:
        problem: Of the run.
        model: Its flat parameters.
        rows: To score.
    """
    scores = problem.ranking(model, rows.x) if isinstance(problem, Ranks) and rows.y.ndim == 1 else None
    return None if scores is None else np.asarray(scores.double().numpy())


def table(rankings: Rankings, part: str) -> Table:
    """The AUROC of each site, within sites and of the pooled rows, with 95 % intervals.

    Args:
        rankings: By the model's name.
        part: "test" or "training".
    """
    first = next(iter(rankings.values()))
    shown = Table(title=f"AUROC, {part} rows, with 95 % intervals", title_justify="left", caption_justify="left")
    shown.add_column("site")
    for head in ("rows", "positives", *rankings):
        shown.add_column(cell(head), justify="right")
    for i, site in enumerate(first.clients[:MAX_SITES]):
        shown.add_row(*_cells(site), *(auroc_text(r.clients[i]) for r in rankings.values()))
    if len(first.clients) > MAX_SITES:
        shown.add_row(f"... {len(first.clients) - MAX_SITES} more in roc.csv", "", "", *("" for _ in rankings))
    shown.add_section()
    shown.add_row(WITHIN, "", "", *(str(r.within_site_auroc or "no pairs") for r in rankings.values()))
    shown.add_row(*_cells(first.pooled), *(auroc_text(r.pooled) for r in rankings.values()))
    shown.caption = caption(rankings)
    return shown


def caption(rankings: Rankings) -> str:
    """The caption of the table: sites without a figure, and the difference of two models.

    Args:
        rankings: By the model's name.
    """
    first = next(iter(rankings.values()))
    sites, single, few = len(first.clients), first.single_class_clients, first.few_clients
    sentences = []
    if single:
        sentences.append(f"{single} of {sites} sites have a single class and no curve of their own")
    if few:
        sentences.append(f"{few} of {sites} sites have fewer than {FEW} positives or negatives and are not ranked")
    if not single and not few:
        sentences.append("every site with rows has both classes")
    if gap := _difference(rankings):
        one, other = (cell(name) for name in list(rankings)[:2])
        for name, figure in (("pooled", gap.auroc), (WITHIN, gap.within_site_auroc)):
            if figure is not None:
                sentences.append(f"AUROC {name}, {one} minus {other}: {_signed(figure)}")
    return "\n".join(sentences)


def auroc_text(ranked: RankingFigures) -> str:
    """An AUROC and its interval, or why there is none.

    Args:
        ranked: Of a site or of all rows.
    """
    return str(ranked.auroc) if ranked.why_not is None else ranked.why_not


def write(rankings: Rankings, part: str, out: Path) -> Record:
    """Write roc.csv and roc.json, and return the entry for the run's summary.

    Args:
        rankings: By the model's name.
        part: "test" or "training".
        out: The run's folder.
    """
    files = RunFiles(out)
    write_atomically(files.roc_table, _csv(rankings).encode())
    gap = _difference(rankings)
    content: Record = {
        "part": part,
        "models": {name: {**r.to_dict(), "curve": _points(r.curve())} for name, r in rankings.items()},
        "difference": None if gap is None else gap.to_dict(),
    }
    write_json(files.roc, content)
    brief = {}
    for name, ranked in content["models"].items():
        kept = {key: ranked["pooled"][key] for key in COLUMNS.values()}
        brief[name] = {**kept, "within_site_auroc": ranked["within_site_auroc"]}
    counts = {key: getattr(next(iter(rankings.values())), key) for key in ("single_class_clients", "few_clients")}
    own = None if gap is None else {k: v for k, v in content["difference"].items() if k not in ("name", "clients")}
    return {**brief, **counts, "difference": own}


def draw(rankings: Rankings, part: str, path: Path) -> Path:
    """Plot a column for each model: the pooled curve and those of the sites.

    Up to eight sites have a curve each, if they have five rows of each class. More sites are shown as a band, and
    their AUROCs as dots below.

    Args:
        rankings: By the model's name.
        part: "test" or "training".
        path: The file to write.
    """
    many = max(len(r.clients) for r in rankings.values()) > MAX_CURVES
    dots = many and any(site.auroc is not None for r in rankings.values() for site in r.clients)
    size, ratios = (6.4, [3, 1]) if dots else (4.6, [1])
    picture = Figure(figsize=(4.6 * len(rankings) + 1.2, size), layout="constrained")
    panels = axes_of(picture, len(ratios), len(rankings), heights=ratios)
    for column, (name, ranking) in enumerate(rankings.items()):
        axes = panels[column]
        axes.plot([0, 1], [0, 1], color="#bbbbbb", lw=0.8, ls="--")
        if many:
            _draw_bands(axes, ranking)
            if dots:
                _draw_dots(panels[len(rankings) + column], ranking)
        else:
            _draw_sites(axes, ranking)
        pooled = ranking.curve()
        if pooled is not None:
            axes.plot(*pooled, color=COLOURS[0], lw=1.4 if many else 2.2, label=f"pooled {auroc_text(ranking.pooled)}")
        axes.set(xlabel="false positive rate", ylabel="true positive rate", title=f"{label(name)}, {part} rows")
        axes.set_aspect("equal")
        if axes.get_legend_handles_labels()[0]:
            axes.legend(frameon=False, fontsize=7, loc="lower right")
    return save(picture, path)


def _draw_sites(axes: Axes, ranking: Ranking) -> None:
    """Thin curves of the sites that have figures."""
    for i, site in enumerate(ranking.clients):
        curve = ranking.curve(i)
        if site.auroc is not None and curve is not None:
            text = f"{_short(site.name)} {site.auroc.value:.3f}"
            style = "-" if i < 7 else "--"
            axes.plot(*curve, color=COLOURS[1 + i % 7], lw=0.9, ls=style, alpha=0.8, label=text)


def _draw_bands(axes: Axes, ranking: Ranking) -> None:
    """The middle of the sites' curves, and the 95 % band of the pooled one."""
    ranked = sum(site.auroc is not None for site in ranking.clients)

    def fill(band: Band | None, text: str, colour: str, alpha: float) -> None:
        if band is not None:
            axes.fill_between(band.fpr, band.low, band.high, lw=0, label=text, color=colour, alpha=alpha)

    fill(client_band(ranking), f"middle 80 % of {ranked} sites", COLOURS[5], 0.22)
    fill(pooled_band(ranking), "pooled, 95 % at each rate", COLOURS[0], 0.3)


def _draw_dots(axes: Axes, ranking: Ranking) -> None:
    """The AUROC of each site that has one, sorted, with its interval."""
    found = sorted((site.auroc for site in ranking.clients if site.auroc is not None), key=lambda a: a.value)
    at, values = np.arange(len(found)), [a.value for a in found]
    axes.hlines(
        at,
        [a.low for a in found],
        [a.high for a in found],
        color=COLOURS[5],
        lw=0.6,
        alpha=0.5 if len(found) <= 60 else 0.25,
    )
    axes.plot(values, at, ".", color=COLOURS[0], ms=3)
    if ranking.pooled.auroc is not None:
        axes.axvline(ranking.pooled.auroc.value, color=COLOURS[0], lw=0.8, ls=":")
    unranked = len(ranking.clients) - len(found)
    rest = f"; {unranked} sites with fewer than {FEW} of a class are left out" if unranked else ""
    axes.set_title(f"AUROC of {len(found)} sites{rest}", fontsize=8)
    axes.set(yticks=[], xlim=(min([0.5, *(a.low for a in found)]) - 0.02, 1.02))


def _csv(rankings: Rankings) -> str:
    """A row for each site, within sites and pooled."""
    first, text = next(iter(rankings.values())), io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    heads = [f"{n} {c}{bound}" for n in rankings for c in COLUMNS for bound in ("", " low", " high")]
    rows.writerow(["site", "rows", "positives", "note", *map(safe_cell, heads)])
    for i, site in enumerate((*first.clients, first.pooled)):
        models = [(*r.clients, r.pooled)[i] for r in rankings.values()]
        cells = [cell for m in models for key in COLUMNS.values() for cell in _numbers(getattr(m, key))]
        counts = site.positives + site.negatives, site.positives
        rows.writerow([safe_cell(site.name), *counts, site.why_not or "", *cells])
    blank = [""] * 3 * (len(COLUMNS) - 1)
    rows.writerow(
        [WITHIN, "", "", "", *(c for r in rankings.values() for c in (*_numbers(r.within_site_auroc), *blank))]
    )
    return text.getvalue()


def _numbers(figure: Interval | None) -> list[str]:
    return ["", "", ""] if figure is None else [f"{v:.6f}" for v in (figure.value, figure.low, figure.high)]


def _difference(rankings: Rankings) -> RankingDifference | None:
    return difference(*list(rankings.values())[:2]) if len(rankings) > 1 else None


def _signed(figure: Interval) -> str:
    return f"{figure.value:+.4f} [{figure.low:+.4f}, {figure.high:+.4f}]"


def _cells(site: RankingFigures) -> tuple[str, str, str]:
    return cell(site.name), f"{site.positives + site.negatives:,}", f"{site.positives:,}"


def _short(name: str, most: int = 24) -> str:
    """A name that leaves room for the curves."""
    return label(name if len(name) <= most else f"{name[: most - 1]}…")


def _points(curve: tuple[Floats, Floats] | None) -> dict[str, list[float]] | None:
    """A curve thinned to at most `MAX_POINTS` points, with its ends."""
    if curve is None:
        return None
    at = np.unique(np.linspace(0, len(curve[0]) - 1, min(MAX_POINTS, len(curve[0]))).round().astype(int))
    return {"false_positive_rate": curve[0][at].tolist(), "true_positive_rate": curve[1][at].tolist()}
