"""`fedsaddle reproduce`: rerun the figures of the papers."""

from __future__ import annotations

import inspect
import os
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typing_extensions import TypedDict

from fedsaddle.commands.documents import SCHEMA, Document, Listed
from fedsaddle.commands.options import usable
from fedsaddle.commands.output import JsonOption, QuietOption, output, say
from fedsaddle.config.registry import entry, with_brought
from fedsaddle.errors import BadInput, FedSaddleError
from fedsaddle.files import require_folder
from fedsaddle.own_code import user_code_errors
from fedsaddle.text import visible
from fedsaddle_papers.reproductions.names import FIGURES

if TYPE_CHECKING:
    from fedsaddle_papers.reproductions.curves import Runs
    from fedsaddle_papers.reproductions.effects import Judged
    from fedsaddle_papers.reproductions.figure import Figure
    from fedsaddle_papers.reproductions.store import Store

FIRST_SEED = 100  # seeds below are for trying things out, and those from 1000 on for tuning
MAX_WORKERS = 8  # each holds the data and some 400 MB of libraries


class FiguresDocument(Document):
    """`reproduce` without a name."""

    figures: list[Listed]
    headline: Annotated[str, "the verdicts of all stored figures in one line"]
    verdicts: Annotated[dict[str, int], "how many sentences of the papers have each verdict"]


class HeadlineDocument(Document):
    """`reproduce --all`."""

    headline: str
    verdicts: dict[str, int]


class TuneDocument(Document):
    """`reproduce NAME --tune`."""

    figure: str
    chosen: Annotated[dict[str, dict[str, Any]], "the tuned values of every line that was tuned"]
    log: Annotated[str, "the file with every candidate"]


class SentenceBody(TypedDict):
    """A sentence of a paper, its verdict and the effect that was measured."""

    key: str
    sentence: str
    place: str
    verdict: Annotated[str | None, '"holds", "refuted", "undecided" or "no data"; null with --quick']
    effect: float | None
    low: float | None
    high: float | None
    delta: Annotated[float, "the smallest effect that matters"]
    seeds: int
    decided_at: int | None
    measured: str


class ClaimBody(TypedDict):
    """A secondary claim, and what was measured."""

    claim: str
    paper: str
    measured: str
    verdict: Annotated[str | None, "null with --quick"]
    holds: bool | None


class ReproduceDocument(Document):
    """`reproduce NAME`."""

    figure: str
    quick: bool
    sentences: Annotated[list[SentenceBody], "those that count"]
    claims: Annotated[list[ClaimBody], "secondary"]
    notes: Annotated[list[str], "such as runs that diverged"]
    folder: str
    report: str


DOCUMENTS = (FiguresDocument, HeadlineDocument, TuneDocument, ReproduceDocument)


def _figures(incomplete: str) -> list[tuple[str, str]]:
    """What `fedsaddle reproduce` reproduces."""
    return [(name, entry.about) for name, entry in FIGURES.items() if name.startswith(incomplete)]


def reproduce(
    name: Annotated[
        str,
        typer.Argument(help="The figure to reproduce; without a name, list all.", autocompletion=_figures),
    ] = "",
    quick: Annotated[bool, typer.Option(help="Use fewer seeds and rounds (about a minute).")] = False,
    every: Annotated[bool, typer.Option("--all", help="All figures; runs that are stored are not run again.")] = False,
    tune: Annotated[bool, typer.Option("--tune", help="Tune the methods of the figure, on held-out rows.")] = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    out: Annotated[Path, typer.Option(help="Folder for plots and figures.", callback=usable)] = Path("reproduced"),
) -> None:
    """Reproduce a figure of a paper, and report which of the paper's sentences hold."""
    raise typer.Exit(reproduce_figures(name, quick, out, every=every, tune=tune))


def reproduce_figures(name: str, quick: bool, out: Path, *, every: bool = False, tune: bool = False) -> int:
    """Run a figure, or with `every` all of them; without a name, list all with the headline of what is stored.

    Args:
        name: the figure.
        quick: fewer seeds and rounds, which give no verdicts.
        out: its files go to `out`/`name`, and every run to `out`/runs, from where it is taken the next time.
        every: all figures, one after the other.
        tune: tune the methods of the figure in place of running it.

    Returns:
        0, or 3 if some of all figures failed.
    """
    if every and name:
        raise BadInput("--all", name, "does not go with the name of a figure; leave one out")
    if not name and not every:
        if tune or quick:
            raise BadInput("--tune" if tune else "--quick", "", "needs the name of a figure, or --all")
        _print_names(out)
        return 0
    require_folder("out", out)
    if not every:
        output.emit(_tune(name, out) if tune else _reproduce_one(name, quick, out))
        return 0
    return _reproduce_all(quick, tune, out)


