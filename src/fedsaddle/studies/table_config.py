"""Your own table with a site column and a binary label: its columns' roles, the rows, and a config.

Remedies name arguments in backquotes; the command line shows them as its options.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from fedsaddle.arguments import choice, number, renamed
from fedsaddle.config.registry import ALGORITHMS, Entry, entry
from fedsaddle.config.toml_files import toml_lines, toml_string
from fedsaddle.data.federated import FederatedData, federate
from fedsaddle.data.pictures import pictures
from fedsaddle.data.splits import Natural
from fedsaddle.data.table import Dataset
from fedsaddle.data.tables.columns import Task, is_number
from fedsaddle.data.tables.features import TableFeatures
from fedsaddle.data.tables.own import from_file, from_frame
from fedsaddle.data.tables.read import with_positive
from fedsaddle.data.tables.two_numbers import POSITIVE, counts_and_exposures
from fedsaddle.errors import BadInput
from fedsaddle.files import Json, JsonObject
from fedsaddle.studies.recipes import (
    BATCH_SIZE,
    LOCAL_STEPS,
    RANKING_PROBLEMS,
    TEST_SHARE,
    TREES,
    VALIDATION_SHARE,
    default_step,
    first_step,
    problem_section,
    stages,
    taken,
)
from fedsaddle.text import visible

if TYPE_CHECKING:
    import pandas as pd

HINGES = 3
MOST_CLASSES = 20
MOST_CODES = 10  # different whole numbers that are taken as classes; more are a number
Kind = Literal["classes", "number", "count", "survival"]  # of an outcome, other than two classes
MOST_VALUES = 30_000_000  # numbers of all rows, with hinges

TEMPLATE = """\
# fedsaddle run THIS-FILE        (fedsaddle list shows all names)

[data]
{data}
test_share = {test_share:<20} # held out at each site, looked at once
validation_share = {validation_share:<14} # held out too, to choose the best round
stratify = true                  # the same shares of the positives and of the negatives
{treatment}
[split]
name = "natural"                 # one client for each value of the column
column = {site}

[model]
{model}

[problem]
{problem}

[algorithm]
{algorithm}

