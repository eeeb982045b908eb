"""Publish what was run in full: `python -m fedsaddle_papers.suites.publish benchmarked docs/benchmarks`.

Copies the summary and the picture of every suite that has been run in full; `docs/refresh.py` makes the page of them.
"""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedsaddle.config.registry import Entry
from fedsaddle.files import make_folder, write_atomically
from fedsaddle.report.words import duration, many
from fedsaddle.text import visible
from fedsaddle_papers.reproductions.publish import with_palette
from fedsaddle_papers.suites.names import SUITES
from fedsaddle_papers.suites.outcome import PLOT, markdown, stored_summary
from fedsaddle_papers.suites.words import gain_rows, measure_in_words


def publish(out: Path, docs: Path, suites: Mapping[str, Entry] = SUITES) -> list[Path]:
    """Write the summary and the picture of each suite; returns the files that were written."""
    written: list[Path] = []
    make_folder("out", docs)
    for name in suites:
        for folder in (out / name, *sorted(out.glob(f"{name}-by-*"))):
            summary = stored_summary(folder)
            if summary is None:
                continue
            write_atomically(docs / f"{folder.name}.json", (json.dumps(summary, indent=1) + "\n").encode())
            write_atomically(docs / f"{folder.name}.png", with_palette((folder / PLOT).read_bytes()))
            written += [docs / f"{folder.name}.json", docs / f"{folder.name}.png"]
    return written


def published(name: str, docs: Path) -> str:
    """What was published of a suite, by its own measure and by others, as Markdown."""
    files = [file for file in (docs / f"{name}.json", *sorted(docs.glob(f"{name}-by-*.json"))) if file.is_file()]
    pages = [page(name, json.loads(file.read_text(encoding="utf-8")), file.stem) for file in files]
    return "\n".join(pages) or f"`fedsaddle benchmark {name}` was not run in full yet."


def page(name: str, summary: Mapping[str, Any], file: str) -> str:
    """The results of a suite as Markdown."""
    machine, question = summary["machine"], str(summary["question"])
    where = f"{machine['cores']} cores, {machine['system']}, torch {summary['versions']['torch']}"
    asked = summary["asked"]
    command = f"fedsaddle benchmark {name}" + (f" --measure {shlex.quote(asked)}" if asked else "")
    title = f"{name}, by {measure_in_words(asked)}" if asked else name
    ran = (
        f"`{command}`, run on {summary['date']} on {where}, "
        f"{duration(60 * summary['processor_minutes'])} of processor time: "
        f"{summary['seeds']} seeds; {summary['candidates']} candidates for every method, each with "
        f"{many(summary['tuning_seeds'], 'other seed')} and {100 * summary['tuning_share']:g} % of the exchanges."
    )
    across = summary["critical_difference"]
    parts = [f"### {title}", f"**{question[:1].upper()}{question[1:]}**", ran, _tasks(summary), markdown(summary)]
    if across is not None:
        p = summary["friedman_p"]
        tested = "" if p is None else f" (Friedman's test: p = {p:.2g})"
        parts.append(
            f"With the tasks as the sample, mean ranks that differ by less than {across:.1f} cannot be told apart "
            f"(Nemenyi's test, 5 %){tested}."
        )
    parts.append(_gains(summary))
    parts.append(f"![{question}](benchmarks/{file}.png)")
    if summary["notes"]:
        parts.append("\n".join(f"- {visible(note)}" for note in summary["notes"]))
    return "\n\n".join(parts) + "\n"


def _gains(summary: Mapping[str, Any]) -> str:
    heads = ["method", *(task["task"] for task in summary["tasks"])]
    rows = ["| " + " | ".join(map(_cell, heads)) + " |", "| --- |" + " ---: |" * (len(heads) - 1)]
    rows += ["| " + " | ".join(map(_cell, row)) + " |" for row in gain_rows(summary)]
    head = f"Against {_cell(summary['baseline'])}, in pairs of seeds"
    note = "Points (ratios where small is good) with 95 % intervals, each by itself; a star where it leaves out 0."
    return f'<details markdown="1"><summary>{head}</summary>\n\n{note}\n\n' + "\n".join(rows) + "\n\n</details>"


def _cell(text: str) -> str:
    return visible(text).replace("|", "\\|")


def _tasks(summary: Mapping[str, Any]) -> str:
    rows = ["| task | what it is | exchanges | measure |", "| --- | --- | ---: | --- |"]
    for task in summary["tasks"]:
        name = task["task"]
        cells = [name, summary["about"][name], str(summary["exchanges"][name]), measure_in_words(task["measure"])]
        rows.append("| " + " | ".join(map(_cell, cells)) + " |")
    return "\n".join(rows)


def main(argv: Sequence[str] | None = None) -> None:
    """Publish, and print what was written."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="the folder of the runs, such as benchmarked")
    parser.add_argument("docs", type=Path, help="the folder of the pages, such as docs/benchmarks")
    arguments = parser.parse_args(argv)
    for file in publish(arguments.out, arguments.docs):
        print(visible(str(file)))


if __name__ == "__main__":
    main()
