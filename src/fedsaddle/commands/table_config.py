"""Your own table with a site column and a binary label: the options of the command line, the rows, and a config."""

from __future__ import annotations

import csv
import inspect
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedsaddle.arguments import renamed
from fedsaddle.config.entry import Entry
from fedsaddle.config.lookup import entry
from fedsaddle.config.registry import ALGORITHMS
from fedsaddle.config.toml_files import toml_string
from fedsaddle.data.federated import FederatedData, federate
from fedsaddle.data.files.column_names import listed as listed_names
from fedsaddle.data.files.column_roles import with_positive
from fedsaddle.data.files.pictures import pictures
from fedsaddle.data.files.read_table import column_names
from fedsaddle.data.files.tables import from_file
from fedsaddle.data.splits import Natural
from fedsaddle.data.table import Dataset
from fedsaddle.errors import BadInput, NotGiven
from fedsaddle.shown import visible

TABLES = (".csv", ".tsv", ".txt", ".parquet", ".pq", ".xlsx")
TEST_SHARE, VALIDATION_SHARE = 0.2, 0.16
HINGES = 3
MOST_VALUES = 30_000_000  # numbers of all rows, with hinges
POSITIVE = {"1", "1.0", "true", "yes", "y", "positive", "pos", "died", "dead", "case"}  # of two values

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

PROBLEMS = {
    "minimisation": (
        'name = "supervised"\nloss = "logistic"\nl2 = {l2:.3g}\nl2_biases = false\n'
        "from_base_rate = true            # starts from the log odds of the positives"
    ),
    "minimax": 'name = "auc"\nsigmoid = true                   # of the scores, so that any step is safe',
    "pairwise": 'name = "pairwise"\nrisk = "auc"\nloss = "logistic"',
}
STEPS = {  # of the algorithms whose steps may not follow a cosine
    "CODA": '{{ name = "geometric", first = {step}, factor = 0.3 }}\nstage_rounds = 30  # then the step falls',
    "constant": "{step}",
}
STEPS |= dict.fromkeys(("CODA+", "CODASCA", "NPA"), STEPS["CODA"])


