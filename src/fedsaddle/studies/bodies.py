"""What a sweep tells, as in sweep.json; types alone, which cost nothing to import."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from typing_extensions import TypedDict

from fedsaddle.files import JsonObject


class SeedBody(TypedDict):
    """One run of a sweep."""

    seed: int
    folder: Annotated[str, "within the sweep's folder"]
    status: Annotated[str, "`finished`, `target`, `patience`, `diverged`, `failed` or `missing`"]
    reason: Annotated[str, "why it diverged or failed"]
    figure: Annotated[float | None, "that the choice is made by"]
    test: Annotated[float | None, "the same figure on the test rows, where validation rows choose"]
    rounds: int | None
    target_round: int | None
    bytes_up: int | None
    seconds: float | None


class CellBody(TypedDict):
    """The runs of a sweep with the same values."""

    values: Annotated[JsonObject, "by key of the config"]
    mean: float | None
    interval: Annotated[list[float] | None, "95 % t-interval of the mean over seeds; of a share for its log odds"]
    test_mean: float | None
    behind_best: Annotated[float | None, "mean over the seeds of the best cell's figure minus this one's, in pairs"]
    behind_interval: Annotated[list[float] | None, "95 % t-interval of it; without 0: more than chance"]
    reached: Annotated[int | None, "seeds that reached the target"]
    best: bool
    runs: list[SeedBody]


class SweepBody(TypedDict):
    """A sweep, as in sweep.json."""

    config: Annotated[JsonObject, "as in the file and with keys that have one value, before the values of a cell"]
    axes: Annotated[dict[str, list[Any]], "the values of each key; for a range its ends"]
    seeds: list[int]
    by: Annotated[str, "the figure of the choice, such as `worst accuracy`, or `rounds to worst accuracy >= 0.5`"]
    part: Annotated[Literal["validation", "test", "train"], "the rows of the choice"]
    caution: Annotated[str, "empty, or what is wrong with choosing by these rows"]
    cells: Annotated[list[CellBody], "in the order of the values; of a search in the order of its trials"]
    unfinished: Annotated[int, "runs that diverged, failed or are missing"]
