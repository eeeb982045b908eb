"""The other JSON documents of a run's folder, as the report reads them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

from pydantic import ConfigDict, Field, ValidationError, model_validator

from fedsaddle.documents.summary import (
    PARTS,
    Figures,
    JsonObject,
    Measures,
    PartName,
    RankedClient,
    StoredFigure,
    problem_of,
)
from fedsaddle.errors import MissingData
from fedsaddle.files import Record, read_object
from fedsaddle.text import visible

SHADOWS = 16  # models to compare with, by default
CHANCE = 0.5  # the AUROC of an attack that only guesses
D = TypeVar("D", bound=JsonObject)
Shares = Annotated[list[Annotated[float, Field(ge=0, le=1)]], Field(min_length=2)]


class SplitCounts(JsonObject):
    """split.json: the rows and classes of each client."""

    model_config = ConfigDict(extra="allow")

    data: str
    clients: int
    names: list[str]
    classes: list[str] = Field(default_factory=list)
    train_sizes: list[int]
    validation_sizes: list[int] | None = None
    test_sizes: list[int] | None = None
    test_clients: dict[str, int] = Field(default_factory=dict)
    label_counts: list[list[int]] | None = None

    @model_validator(mode="after")
    def _one_entry_a_client(self) -> Self:
        lists = (self.train_sizes, self.validation_sizes, self.label_counts)
        if any(own and len(own) != len(self.names) for own in lists):
            raise ValueError("sizes or label counts are of another number of clients than the names")
        if any(len(own) != len(self.classes) for own in self.label_counts or ()):
            raise ValueError("label counts are of another number of classes")
        return self

    def sizes(self, part: PartName) -> list[int]:
        """The rows of each client; empty where it has none."""
        return {"train": self.train_sizes, "validation": self.validation_sizes, "test": self.test_sizes}[part] or []


class Curve(JsonObject):
    """A ROC curve."""

    false_positive_rate: Shares
    true_positive_rate: Shares

    @model_validator(mode="after")
    def _pairs(self) -> Self:
        if len(self.false_positive_rate) != len(self.true_positive_rate):
            raise ValueError("the rates are not of the same length")
        return self


class RankedModel(JsonObject):
    """How a model ranks."""

    pooled: RankedClient
    within_site_auroc: StoredFigure | None
    single_class_clients: int
    few_clients: int
    clients: list[RankedClient]
    curve: Curve | None = None


class ClientDifference(Figures):
    """Of one client."""

    name: str


class ModelDifference(ClientDifference):
    """Of all, and of each client."""

    clients: list[ClientDifference] = Field(default_factory=list)


class Roc(JsonObject):
    """roc.json: the figures and curves of the ranking, by model."""

    part: str
    models: Annotated[dict[str, RankedModel], Field(min_length=1)]
    difference: ModelDifference | None = None


class TableFile(JsonObject):
    """The table of a run."""

    file: str
    sha256: str | None


class Provenance(JsonObject):
    """provenance.json: with what a run was made."""

    finished: str
    command: str | None
    versions: dict[str, str]
    machine: str
    table: TableFile | None = None


class SearchOptions(JsonObject):
    """search.json: the options of a search on a table."""

    model_config = ConfigDict(extra="allow")

    table: str
    label: str
    site: str | None = None
    patient: str | None = None
    test_rows: dict[str, str] = Field(default_factory=dict)

    def options(self) -> dict[str, Any]:
        """By name, without the table and the rows."""
        found = self.to_dict()
        return {key: value for key, value in found.items() if key not in ("table", "test_rows")}


class LabelCounts(JsonObject):
    """Labels of a site."""

    model_config = ConfigDict(extra="allow")

    values: list[int | float | str] = Field(default_factory=list)
    counts: list[int] = Field(default_factory=list)


class SiteLabels(JsonObject):
    """The facts that a site reported."""

    model_config = ConfigDict(extra="allow")

    target: LabelCounts


class AgreedLabels(JsonObject):
    """The shared encoding of the labels."""

    model_config = ConfigDict(extra="allow")

    values: list[int | float | str] | None = None
    classes: list[str] | None = None
    positive: Any = None


class Agreed(JsonObject):
    """agreed.json: what server and sites of a deployed run share."""

    model_config = ConfigDict(extra="allow")

    names: list[str]
    sizes: dict[str, list[int]]
    agreed: AgreedLabels
    told: list[SiteLabels] = Field(default_factory=list)
    notes: list[str] = Field(default_factory=list)

    @model_validator(mode="after")
    def _one_entry_a_site(self) -> Self:
        if any(len(own) not in (0, len(self.names)) for own in self.sizes.values()):
            raise ValueError("sizes are of another number of sites than the names")
        return self


class Round(JsonObject):
    """A line of metrics.jsonl."""

    model_config = ConfigDict(extra="allow")

    round: int
    exchanges: int
    bytes_down: int
    bytes_up: int
    samples: int
    seconds: float
    validation: Measures | None = None
    test: Measures | None = None
    train: Measures | None = None
    pooled: dict[str, float] = Field(default_factory=dict)
    pooled_validation: dict[str, float] = Field(default_factory=dict)
    not_reached: list[str] = Field(default_factory=list)
    mixture: list[float] = Field(default_factory=list)
    clients: dict[PartName, dict[str, list[float | None]]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if not any(getattr(self, part) for part in PARTS):
            raise ValueError("it has no figures")
        for measures in self.clients.values():
            if len({len(values) for values in measures.values()}) > 1:
                raise ValueError("the figures are of different numbers of clients")
        return self


class SmallestCell(JsonObject):
    """The fewest training rows behind a feature of the model."""

    feature: str
    rows: int
    """That are not 0 there."""
    rarer: int | None = None
    """Of them, those of the class with fewer: None without classes."""


class PrivacyBound(JsonObject):
    """Differential privacy of the run, and the largest AUROC that it allows an attack."""

    epsilon: float
    delta: float
    auroc: float


class ReleaseCheck(JsonObject):
    """The check of a model before it is handed on."""

    model: str
    """SHA-256 of the model.safetensors that was checked."""
    members: int = Field(ge=1)
    """Rows that the model was trained on."""
    others: int = Field(ge=1)
    """Held-out rows of the same sites."""
    shadows: int = Field(ge=2)
    """Models that were trained by the same recipe on other halves of the rows."""
    loss_threshold: StoredFigure
    """AUROC of the attack by the loss alone."""
    likelihood_ratio: StoredFigure
    """AUROC of the attack by the likelihood ratio against the shadow models."""
    smallest_cell: SmallestCell | None = None
    privacy: PrivacyBound | None = None
    checked: str
    """When, in UTC."""
    seconds: float

    @property
    def attacks(self) -> dict[str, StoredFigure]:
        """By their names in words."""
        return {"loss threshold": self.loss_threshold, "likelihood ratio": self.likelihood_ratio}

    @property
    def successful(self) -> list[str]:
        """The attacks whose interval lies above chance."""
        return [
            name for name, auroc in self.attacks.items() if auroc.interval is not None and auroc.interval[0] > CHANCE
        ]


def model_digest(model: Path) -> str:
    """The SHA-256 of a model's file.

    Raises:
        MissingData: if it cannot be read.
    """
    try:
        return hashlib.sha256(model.read_bytes()).hexdigest()
    except OSError as reason:
        raise MissingData(f"{visible(model)}: cannot be read ({reason.strerror}); there is no model to check") from None


def read_document(kind: type[D], path: Path) -> D | None:
    """The document in a file; None if there is none.

    Raises:
        ValueError: if it is damaged; says why.
    """
    if not path.exists():
        return None
    try:
        return kind.model_validate(read_object(path))
    except ValidationError as error:
        raise ValueError(problem_of(error)) from None


def complete_rounds(records: Sequence[Record]) -> tuple[list[Record], list[str]]:
    """The records that hold what a run writes, and for each other one its round and what is wrong."""
    whole: list[Record] = []
    damage = []
    for record in records:
        try:
            found = Round.model_validate(record)
            if whole and len(found.mixture) != len(whole[0].get("mixture", ())):
                raise ValueError("the weights are of another number of clients")
        except ValidationError as error:
            damage.append(f"round {record['round']} lacks figures that a run writes ({problem_of(error)})")
        except ValueError as reason:
            damage.append(f"round {record['round']} lacks figures that a run writes ({reason})")
        else:
            whole.append(record)
    return whole, damage
