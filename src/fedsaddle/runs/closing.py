"""What a run adds for its reader: the split, figures by class, and report.html."""

from __future__ import annotations

import json
from collections.abc import Callable

from fedsaddle.algorithms.protocols import dual_of
from fedsaddle.atomic import write_atomically
from fedsaddle.data.describe import describe
from fedsaddle.data.federated import FederatedData
from fedsaddle.metrics.by_class import class_counts
from fedsaddle.metrics.own_models import personal_class_counts
from fedsaddle.runs.folder import Record, RunFolder
from fedsaddle.runs.provenance import write_provenance
from fedsaddle.runs.result import Result


def figures_by_class(result: Result, data: object) -> Record:
    """Rows and right answers of each class, on the test rows, else the training rows: `{"classes": ...}` or nothing.

    An interrupted run does not look at its test rows.
    """
    if not isinstance(data, FederatedData) or result.summary["stopped"] == "interrupted":
        return {}
    part, rows = ("train", data.train) if data.test is None else ("test", data.test)
    dual = dual_of(result.algorithm, result.server)
    problem, classes = result.algorithm.problem, len(data.classes)
    if result.own is None:
        found = class_counts(problem, result.model, rows, classes, dual)
    else:
        found = personal_class_counts(problem, result.client_model, rows, classes, dual)
    return {} if found is None else {"classes": {"part": part, "counts": found.to_dict(data.classes)}}


def with_classes(data: object, extend: Callable[[Result], Record] | None) -> Callable[[Result], Record]:
    """What `extend` says, and the figures by class."""

    def extended(result: Result) -> Record:
        return figures_by_class(result, data) | ({} if extend is None else extend(result))

    return extended


def write_split(folder: RunFolder, data: object) -> None:
    """Write split.json, where there is none."""
    if isinstance(data, FederatedData) and not folder.split.exists():
        write_atomically(folder.split, json.dumps(describe(data).to_dict()).encode())


def write_report(folder: RunFolder, warn: Callable[[str], None]) -> None:
    """Write with what the run was made, and report.html; one that cannot be made is a warning."""
    from fedsaddle.report.run_report import report_or_warning

    write_provenance(folder.path)
    report_or_warning(folder.path, warn)
