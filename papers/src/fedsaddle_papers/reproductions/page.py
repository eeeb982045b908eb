"""report.html of a reproduction: the claims with their verdicts, curves with bands over seeds, what was run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from fedsaddle.array_types import Floats
from fedsaddle.metrics.intervals import t_interval
from fedsaddle.report.page.charts import MOST_POINTS, ChartAxis, Line, axis_for, line_chart, picked, thinned
from fedsaddle.report.page.parts import Block, Chart, Figure, Page, PageTable, Section, Text
from fedsaddle.report.words import is_share, many, percent, short
from fedsaddle_papers.reproductions.claims import Claim
from fedsaddle_papers.reproductions.curves import Runs
from fedsaddle_papers.reproductions.effects import Judged
from fedsaddle_papers.reproductions.figure import Figure as Reproduction
from fedsaddle_papers.reproductions.figure import FinalValues, Panel
from fedsaddle_papers.reproductions.verdicts import HOLDS, VERDICTS

STYLES = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")
COSTS = {
    "round": "communication rounds",
    "exchanges": "exchanges",
    "bytes": "bytes down and up",
    "local_steps": "local iterations",
    "seconds": "seconds of simulation",
}


def reproduction_page(
    figure: Reproduction,
    runs: Runs,
    sentences: Sequence[Judged],
    claims: Sequence[Claim],
    content: Mapping[str, Any],
) -> Page:
    """The page of a reproduction; `content` is that of its results.json."""
    held, seeds = sum(claim.holds for claim in claims), len(runs[figure.lines[0].label])
    verdicts, quick = [judged.finding.verdict for judged in sentences], bool(content["quick"])
    answer = Text(
        f"{_counted(verdicts)}, tested on {many(seeds, 'seed')}. "
        f"Of {many(len(claims), 'secondary claim')}, which are not counted, {held} hold.",
        head="Do the claims hold?",
    )
    if quick:
        answer = Text(
            f"A quick run of {many(seeds, 'seed')} and few rounds cannot tell, so that nothing gets a verdict. "
            f"`fedsaddle reproduce {content['name']}` runs the whole figure.",
            head="Do the claims hold?",
        )
    minutes = float(content["seconds"]) / 60
    return Page(
        title=figure.title,
        subtitle=figure.source,
        answers=[
            answer,
            Text(
                f"{many(len(figure.lines), 'line')} with {many(seeds, 'seed')} each, on {content['date']} in "
                f"{minutes:.1f} minutes on {_machine(content)}.",
                head="What was run?",
            ),
        ],
        figures=[
            *([] if quick else [Figure("sentences that hold", f"{verdicts.count(HOLDS)} of {len(verdicts)}")]),
            Figure("seeds", str(seeds)),
            Figure("minutes", f"{minutes:.1f}"),
        ],
        cautions=[*_cautions(runs, seeds), *content["notes"]],
        sections=[
            _sentences(sentences, quick),
            _claims(claims, quick),
            _curves(figure, runs, seeds),
            _ran(figure, content),
        ],
        footer=f"Made by fedsaddle reproduce {content['name']}.",
    )


def _machine(content: Mapping[str, Any]) -> str:
    machine, versions = content["machine"], content["versions"]
    where = f"{machine['cores']} cores, {machine['system']}"
    return f"{where}, torch {versions['torch']}, FedSaddle {versions['fedsaddle']}"


def _cautions(runs: Runs, seeds: int) -> list[str]:
    few = ["With one seed there are no intervals, and no claim of a difference can hold."] if seeds < 2 else []
    return [*few, *runs.divergence_notes()]


def _counted(verdicts: Sequence[str]) -> str:
    if not verdicts:
        return "No sentence of a paper is tested by this figure"
    found = ", ".join(f"{verdicts.count(v)} {v}" for v in VERDICTS if v in verdicts)
    return f"Of {many(len(verdicts), 'sentence')} of the paper: {found}"


def _sentences(sentences: Sequence[Judged], quick: bool) -> Section:
    rows = [[f"“{j.hypothesis.sentence}”", j.hypothesis.place, j.measured, j.finding.verdict] for j in sentences]
    heads = ["sentence", "place", "measured", "verdict"]
    if quick:
        shown = PageTable(heads[:-1], [row[:-1] for row in rows])
        return Section("sentences", "The paper's sentences", [shown])
    about = Text(
        "One test for each sentence, fixed beforehand. It holds if the interval of the effect, seed by seed, lies on "
        "the paper's side; it is refuted if the interval excludes an effect that matters. Intervals are corrected for "
        "the number of looks at the seeds, and verdicts by Holm's procedure for the number of sentences.",
        "note",
    )
    return Section("sentences", "The paper's sentences", [PageTable(heads, rows), about])


def _claims(claims: Sequence[Claim], quick: bool) -> Section:
    heads = ["claim", "paper", "measured", *([] if quick else ["verdict"])]
    rows = [[claim.claim, claim.paper, claim.measured, claim.verdict][: len(heads)] for claim in claims]
    about = Text(
        "Everything else that was compared; these intervals of 95 % are not corrected for their number. Differences "
        "stand as mean [low, high].",
        "note",
    )
    return Section("claims", "Secondary claims", [PageTable(heads, rows), about])


def _curves(figure: Reproduction, runs: Runs, seeds: int) -> Section:
    blocks: list[Block] = []
    for k, panel in enumerate(figure.panels):
        drawn = _final_values(panel, runs, k) if isinstance(panel, FinalValues) else _panel(panel, figure, runs, k)
        blocks.append(drawn)
    kind = "Student's, of accuracies and AUROCs for their log odds"
    band = f"Lines are means over {many(seeds, 'seed')}; bands are 95 % intervals ({kind})."
    return Section("curves", "Measured", [*blocks, Text(band, "note")])


def _panel(panel: Panel, figure: Reproduction, runs: Runs, number: int) -> Chart:
    labels = [line.label for line in figure.lines if not panel.lines or line.label in panel.lines]
    lines = []
    for label, style in zip(labels, [*STYLES, *["faint"] * len(labels)], strict=False):
        own = runs[label]
        x = np.mean([curves.column(panel.x) for curves in own], axis=0)
        rows = np.stack([curves.running_mean(panel.y, panel.window) for curves in own])
        band = t_interval(rows, share=_is_share(panel))
        lines.append(_banded(label, x, band, style, panel))
    values = [v for line in lines for v in (*line.y, *(line.low or ()), *(line.high or ()))]
    y = axis_for(panel.title, values, share=_is_share(panel), log=panel.log, percent=_is_share(panel))
    x_axis = ChartAxis(COSTS.get(panel.x, panel.x), 0.0, max(line.x[-1] for line in lines))
    if panel.target is not None and y.low < panel.target < y.high:
        lines.append(Line("target", [0.0, x_axis.high], [panel.target] * 2, "guide"))
    show = partial(percent, digits=1) if _is_share(panel) else short
    table = PageTable(
        ["line", "at the end", "95 % interval"],
        [[line.name, show(line.y[-1]), _range(line, show)] for line in lines if line.style != "guide"],
    )
    note = f"Running means of {panel.window} rounds." if panel.window > 1 else ""
    ends = ", ".join(f"{row[0]} {row[1]}" for row in table.rows)
    return Chart(panel.title, line_chart(lines, x_axis, y, key=f"panel-{number}"), f"At the end: {ends}.", table, note)


def _is_share(panel: Panel | FinalValues) -> bool:
    """Columns of accuracies are named by part and statistic alone, such as "test worst"."""
    return "loss" not in panel.y and (panel.y.split()[0] in ("test", "train") or is_share(panel.y))


def _banded(label: str, x: Floats, band: tuple[Floats, Floats, Floats], style: str, panel: Panel) -> Line:
    mean, low, high = band
    floor = mean / 10 if panel.log else np.where(mean < 0, -np.inf, 0.0)  # a logarithm needs more than 0
    low, high = np.maximum(low, floor), np.minimum(high, 1.0 if _is_share(panel) else np.inf)
    at = picked(len(x), MOST_POINTS)
    y = thinned(mean.tolist(), at)
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        return Line(label, thinned(x.tolist(), at), y, style)
    return Line(label, thinned(x.tolist(), at), y, style, thinned(low.tolist(), at), thinned(high.tolist(), at))


def _range(line: Line, show: Any) -> str:
    return "–" if line.low is None or line.high is None else f"{show(line.low[-1])} to {show(line.high[-1])}"


def _final_values(panel: FinalValues, runs: Runs, number: int) -> Chart:
    def last(label: str) -> Floats:
        return np.array([curves.column(panel.y)[-1] for curves in runs[label]])

    base = last(panel.base) if panel.base else np.zeros(1)
    lines, rows = [], []
    for (name, points), style in zip(panel.series.items(), STYLES, strict=False):
        found = np.stack([last(label) - base for _, label in points], axis=1)
        mean, low, high = t_interval(found, share=not panel.base and _is_share(panel))
        x = [float(number) for number, _ in points]
        bounded = bool(np.isfinite(low).all())
        ends = (low.tolist(), high.tolist()) if bounded else (None, None)
        lines.append(Line(name, x, mean.tolist(), style, ends[0], ends[1], markers=True))
        for place, value, a, b in zip(x, mean.tolist(), low.tolist(), high.tolist(), strict=True):
            rows.append([f"{name}, {panel.x} {place:g}", short(value), f"{short(a)} to {short(b)}" if bounded else "–"])
    values = [v for line in lines for v in (*line.y, *(line.low or ()), *(line.high or ()))]
    places = [v for line in lines for v in line.x]
    x_axis = ChartAxis(panel.x, min(places), max(places), log=panel.log and min(places) > 0)
    if x_axis.low == x_axis.high:
        x_axis = ChartAxis(panel.x, x_axis.low - 1, x_axis.high + 1)
    return Chart(
        panel.title,
        line_chart(lines, x_axis, axis_for(panel.title, values), key=f"panel-{number}"),
        f"Final values over {panel.x}" + (f", as differences to {panel.base}." if panel.base else "."),
        PageTable(["line", "at the end", "95 % interval"], rows),
    )


def _ran(figure: Reproduction, content: Mapping[str, Any]) -> Section:
    setting = figure.setting
    data = ", ".join(f"{k} = {v}" for k, v in setting.data.items())
    problem = f"{setting.problem} {dict(setting.problem_options) or ''}".strip()
    model = f"{setting.model} {dict(setting.model_options) or ''}".strip()
    rows = [
        [line.label, line.algorithm, f"{line.rounds:,}", ", ".join(f"{k} = {v}" for k, v in line.options.items())]
        for line in figure.lines
    ]
    versions = ", ".join(f"{k} {v}" for k, v in content["versions"].items())
    return Section(
        "run",
        "What was run",
        [
            PageTable(
                ["setting", "value"], [["data", data], ["model", model], ["problem", problem], ["versions", versions]]
            ),
            PageTable(["line", "algorithm", "rounds", "options"], rows),
        ],
    )
