"""Pictures of runs. They are drawn without a display and without global state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from fedsaddle.atomic import write_atomically
from fedsaddle.errors import BadInput

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
History = Sequence[Mapping[str, Any]]


def save(figure: Figure, path: Path) -> Path:
    """Write the picture, whole or not at all."""
    import io

    kind = path.suffix.lstrip(".").lower() or "png"
    if kind not in figure.canvas.get_supported_filetypes():
        raise BadInput("path", str(path), "is no kind of picture; end the name in .png, .svg or .pdf")
    path.parent.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=130)
    write_atomically(path, buffer.getvalue())
    return path


def label(name: str) -> str:
    """A name without the dollar signs that start a formula."""
    return name.replace("$", r"\$")


def axes_of(figure: Figure, rows: int = 1, columns: int = 1) -> list[Any]:
    """Plain axes with a light grid."""
    found = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    for axes in found:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    return list(found)


def main_measure(history: History) -> tuple[str, str]:
    """What a picture should show: ("test", "accuracy"), or what there is."""
    part = "test" if "test" in history[-1] else "train"
    return part, "accuracy" if "accuracy" in history[-1][part] else "loss"


def curve(history: History, statistic: str, measure: str, part: str) -> tuple[list[int], list[float]]:
    """Rounds and values of one statistic."""
    records = [r for r in history if part in r]
    return [r["round"] for r in records], [r[part][measure][statistic] for r in records]


def pooled(runs: Mapping[str, History], measure: str, path: Path, *, x: str = "round", title: str = "") -> Path:
    """One pooled measure of one or several runs, over rounds or what else is counted; logarithmic if it falls far."""
    if x not in UNITS:
        raise BadInput("x", x, f"choose one of {', '.join(UNITS)}")
    figure = Figure(figsize=(6.4, 4), layout="constrained")
    (axes,) = axes_of(figure)
    lowest, highest = float("inf"), 0.0
    for (name, history), colour in zip(runs.items(), COLOURS * 3, strict=False):
        there = history[-1].get("pooled", {})
        if measure not in there:
            raise BadInput("measure", measure, f"the run {name!r} has {', '.join(there) or 'no pooled measure'}")
        values = [r["pooled"][measure] for r in history]
        axes.plot([r[x] for r in history], values, color=colour, label=label(name))
        lowest, highest = min(lowest, *values), max(highest, *values)
    if 0 < lowest < highest / 100:
        axes.set_yscale("log")
    axes.set(xlabel=UNITS[x], ylabel=measure.replace("_", " "), title=label(title))
    if len(runs) > 1:
        figure.legend(frameon=False, loc="outside lower center", ncols=2, fontsize=9)
    return save(figure, path)


def progress(history: History, path: Path, title: str = "") -> Path:
    """Worst, mean and best client over the rounds."""
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
    """Several runs side by side: the worst client, the mean and the spread over the rounds."""
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
    """The last evaluation of each run, client by client; None if clients were not listed."""
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
    """λ over the rounds; None if there is none."""
    records = [r for r in history if "mixture" in r]
    if not records:
        return None
    figure = Figure(figsize=(6.4, 4), layout="constrained")
    (axes,) = axes_of(figure)
    rounds = [r["round"] for r in records]
    for i in range(len(records[0]["mixture"])):
        shown = label(names[i]) if len(names) <= 12 else None
        axes.plot(rounds, [r["mixture"][i] for r in records], color=COLOURS[i % 8], lw=1, label=shown)
    axes.set(xlabel="round", ylabel="mixture λ", title="what each client weighs")
    if len(names) <= 12:
        axes.legend(frameon=False, fontsize=7, ncols=2)
    return save(figure, path)