[run]
rounds = {rounds}
seed = {seed}
evaluate_every = 4
select = "auroc"                 # the best round on validation rows
patience = 10                    # evaluations without a better one
compare = true                   # with problem "auc": FedAvg on cross-entropy, same model, rounds and batches
"""

COMMENTS = {
    "local_steps": "between two exchanges",
    "stage_rounds": "then the step falls",
    "weighting": "sites count by their rows, as in the pooled AUROC",
    "sigmoid": "of the scores, so that any step is safe",
    "from_base_rate": "starts from the log odds of the positives",
}


@dataclass(frozen=True)
class TableConfig:
    """A table, the roles of its columns and what to do with it."""

    table: Path | pd.DataFrame
    site: str
    label: str
    positive: str | None = None
    image: str | None = None
    patient: str | None = None
    numeric: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    test_sites: tuple[str, ...] = ()
    algorithm: str | None = None
    seed: int = 0
    groups: tuple[str, ...] = ()  # columns for whose values figures are reported apart
    family: str | None = None  # "classes", "number" or "poisson"; None: by the label
    event: str | None = None  # the column that says whether there was an event at the time, the label
    exposure: str | None = None  # the column of what counts refer to, such as person-years
    horizon: float | None = None  # the time at which survival is judged

    def refuse_two_roles(self) -> None:
        """Refuse a column that is named twice."""
        roles = {"label": self.label, "site": self.site, "patient": self.patient, "image": self.image}
        roles |= {"event": self.event, "exposure": self.exposure}
        seen: dict[str, str] = {}
        for role, column in roles.items():
            if column is not None and column in seen:
                raise BadInput(role, column, f"is `{seen[column]}` too; a column has one role, name another")
            if column is not None:
                seen[column] = role

    def dataset(self) -> Dataset:
        """Read rows of two classes, with the positive label as class 1, and refuse what cannot be learnt from."""
        for key in ("family", "event", "exposure", "horizon"):
            if (value := getattr(self, key)) is not None:
                remedy = "is for a study that is run at once: without an algorithm, other values of a config, or a plan"
                raise BadInput(key, value, remedy)
        data = self._read("classes")
        positive = self._positive(data)
        return replace(data, train=with_positive(data.train, positive, self.label))

    def with_outcome(self) -> tuple[Dataset, Kind | None]:
        """Read the rows and say what their label is; None: two classes.

        Raises:
            BadInput: for labels that cannot be learnt from.
        """
        self._check_family()
        if self.event is not None:
            return self._read("regression"), "survival"
        if self.family == "poisson":
            data = self._read("regression")
            if self.exposure is None:
                y = counts_and_exposures(data.train.y.astype(np.float64), None, self.label, None)
                data = replace(data, train=replace(data.train, y=y))
            return data, "count"
        if self.family == "number":
            return self._read("regression"), "number"
        if self.positive is not None or self.image is not None:
            return self.dataset(), None
        data = self._read("classes" if self.family == "classes" else "auto")
        classes = data.train.classes
        if len(classes) == 2:
            return replace(data, train=with_positive(data.train, self._positive(data), self.label)), None
        if not classes or (self.family is None and len(classes) > MOST_CODES and all(map(is_number, classes))):
            return (self._read("regression") if classes else data), "number"
        if len(classes) > MOST_CLASSES:
            remedy = f"has {len(classes)} values, and at most {MOST_CLASSES} classes are learnt; merge some, or drop it"
            raise BadInput("label", self.label, remedy)
        return data, "classes"

    def _check_family(self) -> None:
        if self.family is not None:
            choice("family", self.family, ("classes", "number", "poisson"))
        if self.exposure is not None and self.family != "poisson":
            raise BadInput("exposure", self.exposure, "is for counts; say `family` poisson, or leave it out")
        if self.event is not None and self.family is not None:
            raise BadInput("family", self.family, "is not for a time to an event; leave it out")
        if self.horizon is not None:
            number("horizon", self.horizon, above=0)
            if self.event is None:
                raise BadInput("horizon", self.horizon, "is for a time to an event; leave it out")
        if self.positive is not None and (self.event is not None or self.family in ("number", "poisson")):
            raise BadInput("positive", self.positive, "is for two classes; leave it out")

    def _read(self, task: Task) -> Dataset:
        """The rows with their labels."""
        roles = {"target": self.label, "client": self.site, "together": self.patient}
        columns = {**self._columns(), "task": task, "event": self.event, "exposure": self.exposure}
        with renamed({"target": "label", "client": "site", "together": "patient", "file": "image"}):
            if self.image is not None:
                self._refuse_columns()
                if not isinstance(self.table, Path):
                    raise BadInput("image", self.image, "needs the path of a table, beside which the pictures are")
                return pictures(self.table, file=self.image, groups=self.groups, **roles)  # type: ignore[arg-type]
            if isinstance(self.table, Path):
                return from_file(self.table, **roles, **columns)  # type: ignore[arg-type]
            return from_frame(self.table, site=self.site, label=self.label, patient=self.patient, **columns)

    def federated(self, dataset: Dataset, hinges: bool = True) -> FederatedData:
        """Split the rows by site, class and patient; with test sites, the test rows are theirs."""
        pending = dataset.pending
        if hinges and isinstance(pending, TableFeatures) and _values(pending, len(dataset.train)) <= MOST_VALUES:
            dataset = replace(dataset, pending=pending.treated(hinges=HINGES))
        shares = (0.0, VALIDATION_SHARE / (1 - TEST_SHARE)) if self.test_sites else (TEST_SHARE, VALIDATION_SHARE)
        with renamed({"test_clients": "test_sites"}):
            return federate(
                dataset,
                Natural(self.site),
                self.seed,
                shares[0],
                bool(dataset.train.classes),
                shares[1],
                test_clients=self.test_sites,
            )

    def to_toml(self, data: Dataset | None = None) -> str:
        """A config with one algorithm, by default FedAvgM; reads the table now, unless given its rows."""
        data = self.dataset() if data is None else data
        name = self.algorithm or "FedAvgM"
        known = entry(ALGORITHMS, "algorithm", name)
        kind = known.kind
        rows = len(data.train)
        lines = ['name = "file"' if self.image is None else 'name = "pictures"']
        lines += [
            f"path = {toml_string(str(self.table))}",
            f"target = {toml_string(self.label)}",
            f"client = {toml_string(self.site)}",
            f"positive = {toml_string(data.train.classes[1]):<20} # {_share(data)}",
        ]
        if self.patient is not None:
            lines.append(f"together = {toml_string(self.patient):<20} # rows with the same value stay in one part")
        for key in ("numeric", "categorical", "drop", "groups"):
            if getattr(self, key):
                lines.append(f"{key} = [{', '.join(map(toml_string, getattr(self, key)))}]")
        if self.test_sites:
            lines.append(f"test_clients = [{', '.join(map(toml_string, self.test_sites))}]")
        if self.image is not None:
            lines += [f"file = {toml_string(self.image)}", "size = 28                        # pictures are resized"]
        rounds = 100 if self.image is None else 40
        first = first_step(kind) if self.image is None else 0.1
        algorithm: dict[str, Json] = {"name": name}
        if known.own:
            algorithm |= _usual_arguments(known, first)
        else:
            if "local_steps" not in known.fixed:
                algorithm["local_steps"] = LOCAL_STEPS
            algorithm["batch_size"] = BATCH_SIZE
            step = default_step(name, kind, rounds, first)
            algorithm |= ({} if step is None else {"primal_step": step}) | stages(name, rounds)
            algorithm = taken(known, algorithm)
        problem = problem_section(RANKING_PROBLEMS[kind], rows, algorithm=name)
        return TEMPLATE.format(
            data="\n".join(lines),
            test_share=0.0 if self.test_sites else TEST_SHARE,
            validation_share=round(VALIDATION_SHARE / (1 - TEST_SHARE), 3) if self.test_sites else VALIDATION_SHARE,
            treatment=""
            if self.image
            else "site_intercept = true            # a linear model has an intercept for each site\n",
            site=toml_string(self.site),
            model='name = "forest"                  # with trees = 240, depth = 4'
            if name in TREES
            else 'name = "logistic"                # or "mlp" with hidden = [32]'
            if self.image is None
            else 'name = "small-cnn"               # or "cnn", "logistic", "mlp", "vgg11", "resnet18"',
            problem="\n".join(toml_lines(_short(problem), COMMENTS)),
            algorithm="\n".join(toml_lines(algorithm, COMMENTS)),
            rounds=rounds,
            seed=self.seed,
        )

    def _columns(self) -> JsonObject:
        return {
            "task": "classes",
            "numeric": self.numeric,
            "categorical": self.categorical,
            "drop": self.drop,
            "site_intercept": True,
            "groups": self.groups,
        }

    def _refuse_columns(self) -> None:
        for key in ("numeric", "categorical", "drop"):
            if getattr(self, key):
                raise BadInput(key, getattr(self, key), "is for tables without pictures; leave it out")

    def _positive(self, data: Dataset) -> str:
        """The positive label: the one that is named, 1 or yes of two, or else the rarer one."""
        classes, counts = data.train.classes, np.bincount(data.train.y, minlength=len(data.train.classes))
        some = ", ".join(repr(visible(c)) for c in classes[:6]) + (", ..." if len(classes) > 6 else "")
        if self.positive is not None:
            if self.positive not in classes:
                raise BadInput(
                    "positive", self.positive, f"is not a value of column {visible(self.label)!r}; there are: {some}"
                )
            return self.positive
        if len(classes) > 2:
            remedy = f"has {len(classes)} values ({some}), but two are needed; name the positive one with `positive`"
            raise BadInput("label", self.label, remedy)
        named = [c for c in classes if c.strip().lower() in POSITIVE]
        return named[0] if len(named) == 1 else classes[int(np.argmin(counts))]


def _values(pending: TableFeatures, rows: int) -> int:
    """Numbers of all rows with hinges, about."""
    return rows * (HINGES + 2) * len(pending.columns)


def _share(data: Dataset) -> str:
    share = float(np.mean(data.train.y))
    return f"{share:.1%} of the rows"


def _usual_arguments(known: Entry, first: float) -> dict[str, float]:
    """The arguments of an algorithm of your own that have usual names."""
    takes = inspect.signature(known.load()).parameters
    usual = {"local_steps": LOCAL_STEPS, "batch_size": BATCH_SIZE, "primal_step": first}
    return {key: value for key, value in usual.items() if key in takes}


def _short(section: Mapping[str, Json]) -> dict[str, Json]:
    """The section, with numbers of three digits: a penalty is one over the rows."""
    return {key: float(f"{value:.3g}") if isinstance(value, float) else value for key, value in section.items()}