@dataclass(frozen=True)
class TableConfig:
    """A table, the roles of its columns and what to do with it."""

    table: Path
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

    @classmethod
    def from_options(cls, table: Path | None, site: str | None, label: str | None, **others: Any) -> TableConfig | None:
        """Build it from the options of the command line; None without a table."""
        if table is None:
            for key, value in {"site": site, "label": label, **others}.items():
                if value:
                    name = "--groups" if key == "groups" else f"--{key.replace('_', '-').removesuffix('s')}"
                    raise BadInput(
                        name, value, "needs your own table, such as patients.csv; leave it out, or name a table"
                    )
            return None
        if site is None or label is None:
            columns = f"name a column of {visible(table.name)}, one of {listed_names(column_names(table))}"
            raise NotGiven("--site" if site is None else "--label", columns)
        others["groups"] = listed(others.get("groups") or ())
        given: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in others.items() if v is not None}
        found = cls(table, site, label, **given)
        found.refuse_two_roles()
        if found.algorithm is not None:
            entry(ALGORITHMS, "--algorithm", found.algorithm)
        return found

    def refuse_two_roles(self) -> None:
        """Refuse a column that is named twice."""
        roles = {"label": self.label, "site": self.site, "patient": self.patient, "image": self.image}
        seen: dict[str, str] = {}
        for role, column in roles.items():
            if column is not None and column in seen:
                remedy = f"is --{seen[column]} too; a column has one role, name another"
                raise BadInput(f"--{role}", column, remedy)
            if column is not None:
                seen[column] = role

    def dataset(self) -> Dataset:
        """Read the rows, with the positive label as class 1, and refuse what cannot be learnt from."""
        roles = {"target": self.label, "client": self.site, "together": self.patient}
        options = {"target": "--label", "client": "--site", "together": "--patient", "file": "--image"}
        with renamed(options | {"groups": "--groups"}):
            if self.image is not None:
                self._refuse_columns()
                data = pictures(self.table, file=self.image, groups=self.groups, **roles)  # type: ignore[arg-type]
            else:
                data = from_file(
                    self.table,
                    **roles,  # type: ignore[arg-type]
                    task="classes",
                    numeric=self.numeric,
                    categorical=self.categorical,
                    drop=self.drop,
                    site_intercept=True,
                    groups=self.groups,
                )
        positive = self._positive(data)
        return replace(data, train=with_positive(data.train, positive, self.label))

    def federated(self, dataset: Dataset, hinges: bool = True) -> FederatedData:
        """Split the rows by site, class and patient; with test sites, the test rows are theirs."""
        pending: Any = dataset.pending
        if hinges and self.image is None and _values(dataset) <= MOST_VALUES:
            dataset = replace(dataset, pending=pending.treated(hinges=HINGES))
        shares = (0.0, VALIDATION_SHARE / (1 - TEST_SHARE)) if self.test_sites else (TEST_SHARE, VALIDATION_SHARE)
        with renamed({"test_clients": "--test-site"}):
            return federate(
                dataset, Natural(self.site), self.seed, shares[0], True, shares[1], test_clients=self.test_sites
            )

    def to_toml(self, data: Dataset | None = None) -> str:
        """A config with one algorithm, by default FedAvgM; reads the table now, unless given its rows."""
        data = self.dataset() if data is None else data
        name = self.algorithm or "FedAvgM"
        known = entry(ALGORITHMS, "--algorithm", name)
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
        step = 0.3 if self.image is None and kind == "minimisation" else 0.1
        rounds = 100 if self.image is None else 40
        cosine = f'{{ name = "cosine", first = {step}, rounds = {rounds} }}'
        constant = STEPS["constant"] if name in ("DRFA", "DRFA-Prox", "DRFA-GA", "AFL", "q-FedAvg") else None
        form = STEPS.get(name, constant)
        algorithm = [f"name = {toml_string(name)}", "batch_size = 64"]
        if not name.startswith(("AFL", "NPA")):
            algorithm.insert(1, "local_steps = 8                  # between two exchanges")
        if kind != "minimax" or form is not None:
            algorithm.append(f"primal_step = {cosine if form is None else form.format(step=step)}")
        if name in ("CODA", "CODA+", "CODASCA", "NPA"):
            algorithm.append('weighting = "size"               # sites count by their rows, as in the pooled AUROC')
        if known.own:
            algorithm = _own_algorithm(known, name, step)
        return TEMPLATE.format(
            data="\n".join(lines),
            test_share=0.0 if self.test_sites else TEST_SHARE,
            validation_share=round(VALIDATION_SHARE / (1 - TEST_SHARE), 3) if self.test_sites else VALIDATION_SHARE,
            treatment=""
            if self.image
            else "site_intercept = true            # a linear model has an intercept for each site\n",
            site=toml_string(self.site),
            model='name = "logistic"                # or "mlp" with hidden = [32]'
            if self.image is None
            else 'name = "small-cnn"               # or "cnn", "logistic", "mlp", "vgg11", "resnet18"',
            problem=PROBLEMS[kind].format(l2=1 / rows),
            algorithm="\n".join(algorithm),
            rounds=rounds,
            seed=self.seed,
        )

    def _refuse_columns(self) -> None:
        for key in ("numeric", "categorical", "drop"):
            if getattr(self, key):
                raise BadInput(f"--{key}", getattr(self, key), "is for tables without pictures; leave it out")

    def _positive(self, data: Dataset) -> str:
        """The positive label: the one that is named, 1 or yes of two, or else the rarer one."""
        classes, counts = data.train.classes, np.bincount(data.train.y, minlength=len(data.train.classes))
        some = ", ".join(repr(visible(c)) for c in classes[:6]) + (", ..." if len(classes) > 6 else "")
        if self.positive is not None:
            if self.positive not in classes:
                raise BadInput(
                    "--positive", self.positive, f"is no value of column {visible(self.label)!r}; there are: {some}"
                )
            return self.positive
        if len(classes) > 2:
            remedy = f"has {len(classes)} values ({some}), but two are needed; name the positive one with --positive"
            raise BadInput("--label", self.label, remedy)
        named = [c for c in classes if c.strip().lower() in POSITIVE]
        return named[0] if len(named) == 1 else classes[int(np.argmin(counts))]


def listed(options: Sequence[str]) -> tuple[str, ...]:
    """The names in options such as "sex,age"; a name with a comma stands in double quotes.

    Example:
        >>> listed(["sex, age", '"weight, kg"'])
        ('sex', 'age', 'weight, kg')
    """
    names = [name.strip() for line in csv.reader(options, skipinitialspace=True) for name in line]
    return tuple(dict.fromkeys(name for name in names if name))


def is_table(path: Path) -> bool:
    """Whether a file is a table, by its name; it may be packed with gzip."""
    return Path(path.name.lower().removesuffix(".gz")).suffix in TABLES


def _values(dataset: Dataset) -> int:
    """Numbers of all rows with hinges, about."""
    pending: Any = dataset.pending
    return len(dataset.train) * (HINGES + 2) * len(pending.columns)


def _share(data: Dataset) -> str:
    share = float(np.mean(data.train.y))
    return f"{share:.1%} of the rows"


def _own_algorithm(known: Entry, name: str, step: float) -> list[str]:
    """The lines of [algorithm] for code of others: of the usual keys those that it takes."""
    takes = inspect.signature(known.load()).parameters
    usual = {"local_steps": 8, "batch_size": 64, "primal_step": step}
    return [f"name = {toml_string(name)}", *(f"{key} = {value}" for key, value in usual.items() if key in takes)]
