"""sweep.json: the runs of a sweep and what they compare, as pydantic models that load without torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue

from fedsaddle.documents.summary import DocumentPart, PartName, Settings


class SweepRun(DocumentPart):
    """One run of a sweep."""

    seed: int
    folder: str
    """Within the sweep's folder."""
    status: str
    """`finished`, `target`, `patience`, `diverged`, `failed` or `missing`."""
    reason: str
    """Why it diverged or failed."""
    figure: float | None
    """The figure that cells are compared by."""
    test: float | None
    """The same figure on the test rows, if validation rows choose."""
    rounds: int | None
    target_round: int | None
    bytes_up: int | None
    seconds: float | None


class SweepCell(DocumentPart):
    """The runs of a sweep with the same values."""

    values: Settings
    """By key of the config."""
    mean: float | None
    interval: list[float] | None
    """95 % t-interval of the mean over seeds; of a share on the log-odds scale."""
    test_mean: float | None
    behind_best: float | None
    """Mean over the seeds of the best cell's figure minus this one's, in pairs."""
    behind_interval: list[float] | None
    """95 % t-interval of it; significant if it does not contain 0."""
    reached: int | None
    """Seeds that reached the target."""
    best: bool
    runs: list[SweepRun]


class SweepSummary(DocumentPart):
    """A sweep, as in sweep.json."""

    config: Settings
    """As in the file and with keys that have one value, before the values of a cell."""
    axes: dict[str, list[JsonValue]]
    """The values of each key; for a range its ends."""
    seeds: list[int]
    by: str
    """The figure of the choice, such as `worst accuracy`, or `rounds to worst accuracy >= 0.5`."""
    part: PartName
    """The rows of the choice."""
    caution: str
    """Empty, or what is wrong with choosing by these rows."""
    cells: list[SweepCell]
    """In the order of the values; of a search in the order of its trials."""
    unfinished: int
    """Number of runs that diverged, failed or are missing."""


class SweepDocument(SweepSummary):
    """`sweep`."""

    schema_number: Literal[1] = Field(alias="schema")
    """Of these documents; new keys do not change it."""
    command: str
    folder: str
    interrupted: bool
