"""What `--json` prints: the keys of each document, which stay as they are within one number of the schema.

These are types alone: they cost nothing at run time. The content of files is described by the models in `documents`,
which are imported only when the schema is needed. `fedsaddle schema` prints all as JSON Schema.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typing_extensions import TypedDict

from fedsaddle.files import JsonObject

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema

SCHEMA: Literal[1] = 1  # a larger number means that keys have changed their meaning or are gone


@dataclass(frozen=True)
class ModelAt:
    """Marks JSON that a pydantic model describes; the model is imported only when it is needed.

    Args:
        target: Where the model is, as "module:name".
    """

    target: str

    def load(self) -> type:
        """The model."""
        module, _, name = self.target.partition(":")
        found: type = getattr(import_module(module), name)
        return found

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return handler.generate_schema(self.load())


Summary = Annotated[JsonObject, "the content of summary.json", ModelAt("fedsaddle.documents.summary:AnySummary")]


class Document(TypedDict):
    """What every document has."""

    schema: Annotated[Literal[1], "of these documents; new keys do not change it"]
    command: Annotated[str, "such as `run` or `deploy audit`"]


class ErrorBody(TypedDict):
    """What went wrong."""

    type: Annotated[str, "class of the error, such as `BadInput`; `usage`, `interrupted` or `fault` for others"]
    message: Annotated[str, "the line on standard error"]
    exit_code: int
    key: Annotated[str | None, "of `BadInput`: the key or option"]
    value: Annotated[Any, "of `BadInput`: what was given"]
    remedy: Annotated[str | None, "of `BadInput`: what to do"]


class ErrorDocument(TypedDict):
    """In the place of any other document when a command fails; the exit code is the same as without `--json`."""

    schema: Literal[1]
    error: ErrorBody


class RunDocument(Document):
    """`run` and `deploy attach`: a run that ended; interrupted ones (exit code 130) have one too."""

    kind: Annotated[Literal["simulation", "search", "deployed"], "`search`: of a table of your own"]
    folder: Annotated[str, "where the files are"]
    report: Annotated[str | None, "report.html"]
    summary: Summary


class Leaving(TypedDict):
    """A field of a reply that leaves a site in every exchange in which it is sent."""

    field: Annotated[str, "record and field, such as `LocalModel.final`"]
    visibility: Annotated[str, "`averaged`: the server sees the mean only; `pooled`; `per client`"]


class Cost(TypedDict):
    """What a run will cost."""

    rounds: int
    exchanges: int | None
    bytes_down: Annotated[int | None, "from the server to all clients"]
    bytes_up: Annotated[int | None, "from all clients to the server"]
    bytes_down_per_client: Annotated[float | None, "mean over the clients"]
    bytes_up_per_client: Annotated[float | None, "mean over the clients"]
    samples: Annotated[int | None, "rows that clients process"]
    local_steps: Annotated[int | None, "of a client that takes part in every round"]
    exact: Annotated[bool, "whether exchanges and bytes are exact; if not, `note` says why"]
    seconds: Annotated[float | None, "of the rounds"]
    seconds_of_evaluation: float | None
    note: Annotated[str, "how it was estimated"]


class RunPlan(TypedDict):
    """One run, before it is run."""

    algorithm: str
    problem: str
    model: str
    parameters: Annotated[int | None, "numbers in the model"]
    dataset: str
    clients: int | None
    clients_per_round: Annotated[float | None, "mean number of clients in an exchange"]
    rows: Annotated[dict[str, int], "training, validation and test rows"]
    engine: str
    cost: Cost
    leaves_a_site: list[Leaving]


class PlannedTrials(TypedDict):
    """A candidate of a search."""

    candidate: str
    about: str
    trials: Annotated[int, "at most"]
    rounds: Annotated[int, "of all its trials together, at most"]
    seconds: Annotated[float | None, "of all its trials on one core"]


class DryRunDocument(Document):
    """`run --dry-run`."""

    kind: Literal["simulation", "search", "deployed"]
    folder: Annotated[str, "where the run would write"]
    plan: RunPlan
    baseline: Annotated[RunPlan | None, "FedAvg, where the run has it to compare"]
    candidates: Annotated[list[PlannedTrials], "of a search"]
    budget: Annotated[float | None, "seconds after which a search begins no other trial"]
    sites: Annotated[list[str], "of a deployed run"]


class CompareDocument(Document):
    """`compare`."""

    runs: Annotated[dict[str, Summary], "by name, in the order given"]
    measure: Annotated[str | None, "of clients, that all runs have: accuracy, or the loss where it is the same one"]
    figures: Annotated[
        dict[str, dict[str, float | None]],
        "by run: AUROC, average precision, Brier score and log loss of the rows, and statistics of the measure",
    ]
    notes: Annotated[list[str], "what to know when comparing"]
    picture: str | None
    page: str | None


class Listed(TypedDict):
    """A name that a config can use, or a figure."""

    name: str
    about: str
    source: str


class ListDocument(Document):
    """`list`."""

    names: Annotated[dict[str, list[Listed]], "by kind; one kind if one was named"]


class FolderBody(TypedDict):
    """A folder in which data sets are looked for."""

    folder: str
    datasets: list[str]


class DoctorDocument(Document):
    """`doctor`."""

    fedsaddle: str
    python: str
    cores: int
    versions: dict[str, str]
    devices: list[str]
    data: list[FolderBody]
    difference: Annotated[float | None, "between the models of the two engines"]
    agree: bool


class ReportDocument(Document):
    """`report`."""

    folder: str
    report: str
    pdf: str | None


class CheckReleaseDocument(Document):
    """`check-release`; exit code 1 if an attack is successful."""

    folder: str
    report: str | None
    successful: Annotated[list[str], "attacks that are better than chance"]
    check: Annotated[JsonObject, "the content of release.json", ModelAt("fedsaddle.documents.stored:ReleaseCheck")]


class PredictDocument(Document):
    """`predict`."""

    folder: str
    table: str
    out: str
    rows: int
    threshold: Annotated[float | None, "probability from which on rows are called positive"]


class DemoDocument(Document):
    """`demo`."""

    folder: str
    report: str
    rounds: int
    seeds: int
    seconds: float
    results: Annotated[dict[str, dict[str, float]], "by algorithm: statistics of the test accuracy, means over seeds"]


class LinesDocument(Document):
    """`init`, `deploy init`, `deploy provision`, `deploy renew` and `deploy flower`."""

    folder: Annotated[str, "the file or folder that was written"]
    lines: Annotated[list[str], "what is printed without --json"]


class AuditDocument(Document):
    """`deploy audit`."""

    kit: str
    entries: Annotated[list[JsonObject], "the lines of the site's log"]
    privacy: Annotated[list[JsonObject], "of each private run, epsilon spent and left, by the site's ledger"]


class TryDocument(Document):
    """`deploy try`."""

    folder: str
    deployed: Summary
    simulated: Summary
    difference: Annotated[float, "largest one between the two models"]
    agree: bool


class SweepPlanDocument(Document):
    """`sweep --dry-run`."""

    folder: str
    cells: int
    seeds: int
    runs: int
    finished: Annotated[int, "runs that the folder has already"]
    workers: int
    plan: Annotated[RunPlan, "of the first cell"]
    seconds: Annotated[float | None, "of all runs that are left, on all workers"]
    bytes_up: int | None
    note: Annotated[str, "how it was estimated"]


class SchemaDocument(Document):
    """`schema`: JSON Schema of all documents, by name."""

    documents: dict[str, JsonObject]


DOCUMENTS: tuple[type | ModelAt, ...] = (
    ErrorDocument,
    RunDocument,
    DryRunDocument,
    ModelAt("fedsaddle.documents.sweep:SweepDocument"),
    SweepPlanDocument,
    CompareDocument,
    ListDocument,
    DoctorDocument,
    ReportDocument,
    CheckReleaseDocument,
    PredictDocument,
    DemoDocument,
    LinesDocument,
    AuditDocument,
    TryDocument,
    SchemaDocument,
)
