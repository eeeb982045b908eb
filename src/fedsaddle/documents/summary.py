"""summary.json: the results of a run, or of a search on a table, as pydantic models that load without torch.

A document is built by whoever writes it, validated when it is read, and passed on as an object in between. Keys that
are not set are not written. `VERSION` grows when a key changes its meaning or is removed.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from fedsaddle.errors import BadInput, FedSaddleError
from fedsaddle.files import read_object
from fedsaddle.text import visible

VERSION: Literal[1] = 1
KEY = "schema_version"
STATISTICS = ("global", "mean", "worst", "best", "std", "bottom10")
PartName: TypeAlias = Literal["test", "validation", "train"]
PARTS: tuple[PartName, ...] = ("test", "validation", "train")  # in order of precedence
Settings: TypeAlias = dict[str, JsonValue]  # nested settings, such as a config


class OtherVersion(FedSaddleError):
    """A document that another version of fedsaddle wrote.

    Args:
        path: The file.
    """

    exit_code = 2

    def __init__(self, path: Path) -> None:
        super().__init__(f"{visible(path)}: another version of fedsaddle wrote it; use that version")


def problem_of(error: ValidationError) -> str:
    """What is wrong with a document, in one line: the first invalid key and the reason.

    Args:
        error: Pydantic's error.
    """
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{where}: {first['msg'][:1].lower()}{first['msg'][1:]}" if where else str(first["msg"])


def _complete(found: dict[str, float]) -> dict[str, float]:
    if missing := [name for name in STATISTICS if name not in found]:
        raise ValueError(f"{missing[0]} is missing")
    return found


Spread = Annotated[dict[str, float], AfterValidator(_complete)]  # statistics over clients, by their names
Measures: TypeAlias = dict[str, Spread]  # by measure
Ends: TypeAlias = tuple[float, float]


class DocumentPart(BaseModel):
    """An object in a document."""

    model_config = ConfigDict(
        extra="forbid", validate_by_name=True, validate_by_alias=True, use_attribute_docstrings=True,
        ser_json_inf_nan="constants",
    )  # fmt: skip

    def to_dict(self) -> Settings:
        """Plain JSON, without keys that are not set."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)


class Evaluated:
    """What an evaluation and a summary share: measures of the clients on test, validation or training rows."""

    if TYPE_CHECKING:  # fields of the models
        validation: Measures | None
        test: Measures | None
        train: Measures | None

    def measures(self, part: PartName) -> Measures | None:
        """Statistics over the clients; None if that part was not evaluated.

        Args:
            part: "test", "validation" or "train".
        """
        return {"test": self.test, "validation": self.validation, "train": self.train}[part]

    @property
    def main_part(self) -> PartName:
        """The part that counts: test rows, else validation rows, else training rows."""
        return next((part for part in PARTS if self.measures(part) is not None), "train")

    @property
    def main_measures(self) -> Measures:
        """Statistics on the main part; empty without an evaluation."""
        return self.measures(self.main_part) or {}


class PooledEvaluated(Evaluated):
    """The same with measures of the pooled rows of all clients."""

    if TYPE_CHECKING:
        pooled: dict[str, float] | None
        pooled_validation: dict[str, float] | None

    @property
    def main_pooled(self) -> dict[str, float]:
        """Pooled measures of the test rows where they were measured, else of the validation rows."""
        return (self.pooled_validation if self.pooled is None else self.pooled) or {}


class StoredFigure(DocumentPart):
    """A figure and its 95 % interval, where it has one."""

    value: float
    interval: Ends | None = None


class Figures(DocumentPart):
    """How well scores rank rows."""

    auroc: StoredFigure | None = None
    average_precision: StoredFigure | None = None
    partial_auroc: StoredFigure | None = None
    within_site_auroc: StoredFigure | None = None


class RankedClient(Figures):
    """The same of one client, or of all together."""

    name: str
    positives: int
    negatives: int
    few: bool


class ModelFigures(Figures):
    """The figures of a model that a search compares."""

    accuracy: StoredFigure | None = None
    worst_site_loss: StoredFigure | None = None
    worst_group_loss: StoredFigure | None = None
    """Its interval allows for having picked the group."""


