"""A whole study at real sites: agree once, train all trials, decide, look at the test rows once, report."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fedsaddle.config.build import build_on
from fedsaddle.data.tables.columns import summarised
from fedsaddle.deployment.agreement import Agreement, agree_on_encoding, collect_keys, digests, require_secure
from fedsaddle.deployment.audit import log_to_folder
from fedsaddle.deployment.courier import Courier, Patience, Transport
from fedsaddle.deployment.deployed_sites import DeployedSites, Watch
from fedsaddle.deployment.messages import AgreeTold, Answer, read_payload
from fedsaddle.deployment.score_summary import SHOWN, SiteScores
from fedsaddle.documents.files import RunFiles
from fedsaddle.documents.summary import SearchSummary
from fedsaddle.errors import BadCheckpoint, BadInput, BadMessage, FedSaddleError
from fedsaddle.files import Record, make_folder, read_object, write_json
from fedsaddle.metrics.calibration import Platt
from fedsaddle.metrics.score_sums import BINS
from fedsaddle.metrics.sum_decisions import LOWER, platt_of_counts, threshold_of_counts
from fedsaddle.metrics.sum_figures import SumFigure, SummedScores
from fedsaddle.problems.protocols import HasModel
from fedsaddle.report.predictions import CHOICE
from fedsaddle.report.run_report import report_or_warning
from fedsaddle.runs.closing import write_provenance
from fedsaddle.runs.folder import SECONDS, RunFolder, only_writer, write_progress
from fedsaddle.studies.aims import aim_of
from fedsaddle.studies.candidates import FEDAVG
from fedsaddle.studies.model_loader import write_loader
from fedsaddle.studies.search import Choice, Clock, Search, write_trials
from fedsaddle.studies.site_questions import Model
from fedsaddle.studies.study_plan import StudyPlan
from fedsaddle.studies.trial import Trial

log = logging.getLogger("fedsaddle.server")
BEGUN = "study.json"  # that all sites have agreed
AT_THRESHOLD = ("sensitivity", "specificity", "positive_predictive_value", "negative_predictive_value")


@dataclass(frozen=True)
class StudyResult:
    """What a study across sites found.

    Args:
        choice: the chosen model, FedAvg tuned alike, and all that was tried.
        summary: summary.json.
        summed: the test counts of the choice and of FedAvg over all sites.
        notes: lines for people: what sites refused, who was left out.
    """

    choice: Choice
    summary: SearchSummary
    summed: SummedScores
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class DeployedStudy:
    """A study, its sites and its folder; client i is always the site `names[i]`."""

    plan: StudyPlan
    name: str
    names: tuple[str, ...]
    out: Path
    patience: Patience

    def go(
        self,
        transport: Transport,
        wait: float = 0.0,
        watch: Watch = lambda trial, done: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> StudyResult:
        """Agree with the sites and run the study; go on where an earlier process in the folder stopped.

        Wait up to `wait` seconds for another process that writes to the folder.
        """
        if "." in self.name:
            raise BadInput("run", self.name, "a study's name has no '.', which names its trials")
        make_folder("out", self.out)
        RunFolder(self.out).refuse_links()
        with only_writer(self.out, wait), log_to_folder(log, self.out):
            try:
                return self._go(transport, watch, stop)
            except FedSaddleError as reason:
                log.error("the study ended: %s", reason)
                raise

    def _go(self, transport: Transport, watch: Watch, stop: Callable[[], bool]) -> StudyResult:
        folder, courier = RunFolder(self.out), Courier(transport, self.names, self.patience)
        agreement = agree_on_encoding(courier, self.plan.base, self.name, folder)
        for note in summarised(agreement.notes) if agreement.new else ():
            log.warning("%s", note)
        self._agree(courier, agreement, folder)
        progress = StudyProgress(folder, watch)
        sites = DeployedSites(
            self.plan, self.name, self.names, self.out, transport, self.patience, agreement, stop, progress
        )
        aim, trials = aim_of(self.plan.study.aim), RunFiles(self.out).trials
        clock = Clock.at(trials, None)
        search = Search(sites, aim, self.plan.study.seed, clock, trials, stop, self.plan.candidates)
        try:
            choice = search.go()
        finally:
            clock.keep()
        return _Finished(self.plan, sites, choice, folder).write()

    def _agree(self, courier: Courier, agreement: Agreement, folder: RunFolder) -> None:
        """Let all sites agree to the plan, once; a study that goes on needs those that are there."""
        path, plan = self.out / BEGUN, self.plan.digest()
        begun = path.exists()
        if begun and read_object(path).get("plan") != plan:
            raise BadCheckpoint(f"{self.out} holds a study with another study.toml; choose another folder")
        least = agreement.minimum_sites
        if len(self.names) < least:
            remedy = f"policies of sites ask for averages of at least {least} (minimum_sites)"
            raise BadInput("sites", len(self.names), remedy)
        payload = {
            "plan": plan,
            "config": digests(self.plan.base),
            "names": list(self.names),
            "agreed": agreement.encoding,
        }
        if self.plan.privacy.secure_aggregation:
            require_secure(self.names, None)
            payload["keys"] = collect_keys(courier, self.plan.base, self.name, folder)
        train = agreement.sizes["rows"]

        def check(client: int, answer: Answer, record: object) -> None:
            if (rows := read_payload(AgreeTold, record).rows) != train[client]:
                raise BadMessage(f"another number of training rows ({rows}) than in its facts ({train[client]})")

        courier.request("study", self.name, payload, everyone=not begun, check=check)
        write_json(path, {"plan": plan, "names": list(self.names)})


@dataclass
class StudyProgress:
    """Passes on how far a trial is, and writes it to the study's folder, for those who follow it."""

    folder: RunFolder
    watch: Watch
    began: float = field(default_factory=time.time)
    done: int = 0  # rounds of this process
    next: float = 0.0

    def __call__(self, trial: Trial, done: int) -> None:
        """A trial has run so many rounds."""
        self.watch(trial, done)
        self.done += 1
        if time.monotonic() < self.next and done < trial.rounds:
            return
        self.next = time.monotonic() + SECONDS
        said = f"{trial.candidate.name}, step {trial.step:g}"
        content: Record = {"round": done, "rounds": trial.rounds, "trial": said, "in_all": self.done}
        write_progress(self.folder.progress, {**content, "began": self.began, "updated": time.time()})