def _reproduce_all(quick: bool, tune: bool, out: Path) -> int:
    """One figure after the other; one that fails is said, and the others go on."""
    names, failed = list(FIGURES), []
    left = Remaining({name: _estimate(name, quick, tune) for name in names})
    for k, name in enumerate(names):
        say(f"figure {k + 1} of {len(names)}: {name}{left.said()}")
        began = time.perf_counter()
        try:
            if not tune:
                _reproduce_one(name, quick, out)
            elif _figure(entry(FIGURES, "reproduce", name, "figures").load(), name).tuning is not None:
                _tune(name, out)
        except FedSaddleError as error:
            failed.append(name)
            typer.echo(f"{name}: {visible(str(error))}", err=True)
        left.done(name, time.perf_counter() - began)
    _print_headline(out, quick)
    if failed:
        typer.echo(f"failed: {', '.join(failed)}", err=True)
    return 3 if failed else 0


def _tune(name: str, out: Path) -> TuneDocument:
    """Tune the methods of a figure, and keep the log."""
    from fedsaddle.commands.progress import RunsProgress
    from fedsaddle_papers.reproductions.store import Store
    from fedsaddle_papers.reproductions.tuning import job_count, tune, write_log

    figure = _figure(entry(FIGURES, "reproduce", name, "figures").load(), name)
    with RunsProgress(f"{name}, tuning", [1.0] * job_count(figure)) as progress:
        log = tune(name, figure, _processes(), Store(out / "runs"), lambda stored: progress.ended(stored=stored))
    file = write_log(log, out / "tuning")
    document: TuneDocument = {
        "schema": SCHEMA,
        "command": "reproduce",
        "figure": name,
        "chosen": {label: line["chosen"] for label, line in log["lines"].items()},
        "log": str(file),
    }
    for label, chosen in document["chosen"].items():
        output.line(visible(f"{label}: {', '.join(f'{k} = {v}' for k, v in chosen.items())}"))
    output.line(visible(f"log: {file}"))
    return document


def _reproduce_one(name: str, quick: bool, out: Path) -> ReproduceDocument:
    """Run a figure, write its files and print the verdicts."""
    known = entry(FIGURES, "reproduce", name, "figures")
    folder = out / name.replace(":", ".")
    require_folder("out", folder)
    from fedsaddle_papers.reproductions import outcome
    from fedsaddle_papers.reproductions.store import Store
    from fedsaddle_papers.reproductions.tuning import find_log, with_tuned

    asked = _figure(known.load(), name)
    full, untuned = with_tuned(asked, find_log(asked.tuned_by or name, out / "tuning"))
    figure = full.quick() if quick else full
    began = time.perf_counter()
    runs, sentences = run_looks(figure, name, Store(out / "runs"), quick)
    notes = [*untuned, *runs.divergence_notes()]
    if quick:
        notes.append("with --quick there are too few seeds and rounds for a verdict")
    seconds = time.perf_counter() - began
    done = outcome.Outcome(name, figure, runs, sentences, figure.claims(runs), seconds, quick, tuple(notes))
    outcome.write(done, folder)
    page = folder / outcome.REPORT
    for note in notes:
        typer.echo(visible(note), err=True)
    screen = output.screen()
    screen.print(outcome.table(done))
    screen.print(f"written to {visible(folder)}", highlight=False, markup=False, soft_wrap=True)
    screen.print(f"report: {visible(page)}", highlight=False, markup=False, soft_wrap=True)
    return {
        "schema": SCHEMA,
        "command": "reproduce",
        "figure": name,
        "quick": quick,
        "sentences": [_sentence(judged, quick) for judged in sentences],
        "claims": [
            {
                "claim": c.claim,
                "paper": c.paper,
                "measured": c.measured,
                "verdict": None if quick else c.verdict,
                "holds": None if quick else c.holds,
            }
            for c in done.claims
        ],
        "notes": notes,
        "folder": str(folder),
        "report": str(page),
    }


def _sentence(judged: Judged, quick: bool) -> SentenceBody:
    h, found = judged.hypothesis, judged.finding.to_dict()
    return {
        "key": h.key,
        "sentence": h.sentence,
        "place": h.place,
        "verdict": None if quick else found["verdict"],
        "effect": found["effect"],
        "low": found["low"],
        "high": found["high"],
        "delta": h.delta,
        "seeds": found["seeds"],
        "decided_at": found["decided_at"],
        "measured": judged.measured,
    }


