"""The other JSON documents of a run's folder, as pydantic models that load without torch."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Self, TypeVar

from pydantic import ConfigDict, Field, JsonValue, ValidationError, model_validator

from fedsaddle.documents.summary import (
    PARTS,
    DocumentPart,
    Figures,
    Measures,
    PartName,
    PooledEvaluated,
    RankedClient,
    Settings,
    StoredFigure,
    problem_of,
)
from fedsaddle.errors import MissingData
from fedsaddle.files import Record, read_object, read_records
from fedsaddle.text import visible

SHADOWS = 16  # models to compare with, by default
CHANCE = 0.5  # the AUROC of an attack that only guesses
D = TypeVar("D", bound=DocumentPart)
Shares = Annotated[list[Annotated[float, Field(ge=0, le=1)]], Field(min_length=2)]


class SplitCounts(DocumentPart):
    """split.json: rows and classes of each client."""

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
        """Number of rows of each client; empty without rows in that part.

        Args:
            part: "train", "validation" or "test".
        """
        return {"train": self.train_sizes, "validation": self.validation_sizes, "test": self.test_sizes}[part] or []


class Curve(DocumentPart):
    """A ROC curve."""

    false_positive_rate: Shares
    true_positive_rate: Shares

    @model_validator(mode="after")
    def _pairs(self) -> Self:
        if len(self.false_positive_rate) != len(self.true_positive_rate):
            raise ValueError("the rates are not of the same length")
        return self


class RankedModel(DocumentPart):
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


class Roc(DocumentPart):
    """roc.json: the figures and curves of the ranking, by model."""

    part: str
    models: Annotated[dict[str, RankedModel], Field(min_length=1)]
    difference: ModelDifference | None = None


class TableFile(DocumentPart):
    """The table of a run."""

    file: str
    sha256: str | None


class Provenance(DocumentPart):
    """provenance.json: with what a run was made."""

    finished: str
    command: str | None
    versions: dict[str, str]
    machine: str
    table: TableFile | None = None


class SearchOptions(DocumentPart):
    """search.json: the options of a search on a table."""

    model_config = ConfigDict(extra="allow")

    table: str
    label: str
    site: str | None = None
    patient: str | None = None
    test_rows: dict[str, str] = Field(default_factory=dict)

    def options(self) -> Settings:
        """By name, without the table and the rows."""
        return {key: value for key, value in self.to_dict().items() if key not in ("table", "test_rows")}


class LabelCounts(DocumentPart):
    """Labels of a site."""

    model_config = ConfigDict(extra="allow")

    values: list[int | float | str] = Field(default_factory=list)
    counts: list[int] = Field(default_factory=list)

    @model_validator(mode="after")
    def _pairs(self) -> Self:
        if self.counts and len(self.counts) != len(self.values):
            raise ValueError("the counts are of another number of values")
        return self


class SiteLabels(DocumentPart):
    """The labels that a site reported."""

    model_config = ConfigDict(extra="allow")

    target: LabelCounts


class AgreedLabels(DocumentPart):
    """The shared encoding of the labels."""

    model_config = ConfigDict(extra="allow")

    values: list[int | float | str] | None = None
    classes: list[str] | None = None
    positive: JsonValue = None


class Agreed(DocumentPart):
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
        by_class = self.agreed.classes is not None and "positive" not in self.agreed.model_fields_set
        known = set(map(str, self.agreed.values or ()))
        if by_class and known and any(str(value) not in known for site in self.told for value in site.target.values):
            raise ValueError("a site has a label that is not among the values")
        return self


class Round(DocumentPart, PooledEvaluated):
    """A line of metrics.jsonl: one evaluation."""

    model_config = ConfigDict(extra="allow")

    round: int = Field(strict=True, ge=0)
    exchanges: int
    bytes_down: int
    bytes_up: int
    samples: int
    seconds: float
    validation: Measures | None = None
    test: Measures | None = None
    train: Measures | None = None
    pooled: dict[str, float] | None = None
    pooled_validation: dict[str, float] | None = None
    not_reached: list[str] = Field(default_factory=list)
    mixture: list[float] = Field(default_factory=list)
    clients: dict[PartName, dict[str, list[float | None]]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if not any(self.measures(part) for part in PARTS):
            raise ValueError("it has no figures")
        for measures in self.clients.values():
            if len({len(values) for values in measures.values()}) > 1:
                raise ValueError("the figures are of different numbers of clients")
        return self


class SmallestCell(DocumentPart):
    """The fewest training rows behind a feature of the model."""

    feature: str
    rows: int
    """That are not 0 there."""
    rarer: int | None = None
    """Of them, those of the class with fewer: None without classes."""


class PrivacyBound(DocumentPart):
    """Differential privacy of the run, and the largest AUROC that it allows an attack."""

    epsilon: float
    delta: float
    auroc: float


class ReleaseCheck(DocumentPart):
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

    Args:
        model: The file.

    Raises:
        MissingData: if it cannot be read.
    """
    try:
        return hashlib.sha256(model.read_bytes()).hexdigest()
    except OSError as reason:
        raise MissingData(f"{visible(model)}: cannot be read ({reason.strerror}); there is no model to check") from None


class StoredProgress(DocumentPart):
    """progress.json: the rounds that are done, also between evaluations."""

    model_config = ConfigDict(extra="allow")

    round: int
    rounds: int | None = None
    seconds: float | None = None
    """Of training, without evaluations."""
    began: float | None = None
    """When the process began."""
    after: int = 0
    """Rounds of earlier processes."""
    resumed: bool = False
    updated: float | None = None
    """When the file was written."""
    sites: dict[str, str] = Field(default_factory=dict)
    """Of a deployed run: which sites are up."""
    waiting: dict[str, JsonValue] = Field(default_factory=dict)
    """Sites whose replies are awaited."""


def read_document(kind: type[D], path: Path) -> D | None:
    """Read a document; None if the file does not exist.

    Args:
        kind: Its model.
        path: The file.

    Raises:
        ValueError: if it is damaged; says why.
    """
    if not path.exists():
        return None
    try:
        return kind.model_validate(read_object(path))
    except ValidationError as error:
        raise ValueError(problem_of(error)) from None


def complete_rounds(records: Sequence[Record]) -> tuple[list[Round], list[str]]:
    """Validate records; return the valid ones, and a line about each other one.

    Args:
        records: Lines of metrics.jsonl.
    """
    rounds: list[Round] = []
    damage = []
    for record in records:
        try:
            one = Round.model_validate(record)
            if rounds and len(one.mixture) != len(rounds[0].mixture):
                raise ValueError("the weights are of another number of clients")
        except ValidationError as error:
            damage.append(f"round {record['round']} lacks figures that a run writes ({problem_of(error)})")
        except ValueError as reason:
            damage.append(f"round {record['round']} lacks figures that a run writes ({reason})")
        else:
            rounds.append(one)
    return rounds, damage


def read_rounds(path: Path) -> tuple[list[Round], list[str]]:
    """Read a metrics.jsonl; return its valid records, and a line about each damaged one.

    Args:
        path: The file; one that does not exist has no records.
    """
    records, damage = read_records(path)
    rounds, others = complete_rounds(records)
    return rounds, [*damage, *others]
