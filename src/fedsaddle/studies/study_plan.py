"""study.toml: what a study across sites does. Server and sites have the same file; what is not in it is refused."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedsaddle.config.arguments import to_bad_input
from fedsaddle.config.build import check_keys
from fedsaddle.config.schema import (
    Config,
    DataSection,
    NamedSection,
    PrivacySection,
    ProblemSection,
    read_config,
    validate_config,
)
from fedsaddle.config.toml_files import parse_toml, read_toml, toml_lines
from fedsaddle.errors import BadInput, MissingData
from fedsaddle.studies.aims import WORST_GROUP, aim_of
from fedsaddle.studies.candidates import BASE, BASE_PICTURES, FEDAVG, Candidate, beyond
from fedsaddle.studies.trial import Trial

BEST_ROUND = "global loss"  # of validation rows, which sites tell exactly
EXTENSIONS = 2  # times that a grid is extended by a step beyond its end
MOST_TRIALS = 500
_STRICT = ConfigDict(extra="forbid", strict=True)
HEAD = """\
# What this study does. The server and every site have this file; sites refuse whatever is not in it.
#   simulate it:          fedsaddle run TABLE --site ... --label ...
#   run it at the sites:  fedsaddle run THIS-FILE --engine nvflare
"""


class StudySection(BaseModel):
    """[study]: what counts, and how often the test rows are looked at."""

    model_config = _STRICT
    aim: str = "auroc"  # or "average-precision", "partial-auroc", "worst-site", "accuracy"
    seed: int = Field(0, ge=0, lt=2**32)  # of every draw
    dtype: Literal["float32", "float64"] = "float32"  # of models and features
    sensitivity: float | None = Field(None, gt=0, le=1)  # share of the positives to find; none: the best F1
    looks: int = Field(1, ge=1, le=10)  # at the test rows; each is of the choice and of FedAvg
    alone: bool = True  # each site also trains on its own rows only, to compare


class CandidateSection(BaseModel):
    """[[candidates]]: one way to train; its steps are tuned on validation rows."""

    model_config = _STRICT
    name: str = Field(min_length=1, max_length=60)
    about: str = Field("", max_length=200)
    rounds: int = Field(100, ge=1, le=100_000)
    steps: list[Annotated[float, Field(gt=0, lt=1e6)]] = Field(min_length=1, max_length=10)
    step_form: Literal["cosine", "staged", "constant", "shrinkage", "none"] = "cosine"
    evaluations: int = Field(0, ge=0, le=1000)  # of a run, to choose its best round; 0: the last one is taken
    patience: int | None = Field(None, ge=1)
    start: str | None = None  # the candidate whose model it starts from
    without: list[str] = []  # kinds of features that it leaves out
    algorithm: NamedSection
    problem: ProblemSection
    model: NamedSection

    def candidate(self) -> Candidate:
        """As a search trains it."""
        problem = {"name": self.problem.name, **self.problem.options()}
        return Candidate(
            self.name, self.algorithm.name, self.about, self.algorithm.options(), problem,
            {"name": self.model.name, **self.model.options()}, frozenset(self.without), self.start, self.rounds,
            tuple(self.steps), self.step_form, self.evaluations, self.patience,
        )  # fmt: skip


class _Content(BaseModel):
    """The sections of the file."""

    model_config = _STRICT
    study: StudySection = StudySection()
    data: DataSection
    privacy: PrivacySection = PrivacySection()
    candidates: list[CandidateSection] = Field(min_length=1, max_length=50)


@dataclass(frozen=True)
class StudyPlan:
    """A study that sites can agree to.

    Args:
        study: what counts.
        data: what sites read of their files, as [data] of a config.
        privacy: secure aggregation.
        candidates: FedAvg, the default, and all others.
    """

    study: StudySection
    data: DataSection
    privacy: PrivacySection
    candidates: tuple[Candidate, ...]

    def config(self, candidate: Candidate, step: float | None = None, start: Path | None = None) -> Config:
        """The config of a trial, as a site checks it against its policy; by default with the first step."""
        trial = Trial(candidate, candidate.steps[0] if step is None else step, candidate.rounds, self.study.seed,
                      self.study.aim, Path(), start)  # fmt: skip
        content = trial.experiment().model_dump(mode="json", exclude_unset=True)
        run = {**content["run"], "dtype": self.study.dtype}
        if run.get("select") is not None:
            run["select"] = BEST_ROUND
        rows = {"data": self.data.model_dump(mode="json"), "split": {"name": "natural"}}
        return validate_config({**content, "run": run, **rows, "privacy": self.privacy.model_dump(mode="json")})

    @cached_property
    def base(self) -> Config:
        """The config of the first candidate, whose [data] is that of all."""
        return self.config(self.candidates[0])

    @cached_property
    def trials(self) -> Mapping[str, tuple[Candidate, float]]:
        """All trials that may be asked for, by name: each candidate with its steps, and with those beyond its ends."""
        found: dict[str, tuple[Candidate, float]] = {}
        for candidate in self.candidates:
            for step in _steps(candidate):
                name = Trial(candidate, step, 1, self.study.seed, self.study.aim, Path()).name
                if name in found:
                    raise BadInput("candidates.name", candidate.name, "two trials have the same name; rename one")
                found[name] = (candidate, step)
        return found

    def digest(self) -> str:
        """Of all that the file says; comments and the order of keys do not matter."""
        plain = {
            "study": self.study.model_dump(mode="json"),
            "privacy": self.privacy.model_dump(mode="json"),
            "trials": {
                name: self.config(candidate, step).model_dump(mode="json", exclude={"data"})
                for name, (candidate, step) in self.trials.items()
            },
            "without": [sorted(candidate.without) for candidate in self.candidates],
            "start": [candidate.start for candidate in self.candidates],
        }
        return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:32]

    def content(self) -> dict[str, Any]:
        """The sections as plain JSON, for `plan_of`."""
        return parse_toml(self.to_toml())

    def to_toml(self, comments: Mapping[str, str] | None = None) -> str:
        """The file; `comments` are by the key of [study]."""
        lines = [HEAD, "[study]", *toml_lines(self.study.model_dump(exclude_none=True), comments or {}), "", "[data]"]
        lines += toml_lines({"name": self.data.name, **_given(self.data)}, {})
        if self.privacy != PrivacySection():
            lines += ["", "[privacy]", *toml_lines(self.privacy.model_dump(exclude_unset=True), {})]
        return "\n".join([*lines, *candidates_toml(self.candidates)]) + "\n"


def candidates_toml(candidates: Sequence[Candidate]) -> list[str]:
    """The lines of [[candidates]]."""
    lines = []
    for c in candidates:
        section: dict[str, Any] = {"name": c.name, "about": c.about, "rounds": c.rounds, "steps": list(c.steps)}
        section |= {} if c.step_form == "cosine" else {"step_form": c.step_form}
        section |= {"evaluations": c.evaluations} | ({} if c.patience is None else {"patience": c.patience})
        section |= {"start": c.start} if c.start is not None else {}
        section |= {"without": sorted(c.without)} if c.without else {}
        section |= {"model": dict(c.model), "problem": dict(c.problem)}
        lines += ["", "[[candidates]]", *toml_lines({**section, "algorithm": {"name": c.algorithm, **c.options}}, {})]
    return lines


def read_plan(path: Path) -> StudyPlan:
    """Read study.toml.

    Raises:
        MissingData: if there is no such file.
        BadInput: for the first error in it.
    """
    try:
        content = read_toml("study", path)
    except FileNotFoundError:
        raise MissingData(
            f"study = {str(path)!r}: the file does not exist; `fedsaddle deploy init` writes one"
        ) from None
    return plan_of(content)


def plan_of(content: Mapping[str, Any]) -> StudyPlan:
    """Check the sections of a study, alone and together.

    Raises:
        BadInput: for the first error.
    """
    try:
        found = _Content.model_validate(dict(content))
    except ValidationError as error:
        raise to_bad_input("", error.errors()[0], _Content.model_fields) from None
    aim_of(found.study.aim)
    if found.study.aim in ("worst-site", WORST_GROUP):
        raise BadInput("study.aim", found.study.aim, "is for rows at hand; sites tell sums of score counts only")
    candidates = tuple(section.candidate() for section in found.candidates)
    if found.privacy.epsilon is not None:
        remedy = "a study measures many models, each of which would cost a budget of its own; run one config instead"
        raise BadInput("privacy.epsilon", found.privacy.epsilon, remedy)
    if len(candidates) < 2 or candidates[0].name != FEDAVG or candidates[1].name not in (BASE, BASE_PICTURES):
        remedy = f"the first must be named {FEDAVG!r}, and the second {BASE!r} or {BASE_PICTURES!r}: the default"
        raise BadInput("candidates", [c.name for c in candidates], remedy)
    names: list[str] = []
    for c in candidates:
        if c.start is not None and c.start not in names:
            raise BadInput("candidates.start", c.start, "is no candidate above it; name one, or move it down")
        names.append(c.name)
    plan = StudyPlan(found.study, found.data, found.privacy, candidates)
    if len(plan.trials) > MOST_TRIALS:
        raise BadInput("candidates", len(plan.trials), f"are more than {MOST_TRIALS} trials; leave out some steps")
    if found.data.validation_share <= 0 or found.data.test_share <= 0:
        raise BadInput("data.validation_share", found.data.validation_share, "a study needs validation and test rows")
    for c in candidates:
        check_keys(plan.config(c))
    return plan


def base_config(path: Path) -> Config:
    """The config in a file; of a study that of its first candidate, whose [data] and [privacy] are those of all."""
    return read_plan(path).base if is_study(path) else read_config(path)


def is_study(path: Path) -> bool:
    """Whether a TOML file holds a study; a file that cannot be read does not."""
    try:
        return "candidates" in read_toml("config", path)
    except (BadInput, FileNotFoundError):
        return False


def _steps(candidate: Candidate) -> list[float]:
    """The steps of a candidate, and those by which a search may extend its grid."""
    found = list(candidate.steps)
    for _ in range(EXTENSIONS):
        ends = {beyond(end, found) for end in (max(found), min(found))} if len(found) > 1 else set()
        found += sorted(step for step in ends if step is not None and step not in found)
    return found


def _given(data: DataSection) -> dict[str, Any]:
    return {key: value for key, value in data.model_dump(exclude_unset=True).items() if key != "name"}