def run_looks(figure: Figure, name: str, store: Store | None, quick: bool = False) -> tuple[Runs, list[Judged]]:
    """Run the seeds of the first look, and more as long as a sentence is undecided and a look is left."""
    from fedsaddle_papers.reproductions.effects import judged
    from fedsaddle_papers.reproductions.hypotheses_of_papers import of_figure
    from fedsaddle_papers.reproductions.verdicts import UNDECIDED

    hypotheses = of_figure(name)
    looks = (figure.seeds,) if quick else figure.all_looks
    for seeds in looks:
        runs = run_figure(replace(figure, seeds=seeds), name, store=store)
        found = judged(hypotheses, runs, figure.all_looks)
        if all(j.finding.verdict != UNDECIDED for j in found):
            break
    return runs, found


def _figure(found: object, name: str) -> Figure:
    """The figure itself, or what a function without arguments makes of it."""
    from fedsaddle_papers.reproductions.figure import Figure

    if inspect.isfunction(found) and not inspect.signature(found).parameters:
        with user_code_errors("reproduce", name, name):
            found = found()
    if not isinstance(found, Figure):
        remedy = "must be a fedsaddle_papers.reproductions.figure.Figure, or a function that makes one"
        raise BadInput("reproduce", name, remedy)
    return found


def run_figure(figure: Figure, title: str, workers: int | None = None, store: Store | None = None) -> Runs:
    """Run every line with every seed on `workers` processes; None means one per core, at most 8."""
    from fedsaddle.commands.progress import RunsProgress
    from fedsaddle_papers.reproductions.curves import Runs
    from fedsaddle_papers.reproductions.jobs import Job, run_jobs

    seeds = range(FIRST_SEED, FIRST_SEED + figure.seeds)
    jobs = [Job(figure.setting, line, seed) for seed in seeds for line in figure.lines]
    with RunsProgress(title, [1.0] * len(jobs)) as progress:
        curves = run_jobs(jobs, workers or _processes(), lambda stored: progress.ended(stored=stored), store)
    return Runs.of(curves)


def _processes() -> int:
    return min(MAX_WORKERS, os.cpu_count() or 1)


@dataclass
class Remaining:
    """The time that all figures still take, from their estimates and how far off these have been so far."""

    estimates: dict[str, float]  # minutes of one core
    spent: float = 0.0  # minutes
    promised: float = 0.0

    def said(self) -> str:
        """Such as ", about 2.5 h left for all"; nothing without estimates."""
        ahead = sum(self.estimates.values()) / _processes()
        pace = self.spent / self.promised if self.promised else 1.0
        from fedsaddle.report.words import duration

        return f", about {duration(60 * ahead * pace)} left for all" if ahead else ""

    def done(self, name: str, seconds: float) -> None:
        """A figure has ended."""
        self.promised += self.estimates.pop(name) / _processes()
        self.spent += seconds / 60


def _estimate(name: str, quick: bool, tune: bool) -> float:
    """Minutes of one core for the first look of a figure, or for its tuning."""
    from fedsaddle_papers.reproductions.tuning import job_count

    full = _figure(entry(FIGURES, "reproduce", name, "figures").load(), name)
    if tune:
        share = 0.0 if full.tuning is None else full.tuning.share
        return full.minutes / len(full.lines) * job_count(full) * share
    return full.minutes * (full.quick_seeds * full.quick_share if quick else full.all_looks[0])


def _print_headline(out: Path, quick: bool) -> None:
    from fedsaddle_papers.reproductions.stored import counts, headline

    counted = {} if quick else counts(out)
    said = "no verdicts with --quick; `fedsaddle reproduce` lists those of whole runs" if quick else headline(counted)
    document: HeadlineDocument = {"schema": SCHEMA, "command": "reproduce", "headline": said, "verdicts": counted}
    output.emit(document)
    if not output.json:
        typer.echo(said)


def _print_names(out: Path) -> None:
    from fedsaddle_papers.reproductions.stored import counts, headline

    figures, counted = with_brought(FIGURES, "figures"), counts(out)
    document: FiguresDocument = {
        "schema": SCHEMA,
        "command": "reproduce",
        "figures": [{"name": name, "about": e.about, "source": e.source} for name, e in figures.items()],
        "headline": headline(counted),
        "verdicts": counted,
    }
    output.emit(document)
    if output.json:
        return
    width = max(len(name) for name in figures)
    for name, e in figures.items():
        typer.echo(visible(f"{name:<{width}}  {e.about}  ({e.source})"))
    typer.echo(headline(counted))
