"""The check of a model before it is handed on: attacks by membership inference, with shadow models of the same recipe.

The rows of the run are read again. Members are the training rows, and the others are the held-out rows of the same
sites. A shadow model is trained as the model was, on another split of the rows into training, validation and test,
in the same shares and with a patient's rows in one part.
"""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from fedsaddle.arguments import whole
from fedsaddle.array_types import Bools, Floats, Ints
from fedsaddle.config.build import build, build_on
from fedsaddle.config.run_config import run_config
from fedsaddle.config.schema import Experiment, NamedSection, ProblemSection, validate_config, validate_experiment
from fedsaddle.data.federated import FederatedData
from fedsaddle.data.hold_out import hold_out
from fedsaddle.data.store import Stacked
from fedsaddle.documents.stored import (
    SHADOWS,
    PrivacyBound,
    ReleaseCheck,
    SearchOptions,
    SmallestCell,
    model_digest,
    read_document,
)
from fedsaddle.documents.summary import Budget, RunSummary, SearchSummary, StoredFigure
from fedsaddle.errors import BadCheckpoint, BadInput, Diverged, MissingData
from fedsaddle.files import JsonObject, write_json
from fedsaddle.metrics.calibration import Platt
from fedsaddle.metrics.intervals import Interval
from fedsaddle.metrics.ranking import rank
from fedsaddle.problems.protocols import MeasuresClients, MinimaxProblem, MinimisationProblem, Problem, Ranks
from fedsaddle.problems.supervised import Supervised
from fedsaddle.runs.callbacks import LambdaCallback
from fedsaddle.runs.checkpoints import digest, fingerprint
from fedsaddle.runs.engines import Vectorised
from fedsaddle.runs.folder import RunFolder
from fedsaddle.studies.candidates import AVERAGED, BASE, HINGES, Candidate, Facts, candidates
from fedsaddle.studies.search import averaged_vector
from fedsaddle.studies.table_config import TableConfig
from fedsaddle.studies.trial import Trial, features_of, run_trial
from fedsaddle.text import visible

BLOCK = 4096  # rows that are scored at once
Train = Callable[[FederatedData, int], Tensor]  # the solution on other rows, with another seed


@dataclass(frozen=True, eq=False)
class RepeatableRun:
    """A finished run that can be repeated on other rows."""

    data: FederatedData
    used: FederatedData  # the same rows with the features that the model uses
    problem: Problem
    vector: Tensor  # the model that would be handed on
    train: Train


def check_release(
    folder: str | Path,
    shadows: int = SHADOWS,
    seed: int = 0,
    tell: Callable[[int, int], None] = lambda done, total: None,
) -> ReleaseCheck:
    """Attack the model of a finished run, and write the results to release.json in its folder.

    Args:
        folder: of a simulated run, or of a study of a table, whose rows are still where they were.
        shadows: models that are trained to compare with.
        seed: of the rows of the shadow models.
        tell: called with the shadow models that are trained, and their number.

    Raises:
        MissingData: if the folder has no finished run, or if the rows are at real sites.
        BadCheckpoint: if the rows are no longer those of the run.
        BadInput: if the problem has no loss of single rows, or no rows were held out.
    """
    whole("shadows", shadows, least=2)
    whole("seed", seed, least=0)
    began, files = time.monotonic(), RunFolder(Path(folder))
    summary = files.read_summary()
    recipe = _of_search(files, summary) if isinstance(summary, SearchSummary) else _of_run(files, summary)
    rows, own = RunRows.of(recipe.data), RunRows.of(recipe.used)
    target = row_confidences(recipe.problem, recipe.vector, own, own.members)
    found, trained = np.empty((shadows, len(rows.x))), np.empty((shadows, len(rows.x)), dtype=bool)
    for one in range(shadows):
        tell(one, shadows)
        data, trained[one] = rows.dealt(recipe.data, seed + 1 + one)
        vector = recipe.train(data, seed + 1 + one)
        found[one] = row_confidences(recipe.problem, vector, own, trained[one])
    tell(shadows, shadows)
    by_loss = attack_auroc(target, rows.members, rows.units)
    by_ratio = attack_auroc(likelihood_ratio(target, found, trained), rows.members, rows.units)
    check = ReleaseCheck(
        model=model_digest(files.model),
        members=int(rows.members.sum()),
        others=int((~rows.members).sum()),
        shadows=shadows,
        loss_threshold=_figure(by_loss),
        likelihood_ratio=_figure(by_ratio),
        smallest_cell=smallest_cell(recipe.used),
        privacy=_bound(summary.privacy),
        checked=datetime.now(UTC).isoformat(timespec="seconds"),
        seconds=round(time.monotonic() - began, 1),
    )
    write_json(files.release, check.to_dict())
    return check


