"""A page that uses every part, as a report of 12 sites and of 200 would."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fedsaddle.report.page.charts import Bar, ChartAxis, ForestRow, Line, bars, forest, heat_map, line_chart
from fedsaddle.report.page.parts import (
    Bullets,
    Chart,
    Code,
    Figure,
    Page,
    PageTable,
    Section,
    Text,
    ThresholdSlider,
)

ROUNDS = np.arange(0.0, 60.0)
TOWNS = ("Aachen", "Bergen", "Cork", "Delft", "Essen", "Fermo", "Ghent", "Hull", "Izola", "Jena", "Kalmar", "Lyon")


def site_names(count: int) -> list[str]:
    return [f"{TOWNS[i % 12]} {i // 12 + 1}" if i >= 12 else TOWNS[i] for i in range(count)]


def progress(seed: int, end: float) -> np.ndarray:
    noise = np.random.default_rng(seed).normal(0, 0.006, len(ROUNDS))
    return end - (end - 0.5) * np.exp(-ROUNDS / 9) + noise


def progress_chart(sites: int) -> Chart:
    faint = [
        Line(name, ROUNDS, progress(i + 9, 0.74 + 0.012 * (i % 13)), "faint")
        for i, name in enumerate(site_names(sites))
    ]
    main, other = progress(1, 0.83), progress(2, 0.80)
    lines = [
        *faint,
        Line("the chosen model", ROUNDS, main, "first", main - 0.02, main + 0.02),
        Line("FedAvg", ROUNDS, other, "second", other - 0.02, other + 0.02),
    ]
    svg = line_chart(lines, ChartAxis("rounds of training", 0, 59), ChartAxis("AUROC", 0.45, 0.95), key="progress")
    rows = [[f"{int(r)}", f"{a:.3f}", f"{b:.3f}"] for r, a, b in zip(ROUNDS, main, other, strict=True)]
    table = PageTable(["round", "the chosen model", "FedAvg"], rows[::6])
    words = "The AUROC of the chosen model rises from 0.50 to 0.83 in 59 rounds, that of FedAvg to 0.80."
    return Chart("AUROC on validation rows, round by round", svg, words, table, "Bands are 95 % intervals.")


def forest_rows(sites: int) -> list[ForestRow]:
    draw = np.random.default_rng(4)
    rows = []
    for i, name in enumerate(site_names(sites)):
        count, events = int(draw.integers(60, 900)), int(draw.integers(2, 60))
        value, half = 0.8 + draw.normal(0, 0.05), 0.4 / math.sqrt(events)
        if events < 5:
            rows.append(ForestRow(name, (f"{count}", f"{events}"), None, why_not="fewer than 5 deaths"))
            continue
        other = value - 0.03
        second = (other, other - half, min(other + half, 1.0)) if i % 3 else None
        rows.append(
            ForestRow(name, (f"{count}", f"{events}"), value, value - half, min(value + half, 1.0), second=second)
        )
    rows.append(ForestRow("All sites", ("4,812", "402"), 0.823, 0.801, 0.846, "total", second=(0.8, 0.775, 0.824)))
    rows.append(ForestRow("Within sites", ("4,812", "402"), 0.807, 0.785, 0.829, "total"))
    return rows


def forest_chart(sites: int) -> Chart:
    rows = forest_rows(sites)
    svg = forest(
        rows,
        ChartAxis("AUROC", 0.5, 1.0),
        heads=["site", "rows", "deaths"],
        reference=0.823,
        models=("the chosen model", "FedAvg"),
        key=f"forest-{sites}",
    )
    cells = [
        [r.name, *r.counts, "–" if r.value is None else f"{r.value:.2f} ({r.low:.2f} to {r.high:.2f})"] for r in rows
    ]
    table = PageTable(["site", "rows", "deaths", "AUROC (95 % interval)"], cells, totals=2)
    words = f"AUROC at each of {sites} sites with 95 % intervals; of all sites together it is 0.82 (0.80 to 0.85)."
    return Chart(
        f"AUROC at each of {sites} sites", svg, words, table, "A square is a site, its line the interval.", sites > 40
    )


def calibration_chart() -> Chart:
    x = np.linspace(0.05, 0.85, 9)
    y = np.clip(x + np.array([0.01, -0.01, 0.02, 0.03, -0.04, 0.02, -0.06, 0.05, -0.03]), 0, 1)
    half = np.linspace(0.02, 0.12, 9)
    lines = [
        Line("as predicted", [0, 1], [0, 1], "guide"),
        Line("the chosen model", x, y, "first", y - half, y + half, markers=True, joined=False),
        Line("FedAvg", x + 0.02, y - 0.05, "second", markers=True),
    ]
    both = {"low": 0.0, "high": 1.0, "percent": True}
    svg = line_chart(
        lines, ChartAxis("predicted risk", **both), ChartAxis("observed share", **both), square=True, key="calibration"
    )
    table = PageTable(
        ["predicted", "observed"], [[f"{100 * a:.0f} %", f"{100 * b:.0f} %"] for a, b in zip(x, y, strict=True)]
    )
    return Chart(
        "Predicted and observed risk",
        svg,
        "Observed shares follow predicted risks closely.",
        table,
        "Dots on the line: predictions hold.",
    )


def odd_chart() -> Chart:
    lines = [
        Line("with gaps", [1, 10, math.nan, 100, 1000], [0.1, 1, 2, math.nan, 4], "first"),
        Line("empty", [], [], "second"),
        Line("one point", [100], [3], "third"),
        Line("far away", [1, 1000], [-500, 1e300], "fourth"),
        Line("fifth", [1, 30, 1000], [5, 5.2, 4.6], "fifth", markers=True),
        Line("sixth", [1, 30, 1000], [6, 6.2, 5.6], "sixth", markers=True),
        Line("seventh", [1, 30, 1000], [7, 7.2, 6.6], "seventh", markers=True),
        Line("eighth", [1, 30, 1000], [8, 8.2, 7.6], "eighth", markers=True),
    ]
    svg = line_chart(lines, ChartAxis("step size", 1, 1000, log=True), ChartAxis("loss", 0, 9), key="odd")
    return Chart("Eight styles over a log axis", svg, "Lines with gaps, of one point, and beyond the axes.", None)


def heat_chart() -> Chart:
    names = site_names(8)
    shares = [[((3 * i + 5 * j) % 11) / 10 if (i, j) != (2, 3) else math.nan for j in range(6)] for i in range(8)]
    columns = ["age", "lactate", "creatinine", "heart rate", "bilirubin", "GCS"]
    svg = heat_map(names, columns, shares, key="missing")
    table = PageTable(
        ["site", *columns], [[n, *(f"{100 * s:.0f} %" for s in row)] for n, row in zip(names, shares, strict=True)]
    )
    return Chart(
        "Missing cells by site and column, in percent", svg, "Between 0 % and 100 % of cells are missing.", table
    )


def bars_chart() -> Chart:
    values = [
        ("lactate", 0.42),
        ("age", 0.31),
        ("Glasgow coma scale, lowest on the first day", -0.27),
        ("urine output", -0.12),
    ]
    svg = bars(
        [Bar(n, v, f"{v:+.2f}", "first" if v > 0 else "second") for n, v in values],
        ChartAxis("weight", -0.4, 0.5),
        key="weights",
    )
    table = PageTable(["column", "weight"], [[n, f"{v:+.2f}"] for n, v in values])
    return Chart("Columns with the largest weights", svg, "Lactate has the largest weight, 0.42.", table)


def slider() -> ThresholdSlider:
    at = np.round(np.linspace(0.005, 0.6, 120), 4)
    tp = np.round(400 * np.exp(-3 * at)).astype(int)
    fp = np.round(4400 * np.exp(-12 * at)).astype(int)
    rows = [[f"{100 * at[i]:.1f} %", f"{tp[i] / 4:.1f} %", f"{tp[i] + fp[i]}"] for i in range(0, 120, 12)]
    table = PageTable(["threshold", "sensitivity", "alarms"], rows, "Of 4,812 rows, 402 with the outcome")
    return ThresholdSlider(list(at), list(tp), list(fp), 402, 4410, 0.105, table)


def site_table(sites: int) -> PageTable:
    rows = [
        [r.name, *r.counts, r.why_not or f"{r.value:.3f}", "yes" if i % 4 else "no"]
        for i, r in enumerate(forest_rows(sites))
    ]
    return PageTable(["site", "rows", "deaths", "AUROC", "agreed"], rows, f"The {sites} sites", 2)


def sections(sites: int) -> Sequence[Section]:
    return (
        Section(
            "question",
            "What was asked",
            (
                Text("Which patients die in hospital, from what is known on the first day?"),
                Bullets(["12 hospitals, 4,812 patients", "outcome: death in hospital"]),
            ),
        ),
        Section("progress", "Training", (progress_chart(min(sites, 40)), odd_chart())),
        Section(
            "sites",
            "Each site",
            (Text("Sites differ less than chance would make them differ."), forest_chart(sites), site_table(sites)),
        ),
        Section(
            "calibration",
            "Can the risks be trusted?",
            (calibration_chart(), Text("Calibration was measured on all sites together.", "note")),
        ),
        Section(
            "threshold",
            "Where to raise an alarm",
            (Text("The threshold was chosen on validation rows.", "caution"), slider()),
        ),
        Section("columns", "Columns", (bars_chart(), heat_chart())),
        Section(
            "repeat",
            "Repeat it",
            (
                Code(
                    "pip install .\nfedsaddle run patients.csv --site hospital --label died "
                    "--patient patient --budget 20s --out p1"
                ),
            ),
        ),
    )


def example_page(sites: int = 12) -> Page:
    """A page of a run at so many sites."""
    return Page(
        "Death in hospital, predicted on the first day",
        f"A model trained at {sites} hospitals without moving their rows · 17 November 2026",
        (
            Text(
                "Of 100 patients who die, the model finds 74 if it may raise an alarm for 28 of 100 patients;"
                "  22 of 100 alarms are right."
            ),
            Text("It ranks patients better than FedAvg at 9 of 12 sites; at 3 the rows do not decide."),
        ),
        (
            Figure("AUROC, all sites", "0.82", "95 % interval 0.80 to 0.85"),
            Figure("AUROC, worst site", "0.71", "Cork, 95 % interval 0.58 to 0.83"),
            Figure("Average precision", "0.41", "at 8.4 % with the outcome"),
            Figure("Rows", "4,812", f"at {sites} sites, 402 with the outcome"),
        ),
        (
            "At 2 sites fewer than 5 patients died: they have no figure of their own.",
            "The model was not tried at a hospital that took no part in training.",
        ),
        sections(sites),
        "Made by FedSaddle 0.2.0 from the files in this folder. Nothing in this page comes from the network.",
    )
