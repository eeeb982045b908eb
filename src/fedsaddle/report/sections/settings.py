"""The trials of a search and the reason of its choice; settings, versions, and the commands to repeat a run."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping

from fedsaddle.documents.stored import SearchOptions
from fedsaddle.documents.summary import SearchSummary, Settings
from fedsaddle.report.page.charts import ChartAxis, ForestRow, forest
from fedsaddle.report.page.parts import Block, Bullets, Chart, Code, PageTable, Section, Text
from fedsaddle.report.stored_run import StoredRun
from fedsaddle.report.words import decimal
from fedsaddle.text import shortened, visible

HEADS = {
    "candidate": "candidate",
    "step": "step",
    "rounds": "rounds",
    "selected_round": "best round",
    "validation": "validation",
    "gain": "gain",
    "standard_error": "standard error",
    "seconds": "seconds",
    "note": "",
}
BUDGETS = {"2m": 120, "5m": 300, "10m": 600, "30m": 1800, "1h": 3600, "3h": 10800}
NOT_RUN = "not run"  # begins the note of a trial that the time budget left out
AIMS = {
    "auroc": "AUROC",
    "average-precision": "average precision",
    "partial-auroc": "partial AUROC",
    "worst-site": "log loss of the worst site",
    "worst-group": "log loss of the worst group",
}


def trials(run: StoredRun) -> Section | None:
    """Every trial, and the comparisons that led to the choice.

    Args:
        run: The run.
    """
    if not run.trials or run.search_summary is None:
        return None
    table = PageTable(
        [HEADS.get(key, key) for key in run.trials[0]],
        [[visible(cell) for cell in trial.values()] for trial in run.trials],
        caption="Every trial; candidates are compared by `validation`, on the validation rows.",
    )
    aim = visible(run.search_summary.aim)
    blocks: list[Block] = [Text(_words(run, run.search_summary))]
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
                    ChartAxis("gain", low - edge, high + edge),
                    heads=("candidate", "step"),
                    reference=0.0,
                    key="trials",
                ),
                description="; ".join(f"{row.name}: {decimal(row.value or 0, 4, sign=True)}" for row in rows) + ".",
                table=table,
                note="The bars are two standard errors to each side. A candidate replaces the default only if its bar "
                "is entirely above 0: with many candidates, one of them is ahead by chance.",
            )
        )
    else:
        blocks.append(table)
    return Section("trials", "What was tried", blocks)


def cut_in_words(summary: SearchSummary) -> str:
    """That the time budget ended a search, with the remedy; empty if it did not.

    Args:
        summary: Of the search.
    """
    cut, budget = summary.cut, summary.budget
    if not cut or budget is None:
        return ""
    more = next((text for text, seconds in BUDGETS.items() if seconds >= 2.5 * budget), f"{3 * budget / 3600:.0f}h")
    names = "; ".join(visible(name) for name in cut[:5]) + (f" and {len(cut) - 5} more" if len(cut) > 5 else "")
    whom = f"{len(cut)} candidates had all their" if len(cut) > 1 else "a candidate had all its"
    return (
        f"The time budget of {budget:.3g} s ended the search before {whom} trials ({names}): a better model may have "
        f"been missed. Search again with more time, such as --budget {more}, in another folder."
    )


def _words(run: StoredRun, summary: SearchSummary) -> str:
    tried = ways_tried(run)
    every = dict.fromkeys(trial.get("candidate", "") for trial in run.trials)
    rest = [visible(name) for name in every if name not in tried]
    left = f" Not tried, as the time budget was used up: {'; '.join(rest)}." if rest else ""
    return (
        f"{_many(len(tried), 'way')} to train {'was' if len(tried) == 1 else 'were'} tried, with the same grid of "
        "steps for each, extended if its largest or smallest step was the best. The choice is "
        f"{visible(summary.choice)}{reason_in_words(summary)}. Test rows were evaluated only after it was made.{left}"
    )


def ways_tried(run: StoredRun) -> tuple[str, ...]:
    """The names of the candidates, without those that the time budget left out.

    Args:
        run: The search.
    """
    there = (trial for trial in run.trials if not trial.get("note", "").startswith(NOT_RUN))
    return tuple(dict.fromkeys(trial.get("candidate", "") for trial in there))


def reason_in_words(summary: SearchSummary) -> str:
    """Why the choice was made, as the end of a sentence that names it.

    Args:
        summary: Of the search.
    """
    reason = visible(summary.reason)
    if reason.startswith("the default: "):
        return f", which is the default: {reason.removeprefix('the default: ')}"
    return f", {reason}" if reason else ""


def _many(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def _compared(trial: Mapping[str, str]) -> ForestRow | None:
    try:
        gain, error = float(trial["gain"]), float(trial["standard_error"])
    except (KeyError, ValueError):
        return None
    return ForestRow(
        visible(trial.get("candidate", "")), (trial.get("step", ""),), gain, gain - 2 * error, gain + 2 * error
    )


MOST_CHARACTERS = 200  # of a value


def settings(run: StoredRun) -> Section | None:
    """How to repeat the run, every setting, and the versions.

    Args:
        run: The run.
    """
    blocks: list[Block] = [Text("The commands to repeat it:"), Code("\n".join(commands(run)))]
    blocks += _provenance(run)
    rows = [(visible(key), shortened(visible(value), MOST_CHARACTERS)) for key, value in flat(run.config)]
    if rows:
        blocks.append(PageTable(("setting", "value"), rows, caption="Every setting, defaults included", folded=True))
    if run.damage:
        blocks += [
            Text("Damaged files of this run, which are left out of this page:", "caution"),
            Bullets([*map(visible, run.damage)]),
        ]
    return Section("settings", "Settings, versions, and how to repeat it", blocks)


def commands(run: StoredRun) -> list[str]:
    """The commands that repeat this run and this page.

    Args:
        run: The run.
    """
    first = run.provenance.command if run.provenance else None
    if not first:
        first = _from_search(run.search) if run.search else "fedsaddle run CONFIG.toml    # with the settings below"
    return [visible(first), visible(shlex.join(["fedsaddle", "report", str(run.folder)]))]


def _from_search(search: SearchOptions) -> str:
    """The command of a search on a table, from its options."""
    words = ["fedsaddle", "run", search.table]
    names = {"test_sites": "test-site"}
    for key, value in search.options().items():
        if value is None or value == []:
            continue
        for one in value if isinstance(value, list) else [value]:
            words += [f"--{names.get(key, key)}", str(one)]
    return shlex.join(words)


def _provenance(run: StoredRun) -> list[Block]:
    made, blocks = run.provenance, list[Block]()
    if made is not None:
        rows = [(visible(name), visible(number)) for name, number in made.versions.items()]
        ours = visible(made.versions.get("fedsaddle", "?"))
        caption = f"Finished {visible(made.finished)} on {visible(made.machine)}, with fedsaddle {ours}."
        blocks += [Text(caption), PageTable(("package", "version"), rows, caption="Versions", folded=True)]
        if made.table is not None and made.table.sha256:
            blocks.append(Text(f"The table: {visible(made.table.file)}, SHA-256 {visible(made.table.sha256)}."))
    if run.finished is not None:
        blocks.append(Text(f"Fingerprint of algorithm, data and seed: {visible(run.finished.fingerprint)}."))
    return blocks


def flat(settings: Settings, head: str = "") -> Iterator[tuple[str, str]]:
    """Nested settings as pairs such as ("run.seed", "0").

    Args:
        settings: Such as a config.
        head: Put before each key.
    """
    for key, value in settings.items():
        if isinstance(value, dict):
            yield from flat(value, f"{head}{key}.")
        else:
            yield f"{head}{key}", "" if value is None else str(value)