@dataclass(frozen=True, eq=False)
class RunRows:
    """The rows of the sites that trained: training rows first, then validation rows, then test rows."""

    x: Tensor
    y: Tensor
    client: Ints
    members: Bools
    shares: tuple[float, float]  # of the validation rows and of the test rows
    units: Ints | None  # the patient of each row; None: each row is its own

    @classmethod
    def of(cls, data: FederatedData) -> RunRows:
        """The rows of a run.

        Raises:
            BadInput: if none were held out.
        """
        if not isinstance(data.train, Stacked) or data.train.y.ndim > 1:
            raise BadInput("data", data.name, "the check needs a table of rows with one label each")
        parts, units, first = [], list[Ints](), 0
        for rows, of in ((data.train, data.train.units), (data.validation, data.validation_units),
                         (data.test, data.test_units)):  # fmt: skip
            if rows is None:
                parts.append((data.train.x[:0], data.train.y[:0], np.zeros(0, dtype=np.int64)))
                continue
            stay = int(rows.offsets[min(data.count, rows.count)])  # clients that did not train come last
            client = np.repeat(np.arange(rows.count), rows.sizes)[:stay]
            parts.append((rows.x[:stay], rows.y[:stay], client))
            if of is not None:
                codes = np.unique(np.asarray(of)[:stay].astype(str), return_inverse=True)[1]
                units.append(codes.astype(np.int64) + first)  # a patient's rows are in one part
                first += int(codes.max(initial=-1)) + 1
        counts = [len(part[1]) for part in parts]
        if not counts[1] + counts[2]:
            raise BadInput("data", data.name, "has no held-out rows to compare with; hold some out with `test_share`")
        total = sum(counts)
        return cls(
            torch.cat([part[0] for part in parts]),
            torch.cat([part[1] for part in parts]),
            np.concatenate([part[2] for part in parts]),
            np.arange(total) < counts[0],
            (counts[1] / total, counts[2] / total),
            np.concatenate(units) if sum(map(len, units)) == total else None,
        )

    def dealt(self, data: FederatedData, seed: int) -> tuple[FederatedData, Bools]:
        """The same rows in another split, as `federate` makes it, and which of them are training rows."""
        order = np.argsort(self.client, kind="stable")
        ends = np.cumsum(np.bincount(self.client, minlength=data.count))
        labels = self.y.numpy() if data.classes else None
        validation, test = self.shares
        held = hold_out(np.split(order, ends[:-1]), test, seed, labels, self.units, validation)
        trained = np.zeros(len(self.x), dtype=bool)
        trained[np.concatenate(held.train)] = True

        def some(parts: Sequence[Ints], there: Stacked | None) -> Stacked | None:
            return None if there is None else Stacked.of(self.x, self.y, parts, allow_empty=True)

        train = Stacked.of(self.x, self.y, held.train)
        units = None if self.units is None else self.units[np.concatenate(held.train)]
        new = replace(
            data,
            train=replace(train, positives=data.train.positives, units=units),
            validation=some(held.validation, data.validation),
            test=None,
            train_rows=None,
            validation_rows=None,
            validation_units=None if self.units is None else self.units[np.concatenate(held.validation)],
            validation_groups={},
        )
        return new.without_test(), trained


def row_confidences(problem: Problem, vector: Tensor, rows: RunRows, trained: Bools) -> Floats:
    """The log odds of the right answer for each row; scores become probabilities on the rows not trained on.

    Raises:
        BadInput: if the problem has no loss of single rows.
    """
    with torch.no_grad():
        scores = problem.ranking(vector, rows.x) if isinstance(problem, Ranks) else None
        if scores is not None and not isinstance(problem, Supervised):
            s, labels = scores.double().numpy(), rows.y.numpy()
            platt = Platt.fit(s[~trained], labels[~trained])
            return np.asarray((2 * labels - 1) * (platt.slope * s + platt.intercept))
        if not isinstance(problem, Supervised) and isinstance(problem, MeasuresClients):
            name = type(problem).__name__
            raise BadInput("problem", name, "has no loss of single rows, by which an attacker could tell them apart")
        both = zip(torch.split(rows.x, BLOCK), torch.split(rows.y, BLOCK), strict=True)
        loss = torch.cat([problem.row_measures(vector, x, y)["loss"] for x, y in both])
    return confidences(loss.double().numpy())


def smallest_cell(data: FederatedData) -> SmallestCell | None:
    """The feature of a category, a site or missing cells with the fewest training rows; None without any."""
    found = list[SmallestCell]()
    if data.train.x.ndim != 2:
        return None
    y = data.train.y.numpy()
    for k, feature in enumerate(data.encoding):
        if feature.kind in ("category", "other", "missing", "site"):
            there = data.train.x[:, k].numpy() != 0
            rarer = int(np.bincount(y[there], minlength=len(data.classes)).min()) if data.classes else None
            found.append(SmallestCell(feature=feature.name, rows=int(there.sum()), rarer=rarer))
    return min((cell for cell in found if cell.rows), key=lambda cell: (cell.rows, cell.feature), default=None)


