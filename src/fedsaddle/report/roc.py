"""The ROC curves of a run as a plot, a table and files; of one model, or of two side by side."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from rich.table import Table
from torch import Tensor

from fedsaddle.atomic import write_atomically, write_json
from fedsaddle.csv_cells import safe_cell
from fedsaddle.data.federated import FederatedData
from fedsaddle.metrics.ranking import Floats, Ranking, RankingFigures, difference, rank
from fedsaddle.problems.protocols import Ranks
from fedsaddle.report.plots import COLOURS, axes_of, label, save
from fedsaddle.report.tables import cell

MAX_SITES = 20  # in the terminal's table and in the plot
MAX_POINTS = 400  # of a curve in roc.json

Rankings = Mapping[str, Ranking]  # by the model's name, the first one compared with the second


def ranking_of(problem: object, model: Tensor, data: FederatedData, seed: int) -> Ranking | None:
    """The ranking of the test rows, or of the training rows where there are none; None without two classes."""
    rows, names = (data.train, data.names) if data.test is None else (data.test, data.test_names)
    if not isinstance(problem, Ranks) or len(data.classes) != 2 or rows.y.ndim > 1:
        return None
    scores = problem.ranking(model, rows.x)
    if scores is None:
        return None
    return rank(scores.double().numpy(), rows.y.numpy(), rows.offsets, names, seed=seed)


def table(rankings: Rankings, part: str) -> Table:
    """The AUROC of each site and of the pooled rows, with 95 % intervals."""
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
    shown.add_row(*_cells(first.pooled), *(auroc_text(r.pooled) for r in rankings.values()))
    shown.caption = caption(rankings)
    return shown


def caption(rankings: Rankings) -> str:
    """The caption of the table: sites with a single class, and the difference of two models."""
    first = next(iter(rankings.values()))
    single = first.single_class_clients
    some = f"{single} of {len(first.clients)} sites have a single class and no curve of their own"
    sentences = [some if single else "every site with rows has both classes"]
    if gap := _difference(rankings):
        one, other = map(cell, list(rankings)[:2])
        sentences.append(f"pooled AUROC, {one} minus {other}: {gap[0]:+.4f} [{gap[1]:+.4f}, {gap[2]:+.4f}]")
    return "\n".join(sentences)


def auroc_text(ranked: RankingFigures) -> str:
    """An AUROC and its interval, or why there is none."""
    if ranked.auroc is None:
        return "one class only" if ranked.positives + ranked.negatives else "no rows"
    return f"{ranked.auroc:.4f} [{ranked.low:.3f}, {ranked.high:.3f}]"


def write(rankings: Rankings, part: str, out: Path) -> dict[str, Any]:
    """Write roc.csv and roc.json to `out`, and return the entry for the run's summary."""
    first = next(iter(rankings.values()))
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(
        ["site", "rows", "positives", *(safe_cell(f"{n} {k}") for n in rankings for k in ("AUROC", "low", "high"))]
    )
    for i, site in enumerate((*first.clients, first.pooled)):
        models = [(*r.clients, r.pooled)[i] for r in rankings.values()]
        cells = ["" if v is None else f"{v:.6f}" for m in models for v in (m.auroc, m.low, m.high)]
        rows.writerow([safe_cell(site.name), site.positives + site.negatives, site.positives, *cells])
    write_atomically(out / "roc.csv", text.getvalue().encode())
    gap = _difference(rankings)
    content: dict[str, Any] = {
        "part": part,
        "models": {name: {**r.to_dict(), "curve": _points(r.curve())} for name, r in rankings.items()},
        "difference": None if gap is None else {"pooled_auroc": gap[0], "interval": list(gap[1:])},
    }
    write_json(out / "roc.json", content)
    brief = {n: {"auroc": r.pooled.auroc, "interval": [r.pooled.low, r.pooled.high]} for n, r in rankings.items()}
    return {**brief, "single_class_clients": first.single_class_clients, "difference": content["difference"]}


def draw(rankings: Rankings, part: str, path: Path) -> Path:
    """Plot a panel for each model: the pooled curve, and thin curves of the sites."""
    picture = Figure(figsize=(4.6 * len(rankings) + 1.2, 4.6), layout="constrained")
    for axes, (name, ranking) in zip(axes_of(picture, 1, len(rankings)), rankings.items(), strict=True):
        axes.plot([0, 1], [0, 1], color="#bbbbbb", lw=0.8, ls="--")
        for i, site in enumerate(ranking.clients[:MAX_SITES]):
            curve = ranking.curve(i)
            if curve is not None:
                text = f"{label(site.name)} {site.auroc:.3f}" if len(ranking.clients) <= 10 else None
                axes.plot(*curve, color=COLOURS[1 + i % 7], lw=0.9, alpha=0.8, label=text)
        pooled = ranking.curve()
        if pooled is not None:
            axes.plot(*pooled, color=COLOURS[0], lw=2.2, label=f"pooled {auroc_text(ranking.pooled)}")
        axes.set(xlabel="false positive rate", ylabel="true positive rate", title=f"{label(name)}, {part} rows")
        axes.set_aspect("equal")
        axes.legend(frameon=False, fontsize=7, loc="lower right")
    return save(picture, path)


def _difference(rankings: Rankings) -> tuple[float, float, float] | None:
    return difference(*list(rankings.values())[:2]) if len(rankings) > 1 else None


def _cells(site: RankingFigures) -> tuple[str, str, str]:
    return cell(site.name), f"{site.positives + site.negatives:,}", f"{site.positives:,}"


def _points(curve: tuple[Floats, Floats] | None) -> dict[str, list[float]] | None:
    """A curve thinned to at most `MAX_POINTS` points, with its ends."""
    if curve is None:
        return None
    at = np.unique(np.linspace(0, len(curve[0]) - 1, min(MAX_POINTS, len(curve[0]))).round().astype(int))
    return {"false_positive_rate": curve[0][at].tolist(), "true_positive_rate": curve[1][at].tolist()}
