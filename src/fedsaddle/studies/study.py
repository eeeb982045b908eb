"""`fs.study`: from a table to a model that was chosen, tested and calibrated, as `fedsaddle run TABLE` does it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import ArrayLike

from fedsaddle.arguments import flag, instance, number, optional, text, whole
from fedsaddle.arguments import path as file_path
from fedsaddle.array_types import Floats
from fedsaddle.data.cautions import cautions
from fedsaddle.data.federated import FederatedData
from fedsaddle.data.table import Dataset
from fedsaddle.data.tables.features import TableFeatures
from fedsaddle.data.tables.later_rows import Encoder
from fedsaddle.data.tables.read import check_names
from fedsaddle.documents.summary import SearchSummary
from fedsaddle.errors import BadCheckpoint, BadInput, NotGiven
from fedsaddle.files import JsonObject, Record, make_folder, read_object, require_folder, write_json
from fedsaddle.metrics.calibration import Platt, Threshold
from fedsaddle.metrics.ranking import Ranking
from fedsaddle.report.predictions import CHOICE
from fedsaddle.report.run_report import report_or_warning
from fedsaddle.runs.checkpoints import digest
from fedsaddle.runs.closing import write_provenance
from fedsaddle.runs.folder import RunFolder, only_writer
from fedsaddle.studies.aims import aim_of, known_aim
from fedsaddle.studies.leave_one_out import LeaveOneSiteOut, leave_one_site_out
from fedsaddle.studies.outcome_study import FinishedOutcome, OutcomeStudy
from fedsaddle.studies.outcomes import AIMS_OF, outcome_candidates, prepared
from fedsaddle.studies.search import Choice, Clock, Search, search, trial_pool
from fedsaddle.studies.site_questions import SimulatedSites
from fedsaddle.studies.table_config import Kind, TableConfig
from fedsaddle.studies.table_study import (
    BUDGET,
    TWO_CLASSES_AIM,
    Finished,
    StudyOptions,
    missing_cells,
    require_classes,
    settings_of,
)
from fedsaddle.studies.trial import Progress, Trial
from fedsaddle.text import visible

if TYPE_CHECKING:
    import pandas as pd


class StudyWatch:
    """Follows a study; override what you want to know."""

    def begin(self, data: FederatedData, notes: Sequence[str], cautions: Sequence[str], seconds: float) -> None:
        """The rows are read and split; `seconds` were used by earlier processes."""

    def trial(self, trial: Trial, done: int, best: float | None) -> None:
        """A trial has run `done` rounds; `best` is its best validation AUROC."""

    def step(self, text: str, done: int, total: int) -> None:
        """A site is left out."""

    def warn(self, text: str) -> None:
        """The report could not be made."""

    def stop(self) -> bool:
        """Whether to end; finished trials are stored in `out`."""
        return False


@dataclass(frozen=True, eq=False)
class Study:
    """The result of a study.

    Args:
        choice: the result of the search on validation rows.
        test: figures of the test rows with intervals, of the chosen model and of FedAvg, by name.
        threshold: of the probability, chosen on validation rows.
        calibration: Platt's method, which makes probabilities of scores, fitted on validation rows.
        leave_one_out: figures of each site under models trained without it; None: not asked for.
        summary: as in summary.json.
        folder: with all files; None: it was a temporary one.
        report: report.html in the folder; None: none was made.
        encoder: encodes later rows of a table; None: for pictures and federated data.
        site: the column of sites.
    """

    choice: Choice
    test: Mapping[str, Ranking]
    threshold: Threshold
    calibration: Platt
    leave_one_out: LeaveOneSiteOut | None
    summary: SearchSummary
    folder: Path | None
    report: Path | None
    encoder: Encoder | None = None
    site: str | None = None

    def predict(self, rows: ArrayLike | pd.DataFrame | Mapping[str, object] | Sequence[Mapping[str, object]]) -> Floats:
        """The probability of the positive class for each of some rows.

        Args:
            rows: a DataFrame with the columns of the table, a dictionary or a list of them; for pictures and federated
                data sets the features as an array. At a site that was not trained on, the mean intercept counts.

        Raises:
            BadInput: for a missing column, and for cells that cannot be read.
        """
        chosen = self.choice.chosen
        if self.encoder is None:
            shape = tuple(chosen.data.train.x.shape[1:])
            x = torch.as_tensor(np.asarray(rows), dtype=chosen.data.train.x.dtype)
            if tuple(x.shape[1:]) != shape:
                raise BadInput("rows.shape", tuple(x.shape), f"must be (rows, {', '.join(map(str, shape))})")
        else:
            x = torch.from_numpy(self.encoder.encode_later(rows, self.site))
        return self.calibration.probability(chosen.rank(x))

    def __str__(self) -> str:
        auroc = self.test[self.choice.name].pooled.auroc
        figure = "no AUROC" if auroc is None else f"AUROC {auroc.value:.4f}"
        return visible(f"{self.choice.name}: {figure} on test rows; {self.choice.reason}")


def study(
    data: str | Path | pd.DataFrame | FederatedData,
    *,
    site: str | None = None,
    label: str | None = None,
    positive: str | int | bool | None = None,
    patient: str | None = None,
    image: str | None = None,
    numeric: Sequence[str] = (),
    categorical: Sequence[str] = (),
    drop: Sequence[str] = (),
    groups: Sequence[str] = (),
    test_sites: Sequence[str] = (),
    family: str | None = None,
    time: str | None = None,
    event: str | None = None,
    exposure: str | None = None,
    horizon: float | None = None,
    aim: str | None = None,
    budget: float | None = BUDGET,
    sensitivity: float | None = None,
    leave_one_site_out: bool = False,
    seed: int = 0,
    out: str | Path | None = None,
    resume: bool = False,
    workers: int | None = None,
    watch: StudyWatch | None = None,
) -> Study | OutcomeStudy:
    """Choose a model on validation rows, and evaluate it and FedAvg, tuned alike, once on test rows.

    Args:
        data: the path of a table, a DataFrame, or two-class data of `fs.federate` with validation and test rows.
        site: the column of sites.
        label: the column of labels: two classes, several (at most 20), or a number, as its values say.
        positive: the positive one; None: 1, yes or the rarer one.
        patient: a column whose rows stay in one part of the split.
        image: the column with the path of an image, relative to the table.
        numeric: columns of numbers; cells that cannot be parsed become missing.
        categorical: columns of categories.
        drop: columns to leave out.
        groups: columns for whose values figures are reported apart.
        test_sites: sites whose rows are all test rows.
        family: overrides what the label's values say: "classes", "number", or "poisson" for counts.
        time: in place of a label, the column of times to an event or to the end of observation,
        event: and the column that says whether there was an event.
        exposure: of counts, the column of what they refer to, such as person-years.
        horizon: the time at which survival is judged; None: the median time of an event.
        aim: of two classes "auroc" (default), "average-precision", "partial-auroc", "worst-site", "worst-group" or
            "accuracy"; of other outcomes "worst-site", or None for their likelihood.
        budget: seconds after which no other trial begins; None: no limit.
        sensitivity: share of the positives that the threshold has to find; None: the best F1.
        leave_one_site_out: also test each site on a model trained without it.
        seed: random seed.
        out: folder for the report, the model and all other files; None: nothing is kept, and no report is made.
        resume: go on with a study in `out` that was stopped.
        workers: processes; None: all cores.
        watch: follows the study.

    Raises:
        BadInput: for arguments and rows that are invalid, by name.
        BadCheckpoint: if a resumed study has other settings or rows.
        Interrupted: if `watch` ended the study.
    """
    options = _options(aim, budget, sensitivity, leave_one_site_out)
    listed = {"numeric": numeric, "categorical": categorical, "drop": drop, "groups": groups, "test_sites": test_sites}
    for key, names in listed.items():
        check_names(key, names)
    named = {"site": site, "label": label, "patient": patient, "image": image}
    outcome = {"family": family, "event": event, "exposure": exposure}
    for key, name in {**named, **outcome, "time": time}.items():
        optional(text, key, name)
    if (time is None) != (event is None):
        raise NotGiven("event" if event is None else "time", "a time to an event needs both columns")
    if time is not None and label is not None:
        raise BadInput("label", label, "is the time of the event here; leave it out")
    named["label"] = time or label
    whole("seed", seed, least=0)
    flag("resume", resume)
    if watch is not None:
        instance("watch", watch, StudyWatch, "must be an fs.StudyWatch")
    roles: JsonObject = {**named, "positive": None if positive is None else str(positive)}
    roles |= {key: tuple(names or ()) for key, names in listed.items()} | {**outcome, "horizon": horizon}
    table = _table(data, roles, seed)
    if leave_one_site_out and (table is None or table.test_sites):
        remedy = "needs a table" if table is None else "tests every site; leave out `test_sites`"
        raise BadInput("leave_one_site_out", True, remedy)
    given = optional(file_path, "out", out)
    if given is None and resume:
        raise BadInput("resume", True, "needs `out`, the folder of the study")
    with ExitStack() as stack:
        folder = RunFolder(Path(stack.enter_context(TemporaryDirectory())) if given is None else given)
        require_folder("out", folder.path)
        settings = settings_of(table, options)
        if given is not None:
            check_folder(folder, settings, resume)
            if folder.summary.exists():
                raise BadInput("resume", True, f"the study in {visible(given)} is finished; choose another `out`")
        return _study(data, table, options, settings, folder, given is not None, seed, workers, watch or StudyWatch())


def _options(
    aim: str | None, budget: float | None, sensitivity: float | None, leave_one_site_out: bool
) -> StudyOptions:
    if aim is not None and not any(aim in known for known in AIMS_OF.values()):
        aim_of(aim)
    if budget is not None:
        number("budget", budget, least=0)
    if sensitivity is not None:
        number("sensitivity", sensitivity, above=0, most=1)
    flag("leave_one_site_out", leave_one_site_out)
    return StudyOptions(aim, budget, sensitivity, leave_one_site_out)


def _table(data: object, roles: JsonObject, seed: int) -> TableConfig | None:
    """The table and its roles; None for a federated data set."""
    if isinstance(data, FederatedData):
        for key, value in roles.items():
            if value:
                raise BadInput(key, value, "is for a table; a federated data set has its sites and labels")
        return None
    if not isinstance(data, str | Path):
        import pandas as pd

        if not isinstance(data, pd.DataFrame):
            remedy = "must be the path of a table, a DataFrame or the result of fs.federate"
            raise BadInput("data", type(data).__name__, remedy)
    for key in ("site", "label"):
        if roles[key] is None:
            raise NotGiven(key, "name the column")
    table = TableConfig(Path(data) if isinstance(data, str) else data, seed=seed, **roles)
    table.refuse_two_roles()
    return table


def _study(
    data: object,
    table: TableConfig | None,
    options: StudyOptions,
    settings: Record,
    folder: RunFolder,
    kept: bool,
    seed: int,
    workers: int | None,
    watch: StudyWatch,
) -> Study | OutcomeStudy:
    dataset, kind = (None, None) if table is None else table.with_outcome()
    if kind is not None and table is not None and dataset is not None:
        return _outcome_study(table, dataset, kind, options, settings, folder, kept, workers, watch)
    aim = aim_of(options.aim or TWO_CLASSES_AIM).name
    rows = data if table is None or dataset is None else table.federated(dataset)
    assert isinstance(rows, FederatedData)
    require_classes(rows)
    test_rows = _test_rows(folder, rows)
    make_folder("out", folder.path)
    with only_writer(folder.path):
        notes = {"notes": [] if dataset is None else list(dataset.notes), "cautions": cautions(rows)}
        write_json(folder.search, {**settings, "test_rows": test_rows})
        trials = folder.trials
        watch.begin(rows, notes["notes"], notes["cautions"], Clock.at(trials, options.budget).seconds)
        choice = search(
            rows,
            aim,
            seed=seed,
            budget=options.budget,
            out=trials,
            workers=workers,
            tell=watch.trial,
            stop=watch.stop,
        )
        left_out = None
        if options.leave_one_site_out and table is not None and dataset is not None:
            left_out = leave_one_site_out(table, dataset, choice, watch.step, watch.stop)
        about = {"missing": missing_cells(dataset, rows), **notes}
        finished = Finished(table, options, folder, dataset, rows, choice, left_out, about)
        summary = finished.write(drawn=kept)
        report = None
        if kept:
            write_provenance(folder.path, table.table if table is not None and isinstance(table.table, Path) else None)
            report = report_or_warning(folder.path, watch.warn, finished.rankings)
    encoder = None
    if dataset is not None and table is not None and isinstance(dataset.pending, TableFeatures):
        encoder = Encoder.of(choice.chosen.data.encoding, dataset.pending, table.numeric)
    return Study(
        choice,
        finished.named(),
        finished.threshold,
        finished.platt[CHOICE],
        left_out,
        summary,
        folder.path if kept else None,
        report,
        encoder,
        None if table is None else table.site,
    )


def _outcome_study(
    table: TableConfig,
    dataset: Dataset,
    kind: Kind,
    options: StudyOptions,
    settings: Record,
    folder: RunFolder,
    kept: bool,
    workers: int | None,
    watch: StudyWatch,
) -> OutcomeStudy:
    """The same for an outcome other than two classes."""
    for key, wanted in (("sensitivity", options.sensitivity), ("leave_one_site_out", options.leave_one_site_out)):
        if wanted:
            raise BadInput(key, wanted, "is for two classes; leave it out")
    rows, outcome = prepared(table.federated(dataset), kind, table.horizon)
    aim = known_aim(outcome.aim(options.aim))
    test_rows = _test_rows(folder, rows)
    make_folder("out", folder.path)
    with only_writer(folder.path):
        about: Record = {"missing": missing_cells(dataset, rows), "notes": list(dataset.notes), "cautions": []}
        write_json(folder.path / "search.json", {**settings, "test_rows": test_rows, "for": None})
        clock = Clock.at(folder.path / "trials", options.budget)
        watch.begin(rows, about["notes"], [], clock.seconds)
        listed = outcome_candidates(rows, outcome, aim.name)

        def tell(trial: Trial, progress: Progress) -> None:
            clock.tick()
            watch.trial(trial, progress.rounds, progress.best)

        with trial_pool(rows, workers, tell, watch.stop) as pool:
            sites = SimulatedSites(rows, aim, table.seed, pool)
            try:
                choice = Search(sites, aim, table.seed, clock, clock.path.parent, watch.stop, listed).go()
            finally:
                clock.keep()
        finished = FinishedOutcome(table, options, folder, dataset, rows, outcome, choice, about)
        summary, report = finished.write(), None
        if kept:
            write_provenance(folder.path, table.table if isinstance(table.table, Path) else None)
            report = report_or_warning(folder.path, watch.warn)
    encoder = None
    if isinstance(dataset.pending, TableFeatures):
        encoder = Encoder.of(choice.chosen.data.encoding, dataset.pending, table.numeric)
    return OutcomeStudy(choice, finished.judged, summary, folder.path if kept else None, report, encoder, table.site)


def check_folder(folder: RunFolder, settings: Record, resume: bool) -> None:
    """Refuse a folder with another run, and a resumed study with other settings."""
    path = folder.search
    if not resume:
        if folder.holds_run or path.exists():
            raise BadInput("out", str(folder.path), "holds a run already; resume it, or choose another folder")
        return
    if not path.exists():
        raise BadInput("resume", True, f"there is no search in {visible(folder.path)}; leave out `resume` to start one")
    try:
        stored = read_object(path)
    except ValueError as reason:
        raise BadCheckpoint(f"{visible(path)} cannot be read ({reason}); choose another `out`") from None
    for key, value in settings.items():
        if key == "for" and stored.get(key) is None:  # an outcome whose aim the trials know
            continue
        if stored.get(key) != value and not (value == [] and key not in stored):  # of a version without it
            name = "aim" if key == "for" else key
            raise BadCheckpoint(
                f"`{name}` = {value!r}: the search in {visible(folder.path)} has {stored.get(key)!r}; "
                "resume with the same, or choose another `out`"
            )


def _test_rows(folder: RunFolder, data: FederatedData) -> Record:
    """Digests of the test rows; those of the other rows are stored with each trial.

    Raises:
        BadCheckpoint: if the search in the folder began with other test rows.
    """
    assert data.test is not None
    found = {"features": digest(data.test.x), "labels": digest(data.test.y)}
    path = folder.search
    before = read_object(path).get("test_rows", found) if path.exists() else found
    for name, value in found.items():
        if before.get(name) != value:
            raise BadCheckpoint(
                f"the search in {visible(folder.path)} began with other test rows (different: test {name}); "
                "resume with the same table, or choose another `out`"
            )
    return found