class GroupLoss(DocumentPart):
    """The mean log loss of a group's test rows."""

    rows: int
    choice: float
    fedavg: float = Field(alias="FedAvg")


class GroupLosses(DocumentPart):
    """How the groups of rows are served, those with ten test rows or more."""

    columns: list[str]
    losses: dict[str, GroupLoss]
    worst_by_choice: str
    worst_by_fedavg: str
    mixture: dict[str, float] | None = None
    """The weight of each group at the end of training, where the choice was trained for groups."""


class SearchFigures(DocumentPart):
    """The figures of a search on the test rows."""

    choice: ModelFigures
    fedavg: ModelFigures = Field(alias="FedAvg")
    difference: Figures
    """The choice minus FedAvg."""


class RankedModels(DocumentPart):
    """Figures by the name of each ranked model, here as further keys."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Figures] = Field(init=False)

    single_class_clients: int
    few_clients: int
    difference: Figures | None = None

    @property
    def models(self) -> dict[str, Figures]:
        """By name."""
        return dict(self.__pydantic_extra__)


class LeftOutSites(RankedClient):
    """A model on all rows, each scored without its site."""

    clients: list[RankedClient] = []


class LeaveOneOutFigures(DocumentPart):
    """What `--leave-one-site-out` found, by the name of each model, here as further keys."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, LeftOutSites] = Field(init=False)

    difference: Figures | None = None

    @property
    def models(self) -> dict[str, LeftOutSites]:
        """By name."""
        return dict(self.__pydantic_extra__)

    @model_serializer(mode="wrap")
    def _models_first(self, handler: SerializerFunctionWrapHandler) -> Settings:
        """The choice, FedAvg, and their difference last, as among the figures of the test rows."""
        plain: Settings = handler(self)
        return dict(sorted(plain.items(), key=lambda item: item[0] == "difference"))


class LedgerTotals(DocumentPart):
    """What was exchanged."""

    exchanges: int
    bytes_down: int
    bytes_up: int
    asked: int
    answered: int
    samples: int
    fields: dict[str, str]
    """By field of a reply, such as `LocalModel.final`: `averaged`, `pooled` or `per client`."""


class SiteAnswers(DocumentPart):
    """A site of a deployed run."""

    answered: int
    left_out: dict[str, int]
    """How often, by reason."""
    bytes_down: int = 0
    bytes_up: int = 0


class ClientFigures(DocumentPart):
    """Figures of each client."""

    rows: list[int]
    measures: dict[str, list[float | None]]

    @model_validator(mode="after")
    def _same_clients(self) -> Self:
        if any(len(values) != len(self.rows) for values in self.measures.values()):
            raise ValueError("the measures are of another number of clients than the rows")
        return self


class ClientDeciles(DocumentPart):
    """Figures of many clients: the smallest, those that a tenth, two tenths ... do not exceed, and the largest."""

    rows: int
    clients: int
    deciles: dict[str, Annotated[list[float], Field(min_length=11, max_length=11)]]


class BadEnd(DocumentPart):
    """What to know before the model is used."""

    kind: Literal["exploded", "worse", "constant", "still", "caution"]  # a caution is the algorithm's own
    text: str
    """With the remedy."""


class ClassCount(DocumentPart):
    """Of a class."""

    rows: int = Field(ge=1)
    correct: int


class Classes(DocumentPart):
    """Right answers by class."""

    part: PartName
    counts: dict[str, ClassCount]


class Probabilities(DocumentPart):
    """From scores to probabilities, and how good these are."""

    slope: float
    intercept: float
    brier_score: float | None = None
    log_loss: float | None = None


class ThresholdFigures(DocumentPart):
    """Figures of calling rows positive; null where there is nothing to count."""

    sensitivity: float | None = None
    specificity: float | None = None
    positive_predictive_value: float | None = None
    negative_predictive_value: float | None = None
    f1: float | None = None
    alarms_per_100: float | None = None


class ChosenThreshold(DocumentPart):
    """From which probability on rows are called positive, and why."""

    probability: float = Field(ge=0, le=1)
    reason: str
    test: ThresholdFigures | None = None


class RowCounts(DocumentPart):
    """Of a part of the data."""

    rows: int
    positives: int


