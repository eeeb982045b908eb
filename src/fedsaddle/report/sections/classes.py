"""The accuracy of each class: an average hides a class that the model never finds."""

from __future__ import annotations

from fedsaddle.report.page.charts import Axis, ForestRow, forest
from fedsaddle.report.page.parts import Chart, Section, Table, Text
from fedsaddle.report.sections.numbers import wilson
from fedsaddle.report.stored_run import StoredRun
from fedsaddle.report.words import many, percent
from fedsaddle.shown import visible

LISTED = 200
SCROLLED = 40


def classes(run: StoredRun) -> Section | None:
    """For runs that sort rows into classes and count by class."""
    found = run.summary.get("classes") or {}
    counts = found.get("counts") or {}
    if len(counts) < 2:
        return None
    rows = "test rows" if found.get("part") == "test" else "training rows"
    lines = [(visible(name), int(c["rows"]), int(c["correct"])) for name, c in counts.items()]
    lines.sort(key=lambda line: line[2] / line[1])
    shares = [k / n for _, n, k in lines]
    worst, best, mean = lines[0], lines[-1], sum(shares) / len(shares)
    std = (sum((s - mean) ** 2 for s in shares) / len(shares)) ** 0.5
    never = sum(k == 0 for _, _, k in lines)
    words = (
        f"Of 100 {rows} of class {worst[0]} the model gets {100 * shares[0]:.0f} right, the fewest of "
        f"{many(len(lines), 'class', 'classes')}; of class {best[0]} it gets {100 * shares[-1]:.0f}, the most. The "
        f"mean over classes is {percent(mean, 1)}, "
        f"the standard deviation {100 * std:.1f} points."
    )
    blocks = [Text(words)]
    if never:
        said = "class is" if never == 1 else "classes are"
        blocks.append(Text(f"{never:,} {said} never recognised.", "caution"))
    intervals = [wilson(k, n) for _, n, k in lines]
    shown = list(zip(lines, intervals, strict=True))[:LISTED]
    chart = Chart(
        "Accuracy of each class",
        forest(
            [ForestRow(name, [f"{n:,}"], i.value, i.low, i.high) for (name, n, _), i in shown],
            Axis("right answers", 0.0, 1.0, percent=True),
            heads=["class", "rows"],
            reference=mean,
            key="classes",
        ),
        f"Worst is {worst[0]} with {percent(shares[0], 1)}, best {best[0]} with {percent(shares[-1], 1)}.",
        Table(
            ["class", "rows", "right", "accuracy", "95 % interval"],
            [
                [name, f"{n:,}", f"{k:,}", percent(i.value, 1), f"{percent(i.low, 1)} to {percent(i.high, 1)}"]
                for (name, n, k), i in shown
            ],
        ),
        note=(
            f"Over the {rows} of all clients together, worst class first. Lines are 95 % intervals (Wilson's) of each "
            "class by itself, with rows taken as independent; the reference line is the mean over classes."
        ),
        scrolls=len(shown) > SCROLLED,
    )
    return Section("classes", "Each class", [*blocks, chart])
