"""The ROC curves of a run: a picture, a table and files. One model, or ours beside the one it is compared with."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from rich.markup import escape
from rich.table import Table
from torch import Tensor

from fedsaddle.atomic import write_atomically, write_json
from fedsaddle.data.federated import FederatedData
from fedsaddle.metrics.ranking import Ranked, Ranking, difference, rank
from fedsaddle.problems.protocols import Problem, Ranks
from fedsaddle.report.plots import COLOURS, axes_of, label, save

SHOWN = 20  # sites in the table of the terminal and in the picture
POINTS = 400  # of a curve in roc.json

Rankings = Mapping[str, Ranking]


def ranking_of(problem: Problem, model: Tensor, data: FederatedData, seed: int) -> Ranking | None:
    """The ranking of the test rows, or of the training rows where there are none; None without two classes."""
    rows = data.train if data.test is None else data.test
    if not isinstance(problem, Ranks) or len(data.classes) != 2 or rows.y.ndim > 1:
        return None
    scores = problem.ranking(model, rows.x)
    if scores is None:
        return None
    return rank(scores.double().numpy(), rows.y.numpy(), rows.offsets, data.names, seed=seed)


def table(found: Rankings, part: str) -> Table:
    """AUROC of each site and of all together, with 95 % intervals."""
    first = next(iter(found.values()))
    shown = Table(title=f"AUROC, {part} rows, with 95 % intervals", title_justify="left", caption_justify="left")
    shown.add_column("site")
    for head in ("rows", "positives", *found):
        shown.add_column(escape(head), justify="right")
    for i, site in enumerate(first.clients[:SHOWN]):
        shown.add_row(*_cells(site), *(figure(r.clients[i]) for r in found.values()))
    if len(first.clients) > SHOWN:
        shown.add_row(f"... {len(first.clients) - SHOWN} more in roc.csv", "", "", *("" for _ in found))
    shown.add_section()
    shown.add_row(*_cells(first.pooled), *(figure(r.pooled) for r in found.values()))
    shown.caption = caption(found)
    return shown


def caption(found: Rankings) -> str:
    """What the table says in words."""
    first = next(iter(found.values()))
    alone = first.single_class_clients
    some = f"{alone} of {len(first.clients)} sites have a single class and no curve of their own"
    said = [some if alone else "every site with rows has both classes"]
    if gap := _difference(found):
        ours, theirs = list(found)[:2]
        said.append(f"pooled AUROC of {ours} less that of {theirs}: {gap[0]:+.4f} [{gap[1]:+.4f}, {gap[2]:+.4f}]")
    return "\n".join(said)


def figure(ranked: Ranked) -> str:
    """An AUROC and its interval."""
    if ranked.auroc is None:
        return "one class only" if ranked.positives + ranked.negatives else "no rows"
    return f"{ranked.auroc:.4f} [{ranked.low:.3f}, {ranked.high:.3f}]"


def write(found: Rankings, part: str, out: Path) -> dict[str, Any]:
    """roc.csv and roc.json; gives what belongs into the summary."""
    first = next(iter(found.values()))
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(["site", "rows", "positives", *(f"{n} {k}" for n in found for k in ("AUROC", "low", "high"))])
    for i, site in enumerate((*first.clients, first.pooled)):
        each = [(*r.clients, r.pooled)[i] for r in found.values()]
        figures = ["" if v is None else f"{v:.6f}" for s in each for v in (s.auroc, s.low, s.high)]
        lines.writerow([site.name, site.positives + site.negatives, site.positives, *figures])
    write_atomically(out / "roc.csv", text.getvalue().encode())
    gap = _difference(found)
    said: dict[str, Any] = {
        "part": part,
        "models": {name: {**r.to_dict(), "curve": _points(r.curve())} for name, r in found.items()},
        "difference": None if gap is None else {"pooled_auroc": gap[0], "interval": list(gap[1:])},
    }
    write_json(out / "roc.json", said)
    brief = {n: {"auroc": r.pooled.auroc, "interval": [r.pooled.low, r.pooled.high]} for n, r in found.items()}
    return {**brief, "single_class_clients": first.single_class_clients, "difference": said["difference"]}


def draw(found: Rankings, part: str, path: Path) -> Path:
    """One panel a model: the pooled curve, and thin ones of the sites."""
    picture = Figure(figsize=(4.6 * len(found) + 1.2, 4.6), layout="constrained")
    for axes, (name, ranking) in zip(axes_of(picture, 1, len(found)), found.items(), strict=True):
        axes.plot([0, 1], [0, 1], color="#bbbbbb", lw=0.8, ls="--")
        for i, site in enumerate(ranking.clients[:SHOWN]):
            curve = ranking.curve(i)
            if curve is not None:
                said = f"{label(site.name)} {site.auroc:.3f}" if len(ranking.clients) <= 10 else None
                axes.plot(*curve, color=COLOURS[1 + i % 7], lw=0.9, alpha=0.8, label=said)
        pooled = ranking.curve()
        if pooled is not None:
            axes.plot(*pooled, color=COLOURS[0], lw=2.2, label=f"pooled {figure(ranking.pooled)}")
        axes.set(xlabel="false positive rate", ylabel="true positive rate", title=f"{label(name)}, {part} rows")
        axes.set_aspect("equal")
        axes.legend(frameon=False, fontsize=7, loc="lower right")
    return save(picture, path)


def _difference(found: Rankings) -> tuple[float, float, float] | None:
    return difference(*list(found.values())[:2]) if len(found) > 1 else None


def _cells(site: Ranked) -> tuple[str, str, str]:
    return escape(site.name), f"{site.positives + site.negatives:,}", f"{site.positives:,}"


def _points(curve: tuple[Any, Any] | None) -> dict[str, list[float]] | None:
    """A curve with few points: its ends, and others evenly between them."""
    if curve is None:
        return None
    at = np.unique(np.linspace(0, len(curve[0]) - 1, min(POINTS, len(curve[0]))).round().astype(int))
    return {"false_positive_rate": curve[0][at].tolist(), "true_positive_rate": curve[1][at].tolist()}