def _figure(interval: Interval) -> StoredFigure:
    return StoredFigure(value=interval.value, interval=(interval.low, interval.high))


def _bound(budget: Budget | None) -> PrivacyBound | None:
    if budget is None:
        return None
    epsilon = budget.epsilon if budget.epsilon_spent is None else budget.epsilon_spent
    return PrivacyBound(epsilon=epsilon, delta=budget.delta, auroc=private_bound(epsilon, budget.delta))


def _solution(problem: Problem) -> Tensor:
    """The vector that a problem starts from."""
    assert isinstance(problem, MinimisationProblem | MinimaxProblem)
    start = problem.initial()
    return start[0] if isinstance(start, tuple) else start


def _trained(config: Experiment, data: FederatedData, model: Path) -> tuple[Problem, Tensor]:
    """The problem of a config and the solution in a model's file."""
    given = {key: value for key, value in config.problem.model_dump().items() if key != "from_base_rate"}
    section = NamedSection(**{**config.model.model_dump(), "start_from": str(model), "head": "auto"})
    at = config.model_copy(update={"model": section, "problem": ProblemSection(**given)})
    problem = build_on(at, data).algorithm.problem
    return problem, _solution(problem)


def _of_run(files: RunFolder, summary: RunSummary) -> RepeatableRun:
    if summary.sites is not None:
        raise MissingData(
            f"{visible(files.path)}: its training rows are at real sites, and the check needs them; check a simulation "
            "of the same config on rows like theirs before you release this model"
        )
    if summary.stopped == "interrupted":
        raise MissingData(f"{visible(files.path)}: the run was interrupted; finish it with --resume, then check it")
    stored = files.read_config()
    if stored is None:
        raise MissingData(f"{visible(files.path)}: has no config.json, by which the run could be repeated")
    config = validate_config(stored)
    setup = build(config)
    now = fingerprint(setup.algorithm, setup.data.train, config.run.seed, config.run.lost_replies)
    if now != summary.fingerprint:
        raise BadCheckpoint(f"{visible(files.path)}: its rows or its config have changed since it was run; run it anew")
    problem, vector = _trained(config, setup.data, files.model)

    def train(data: FederatedData, seed: int) -> Tensor:
        again = config.model_copy(update={"run": config.run.model_copy(update={"seed": seed})})
        try:
            quiet = LambdaCallback(on_warning=lambda text: None)
            return run_config(again, build_on(again, data), engine=Vectorised(), callbacks=[quiet]).model
        except Diverged as reason:
            raise BadInput("shadows", seed, f"a shadow model diverged ({reason}); train with a smaller step") from None

    return RepeatableRun(setup.data, setup.data, problem, vector, train)


def _of_search(files: RunFolder, summary: SearchSummary) -> RepeatableRun:
    stored, config = read_document(SearchOptions, files.search), files.read_config()
    if stored is None or config is None or "trial" not in config:
        raise MissingData(f"{visible(files.path)}: has no search.json or config.json, by which it could be repeated")
    known = {field.name for field in fields(TableConfig)} - {"table"}
    given: JsonObject = {k: tuple(v) if isinstance(v, list) else v for k, v in stored.options().items() if k in known}
    path = Path(stored.table)
    if not path.exists():
        raise MissingData(f"{visible(files.path)}: the check needs the rows, and there is no table {visible(path)}")
    table = TableConfig(path, **given)
    data = table.federated(table.dataset())
    rows = data.test
    if rows is None or stored.test_rows not in ({}, {"features": digest(rows.x), "labels": digest(rows.y)}):
        raise BadCheckpoint(f"{visible(path)}: its rows have changed since the study; run it anew")
    trial = validate_experiment(
        {key: value for key, value in config["trial"].items() if key in Experiment.model_fields}
    )
    listed = {one.name: one for one in candidates(Facts.of(data), summary.aim)}
    name = HINGES if summary.choice == AVERAGED else summary.choice
    chosen = listed[name]
    own = features_of(data, chosen)
    problem, vector = _trained(trial, own, files.model)
    steps = {**_steps(files), name: summary.step}

    def solved(candidate: Candidate, rows: FederatedData, seed: int, scratch: Path) -> Tensor:
        start = None if candidate.start is None else listed[candidate.start]
        before = None
        if start is not None:
            solved(start, rows, seed, scratch)
            before = scratch / Trial(start, steps[start.name], 1, seed, summary.aim, scratch).name
        one = Trial(candidate, steps[candidate.name], candidate.rounds, seed, summary.aim, scratch, before)
        outcome = run_trial(one, lambda progress: None, lambda: False, data=rows)
        if outcome.model is None:
            raise BadInput("shadows", seed, f"a shadow model failed ({outcome.failure}); train with a smaller step")
        return outcome.model

    def train(rows: FederatedData, seed: int) -> Tensor:
        with TemporaryDirectory() as scratch:
            found = solved(chosen, rows, seed, Path(scratch))
            if summary.choice != AVERAGED:
                return found
            straight = solved(listed[BASE], rows, seed, Path(scratch))
            encodings = features_of(rows, listed[BASE]).encoding, features_of(rows, chosen).encoding
            return averaged_vector(straight, found, *encodings)

    return RepeatableRun(data, own, problem, vector, train)


