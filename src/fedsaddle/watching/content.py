"""The parts of the page about a run: its head, curves, weights, sites and log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fedsaddle.documents.summary import RunSummary
from fedsaddle.report.comparison import curves_together
from fedsaddle.report.page.parts import Block, Code, Figure, PageTable, Section, Text
from fedsaddle.report.page.render import Head, RunRow, render_blocks, render_head
from fedsaddle.report.sections.clients import mixture, named, trained_and_tested
from fedsaddle.report.sections.learning_curves import learning_curves
from fedsaddle.report.stored_run import StoredRun
from fedsaddle.report.words import amount, cased, percent, short, titled
from fedsaddle.text import shortened, visible
from fedsaddle.watching.state import Watched, time_words

FEW_SITES = 12  # more are folded away
LONGEST_NAME = 120


def stored_run(run: Watched) -> StoredRun:
    """The run as the sections of a report know it; while it runs, the summary of an earlier process is left out.

    Args:
        run: Its folder.
    """
    return StoredRun(
        folder=run.folder, summary=None if run.state.live else run.summary, history=run.records.history,
        config=run.config, split=run.split, baseline=run.baseline.history, agreed=run.agreed, up=tuple(_sites(run)),
    )  # fmt: skip


def head_of(key: str, run: Watched) -> Head:
    """The state, the rounds and the main figures.

    Args:
        key: Of the run on the page.
        run: Its folder.
    """
    stored, words = stored_run(run), run.state.words
    data = stored.data_name
    about = f"{stored.name}{f' on {data}' if data else ''}" if stored.config or stored.summary or data else ""
    if run.state.live and run.progress is not None and run.progress.waiting:
        words = f"{words} It waits for {', '.join(_short(name) for name in list(run.progress.waiting)[:5])}."
    if run.records.behind:
        words = f"{words} Its records are still being read."
    for line in run.damage:
        words = f"{words} {titled(_short(line))}."
    return Head(
        key=key, name=run.name, about=_short(about), state=run.state.word, words=words, done=run.done,
        rounds=run.rounds, figures=_figures(run),
    )  # fmt: skip


def row_of(key: str, run: Watched, shown: bool) -> RunRow:
    """The run's line in the list of all.

    Args:
        key: Of the run on the page.
        run: Its folder.
        shown: Whether it is among the runs that are shown.
    """
    rounds = f"{run.done:,} of {run.rounds:,}" if run.rounds else f"{run.done:,}"
    return RunRow(key, run.name, run.state.word, rounds, _main_figure(run), time_words(run.seconds_left), shown)


def parts_of(key: str, run: Watched) -> list[tuple[str, str]]:
    """The parts of a run below its head, by their keys.

    Args:
        key: Of the run on the page.
        run: Its folder.
    """
    stored = stored_run(run)
    curves = _blocks(learning_curves(stored))
    if not curves and run.last is not None:
        curves = [Text("There are curves after the second evaluation.", "note")]
    weights, sites = _blocks(mixture(stored)), _site_blocks(run, stored)
    log: list[Block] = [Code("\n".join(run.log))] if run.log else []
    return [
        (f"{key}-curves", f'<div class="curves">{render_blocks(curves, f"{key}-c")}</div>'),
        (f"{key}-weights", render_blocks(weights, f"{key}-w")),
        (f"{key}-sites", render_blocks(sites, f"{key}-s", "Sites" if _sites(run) else "Clients")),
        (f"{key}-log", render_blocks(log, f"{key}-l", "Log")),
    ]


def head_part(key: str, run: Watched) -> tuple[str, str]:
    """The head of a run as a part of the page.

    Args:
        key: Of the run on the page.
        run: Its folder.
    """
    return f"{key}-head", render_head(head_of(key, run))


def together_part(runs: Mapping[str, Watched]) -> tuple[str, str]:
    """The curves of several runs in common charts.

    Args:
        runs: By key.
    """
    named_runs: dict[str, StoredRun] = {}
    for run in runs.values():
        name = run.name if run.name not in named_runs else f"{run.name} ({len(named_runs) + 1})"
        named_runs[name] = stored_run(run)
    section = curves_together(named_runs) if len(named_runs) > 1 else None
    return "together", render_blocks([] if section is None else section.blocks, "t", "Side by side")


def _blocks(section: Section | None) -> list[Block]:
    """The drawings and cautions of a section, without its introduction and the tables behind the drawings."""
    found = [] if section is None else section.blocks
    return [block for block in found if not isinstance(block, Text) or block.kind == "caution"]


def _figures(run: Watched) -> list[Figure]:
    figures = []
    if run.state.live:
        figures.append(Figure("Time left", time_words(run.seconds_left), "at most, at the pace so far"))
    seconds = run.progress.seconds if run.progress else None
    if seconds is None and run.last is not None:
        seconds = run.last.seconds
    if seconds is not None:
        figures.append(Figure("Training took", time_words(seconds), "without evaluations"))
    return [*figures, *_measured(run), *_costs(run), *_up(run)]


def _measured(run: Watched) -> list[Figure]:
    record = run.last
    if record is None:
        return []
    measures, figures = record.main_measures, []
    measure = "accuracy" if "accuracy" in measures else "loss" if "loss" in measures else None
    if measure is not None:
        spread = measures[measure]
        detail = f"mean {short(spread['mean'])}, best {short(spread['best'])}; round {record.round:,}"
        figures.append(Figure(f"Worst {measure}", short(spread["worst"]), detail))
    pooled = record.main_pooled
    for name in ("auroc", "average_precision"):
        if name in pooled:
            figures.append(Figure(titled(cased(name)), short(pooled[name]), f"all rows; round {record.round:,}"))
    return figures


def _costs(run: Watched) -> list[Figure]:
    record = run.last
    if record is None:
        return []
    detail = f"{amount(record.bytes_up)} up; {record.exchanges:,} exchanges"
    return [Figure("Sent", amount(record.bytes_down + record.bytes_up), detail)]


def _up(run: Watched) -> list[Figure]:
    sites = _sites(run)
    if not sites or not run.state.live:
        return []
    lost = [name for name, state in sites.items() if state == "lost"]
    up = sum(state == "up" for state in sites.values())
    return [Figure("Sites up", f"{up} of {len(sites)}", f"lost: {', '.join(map(_short, lost[:3]))}" if lost else "")]


def _main_figure(run: Watched) -> str:
    found = _measured(run)
    return f"{found[-1].name} {found[-1].value}" if found else "–"


def _site_blocks(run: Watched, stored: StoredRun) -> list[Block]:
    """The last figures of each site."""
    record, states = run.last, _sites(run)
    part = record.main_part if record else "test"
    figures = record.clients.get(part, {}) if record else {}
    weights = record.mixture if record else []
    count = max([len(states), len(weights), *(len(v) for v in figures.values())], default=0)
    if not count:
        return []
    names = [_short(name) for name in named(trained_and_tested(stored), count)]
    heads = ["name", *(["state"] if states else []), *map(cased, figures), *(["weight λ"] if weights else [])]
    rows = []
    for i, name in enumerate(names):
        row = [name, *([list(states.values())[i] if i < len(states) else "–"] if states else [])]
        row += [short(v[i]) if i < len(v) else "–" for v in figures.values()]
        rows.append(row + ([percent(weights[i], 1) if i < len(weights) else "–"] if weights else []))
    where = f"{part}ing" if part == "train" else part
    caption = f"On {where} rows, round {record.round:,}" if record and figures else "Which sites are up"
    table = PageTable(heads, rows, caption)
    folded = replace(table, caption=f"{count} {'sites' if states else 'clients'}, last figures", folded=True)
    return [table if count <= FEW_SITES else folded]


def _sites(run: Watched) -> dict[str, str]:
    """The sites of a deployed run, and whether they are up."""
    if run.progress is not None and run.progress.sites:
        return {name: _short(state) if run.state.live else "ended" for name, state in run.progress.sites.items()}
    sites = run.summary.sites if isinstance(run.summary, RunSummary) else None
    return dict.fromkeys(sites or (), "ended")


def _short(text: object) -> str:
    return shortened(visible(text), LONGEST_NAME)


def names_of(runs: Sequence[Watched]) -> str:
    """The names of some runs, for the title of the page.

    Args:
        runs: Their folders.
    """
    said = ", ".join(run.name for run in runs[:3])
    return said if len(runs) <= 3 else f"{said} and {len(runs) - 3:,} more"
