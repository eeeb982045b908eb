"""`fedsaddle run patients.csv`: choose on validation rows, look at the test rows once, write it all."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from fedsaddle.arguments import number, renamed
from fedsaddle.atomic import write_atomically, write_json
from fedsaddle.commands.leave_one_out import LeftOut, leave_one_site_out
from fedsaddle.commands.missing_cells import missing_cells
from fedsaddle.commands.model_loader import write_loader
from fedsaddle.commands.output import output
from fedsaddle.commands.print_report import emit_run, print_report
from fedsaddle.commands.search_progress import SearchProgress
from fedsaddle.commands.table_config import TableConfig
from fedsaddle.config.build import build_algorithm
from fedsaddle.data.cautions import cautions
from fedsaddle.data.describe import describe
from fedsaddle.data.federated import FederatedData
from fedsaddle.data.files.column_names import summarised
from fedsaddle.data.store import Stacked
from fedsaddle.data.table import Dataset
from fedsaddle.errors import BadCheckpoint, BadInput
from fedsaddle.metrics.calibration import Platt, Threshold, calibration_figures
from fedsaddle.metrics.evaluation import evaluate
from fedsaddle.metrics.ranking import Ranking, difference, rank
from fedsaddle.report import plots, roc
from fedsaddle.report.predictions import CHOICE, parts_of, write_predictions
from fedsaddle.report.run_report import REPORT
from fedsaddle.report.sections.trials import cut_in_words
from fedsaddle.report.tables import choice_table
from fedsaddle.runs.closing import exit_code
from fedsaddle.runs.fingerprint import digest, measured_loss
from fedsaddle.runs.folder import Record, RunFolder
from fedsaddle.runs.interruption import Interruption
from fedsaddle.runs.lock import only_writer, require_unused
from fedsaddle.runs.loop import MAX_LISTED_CLIENTS
from fedsaddle.shown import visible
from fedsaddle.stored import read_object
from fedsaddle.trials.aims import Rows, aim_of, worst_site
from fedsaddle.trials.candidates import FEDAVG
from fedsaddle.trials.kept_outcomes import Clock
from fedsaddle.trials.search import Choice, Model, search, write_trials
from fedsaddle.writable import make_folder, require_folder

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class SearchOptions:
    """What a search on a table is asked for."""

    aim: str = "auroc"
    budget: float | None = 120.0  # seconds
    sensitivity: float | None = None  # wanted; None: the default threshold
    leave_one_out: bool = False


def seconds_of(text: str) -> float:
    """A time such as 90s, 2m or 1.5h; a plain number is seconds.

    Example:
        >>> seconds_of("2m")
        120.0
    """
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([smh]?)\s*", text)
    if found is None or float(found[1]) == 0:
        raise BadInput("--budget", text, "give a time such as 90s, 2m or 1h")
    return float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[found[2]]


def run_table(table: TableConfig, options: SearchOptions, out: Path | None, resume: bool) -> int:
    """Search, evaluate, write and print; return the exit code."""
    folder = RunFolder(out or Path("runs") / table.table.name.removesuffix(".gz").rsplit(".", 1)[0])
    require_folder("out", folder.path)
    with renamed({"aim": "--for"}):
        aim_of(options.aim)
    if options.sensitivity is not None:
        number("--sensitivity", options.sensitivity, above=0, most=1)
    if options.leave_one_out and table.test_sites:
        raise BadInput("--leave-one-site-out", True, "tests every site; leave out --test-site")
    settings = _settings(table, options)
    _check_folder(folder, settings, resume)
    if resume and folder.summary.exists():
        return _show_finished(folder, table.table)
    errors = output.errors()
    dataset = table.dataset()
    data = table.federated(dataset)
    _require_classes(data)
    held_out = _held_out(folder, data)
    make_folder("out", folder.path)
    with only_writer(folder.path), Interruption() as interruption:
        notes = {"notes": list(dataset.notes), "cautions": cautions(data)}
        if not output.quiet:
            _say(errors, [describe(data).headline(), *(f"note: {note}" for note in summarised(notes["notes"]))])
        _say(errors, [f"warning: {line}" for line in notes["cautions"]])
        write_json(folder.path / "search.json", {**settings, "test_rows": held_out})
        used = Clock.at(folder.path / "trials", options.budget).seconds
        with SearchProgress(errors, options.budget, output.quiet, used) as progress:
            choice = search(
                data,
                options.aim,
                seed=table.seed,
                budget=options.budget,
                out=folder.path / "trials",
                tell=progress,
                stop=lambda: interruption.requested,
            )
            left_out = None
            if options.leave_one_out:
                left_out = leave_one_site_out(table, dataset, choice, progress.say_step, lambda: interruption.requested)
        about = {"missing": missing_cells(dataset, data), **notes}
        return Finished(table, options, folder, dataset, data, choice, left_out, about).write_and_print()


def _settings(table: TableConfig, options: SearchOptions) -> Record:
    """What a search can be resumed with."""
    kept = {k: v for k, v in asdict(table).items() if k != "table"}
    plain = {k: list(v) if isinstance(v, tuple) else v for k, v in kept.items()}
    return {"table": str(table.table), **plain, "for": options.aim}


def _check_folder(folder: RunFolder, settings: Record, resume: bool) -> None:
    path = folder.path / "search.json"
    if not resume:
        if folder.holds_run or path.exists():
            raise BadInput("out", str(folder.path), "holds a run already; resume it, or choose another folder")
        return
    if not path.exists():
        raise BadInput(
            "--resume", True, f"there is no search in {visible(folder.path)}; leave out --resume to start one"
        )
    try:
        stored = read_object(path)
    except ValueError as reason:
        raise BadCheckpoint(f"{visible(path)} cannot be read ({reason}); choose another --out") from None
    for key, value in settings.items():
        if stored.get(key) != value and not (value == [] and key not in stored):  # of a version without it
            option = f"--{key.replace('_', '-')}"
            raise BadCheckpoint(
                f"{option} = {value!r}: the search in {visible(folder.path)} has {stored.get(key)!r}; "
                "resume with the same, or choose another --out"
            )


def _held_out(folder: RunFolder, data: FederatedData) -> Record:
    """Digests of the test rows; those of the other rows are kept with each trial.

    Raises:
        BadCheckpoint: if the search in the folder began with other test rows.
    """
    assert data.test is not None
    found = {"features": digest(data.test.x), "labels": digest(data.test.y)}
    path = folder.path / "search.json"
    before = read_object(path).get("test_rows", found) if path.exists() else found
    for name, value in found.items():
        if before.get(name) != value:
            raise BadCheckpoint(
                f"the search in {visible(folder.path)} began with other test rows (different: test {name}); "
                "resume with the same table, or choose another --out"
            )
    return found


def _show_finished(folder: RunFolder, table: Path) -> int:
    """Print what a finished search found: another look at its test rows after more training would be one too many."""
    require_unused(folder.path)
    summary, screen, errors = folder.read_summary(), output.screen(), output.errors()
    screen.print(choice_table(summary))
    told = f"the search in {visible(folder.path)} is finished, and nothing was trained or changed"
    _say(errors, [f"{told}; choose another --out for a new one"])
    page: Path | None = folder.path / REPORT
    if page is not None and page.exists():
        screen.print(f"report: {visible(page)}", highlight=False, markup=False, soft_wrap=True)
    else:  # killed before it was written
        page = print_report(folder.path, screen, errors, table)
    emit_run("search", folder.path, page, summary)
    return 0


def _require_classes(data: FederatedData) -> None:
    """Refuse rows on which nothing can be trained or measured."""
    for part, rows in (("training", data.train), ("validation", data.validation), ("test", data.test)):
        if rows is None:
            raise BadInput(f"{part} rows", 0, "the table is too small to hold out rows; collect more")
        for code, name in enumerate(data.classes):
            if not bool((rows.y == code).any()):
                raise BadInput(
                    f"{part} rows with label {visible(name)!r}",
                    0,
                    "training and measuring need rows of both classes in every part; collect more such rows, or name "
                    "another --label or --positive",
                )


def _say(errors: Console, lines: Sequence[str]) -> None:
    for line in lines:
        errors.print(line, highlight=False, markup=False, soft_wrap=True)


@dataclass
class Finished:
    """A search that is done: the test rows are looked at here, once."""

    table: TableConfig
    options: SearchOptions
    folder: RunFolder
    dataset: Dataset  # as it was read
    data: FederatedData
    choice: Choice
    left_out: LeftOut | None
    about: Record  # missing cells, notes and cautions, for the summary
    rankings: dict[str, Ranking] = field(default_factory=dict)

    def __post_init__(self) -> None:
        validation, model = self.data.validation, self.choice.chosen
        assert validation is not None
        self.labels = validation.y.numpy()
        self.platt = {
            name: Platt.fit(m.scores, self.labels, log_odds=m.trial.candidate.log_odds)
            for name, m in self._models().items()
        }
        p = self.platt[CHOICE].probability(model.scores)
        wanted = self.options.sensitivity
        self.threshold = (
            Threshold.default(p, self.labels, self.data.validation_units)
            if wanted is None
            else Threshold.for_sensitivity(p, self.labels, wanted)
        )

    def _models(self) -> dict[str, Model]:
        return {CHOICE: self.choice.chosen, FEDAVG: self.choice.fedavg}

    def write_and_print(self) -> int:
        """Evaluate, write the files, draw and print."""
        out, test = self.folder.path, self.data.test
        assert test is not None
        scores = {name: m.rank(_rows(m, "test").x) for name, m in self._models().items()}
        self.rankings = {
            name: rank(s, test.y.numpy(), test.offsets, self.data.test_names, units=self.data.test_units)
            for name, s in scores.items()
        }
        summary = self._summary(scores)
        write_trials(self.choice.trials, out / "trials.csv")
        validation = {name: m.scores for name, m in self._models().items()}
        write_predictions(out, parts_of(self.data, {"validation": validation, "test": scores}), self.platt)
        self._write_model()
        if self.left_out is not None:
            self.left_out.write(out)
            summary["leave_one_site_out"] = self.left_out.summary()
        trial, history = self.choice.chosen.trial, _history(self.choice.chosen)
        self.folder.begin(history)
        self.folder.write_config(
            {**_settings(self.table, self.options), "trial": trial.config().model_dump(mode="json")},
            describe(self.data).to_dict(),
        )
        if self.choice.name != FEDAVG:
            self.folder.baseline.begin(_history(self.choice.fedavg))
        self._draw(history)
        self.folder.write_summary(summary)
        self._print(summary)
        _say(output.errors(), [f"warning: {warning['text']}" for warning in summary.get("warnings", ())])
        page = print_report(out, output.screen(), output.errors(), self.table.table)
        emit_run("search", out, page, summary)
        return exit_code(summary)

    def _summary(self, scores: dict[str, Floats]) -> Record:
        chosen, test = self.choice.chosen, self.data.test
        assert test is not None
        trial = chosen.trial
        summary = RunFolder(trial.folder / trial.name).read_summary()
        labels, problem = test.y.numpy(), chosen.algorithm.problem
        measured = evaluate(problem, chosen.vector, _rows(chosen, "test"))
        p = self.platt[CHOICE].probability(scores[CHOICE])
        roc_entry = roc.write(self._named(), "test", self.folder.path)
        return {
            "algorithm": self.choice.name,
            "problem": measured_loss(problem),
            CHOICE: self.choice.name,
            "aim": self.options.aim,
            "reason": self.choice.reason,
            "stopped": "finished",
            "rounds": summary["rounds"],
            "selected_round": chosen.selected_round,
            "step": trial.step,
            "target": None,
            "target_round": None,
            "pooled": {
                **{name: self._figures(name, scores[name]) for name in self.rankings},
                "difference": _figures_of_difference(self.rankings),
            },
            "probabilities": {**self.platt[CHOICE].to_dict(), **calibration_figures(p, labels)},
            "threshold": {**asdict(self.threshold), "test": self.threshold.figures(p, labels)},
            "rows": {
                part: {"rows": len(rows.y), "positives": int(rows.y.sum())}
                for part, rows in (("train", self.data.train), ("validation", self.data.validation), ("test", test))
                if rows is not None
            },
            "positive": self.data.classes[1],
            **self.about,
            **({"warnings": summary["warnings"]} if "warnings" in summary else {}),
            "test": measured.spread(),
            "clients": {"test": measured.listed(MAX_LISTED_CLIENTS)},
            "roc": roc_entry,
            "trials": len(self.choice.trials),
            "cut": list(self.choice.cut),
            "budget": self.options.budget,
            "seconds": round(self.choice.seconds, 3),
            "ledger": summary["ledger"],
            "engine": summary["engine"],
            "fingerprint": summary["fingerprint"],
        }

    def _figures(self, name: str, scores: Floats) -> Record:
        """Each figure of a model on the test rows, with its interval where it has one."""
        ranking, test = self.rankings[name], self.data.test
        assert test is not None
        found: Record = {
            key: figure
            for key, figure in ranking.pooled.to_dict().items()
            if key in ("auroc", "average_precision", "partial_auroc")
        }
        found["within_site_auroc"] = ranking.to_dict()["within_site_auroc"]
        rows = Rows.of(test.y.numpy(), test.offsets)
        odds = self.platt[name].slope * scores + self.platt[name].intercept
        right = (odds > 0) == (rows.labels > 0)
        found["accuracy"] = {"value": float(right.mean())}
        found["worst_site_loss"] = {"value": -worst_site(scores, rows, np.ones(len(scores)))}
        return found

    def _named(self) -> dict[str, Ranking]:
        """The rankings by the names of the models."""
        if self.choice.name == FEDAVG:
            return {FEDAVG: self.rankings[FEDAVG]}
        return {self.choice.name: self.rankings[CHOICE], FEDAVG: self.rankings[FEDAVG]}

    def _write_model(self) -> None:
        chosen, out = self.choice.chosen, self.folder.path
        problem: Any = chosen.algorithm.problem
        module = problem.module(chosen.vector)
        self.folder.write_model({k: v.contiguous() for k, v in module.state_dict().items()})
        model = build_algorithm(chosen.trial.config(), chosen.data)[1]
        write_loader(model, chosen.data, module, out, self.platt[CHOICE], self.threshold)
        write_atomically(self.folder.table_config, replace(self.table, algorithm=None).to_toml(self.dataset).encode())

    def _draw(self, history: list[Record]) -> None:
        picture = self.folder.picture
        describe(self.data).plot(picture("split"))
        roc.draw(self._named(), "test", picture("roc"))
        histories = {self.choice.name: history}
        if self.choice.name != FEDAVG:
            histories[FEDAVG] = _history(self.choice.fedavg)
        if all(r.get("pooled_validation", {}).get("auroc") is not None for h in histories.values() for r in h):
            plots.pooled(histories, "auroc", picture("auroc"), title="AUROC of all sites together, validation rows")

    def _print(self, summary: Record) -> None:
        screen = output.screen()
        screen.print(choice_table(summary))
        if cut := cut_in_words(summary):
            _say(output.errors(), [f"warning: {cut[:1].lower()}{cut[1:]}"])
        screen.print(roc.table(self._named(), "test"))
        if self.left_out is not None:
            screen.print(self.left_out.table())
        screen.print(f"written to {visible(self.folder.path)}", highlight=False, markup=False, soft_wrap=True)


def _history(model: Model) -> list[Record]:
    return RunFolder(model.trial.folder / model.trial.name).history()


def _rows(model: Model, part: str) -> Stacked:
    rows = model.data.test if part == "test" else model.data.validation
    assert rows is not None
    return rows


def _figures_of_difference(rankings: dict[str, Ranking]) -> Record:
    found = json.loads(json.dumps(difference(rankings[CHOICE], rankings[FEDAVG]).to_dict()))
    return {k: v for k, v in found.items() if k not in ("name", "clients")}
