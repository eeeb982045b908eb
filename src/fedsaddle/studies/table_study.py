"""A study of a table: the choice made on validation rows is looked at on the test rows, once, and written."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedsaddle.array_types import Floats
from fedsaddle.config.build import build_on
from fedsaddle.data.describe import describe
from fedsaddle.data.federated import FederatedData, crossed
from fedsaddle.data.store import Stacked
from fedsaddle.data.table import ROW, Dataset
from fedsaddle.documents.summary import Coefficients, SearchSummary
from fedsaddle.errors import BadInput
from fedsaddle.files import Record, write_atomically
from fedsaddle.metrics.calibration import Platt, Threshold, calibration_figures
from fedsaddle.metrics.evaluation import evaluate
from fedsaddle.metrics.ranking import Ranking, difference, rank
from fedsaddle.metrics.subgroups import WorstLoss, worst_loss
from fedsaddle.problems.groups import GroupFair
from fedsaddle.problems.protocols import HasModel
from fedsaddle.report import plots
from fedsaddle.report import plots as roc
from fedsaddle.report.predictions import CHOICE, parts_of, write_predictions
from fedsaddle.runs.checkpoints import measured_loss
from fedsaddle.runs.folder import RunFolder
from fedsaddle.runs.loop import MAX_LISTED_CLIENTS
from fedsaddle.studies.aims import LEAST_ROWS, Rows, worst_site
from fedsaddle.studies.candidates import FEDAVG
from fedsaddle.studies.coefficients import coefficients
from fedsaddle.studies.leave_one_out import LeaveOneSiteOut
from fedsaddle.studies.model_loader import write_loader
from fedsaddle.studies.search import Choice, write_trials
from fedsaddle.studies.site_questions import Model
from fedsaddle.studies.table_config import TableConfig
from fedsaddle.text import visible

BUDGET = 120.0  # seconds
TWO_CLASSES_AIM = "auroc"
OF_OUTCOMES = ("family", "event", "exposure", "horizon")  # settings that two classes have not


@dataclass(frozen=True)
class StudyOptions:
    """What a study is asked for."""

    aim: str | None = None  # None: that of the outcome, the AUROC of two classes
    budget: float | None = BUDGET  # seconds
    sensitivity: float | None = None  # wanted; None: the default threshold
    leave_one_site_out: bool = False


def settings_of(table: TableConfig | None, options: StudyOptions) -> Record:
    """What a study can be resumed with; `table` is None for a federated data set."""
    aim = options.aim or TWO_CLASSES_AIM
    if table is None:
        return {"table": None, "for": aim}
    kept = {f.name: getattr(table, f.name) for f in fields(table) if f.name != "table"}
    kept = {key: value for key, value in kept.items() if key not in OF_OUTCOMES or value is not None}
    plain = {k: list(v) if isinstance(v, tuple) else v for k, v in kept.items()}
    return {"table": str(table.table) if isinstance(table.table, Path) else "a DataFrame", **plain, "for": aim}


def require_classes(data: FederatedData) -> None:
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
                    "another `label` or `positive`",
                )


@dataclass
class Finished:
    """A search that is done: the test rows are looked at here, once."""

    table: TableConfig | None  # None: the data were federated already
    options: StudyOptions
    folder: RunFolder
    dataset: Dataset | None  # as it was read
    data: FederatedData
    choice: Choice
    left_out: LeaveOneSiteOut | None
    about: Record  # missing cells, notes and cautions, for the summary
    rankings: dict[str, Ranking] = field(default_factory=dict)

    def __post_init__(self) -> None:
        validation, model = self.data.validation, self.choice.chosen
        assert validation is not None
        self.labels = validation.y.numpy()
        self.platt = {
            name: Platt.fit(m.validation_scores, self.labels, log_odds=m.trial.candidate.log_odds)
            for name, m in self._models().items()
        }
        p = self.platt[CHOICE].probability(model.validation_scores)
        wanted = self.options.sensitivity
        self.threshold = (
            Threshold.default(p, self.labels, self.data.validation_units)
            if wanted is None
            else Threshold.for_sensitivity(p, self.labels, wanted)
        )

    def _models(self) -> dict[str, Model]:
        return {CHOICE: self.choice.chosen, FEDAVG: self.choice.fedavg}

    def write(self, drawn: bool = True) -> SearchSummary:
        """Evaluate, write the files and, if wanted, draw; return the summary."""
        out, test = self.folder.path, self.data.test
        assert test is not None
        scores = {name: m.rank(_rows(m, "test").x) for name, m in self._models().items()}
        self.rankings = {
            name: rank(s, test.y.numpy(), test.offsets, self.data.test_names, units=self.data.test_units)
            for name, s in scores.items()
        }
        content = self._summary(scores)
        write_trials(self.choice.trials, self.folder.trials_table)
        validation = {name: m.validation_scores for name, m in self._models().items()}
        write_predictions(out, parts_of(self.data, {"validation": validation, "test": scores}), self.platt)
        self._write_model()
        if self.left_out is not None:
            self.left_out.write(out)
            content["leave_one_site_out"] = self.left_out.summary()
        trial, history = self.choice.chosen.trial, _history(self.choice.chosen)
        self.folder.begin(history)
        self.folder.write_config(
            {**settings_of(self.table, self.options), "trial": trial.experiment().model_dump(mode="json")},
            describe(self.data).to_dict(),
        )
        if self.choice.name != FEDAVG:
            self.folder.baseline.begin(_history(self.choice.fedavg))
        if drawn:
            self._draw(history)
        summary = SearchSummary.model_validate(content)
        self.folder.write_summary(summary)
        return summary

    def _summary(self, scores: dict[str, Floats]) -> Record:
        chosen, test = self.choice.chosen, self.data.test
        assert test is not None
        trial = chosen.trial
        summary = RunFolder(trial.folder / trial.name).read_run()
        labels, problem = test.y.numpy(), chosen.algorithm.problem
        measured = evaluate(problem, chosen.vector, _rows(chosen, "test"))
        p = self.platt[CHOICE].probability(scores[CHOICE])
        effects = coefficients(self.choice.default)
        cautions = [*self.about["cautions"], *([effects] if isinstance(effects, str) else [])]
        roc_entry = roc.write(self.named(), "test", self.folder.path)
        return {
            "algorithm": self.choice.name,
            "problem": measured_loss(problem),
            CHOICE: self.choice.name,
            "aim": self.options.aim or TWO_CLASSES_AIM,
            "reason": self.choice.reason,
            "stopped": "finished",
            "rounds": summary.rounds,
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
            "cautions": cautions,
            **self._groups(scores),
            **({"coefficients": effects} if isinstance(effects, Coefficients) else {}),
            **({"warnings": summary.warnings} if summary.warnings else {}),
            "test": measured.spread(),
            "clients": {"test": measured.listed(MAX_LISTED_CLIENTS)},
            "roc": roc_entry,
            "trials": len(self.choice.trials),
            "cut": list(self.choice.cut),
            "budget": self.options.budget,
            "seconds": round(self.choice.seconds, 3),
            "ledger": summary.ledger,
            "engine": summary.engine,
            "fingerprint": summary.fingerprint,
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
        if self.data.test_groups:
            worst = self._worst_group(scores).loss
            found["worst_group_loss"] = {"value": worst.value, "interval": [worst.low, worst.high]}
        odds = self.platt[name].slope * scores + self.platt[name].intercept
        right = (odds > 0) == (rows.labels > 0)
        found["accuracy"] = {"value": float(right.mean())}
        found["worst_site_loss"] = {"value": -worst_site(scores, rows, np.ones(len(scores)))}
        return found

    def _worst_group(self, scores: Floats) -> WorstLoss:
        """The group of test rows that a model serves worst."""
        test, groups = self.data.test, self.data.test_groups
        assert test is not None
        names, code = np.unique(crossed(groups, tuple(groups)), return_inverse=True)
        losses = np.logaddexp(0.0, np.where(test.y.numpy() > 0, -scores, scores))
        units = None if self.data.test_units is None else np.unique(self.data.test_units, return_inverse=True)[1]
        return worst_loss(losses, code.astype(np.int64), list(map(str, names)), LEAST_ROWS, units)

    def _groups(self, scores: dict[str, Floats]) -> Record:
        """How the groups are served, where there are any."""
        groups, chosen = self.data.test_groups, self.choice.chosen
        if not groups:
            return {}
        ours, theirs = self._worst_group(scores[CHOICE]), self._worst_group(scores[FEDAVG])
        names = crossed(groups, tuple(groups))
        losses = {
            name: {"rows": int((names == name).sum()), CHOICE: loss, FEDAVG: theirs.means[name]}
            for name, loss in ours.means.items()
        }
        mixture = None
        if chosen.mixture is not None and isinstance(chosen.algorithm.problem, GroupFair):
            mixture = dict(zip(chosen.algorithm.problem.groups, chosen.mixture.tolist(), strict=True))
        found: Record = {"columns": list(groups), "losses": losses, "mixture": mixture}
        return {"groups": {**found, "worst_by_choice": ours.name, "worst_by_fedavg": theirs.name}}

    def named(self) -> dict[str, Ranking]:
        """The rankings by the names of the models."""
        if self.choice.name == FEDAVG:
            return {FEDAVG: self.rankings[FEDAVG]}
        return {self.choice.name: self.rankings[CHOICE], FEDAVG: self.rankings[FEDAVG]}

    def _write_model(self) -> None:
        chosen, out = self.choice.chosen, self.folder.path
        problem = chosen.algorithm.problem
        assert isinstance(problem, HasModel)
        module = problem.module(chosen.vector)
        self.folder.write_model({k: v.contiguous() for k, v in module.state_dict().items()})
        setup = build_on(chosen.trial.experiment(), chosen.data)
        write_loader(setup.model, chosen.data, module, out, self.platt[CHOICE], self.threshold)
        if self.table is not None and isinstance(self.table.table, Path):
            config = replace(self.table, algorithm=None).to_toml(self.dataset)
            write_atomically(self.folder.table_config, config.encode())

    def _draw(self, history: list[Record]) -> None:
        picture = self.folder.picture
        describe(self.data).plot(picture("split"))
        roc.draw(self.named(), "test", picture("roc"))
        histories = {self.choice.name: history}
        if self.choice.name != FEDAVG:
            histories[FEDAVG] = _history(self.choice.fedavg)
        if all(r.get("pooled_validation", {}).get("auroc") is not None for h in histories.values() for r in h):
            plots.pooled(histories, "auroc", picture("auroc"), title="AUROC of all sites together, validation rows")


def _history(model: Model) -> list[Record]:
    return RunFolder(model.trial.folder / model.trial.name).history()


def _rows(model: Model, part: str) -> Stacked:
    rows = model.data.test if part == "test" else model.data.validation
    assert rows is not None
    return rows


def _figures_of_difference(rankings: dict[str, Ranking]) -> Record:
    found = json.loads(json.dumps(difference(rankings[CHOICE], rankings[FEDAVG]).to_dict()))
    return {k: v for k, v in found.items() if k not in ("name", "clients")}


def missing_cells(dataset: Dataset | None, data: FederatedData) -> Record:
    """The share of cells that were filled, by column: of all rows that are used, and of each site's."""
    if dataset is None:
        return {}
    shares, numbers = getattr(dataset.pending, "missing_shares", None), dataset.train.columns.get(ROW)
    if shares is None or data.train_rows is None:
        return {}
    at = data.train_rows if numbers is None else np.searchsorted(numbers, data.train_rows)  # rows may be left out
    parts: list[NDArray[np.int64]] = np.split(at, data.train.offsets[1:-1])
    found: dict[str, list[float]] = shares(parts)
    sizes = data.train.sizes
    return {
        column: {
            "share": float(np.average(own, weights=sizes)),
            "sites": {name: round(share, 4) for name, share in zip(data.names, own, strict=True) if share},
        }
        for column, own in found.items()
    }
