"""The ROC curves of a run as a plot, a table and files; of one model, or of two side by side."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.table import Table
from torch import Tensor

from fedsaddle.atomic import write_atomically, write_json
from fedsaddle.csv_cells import safe_cell
from fedsaddle.data.federated import FederatedData
from fedsaddle.data.store import Stacked
from fedsaddle.metrics.curves import Band, client_band, pooled_band
from fedsaddle.metrics.intervals import Interval
from fedsaddle.metrics.ranking import FEW, Difference, Floats, Ranking, RankingFigures, difference, rank
from fedsaddle.problems.protocols import Ranks
from fedsaddle.report.plots import COLOURS, axes_of, label, save
from fedsaddle.report.tables import cell

MAX_SITES = 20  # in the terminal's table
MAX_CURVES = 8  # in the plot; the curves of more sites are shown as a band
MAX_POINTS = 400  # of a curve in roc.json
WITHIN = "within sites"
COLUMNS = {"AUROC": "auroc", "average precision": "average_precision", "partial AUROC": "partial_auroc"}

Rankings = Mapping[str, Ranking]  # by the model's name, the first one compared with the second


def ranking_of(problem: object, model: Tensor, data: FederatedData) -> Ranking | None:
    """The ranking of the test rows, or of the training rows where there are none; None without two classes."""
    rows, names = (data.train, data.names) if data.test is None else (data.test, data.test_names)
    scores = scores_of(problem, model, rows) if len(data.classes) == 2 else None
    if scores is None:
        return None
    units = data.test_units if data.test is not None else None
    return rank(scores, rows.y.numpy(), rows.offsets, names, units=units)


def scores_of(problem: object, model: Tensor, rows: Stacked) -> Floats | None:
    """The scores of rows of two classes, higher for likely positives; None where there are none."""
    scores = problem.ranking(model, rows.x) if isinstance(problem, Ranks) and rows.y.ndim == 1 else None
    return None if scores is None else np.asarray(scores.double().numpy())


def table(rankings: Rankings, part: str) -> Table:
    """The AUROC of each site, within sites and of the pooled rows, with 95 % intervals."""
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
    """The caption of the table: sites without a figure of their own, and the difference of two models."""
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
    """An AUROC and its interval, or why there is none."""
    return str(ranked.auroc) if ranked.why_not is None else ranked.why_not


def write(rankings: Rankings, part: str, out: Path) -> dict[str, Any]:
    """Write roc.csv and roc.json to `out`, and return the entry for the run's summary."""
    write_atomically(out / "roc.csv", _csv(rankings).encode())
    gap = _difference(rankings)
    content: dict[str, Any] = {
        "part": part,
        "models": {name: {**r.to_dict(), "curve": _points(r.curve())} for name, r in rankings.items()},
        "difference": None if gap is None else gap.to_dict(),
    }
    write_json(out / "roc.json", content)
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

    def fill(band: Band | None, text: str, **style: Any) -> None:
        if band is not None:
            axes.fill_between(band.fpr, band.low, band.high, lw=0, label=text, **style)

    fill(client_band(ranking), f"middle 80 % of {ranked} sites", color=COLOURS[5], alpha=0.22)
    fill(pooled_band(ranking), "pooled, 95 % at each rate", color=COLOURS[0], alpha=0.3)


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


def _difference(rankings: Rankings) -> Difference | None:
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