class MissingShare(DocumentPart):
    """Of a column: the share of missing cells, and of those sites that have any."""

    share: float
    sites: dict[str, float]


class Alarms(DocumentPart):
    """At a threshold."""

    score: float
    true: int
    false: int


class ScoredSite(DocumentPart):
    """A site's own figures."""

    positives: int | None
    """Null where the number is small."""
    negatives: int | None
    auroc_bounds: Ends | None = None
    """Where the site does not say its AUROC."""
    auroc: StoredFigure | None = None
    alarms: list[Alarms] | None = None
    """At the agreed thresholds at which no count is small."""


class ScoredGroup(DocumentPart):
    """Figures of an agreed group; nothing but its name if a count is small."""

    group: str
    positives: int | None = None
    negatives: int | None = None
    auroc: StoredFigure | None = None
    sensitivity: StoredFigure | None = None
    specificity: StoredFigure | None = None
    positive_predictive_value: StoredFigure | None = None
    alarms: StoredFigure | None = None


class PooledScores(DocumentPart):
    """Over all sites."""

    auroc_bounds: Ends | None = None
    average_precision_bounds: Ends | None = None
    partial_auroc_bounds: Ends | None = None
    auroc: StoredFigure | None = None
    average_precision: StoredFigure | None = None
    partial_auroc: StoredFigure | None = None


class ScoreBounds(DocumentPart):
    """What is known at a threshold: bounds, which are equal where counts are exact, and 95 % intervals."""

    score: float
    sensitivity: Ends | None = None
    specificity: Ends | None = None
    positive_predictive_value: Ends | None = None
    negative_predictive_value: Ends | None = None
    alarms: Ends | None = None
    """Of all rows."""
    sensitivity_interval: Ends | None = None
    specificity_interval: Ends | None = None
    positive_predictive_value_interval: Ends | None = None
    negative_predictive_value_interval: Ends | None = None
    alarms_interval: Ends | None = None
    net_benefit: StoredFigure | None = None
    """As a share of all rows; false alarms weigh the odds of the threshold."""
    net_benefit_of_all: float | None = None
    """Of calling everybody positive."""


class ScoreCounts(DocumentPart):
    """Score counts of the sites of a deployed run."""

    part: PartName
    without_counts: list[str] = []
    edges: Literal["sigmoid"] | None = None
    shift: float = 0.0
    """What was subtracted from scores before they were counted."""
    bins: int = Field(default=1000, ge=2)
    widest: float = 0.0
    sides: tuple[int, int] = (0, 0)
    pooled: PooledScores = PooledScores()
    sites: dict[str, ScoredSite] = {}
    summed: bool = False
    """Whether counts were summed by secure aggregation, and then small ones merged."""
    least: int = 1
    """The smallest count that is shown, except 0."""
    ends: list[int] | None = None
    """Where each group of bins ends, if counts are of groups."""
    positives: list[int] | None = None
    negatives: list[int] | None = None
    mean_scores: list[float] | None = None
    """Of each group, on the scale of the bins."""
    within_site_auroc: StoredFigure | None = None
    thresholds: list[ScoreBounds] | None = None
    patients: bool = False
    """Whether intervals are those of patients, with several rows each."""
    groups: dict[str, list[ScoredGroup]] | None = None
    """By column, the agreed groups."""

    @model_validator(mode="after")
    def _counts_agree(self) -> Self:
        up, down = self.positives, self.negatives
        if (up is None) != (down is None):
            raise ValueError("positives and negatives belong together")
        if up is None or down is None:
            return self
        if len(up) != len(down) or (sum(up), sum(down)) != self.sides:
            raise ValueError("the counts do not add up to the sides")
        ends = [0, *(range(1, self.bins + 1) if self.ends is None else self.ends)]
        if any(a >= b for a, b in itertools.pairwise(ends)) or ends[-1] != self.bins:
            raise ValueError("groups of bins end in ascending order, the last one at the end")
        if len(up) != len(ends) - 1 or min(*up, *down) < 0:
            raise ValueError("give one count of 0 or more for each bin")
        if self.mean_scores is not None and len(self.mean_scores) != len(up):
            raise ValueError("give one mean score for each group of bins")
        if all(self.sides) and self.pooled.auroc_bounds is None and not self.summed:
            raise ValueError("pooled.auroc_bounds is missing")
        return self