def _steps(files: RunFolder) -> dict[str, float]:
    """The best step of each candidate on validation rows, after the most rounds."""
    found: dict[str, tuple[int, float, float]] = {}
    with files.trials_table.open(encoding="utf-8", newline="") as lines:
        for line in csv.DictReader(lines):
            if line["validation"] and not line["gain"]:
                one = int(line["rounds"]), float(line["validation"]), float(line["step"])
                found[line["candidate"]] = max(one, found.get(line["candidate"], one))
    return {name: step for name, (_, _, step) in found.items()}


LEAST_SPREAD = 1e-6  # of confidences, where shadow models agree


def confidences(losses: ArrayLike) -> Floats:
    """The log odds of the right answer, log(p / (1 - p)) with p = exp(-loss), which is close to normal over models.

    Examples:
        >>> confidences([np.log(2)]).round(9).tolist()
        [0.0]
    """
    loss = np.maximum(np.asarray(losses, dtype=np.float64), 1e-12)
    return np.asarray(-loss - np.log(-np.expm1(-loss)))


def likelihood_ratio(target: Floats, shadows: Floats, trained: Bools) -> Floats:
    """The log of the likelihood ratio of "the model was trained on this row" for each row.

    Rows that all shadow models have, or none, take the other side's mean, shifted by the mean gap between the sides.

    Args:
        target: (n,), the model's confidence in each row.
        shadows: (S, n), those of the shadow models.
        trained: (S, n), whether a shadow model was trained on the row.
    """
    means, spreads = [], []
    counts = [trained.sum(axis=0), (~trained).sum(axis=0)]
    for chosen, count in zip((trained, ~trained), counts, strict=True):
        mean = np.where(chosen, shadows, 0.0).sum(axis=0) / np.maximum(count, 1)
        left = float(np.where(chosen, (shadows - mean) ** 2, 0.0).sum())
        freedom = int(np.maximum(count - 1, 0).sum())
        means.append(np.where(count > 0, mean, np.nan))
        spreads.append(max(np.sqrt(left / max(freedom, 1)), LEAST_SPREAD))
    gap = means[0] - means[1]
    usual = float(np.nanmean(gap)) if np.isfinite(gap).any() else 0.0
    inside = np.where(counts[0] > 0, means[0], means[1] + usual)
    outside = np.where(counts[1] > 0, means[1], means[0] - usual)
    ratio = _log_density(target, inside, spreads[0]) - _log_density(target, outside, spreads[1])
    return np.asarray(ratio)


def _log_density(x: Floats, mean: Floats, spread: float) -> Floats:
    return np.asarray(-((x - mean) ** 2) / (2 * spread**2) - np.log(spread))


def attack_auroc(statistic: Floats, members: Bools, units: ArrayLike | None = None) -> Interval:
    """How often a member has a larger statistic than another row, with its 95 % interval; 0.5 is chance.

    Args:
        statistic: (n,), of the attack, larger for rows that it takes for members.
        members: (n,), whether the model was trained on the row.
        units: (n,), the patient of each row, who counts once; None: each row is its own.
    """
    area = rank(statistic, members.astype(np.int64), [0, len(members)], ("all",), units=units).pooled.auroc
    assert area is not None
    return area


def private_bound(epsilon: float, delta: float) -> float:
    """The largest AUROC that any attack on single rows can have under (epsilon, delta) differential privacy.

    The area below `min(delta + exp(epsilon) x, 1 - exp(-epsilon) (1 - delta - x), 1)` (Kairouz et al., 2015).

    Examples:
        >>> round(private_bound(1.0, 0.0), 4), private_bound(0.0, 0.0)
        (0.7311, 0.5)
    """
    if epsilon > 500:
        return 1.0
    corner = (1 - delta) / (1 + np.exp(epsilon))  # of the curve, at (corner, 1 - corner)
    first = corner * (delta + 1 - corner) / 2
    second = (1 - delta - corner) * (2 - corner) / 2
    return float(min(1.0, first + second + delta))
