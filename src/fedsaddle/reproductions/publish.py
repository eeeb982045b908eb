"""Publish the final runs: `python -m fedsaddle.reproductions.publish reproduced docs/reproductions`.

Copies the summaries and the logs of the tuner into the package, the pictures into the documentation, and writes a table
of verdicts for each paper (`verdicts-NAME.md`) and one over all papers (`verdicts.md`). The pages of the papers say in
words what is the paper's and what is not, and stand beside them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from math import exp
from pathlib import Path
from typing import Any

from fedsaddle.atomic import write_atomically
from fedsaddle.reproductions import stored, tuning
from fedsaddle.reproductions.hypotheses import Hypothesis, Times
from fedsaddle.reproductions.hypotheses_of_papers import BEYOND, papers
from fedsaddle.reproductions.names import FIGURES
from fedsaddle.shown import visible
from fedsaddle.writable import make_folder

Stored = Mapping[str, Mapping[str, Any]]
BEYOND_TITLE = "Beyond the papers"


def publish(out: Path, docs: Path, package: Path = stored.PACKAGED, logs: Path = tuning.PACKAGED) -> list[Path]:
    """Copy what was run in full from `out`, and write the tables; returns the files that were written."""
    written: list[Path] = []

    def write(file: Path, content: bytes) -> None:
        make_folder("out", file.parent)
        write_atomically(file, content)
        written.append(file)

    for name in FIGURES:
        summary, folder = stored.summary_of(name, out), out / name
        if (folder / stored.SUMMARY).is_file() and summary is not None:
            write(package / f"{name}.json", json.dumps(summary, ensure_ascii=False, indent=1).encode())
            if (folder / "plot.png").is_file():
                write(docs / f"verdicts-{name}.png", (folder / "plot.png").read_bytes())
        if (out / "tuning" / f"{name}.json").is_file():
            write(logs / f"{name}.json", (out / "tuning" / f"{name}.json").read_bytes())
    found, groups = stored.stored_verdicts(out), {**papers(), BEYOND_TITLE: BEYOND}
    found |= {h.key: _beyond(h, out) for h in BEYOND}
    for paper, hypotheses in groups.items():
        write(docs / f"verdicts-{slug(paper)}.md", paper_page(paper, hypotheses, found, out, docs).encode())
    write(docs / "verdicts.md", front_page(groups, found, out).encode())
    return written


def _beyond(h: Hypothesis, out: Path) -> dict[str, Any]:
    summary = stored.summary_of(h.figure, out) or {"sentences": []}
    own = [s for s in summary["sentences"] if s.get("key") == h.key]
    return dict(own[0]) if own else {"verdict": stored.NOT_RUN}


def slug(paper: str) -> str:
    """A paper's name as a part of a file's name.

    Example:
        >>> slug("Local SGDA")
        'local-sgda'
    """
    return paper.lower().replace(" ", "-")


def delta_in_words(h: Hypothesis) -> str:
    """The smallest effect that matters.

    Example:
        >>> from fedsaddle.reproductions.hypotheses import Final, TENTH
        >>> delta_in_words(Hypothesis("", "", "", "", (), Times("x"), TENTH))
        '10 % fewer'
        >>> delta_in_words(Hypothesis("", "", "", "", (), Final("x"), 0.5))
        '0.5 points'
    """
    if isinstance(h.measure, Times) or getattr(h.measure, "log", False) or type(h.measure).__name__ == "Decline":
        return f"{100 * (1 - exp(-h.delta)):.0f} % {'fewer' if isinstance(h.measure, Times) else 'less'}"
    return f"{h.delta:g} points"


def verdict_table(hypotheses: Sequence[Hypothesis], found: Stored) -> str:
    """The sentences of a paper with their verdicts, as Markdown."""
    rows = ["| | the paper says | where | test | matters | measured | seeds | verdict |", "|" + " --- |" * 8]
    for h in hypotheses:
        own = found[h.key]
        pairs = "; ".join(f"{one} against {other}" if one != other else one for one, other in h.pairs)
        cells = [
            h.key,
            f"“{h.sentence}”",
            h.place,
            f"`{h.figure}`: {pairs.replace(' | ', ' to ')} ({h.kind})",
            delta_in_words(h) if h.delta else "any",
            str(own.get("measured", "")),
            str(own.get("seeds", "")),
            f"**{own['verdict']}**",
        ]
        rows.append("| " + " | ".join(visible(cell).replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows)


def paper_page(paper: str, hypotheses: Sequence[Hypothesis], found: Stored, out: Path, docs: Path) -> str:
    """The verdicts on a paper, with a picture of each figure."""
    parts = [f"# {paper}: verdicts", INTRODUCTION, verdict_table(hypotheses, found)]
    for figure in dict.fromkeys(h.figure for h in hypotheses):
        summary = stored.summary_of(figure, out)
        if summary is None:
            continue
        machine = summary["machine"]
        parts.append(f"## {figure}")
        if (docs / f"verdicts-{figure}.png").is_file():
            parts.append(f"![{visible(summary['title'])}](verdicts-{figure}.png)")
        where = f"{machine['cores']} cores, {machine['system']}, torch {summary['versions']['torch']}"
        took = f"{summary['seeds']} seeds, {summary['processor_minutes']:g} minutes of one core"
        parts.append(f"`fedsaddle reproduce {figure}`, run on {summary['date']}, {where}, {took}.")
        parts.append(f"{visible(summary['title'])}.")
        parts.append(secondary_table(summary["claims"]))
        parts += [f"- {visible(note)}" for note in summary["notes"]]
    return "\n\n".join(part for part in parts if part) + "\n"


def secondary_table(claims: Sequence[Mapping[str, str]]) -> str:
    """What else was compared, as Markdown; these are not counted."""
    if not claims:
        return ""
    rows = ["| secondary claim | measured | verdict |", "| --- | --- | --- |"]
    for claim in claims:
        cells = [claim["claim"], claim["measured"], claim["verdict"]]
        rows.append("| " + " | ".join(visible(cell).replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows)


def front_page(groups: Mapping[str, Sequence[Hypothesis]], found: Stored, out: Path) -> str:
    """The verdicts of all papers, counted."""
    kinds = (*stored.VERDICTS, stored.NOT_RUN)
    rows = [f"| paper | sentences | {' | '.join(kinds)} |", "| --- |" + " ---: |" * (len(kinds) + 1)]
    for paper, hypotheses in groups.items():
        verdicts = [found[h.key]["verdict"] for h in hypotheses]
        counted = " | ".join(str(verdicts.count(kind)) for kind in kinds)
        rows.append(f"| [{paper}](verdicts-{slug(paper)}.md) | {len(hypotheses)} | {counted} |")
    headline = stored.headline(stored.counts(out))
    return "\n\n".join(["# Verdicts on the papers", f"**{headline}.**", INTRODUCTION, "\n".join(rows)]) + "\n"


INTRODUCTION = """\
One test for each sentence, written down before the runs, on paired seeds. A sentence *holds* if the interval of the
effect lies on the paper's side, and is *refuted* if the interval excludes an effect that matters. Intervals are
corrected for the number of looks at the seeds, verdicts by Holm's procedure for the number of sentences of a figure.
Methods are tuned alike, on held-out rows and seeds. `python -m fedsaddle.reproductions.publish` makes this page."""


def main(argv: Sequence[str] | None = None) -> None:
    """Publish, and print what was written."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="the folder of the final runs, such as reproduced")
    parser.add_argument("docs", type=Path, help="the folder of the pages, such as docs/reproductions")
    arguments = parser.parse_args(argv)
    for file in publish(arguments.out, arguments.docs):
        print(visible(str(file)))


if __name__ == "__main__":
    main()