class Budget(DocumentPart):
    """Differential privacy: what was spent of what."""

    model_config = ConfigDict(extra="allow")

    epsilon: float
    delta: float
    epsilon_spent: float | None = None
    unit: str = ""


class VisibleFields(DocumentPart):
    """Which fields the server saw as sums over sites only, and which of single sites."""

    sums: list[str]
    single: list[str]


class Engine(DocumentPart):
    """The engine, with the settings that affect rounding."""

    model_config = ConfigDict(extra="allow")

    name: str


class Summary(DocumentPart, Evaluated):
    """What the summaries of runs and of searches share."""

    model_config = ConfigDict(extra="allow")  # `extend` of `fs.run` adds keys

    schema_version: Literal[1] = VERSION
    algorithm: str
    problem: str = ""
    stopped: Literal["finished", "target", "patience", "interrupted"]
    rounds: int
    target: str | None = None
    target_round: int | None = None
    selected_round: int | None = None
    """The round whose model is kept; by default the last."""
    validation: Measures | None = None
    test: Measures | None = None
    train: Measures | None = None
    clients: dict[PartName, ClientFigures | ClientDeciles] = {}
    classes: Classes | None = None
    roc: RankedModels | None = None
    probabilities: Probabilities | None = None
    threshold: ChosenThreshold | None = None
    warnings: list[BadEnd] = []
    cautions: list[str] = []
    privacy: Budget | None = None
    seconds: float
    ledger: LedgerTotals
    engine: Engine
    fingerprint: str

    @property
    def exploded(self) -> bool:
        """Whether the run diverged though it stayed finite."""
        return any(warning.kind == "exploded" for warning in self.warnings)

    def to_dict(self) -> Settings:
        """As in summary.json."""
        return {KEY: VERSION, **super().to_dict()}


class RunSummary(Summary, PooledEvaluated):
    """The summary of one run, simulated or at real sites."""

    select: str | None = None
    selected: float | None = None
    local_layers: list[str] | None = None
    pooled: dict[str, float] | None = None
    pooled_validation: dict[str, float] | None = None
    not_reached: list[str] | None = None
    """Measures whose maximisation did not converge."""
    tuned: bool | None = None
    """False where hyper-parameters were taken from the config, beside methods that were tuned."""
    sites: dict[str, SiteAnswers] | None = None
    """Of a deployed run."""
    scores: ScoreCounts | None = None
    missing: dict[str, MissingShare] = {}
    secure_aggregation: VisibleFields | None = None


class Coefficient(DocumentPart):
    """An effect of a column, in a unit that a person knows."""

    name: str
    estimate: float
    """Of a ratio its logarithm."""
    standard_error: float
    interval: Ends
    p_value: float


class SiteInfluence(DocumentPart):
    """What leaving out a site changes most, in standard errors."""

    site: str
    rows: int
    coefficient: str
    estimate: float
    """Without the site."""
    change: float
    """In standard errors."""


class Coefficients(DocumentPart):
    """The coefficients of the default of a study, a regression that is exact, with intervals."""

    of: str
    """The candidate."""
    measure: Literal["odds ratio", "rate ratio", "hazard ratio", "difference"]
    """What the estimates are the logarithms of; a difference is none."""
    against: str | None = None
    """Of several classes, the one that each other is compared with."""
    rows: int
    patients: int | None = None
    """Clusters of the standard errors; without them each row counts on its own."""
    penalty: float
    """On half the sum of squared coefficients, beside the sum of the losses of all rows."""
    listed: list[Coefficient]
    sites: list[SiteInfluence] = []

    @model_validator(mode="after")
    def _of_columns(self) -> Self:
        names = {one.name for one in self.listed}
        if any(site.coefficient not in names for site in self.sites):
            raise ValueError("a site changes a coefficient that is not listed")
        return self


