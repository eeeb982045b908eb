"""Generate a config for your own table with a site column and a binary label: training for the AUROC."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedsaddle.data.files.cells import client_ids, targets
from fedsaddle.data.files.read_columns import read_columns, require
from fedsaddle.errors import BadInput

TABLES = (".csv", ".tsv", ".txt", ".parquet", ".pq")

TEMPLATE = """\
# fedsaddle run THIS-FILE        (fedsaddle list shows all names)
# Trains for the area under the ROC curve, which suits rare positives, and compares with FedAvg.

[data]
{data}
test_share = 0.2                 # held out at each site,
stratify = true                  # the same share of the positives and of the negatives

[split]
name = "natural"                 # one client for each value of the column
column = {site}

[model]
{model}

[problem]
name = "auc"
sigmoid = true                   # of the scores, so that any step is safe

[algorithm]
name = "CODASCA"                 # control variates, for heterogeneous sites
local_steps = 8                  # I, local steps between two exchanges
batch_size = 32
primal_step = {{ name = "geometric", first = {step}, factor = 0.5 }}
stage_rounds = 50                # rounds after which the step is halved
weighting = "size"               # sites count by their rows, as in the pooled AUC

[run]
rounds = 100
seed = 0
evaluate_every = 5
compare = true                   # FedAvg on cross-entropy, same model, rounds and batches
"""


@dataclass(frozen=True)
class TableConfig:
    """A table and the roles of its columns."""

    table: Path
    site: str
    label: str
    positive: str | None = None
    image: str | None = None
    together: str | None = None

    @classmethod
    def from_options(
        cls, table: Path | None, site: str | None, label: str | None, **others: str | None
    ) -> TableConfig | None:
        """Build it from the options of the command line; None without a table."""
        if table is None:
            for key, value in {"site": site, "label": label, **others}.items():
                if value is not None:
                    raise BadInput(
                        f"--{key}", value, "needs your own table, such as patients.csv; leave it out, or name a table"
                    )
            return None
        for key, value in (("site", site), ("label", label)):
            if value is None:
                remedy = f"name the column of {table.name}, such as --site hospital --label died"
                raise BadInput(f"--{key}", None, remedy)
        assert site is not None
        assert label is not None
        return cls(table, site, label, **others)

    def to_toml(self) -> str:
        """The config as TOML; reads the table, so that errors in it are reported now."""
        positive, about = self._positive()
        lines = [
            f"path = {toml_string(str(self.table))}",
            f"target = {toml_string(self.label)}",
            f"client = {toml_string(self.site)}",
        ]
        lines += [f"positive = {toml_string(positive):<20} # {about}"]
        if self.together is not None:
            lines += [
                f"together = {toml_string(self.together):<20} # rows with the same value stay on one side of the split"
            ]
        if self.table.suffix.lower() == ".tsv":
            lines += ['delimiter = "\\t"']
        if self.image is None:
            return TEMPLATE.format(
                data="\n".join(['name = "file"', *lines]),
                site=toml_string(self.site),
                model='name = "logistic"                # or "mlp" with hidden = [50, 50]',
                step=1.0,
            )
        lines += [
            f"file = {toml_string(self.image)}",
            "size = 28                        # pictures are resized to this side",
        ]
        return TEMPLATE.format(
            data="\n".join(['name = "pictures"', *lines]),
            site=toml_string(self.site),
            model='name = "cnn"                     # or "logistic", "mlp", "vgg11", "resnet18"',
            step=0.1,
        )

    def _positive(self) -> tuple[str, str]:
        """The positive label, by default the rarer of two, and its share of the rows."""

        def choose(there: Sequence[str]) -> Sequence[str]:
            wanted = {"site": self.site, "label": self.label, "image": self.image, "together": self.together}
            return [require(name, there, f"--{key}") for key, name in wanted.items() if name is not None]

        delimiter = "\t" if self.table.suffix.lower() == ".tsv" else ","
        columns = read_columns(self.table, choose, delimiter, self.site)
        (labels,), classes = targets([columns[self.label]], self.label, "classes")
        (sites,) = client_ids([columns[self.site]], self.site)
        if len(np.unique(sites)) < 2:
            raise BadInput("--site", self.site, "has one value only; a federation needs at least two sites")
        counts = np.bincount(labels, minlength=len(classes))
        some = ", ".join(f"'{c}'" for c in classes[:6]) + (", ..." if len(classes) > 6 else "")
        if self.positive is None and len(classes) > 2:
            remedy = f"has {len(classes)} values ({some}), but AUROC needs two; name the positive one with --positive"
            raise BadInput("--label", self.label, remedy)
        if self.positive is not None and self.positive not in classes:
            raise BadInput(
                "--positive", self.positive, f"is not a value of column '{self.label}'; choose one of {some}"
            )
        at = int(counts.argmin()) if self.positive is None else classes.index(self.positive)
        return classes[at], f"{counts[at] / counts.sum():.1%} of {counts.sum():,} rows"


def toml_string(text: str) -> str:
    """A string in TOML syntax; what cannot be printed is escaped."""
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in quoted)
