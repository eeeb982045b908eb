"""What a search tried, and why it chose what it chose."""

from __future__ import annotations

from fedsaddle.report.page.charts import Axis, ForestRow, forest
from fedsaddle.report.page.parts import Block, Chart, Section, Table, Text
from fedsaddle.report.stored_run import StoredRun
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


def trials_section(run: StoredRun) -> Section | None:
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
                title=f"Gain over what each candidate had to beat, {aim}, validation rows",
                svg=forest(
                    rows,
                    Axis("gain", low - edge, high + edge),
                    heads=("candidate", "step"),
                    reference=0.0,
                    key="trials",
                ),
                description="; ".join(f"{row.name}: {row.value:+.4f}" for row in rows) + ".",
                table=table,
                note="The bars are two standard errors to each side. A candidate replaces the default only if its bar "
                "lies to the right of 0: with many candidates, one of them is ahead by chance.",
            )
        )
    else:
        blocks.append(table)
    return Section("trials", "What was tried", blocks)


def _words(run: StoredRun) -> str:
    names = dict.fromkeys(trial.get("candidate", "") for trial in run.trials)
    return (
        f"Tried were {_many(len(names), 'way')} to train in {_many(len(run.trials), 'trial')}, with the same grid of "
        "steps for each. "
        f"The choice: {visible(run.summary['choice'])}: {visible(run.summary.get('reason', ''))}. Test rows were not "
        "looked at until it was made."
    )


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
