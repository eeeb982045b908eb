"""Tables of the verdicts on the papers, made from the results that come with the package; `refresh.py` writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp
from pathlib import Path
from typing import Any

from fedsaddle.text import visible
from fedsaddle_papers.reproductions import stored, tuning
from fedsaddle_papers.reproductions.hypotheses import Decline, Final, Hypothesis, Times
from fedsaddle_papers.reproductions.hypotheses_of_papers import BEYOND, papers
from fedsaddle_papers.reproductions.names import FIGURES

NOWHERE = Path("nowhere")  # the results of the package alone
BEYOND_TITLE = "Beyond the papers"
PICTURES = Path(__file__).parent / "reproductions"


def verdicts(what: str) -> str:
    """The table of one paper, or of all."""
    found = {**stored.stored_verdicts(NOWHERE), **{h.key: _beyond(h) for h in BEYOND}}
    groups: dict[str, Sequence[Hypothesis]] = {**papers(), BEYOND_TITLE: BEYOND}
    return _counted(groups, found) if what == "all" else sentences(groups[what], found)


def sentences(hypotheses: Sequence[Hypothesis], found: Mapping[str, Mapping[str, Any]]) -> str:
    """The sentences with their verdicts."""
    rows = ["| | the sentence, and where it stands | test | measured | verdict |", "|" + " --- |" * 5]
    for h in hypotheses:
        own = found[h.key]
        seeds = f", {own['seeds']} seeds" if own.get("seeds") else ""
        cells = [
            h.key,
            f"“{h.sentence}” ({h.place})",
            f"`{h.figure}`: {_pairs(h)}; {h.kind}, δ {matters(h)}",
            f"{own.get('measured', '')}{seeds}",
            f"**{own['verdict']}**",
        ]
        rows.append(_row(cells))
    return "\n".join(rows)


def matters(h: Hypothesis) -> str:
    """The smallest effect that matters, in words."""
    if not h.delta:
        return "any"
    if isinstance(h.measure, Times | Decline) or (isinstance(h.measure, Final) and h.measure.log):
        return f"{100 * (1 - exp(-h.delta)):.0f} % {'fewer' if isinstance(h.measure, Times) else 'less'}"
    return f"{h.delta:g} points"


def figure(name: str) -> str:
    """The picture of a figure with what was run."""
    if name not in FIGURES:
        raise KeyError(name)
    summary = stored.summary_of(name, NOWHERE)
    if summary is None:
        return f"`fedsaddle reproduce {name}` was not run in full yet."
    parts = []
    if (PICTURES / f"{name}.png").is_file():
        parts.append(f"![{visible(summary['title'])}]({name}.png)")
    machine, versions = summary["machine"], summary["versions"]
    where = f"{machine['cores']} cores, {machine['system']}, torch {versions['torch']}"
    took = f"{summary['seeds']} seeds, {summary['processor_minutes']:g} minutes of one core"
    parts.append(f"`fedsaddle reproduce {name}`, {summary['date']}, {where}; {took}.")
    parts.append(_tuned(name, summary))
    parts.append(_notes([f"- {visible(note)}" for note in summary["notes"]]))
    parts.append(_secondary(summary["claims"]))
    return "\n\n".join(part for part in parts if part)


def cost(_: str) -> str:
    """What the figures took, those that tuned not counted."""
    rows = ["| figure | seeds | minutes of one core |", "| --- | ---: | ---: |"]
    found = [(name, stored.summary_of(name, NOWHERE)) for name in FIGURES]
    known = [(name, summary) for name, summary in found if summary is not None]
    rows += [f"| `{name}` | {own['seeds']} | {own['processor_minutes']:g} |" for name, own in known]
    total = sum(own["processor_minutes"] for _, own in known)
    missing = ", ".join(f"`{name}`" for name, own in found if own is None)
    left = f"; not run in full: {missing}" if missing else ""
    tuned = sum(_tuning_minutes(name, own) for name, own in known)
    words = (
        f"The final runs of the figures took {total:.0f} minutes of one core, {total / 120:.1f} hours on two{left}. "
        "Figures that share lines share their runs, so that `fedsaddle reproduce --all` takes less. Tuning takes about "
        f"{tuned:.0f} minutes of one core more, by its number of runs and what a run took; its results come with the "
        "package."
    )
    return "\n\n".join([words, _folded("Each figure", rows)])


def _tuning_minutes(name: str, summary: Mapping[str, Any]) -> float:
    """What the tuning of a figure takes, if its runs are as quick as the final ones."""
    made = FIGURES[name].load()
    if made.tuning is None:
        return 0.0
    each = float(summary["processor_minutes"]) / (len(made.lines) * summary["seeds"])
    return tuning.job_count(made) * float(made.tuning.share) * each


def _tuned(name: str, summary: Mapping[str, Any]) -> str:
    """The values that the tuner chose, and where they are at the end of what it could choose from."""
    log = tuning.find_log(name, NOWHERE)
    if log is None:
        return ""
    rows = ["| line | chosen |", "| --- | --- |"]
    for label, own in log["lines"].items():
        rows.append(_row([label, ", ".join(f"{key} = {value:g}" for key, value in own["chosen"].items())]))
    seeds = len(log["seeds"])
    title = f"Tuned, {log['budget']} candidates each on {seeds} {'seed' if seeds == 1 else 'seeds'}"
    ends = "; ".join(f"{visible(label)} ({', '.join(keys)})" for label, keys in tuning.at_the_ends(log).items())
    return _folded(title, rows) + (f"\n\nAt the end of the tuner's list: {ends}." if ends else "")


def _notes(lines: Sequence[str]) -> str:
    return _folded(f"{len(lines)} notes, such as runs that diverged", lines) if len(lines) > 3 else "\n".join(lines)


def _secondary(claims: Sequence[Mapping[str, str]]) -> str:
    """What else was compared, folded away; these are not counted."""
    if not claims:
        return ""
    rows = ["| comparison | measured | verdict |", "| --- | --- | --- |"]
    rows += [_row([claim["claim"], claim["measured"], claim["verdict"]]) for claim in claims]
    title = f"{len(claims)} other comparisons, not counted; 95 % intervals, not corrected for their number"
    return _folded(title, rows)


def _folded(title: str, rows: Sequence[str]) -> str:
    return "\n\n".join([f'<details markdown="1"><summary>{title}</summary>', "\n".join(rows), "</details>"])


def _counted(groups: Mapping[str, Sequence[Hypothesis]], found: Mapping[str, Mapping[str, Any]]) -> str:
    kinds = (*stored.VERDICTS, stored.NOT_RUN)
    rows = [f"| paper | sentences | {' | '.join(kinds)} |", "| --- |" + " ---: |" * (len(kinds) + 1)]
    for paper, hypotheses in groups.items():
        own = [found[h.key]["verdict"] for h in hypotheses]
        page = "index.md#beyond-the-papers" if paper == BEYOND_TITLE else f"{paper.lower().replace(' ', '-')}.md"
        rows.append(f"| [{paper}]({page}) | {len(hypotheses)} | {' | '.join(str(own.count(kind)) for kind in kinds)} |")
    return "\n\n".join([f"**{stored.headline(stored.counts(NOWHERE))}.**", "\n".join(rows)])


def _pairs(h: Hypothesis) -> str:
    pairs = (f"{one} against {other}" if one != other else one for one, other in h.pairs)
    return "; ".join(pairs).replace(" | ", " to ")


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(visible(cell).replace("|", "\\|") for cell in cells) + " |"


def _beyond(h: Hypothesis) -> dict[str, Any]:
    summary = stored.summary_of(h.figure, NOWHERE) or {"sentences": []}
    own = [s for s in summary["sentences"] if s.get("key") == h.key]
    return dict(own[0]) if own else {"verdict": stored.NOT_RUN}
