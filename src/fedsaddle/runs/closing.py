"""What a run adds for its reader: warnings of a bad end, the split, figures by class, and report.html."""

from __future__ import annotations

import hashlib
import json
import platform
import shlex
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

from fedsaddle.algorithms.protocols import dual_of
from fedsaddle.data.describe import describe
from fedsaddle.data.federated import FederatedData
from fedsaddle.documents.summary import BadEnd, Summary
from fedsaddle.errors import SMALLER_STEP, Diverged
from fedsaddle.files import Record, write_atomically, write_json
from fedsaddle.metrics.evaluation import class_counts, personal_class_counts
from fedsaddle.problems.protocols import HasModel, KnowsClasses, MinimaxProblem, PairwiseProblem
from fedsaddle.runs.callbacks import Callback
from fedsaddle.runs.folder import RunFolder
from fedsaddle.runs.result import Result

PACKAGES = ("fedsaddle", "torch", "numpy", "scipy", "pandas", "scikit-learn", "safetensors", "nvflare", "flwr")


def write_provenance(folder: Path, table: Path | None = None) -> None:
    """Write provenance.json; `table` is the file whose rows were used."""
    write_json(RunFolder(folder).provenance, provenance(table))


def provenance(table: Path | None = None) -> Record:
    """Versions, machine, date, command and the table's digest."""
    found: Record = {
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": _command(),
        "versions": {"python": platform.python_version(), **_versions()},
        "machine": f"{platform.system()} {platform.machine()}",
    }
    if table is not None:
        found["table"] = {"file": table.name, "sha256": _digest(table)}
    return found


def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _command() -> str | None:
    """The command line, if this process is `fedsaddle`."""
    if Path(sys.argv[0]).stem != "fedsaddle":
        return None
    return shlex.join(["fedsaddle", *sys.argv[1:]])


def _digest(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


STILL = 1e-6  # change of every parameter in a round, and of the loss, below which the steps did nothing


class Bounds(NamedTuple):
    """How far above its start the loss of a run may end."""

    floor: float  # a start below counts as this: a min-max value may start at 0, a given model near 0
    worse: float | None  # times the start: above, a warning; None: it may rise for good reasons
    exploded: float  # times the start: above, the run has diverged


def bounds_of(problem: object) -> Bounds:
    """A min-max value rises with its dual, and that of a game may be anything; a log loss stays near chance.

    With `trimmed` the rows of the largest losses are not trained on, and theirs may rise.
    """
    if not isinstance(problem, HasModel) or problem.model is None:
        return Bounds(1.0, None, 1e6)
    if isinstance(problem, MinimaxProblem):
        return Bounds(1.0, 100.0, 1e3)
    if getattr(problem, "trimmed", 0.0):
        return Bounds(1.0, None, 1e3)
    return Bounds(0.1 if isinstance(problem, KnowsClasses) and not isinstance(problem, PairwiseProblem) else 1.0, 2, 30)


def bad_ends(
    problem: object,
    start: Mapping[str, float] | None,
    end: Mapping[str, float],
    moved: float | None,
    rounds: int,
    scores_vary: bool,
) -> list[BadEnd]:
    """What a user has to know before the model is used.

    Args:
        problem: of the run.
        start: the training loss where the run began, as statistics over clients; None if not known.
        end: that of the model that is kept.
        moved: the largest change of a parameter of the network; None if not known.
        rounds: that were run; each may move a parameter by rounding alone.
        scores_vary: whether the scores of the model differ between rows.
    """
    bounds = bounds_of(problem)
    if start is not None:
        # Both means: one may rise by a tiny client alone.
        values = {m: (abs(start[m]), end[m]) for m in ("mean", "global")}
        loss = f"the loss ended at {end['mean']:.4g}, from {start['mean']:.4g} at the start"
        if all(abs(e) > bounds.exploded * max(s, bounds.floor) for s, e in values.values()):
            return [
                BadEnd(kind="exploded", text=f"the run diverged: {loss}, and the model is of no use; {SMALLER_STEP}")
            ]
        if bounds.worse is not None and all(e > bounds.worse * max(s, bounds.floor) for s, e in values.values()):
            remedy = f"{SMALLER_STEP}; if clients may be faulty or hostile, use robust aggregation"
            return [BadEnd(kind="worse", text=f"{loss}: the model is worse than the one it began with; {remedy}")]
    has_model = isinstance(problem, HasModel) and problem.model is not None
    same_loss = start is None or 0 < abs(start["mean"]) >= abs(end["mean"] - start["mean"]) / STILL
    same_loss |= isinstance(problem, MinimaxProblem)  # whose value follows the dual as well
    if has_model and same_loss and moved is not None and moved <= min(rounds, 100) * STILL:
        by = f" by more than {moved:.1g}" if moved else ""
        remedy = "raise the step" if moved else "raise the step, or begin with a model whose gradient is not 0"
        return [BadEnd(kind="still", text=f"the steps did nothing: no parameter changed{by}; {remedy}")]
    if not scores_vary:
        text = "the model gives every row the same score, so that it tells no rows apart"
        return [BadEnd(kind="constant", text=f"{text}; try another step or another starting model")]
    return []


def exit_code(summary: Summary) -> int:
    """The exit code of a finished run: 3 if it diverged though it stayed finite, else 0."""
    return Diverged.exit_code if summary.exploded else 0


def figures_by_class(result: Result, data: object) -> Record:
    """Rows and right answers of each class, on the test rows, else the training rows: `{"classes": ...}` or nothing.

    An interrupted run is not evaluated on its test rows.
    """
    if not isinstance(data, FederatedData) or result.document.stopped == "interrupted":
        return {}
    part, rows = ("train", data.train) if data.test is None else ("test", data.test)
    dual = dual_of(result.algorithm, result.server)
    problem, classes = result.algorithm.problem, len(data.classes)
    if result.own is None:
        found = class_counts(problem, result.model, rows, classes, dual)
    else:
        found = personal_class_counts(problem, result.client_model, rows, classes, dual)
    return {} if found is None else {"classes": {"part": part, "counts": found.to_dict(data.classes)}}


class ClassFigures(Callback):
    """Adds the figures by class to the summary."""

    required = True

    def __init__(self, data: object) -> None:
        self.data = data

    def on_result(self, result: Result) -> Record:
        """The figures by class, or nothing."""
        return figures_by_class(result, self.data)


def write_split(folder: RunFolder, data: object) -> None:
    """Write split.json, where there is none."""
    if isinstance(data, FederatedData) and not folder.split.exists():
        write_atomically(folder.split, json.dumps(describe(data).to_dict()).encode())


def write_report(folder: RunFolder, warn: Callable[[str], None]) -> None:
    """Write with what the run was made, and report.html; one that cannot be made is a warning."""
    from fedsaddle.report.run_report import report_or_warning

    write_provenance(folder.path)
    report_or_warning(folder.path, warn)