@dataclass
class _Finished:
    """A study whose choice is made: the test rows are looked at here, once."""

    plan: StudyPlan
    sites: DeployedSites
    choice: Choice
    folder: RunFolder

    def __post_init__(self) -> None:
        self.models = {CHOICE: self.choice.chosen, FEDAVG: self.choice.fedavg}
        counts = {name: self.sites.counts(model, "validation") for name, model in self.models.items()}
        self.platt = {
            name: platt_of_counts(own, log_odds=model.trial.candidate.log_odds, shift=self.sites.shift(model))
            for (name, model), own in zip(self.models.items(), counts.values(), strict=True)
        }
        platt, shift = self.platt[CHOICE], self.sites.shift(self.choice.chosen)
        self.counted = Platt(platt.slope, platt.intercept + platt.slope * shift)  # of scores as they are counted
        self.cut, self.threshold = threshold_of_counts(counts[CHOICE], self.counted, self.plan.study.sensitivity)

    def write(self) -> StudyResult:
        """Look at the test rows, and write what the organiser's folder holds."""
        chance = self.counted.probability(LOWER)
        shown = [] if self.platt[CHOICE].slope <= 0 else [int(np.argmin(np.abs(chance - p))) for p in SHOWN]
        cuts = list(dict.fromkeys([self.cut, *(cut for cut in shown if 0 < cut < BINS)]))
        summed = self.sites.compared(self.choice.chosen, self.choice.fedavg, "test", (cuts, cuts))
        own, alone = self.sites.own_figures(self.choice.chosen, cuts)
        content = self._summary(summed)
        told = [name for name, n in zip(self.sites.names, self.sites.agreement.sizes["test_rows"], strict=True) if n]
        without = [name for name in told if name not in own]
        scores = SiteScores("test", own, {}, summed, without, cuts, self.plan.data.minimum_cell)
        content |= scores.to_dict()
        content["scores"]["shift"] = self.sites.shift(self.choice.chosen)
        content["alone"] = {name: one.auroc.to_dict() for name, one in alone.items() if one.auroc is not None}
        write_trials(self.choice.trials, self.folder.trials_table)
        self._write_model()
        self.folder.begin(history_of(self.choice.chosen))
        if self.choice.name != FEDAVG:
            self.folder.baseline.begin(history_of(self.choice.fedavg))
        trial = self.sites.config(self.choice.chosen.trial).model_dump(mode="json")
        self.folder.write_config({**trial, "study": self.plan.to_toml()})
        summary = SearchSummary.model_validate(content)
        self.folder.write_summary(summary)
        write_provenance(self.folder.path)
        report_or_warning(self.folder.path, log.warning)
        return StudyResult(self.choice, summary, summed, (*self.sites.refused, *self._goodbye()))

    def _goodbye(self) -> list[str]:
        """Send the model, and how its scores become probabilities; a line for each site that did not take it."""
        card = self.folder.path / "MODEL_CARD.md"
        lines = card.read_text(encoding="utf-8").splitlines() if card.exists() else []
        platt = self.platt[CHOICE]
        content = {
            "name": self.choice.name, "slope": platt.slope, "intercept": platt.intercept,
            "threshold": self.threshold.probability, "reason": self.threshold.reason[:200],
            "card": [line[:2000] for line in lines[:2000]],
        }  # fmt: skip
        try:
            missing = self.sites.goodbye(self.choice.chosen, content)
        except FedSaddleError as reason:  # the study is done, whoever is there
            missing = [f"{reason}; the sites"]
        notes = [f"{name} did not take the model; hand it over, or resume when the site is there" for name in missing]
        for note in notes:
            log.warning("%s", note)
        return notes

    def _summary(self, summed: SummedScores) -> Record:
        chosen, trial = self.choice.chosen, self.choice.chosen.trial
        own = RunFolder(trial.folder / trial.name).read_run()
        figures = {CHOICE: summed.figures(0), FEDAVG: summed.figures(1)}
        shown = summed.shown([self.cut])
        at = None if shown is None else summed.at_cuts([self.cut], shown)[0]
        validation = self.sites.counts(chosen, "validation")
        sizes = self.sites.agreement.sizes
        counts = self.sites.agreement.encoding["counts"]
        differences = {
            name: {"value": gap.value, "interval": [gap.low, gap.high]} for name, gap in summed.differences().items()
        }
        named = {} if at is None else {key: getattr(at, key) for key in AT_THRESHOLD}
        known = {key: figure.value for key, figure in named.items() if figure is not None}
        if at is not None and at.alarms is not None and at.alarms.value is not None:
            known["alarms_per_100"] = 100 * at.alarms.value
        return {
            "algorithm": self.choice.name,
            "problem": own.problem,
            CHOICE: self.choice.name,
            "aim": self.plan.study.aim,
            "reason": self.choice.reason,
            "stopped": "finished",
            "rounds": own.rounds,
            "selected_round": chosen.selected_round,
            "step": trial.step,
            "target": None,
            "target_round": None,
            "pooled": {
                **{name: _plain(own_figures) for name, own_figures in figures.items()},
                "difference": differences,
            },
            "probabilities": self.platt[CHOICE].to_dict(),
            "threshold": {"probability": self.threshold.probability, "reason": self.threshold.reason, "test": known},
            "bounds": {name: _bounds(found) for name, found in figures.items()},
            "at_threshold": {key: _interval(figure) for key, figure in named.items() if figure is not None},
            "rows": {
                "train": {"rows": sum(sizes["rows"]), "positives": int(counts[1])},
                "validation": {"rows": sum(validation.sides), "positives": validation.sides[0]},
                "test": {"rows": sum(summed.sides), "positives": summed.sides[0]},
            },
            "positive": str((self.sites.agreement.encoding["classes"] or ["", "1"])[1]),
            "notes": [*self.sites.agreement.notes, *self.sites.refused],
            "sites": self._attendance(),
            "cautions": list(self.sites.agreement.notes),
            "trials": len(self.choice.trials),
            "cut": list(self.choice.cut),
            "budget": None,
            "seconds": round(self.choice.seconds, 3),
            "ledger": own.ledger.model_dump(),
            "engine": own.engine.model_dump(),
            "fingerprint": own.fingerprint,
        }

    def _attendance(self) -> Record:
        """Answers, faults and bytes of each site, in all trials and comparisons."""
        told = [asked.clients.attendance.to_dict() for asked in self.sites.parts.values()]
        for path in sorted(self.folder.trials.glob(f"*/{self.folder.summary.name}")):
            with suppress(FedSaddleError):  # of a trial that diverged
                own = RunFolder(path.parent).read_run().sites or {}
                told.append({name: one.model_dump() for name, one in own.items()})
        found = {}
        for name in self.sites.names:
            lines = [one[name] for one in told if name in one]
            faults: Counter[str] = sum((Counter(line["left_out"]) for line in lines), Counter())
            counts = {key: sum(line[key] for line in lines) for key in ("answered", "bytes_down", "bytes_up")}
            found[name] = {**counts, "left_out": dict(faults)}
        return found

    def _write_model(self) -> None:
        chosen, out = self.choice.chosen, self.folder.path
        problem = chosen.algorithm.problem
        assert isinstance(problem, HasModel)
        module = problem.module(chosen.vector)
        self.folder.write_model({k: v.contiguous() for k, v in module.state_dict().items()})
        setup = build_on(chosen.trial.experiment(), chosen.data)
        write_loader(setup.model, chosen.data, module, out, self.platt[CHOICE], self.threshold)


def history_of(model: Model) -> list[Record]:
    """The evaluations of the trial that made a model."""
    return RunFolder(model.trial.folder / model.trial.name).history()


def _plain(figures: Mapping[str, SumFigure]) -> Record:
    return {name: _interval(figure) for name, figure in figures.items() if figure.value is not None}


def _interval(figure: SumFigure) -> Record:
    if figure.value is None:
        return {"bounds": list(figure.bounds)}
    return {"value": figure.value} | ({} if figure.interval is None else {"interval": list(figure.interval)})


def _bounds(figures: Mapping[str, SumFigure]) -> Record:
    return {name: list(figure.bounds) for name, figure in figures.items()}