class SearchSummary(Summary):
    """The summary of a search on a table."""

    choice: str
    aim: str
    reason: str
    step: float
    pooled: SearchFigures
    probabilities: Probabilities
    threshold: ChosenThreshold
    rows: dict[PartName, RowCounts]
    positive: str
    """The label of the positive class."""
    missing: dict[str, MissingShare] = {}
    """By column."""
    notes: list[str] = []
    trials: int
    cut: list[str] = []
    """Candidates that were not tried to the end."""
    budget: float | None = None
    leave_one_site_out: LeaveOneOutFigures | None = None
    sites: dict[str, SiteAnswers] | None = None
    """Of a study at real sites, in all of its trials."""
    scores: ScoreCounts | None = None
    """Of the choice on the test rows of real sites."""
    alone: dict[str, StoredFigure] | None = None
    """AUROC on a site's own test rows of a model that it trained on its own rows alone."""
    coefficients: Coefficients | None = None
    groups: GroupLosses | None = None


class SiteOutcome(DocumentPart):
    """Figures of a site, or of a group of rows."""

    name: str
    rows: int
    events: int | None = None
    """Of times to an event."""
    figures: dict[str, StoredFigure]


class PredictedBin(DocumentPart):
    """Rows with similar predictions, and what came."""

    rows: int
    predicted: float
    observed: float
    interval: Ends | None = None


class StoredCurve(DocumentPart):
    """A Kaplan-Meier curve; it ends where fewer rows are at risk than may be shown."""

    name: str
    kind: Literal["site", "risk group"]
    rows: int
    events: int
    time: list[float]
    survival: list[float]
    low: list[float]
    high: list[float]


class OutcomeSummary(Summary):
    """Of a study of several classes, a number, a count or a time to an event."""

    outcome: Literal["classes", "number", "count", "survival"]
    choice: str
    aim: str
    reason: str
    step: float
    label: str
    event: str | None = None
    class_names: list[str] = []
    horizon: float | None = None
    """At which survival is judged."""
    baseline: dict[str, list[float]] | None = None
    """The hazard of an average row: `times` at which intervals begin, and `rates` of each."""
    figures: dict[str, dict[str, StoredFigure]]
    """On the test rows, of `choice`, `FedAvg` and `difference`."""
    site_figures: list[SiteOutcome]
    groups: dict[str, list[SiteOutcome]] = {}
    """By column."""
    calibration: list[PredictedBin] = []
    curves: list[StoredCurve] = []
    hidden: list[str] = []
    """Sites, risk groups and groups with too few rows or events to be shown."""
    rows: dict[PartName, int]
    missing: dict[str, MissingShare] = {}
    notes: list[str] = []
    trials: int
    cut: list[str] = []
    budget: float | None = None
    coefficients: Coefficients | None = None


class DivergedSummary(DocumentPart):
    """The summary of a run that ended because no loss was finite."""

    schema_version: Literal[1] = VERSION
    algorithm: str
    stopped: Literal["diverged"]
    round: int | None
    client: int | None

    def to_dict(self) -> Settings:
        """As in summary.json."""
        return {KEY: VERSION, **super().to_dict()}


AnySummary: TypeAlias = RunSummary | SearchSummary | OutcomeSummary | DivergedSummary


def extended(summary: RunSummary, more: Mapping[str, object]) -> RunSummary:
    """The summary of a run with more keys.

    Args:
        summary: Of the run.
        more: Further keys, such as those that a callback returns from `on_result`.

    Raises:
        BadInput: if a key of every summary has another type in `more`.
    """
    if not more:
        return summary
    try:
        return RunSummary.model_validate({**summary.model_dump(by_alias=True, exclude_unset=True), **more})
    except ValidationError as error:
        raise BadInput("extend", type(more).__name__, f"does not fit the summary: {problem_of(error)}") from None


def read_summary(path: Path) -> AnySummary:
    """Read a summary.

    Args:
        path: The file.

    Raises:
        OtherVersion: if another version wrote it.
        ValueError: if it is damaged; says why.
    """
    content = read_object(path)
    if content.get(KEY) != VERSION:
        raise OtherVersion(path)
    kind: type[AnySummary] = RunSummary
    if content.get("stopped") == "diverged":
        kind = DivergedSummary
    elif "outcome" in content:
        kind = OutcomeSummary
    elif "choice" in content:
        kind = SearchSummary
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        raise ValueError(problem_of(error)) from None
