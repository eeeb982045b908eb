"""What a search tried, and why it chose what it chose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedsaddle.report.page.charts import Axis, ForestRow, forest
from fedsaddle.report.page.parts import Block, Chart, Section, Table, Text
from fedsaddle.report.stored_run import StoredRun
from fedsaddle.report.words import decimal
from fedsaddle.shown import visible

HEADS = {
    "candidate": "candidate",
    "step": "step",
    "rounds": "rounds",
    "selected_round": "kept round",
    "validation": "validation",
    "gain": "gain",
    "standard_error": "standard error",
    "seconds": "seconds",
    "note": "",
}
BUDGETS = {"2m": 120, "5m": 300, "10m": 600, "30m": 1800, "1h": 3600, "3h": 10800}
NOT_RUN = "not run"  # begins the note of a trial that the budget had no time for
AIMS = {
    "auroc": "AUROC",
    "average-precision": "average precision",
    "partial-auroc": "partial AUROC",
    "worst-site": "log loss of the worst site",
}


def trials(run: StoredRun) -> Section | None:
    """Every trial, and the comparisons that decided."""
    if not run.trials or not run.is_search:
        return None
    table = Table(
        [HEADS.get(key, key) for key in run.trials[0]],
        [[visible(cell) for cell in trial.values()] for trial in run.trials],
        caption="Every trial; `validation` is what counted, on the validation rows.",
    )
    aim = visible(run.summary.get("aim", ""))
    blocks: list[Block] = [Text(_words(run))]
    rows = [row for trial in run.trials if (row := _compared(trial)) is not None]
    if rows:
        ends = [v for row in rows for v in (row.low, row.high) if v is not None]
        low, high = min(0.0, *ends), max(0.0, *ends)
        edge = 0.05 * (high - low) or 0.01
        blocks.append(
            Chart(
                title=f"Gain over what each candidate had to beat, {AIMS.get(aim, aim)}, validation rows",
                svg=forest(
                    rows,
                    Axis("gain", low - edge, high + edge),
                    heads=("candidate", "step"),
                    reference=0.0,
                    key="trials",
                ),
                description="; ".join(f"{row.name}: {decimal(row.value or 0, 4, sign=True)}" for row in rows) + ".",
                table=table,
                note="The bars are two standard errors to each side. A candidate replaces the default only if its bar "
                "lies to the right of 0: with many candidates, one of them is ahead by chance.",
            )
        )
    else:
        blocks.append(table)
    return Section("trials", "What was tried", blocks)


def cut_in_words(summary: Mapping[str, Any]) -> str:
    """That the time budget ended a search, with the remedy; empty if it did not."""
    cut, budget = summary.get("cut"), summary.get("budget")
    if not cut or not isinstance(budget, int | float):
        return ""
    more = next((text for text, seconds in BUDGETS.items() if seconds >= 2.5 * budget), f"{3 * budget / 3600:.0f}h")
    names = "; ".join(visible(name) for name in cut[:5]) + (f" and {len(cut) - 5} more" if len(cut) > 5 else "")
    whom = f"{len(cut)} candidates had all their" if len(cut) > 1 else "a candidate had all its"
    return (
        f"The time budget of {budget:.3g} s ended the search before {whom} trials ({names}): a better model may have "
        f"been missed. Search again with more time, such as --budget {more}, in another folder."
    )


def _words(run: StoredRun) -> str:
    tried = ways_tried(run)
    every = dict.fromkeys(trial.get("candidate", "") for trial in run.trials)
    rest = [visible(name) for name in every if name not in tried]
    left = f" Not tried, for want of time: {'; '.join(rest)}." if rest else ""
    return (
        f"{_many(len(tried), 'way')} to train {'was' if len(tried) == 1 else 'were'} tried, with the same grid of "
        "steps for each, extended where its longest or shortest step was the best. The choice is "
        f"{visible(run.summary['choice'])}{reason_in_words(run)}. Test rows were not looked at until it was made.{left}"
    )


def ways_tried(run: StoredRun) -> tuple[str, ...]:
    """The names of the candidates, without those that the budget had no time for."""
    there = (trial for trial in run.trials if not trial.get("note", "").startswith(NOT_RUN))
    return tuple(dict.fromkeys(trial.get("candidate", "") for trial in there))


def reason_in_words(run: StoredRun) -> str:
    """Why the choice was made, as the end of a sentence that names it."""
    reason = visible(run.summary.get("reason", ""))
    if reason.startswith("the default: "):
        return f", which is the default: {reason.removeprefix('the default: ')}"
    return f", {reason}" if reason else ""


def _many(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def _compared(trial: dict[str, str]) -> ForestRow | None:
    try:
        gain, error = float(trial["gain"]), float(trial["standard_error"])
    except (KeyError, ValueError):
        return None
    return ForestRow(
        visible(trial.get("candidate", "")), (trial.get("step", ""),), gain, gain - 2 * error, gain + 2 * error
    )
