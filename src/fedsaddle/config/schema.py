"""The sections of a config file: their keys, and what does not go together."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedsaddle.arguments import MAX_ROUNDS
from fedsaddle.config.arguments import first_error, to_bad_input
from fedsaddle.config.toml_files import DEEPEST, TooDeep, parse_toml, read_toml
from fedsaddle.errors import BadInput, MissingData, within
from fedsaddle.files import JsonObject
from fedsaddle.metrics.selection import Selection, Target
from fedsaddle.own_code import search_in

if TYPE_CHECKING:
    from fedsaddle.privacy.settings import Privacy as Settings
    from fedsaddle.robust.attacks import Attack
    from fedsaddle.robust.settings import Robust


class PrivacySection(BaseModel):
    """[privacy]: what the server may learn, and what anybody may learn of a row, a patient or a client."""

    model_config = ConfigDict(extra="forbid", strict=True)
    secure_aggregation: bool = False  # averaged fields reach the server as sums of at least three clients only
    # ε: what one unit may change in the odds of any conclusion, as a logarithm; 1 is strong, 8 usual; none: no noise
    epsilon: float | None = Field(None, gt=0, le=1000)
    delta: float = Field(1e-5, gt=0, lt=1)  # δ: the probability of a failure; well below one over the number of units
    # who is protected: each `row`; each `patient` (column `together` of the data), with all rows; or each `client`
    unit: Literal["row", "patient", "client"] = "row"
    clip: float = Field(1.0, gt=0)  # the largest norm of a row's gradient, or of a client's update
    dual_clip: float | None = Field(None, gt=0)  # of a row's gradient in the second player; none: `clip`
    loss_bound: float = Field(5.0, gt=0)  # bound of the losses of rows that DRFA's clients release
    rounds: int | None = Field(None, ge=1, le=1_000_000_000)  # that the noise is planned for; none: those of the run

    def of_server(self, rounds: int) -> Settings | None:
        """The privacy mechanism of the server in a run of that many rounds; None: none, or clients add the noise."""
        from fedsaddle.privacy.settings import Privacy as Settings

        if self.secure_aggregation:
            return Settings(secure_aggregation=True)
        return self.of_clients(rounds)

    def of_clients(self, rounds: int) -> Settings | None:
        """The privacy that the server makes; None if there is none, or if clients make it themselves."""
        found = self.settings(rounds)
        return found if found is not None and found.unit == "client" else None

    def settings(self, rounds: int) -> Settings | None:
        """The privacy of a run of that many rounds; None if there is none."""
        if self.epsilon is None:
            return None
        from fedsaddle.privacy.settings import Privacy as Settings

        if self.rounds is not None and rounds > self.rounds:
            remedy = f"the budget of [privacy] is planned for {self.rounds}; raise privacy.rounds in a new run"
            raise BadInput("run.rounds", rounds, remedy)
        names = ("delta", "unit", "clip", "dual_clip", "loss_bound")
        given = {name: getattr(self, name) for name in names}
        return Settings(epsilon=self.epsilon, rounds=self.rounds or rounds, **given)


def check_privacy(config: Experiment) -> None:
    """Raise `BadInput` for settings that exclude each other, or that promise a privacy that is not there."""
    if config.privacy.epsilon is None:
        for name, field in PrivacySection.model_fields.items():
            if name not in ("secure_aggregation", "epsilon") and getattr(config.privacy, name) != field.default:
                remedy = "protects nobody without epsilon; give privacy.epsilon = 8, or leave it out"
                raise BadInput(f"privacy.{name}", getattr(config.privacy, name), remedy)
    if not config.privacy.secure_aggregation:
        return
    from fedsaddle.robust.settings import require_sums

    require_sums(config.robust.aggregation, config.robust.bounds)
    if config.privacy.epsilon is not None and config.privacy.unit == "client":
        remedy = "the server clips each client's update, which secure aggregation hides; use unit = 'row' or 'patient'"
        raise BadInput("privacy.unit", "client", remedy)


_STRICT = ConfigDict(extra="forbid", strict=True)
_OPEN = ConfigDict(extra="allow", strict=True)


class NamedSection(BaseModel):
    """A section with a `name`; its other keys are options of what it names."""

    model_config = _OPEN
    name: str  # of `fedsaddle list`

    def options(self) -> JsonObject:
        """All keys but the name."""
        return dict(self.model_extra or {})


class DataSection(NamedSection):
    """[data]: the data set and the test split."""

    # share of each client's rows held out as test rows, if the data have no official ones; 0: evaluate on training rows
    test_share: float = Field(0.2, ge=0, lt=1)
    # share of each client's rows held out for validation: evaluations are on them, and test rows are evaluated once, at
    # the end; 0: none
    validation_share: float = Field(0.0, ge=0, lt=1)
    test_clients: list[str] = []  # clients to test on only
    stratify: bool = False  # hold out these shares of each class of each client, rounded up or down at random
    # share of the second class in every mini-batch, for data of two classes; rows are reweighted, so that the objective
    # is unchanged; none: uniform sampling
    positives_per_batch: float | None = Field(None, gt=0, lt=1)
    # the smallest count that a site releases: smaller ones are merged, and rarer values of a category become "other".
    # Real sites release none below that of their policy; a simulation with the same number is bit-identical
    minimum_cell: int = Field(1, ge=1, le=1_000_000)


class ProblemSection(NamedSection):
    """[problem]: the objective, and options such as `loss` and `l2` of the supervised problem."""

    name: str = "supervised"


class NoiseSection(BaseModel):
    """[noise]: noise on the training rows."""

    model_config = _STRICT
    flipped_labels: float = 0.0  # share of the rows of every class that get another class
    mean: float = 0.0  # of the noise added to the features of the first client
    mean_step: float = 0.0  # increment of that mean from client to client
    variance: float = 0.0  # of the noise added to the features


class RunSection(BaseModel):
    """[run]: length, seed, evaluation and checkpoints."""

    model_config = _STRICT
    rounds: int = Field(100, ge=1, le=MAX_ROUNDS)  # may change when resuming
    seed: int = Field(0, ge=0, lt=2**64)  # random seed of the split, the model and all other draws
    evaluate_every: int = Field(
        1, ge=1, le=MAX_ROUNDS
    )  # rounds between evaluations; the last round is always evaluated
    evaluate_train: bool = False  # evaluate on training rows each time, not only at the end
    checkpoint_every: int = Field(10, ge=1, le=MAX_ROUNDS)  # rounds between checkpoints
    measures: list[str | JsonObject] = []  # additional measures: names, or tables with a name
    target: str | None = None  # stop early: `"worst accuracy >= 0.5"`
    # measure of the validation rows that chooses the round whose model is kept: `"auroc"`, `"worst loss"`; none: the
    # last round
    select: str | None = None
    patience: int | None = Field(None, ge=1)  # evaluations without improvement of `select`, after which the run stops
    lost_replies: float = Field(0.0, ge=0, lt=1)  # probability that a reply is lost
    dtype: Literal["float32", "float64"] = "float32"  # of model and features
    compare: bool = True  # with `problem.name = "auc"`: run FedAvg on cross-entropy too and compare


class RobustSection(BaseModel):
    """[robust]: protection from hostile clients; see the threat model."""

    model_config = _STRICT
    # aggregation of replies: `mean`, `trimmed-mean`, `median`, `geometric-median`, `centred-clipping`
    aggregation: Literal["mean", "trimmed-mean", "median", "geometric-median", "centred-clipping"] = "mean"
    trim: float = Field(0.25, ge=0, lt=0.5)  # share of the weight that `trimmed-mean` drops at either end
    radius: float | None = Field(None, gt=0)  # of `centred-clipping`; none: the running median of the updates' norms
    iterations: int = Field(3, ge=1, le=1000)  # of `centred-clipping`
    # bound the norms of updates and the reported losses; none: in deployed runs, which it does not change if all sites
    # are honest
    bounds: bool | None = None
    norm_factor: float = Field(10.0, ge=1)  # largest norm of an update, relative to the usual one
    loss_factor: float = Field(10.0, ge=1)  # largest distance of a loss above the median, relative to the usual one

    def settings(self, deployed: bool) -> Robust:
        """The settings of a run."""
        from fedsaddle.robust.settings import Robust

        given = self.model_dump()
        return Robust(**{**given, "bounds": deployed if self.bounds is None else self.bounds})


class AttackSection(BaseModel):
    """[attack]: hostile clients of a simulated run."""

    model_config = _STRICT
    name: Literal["none", "scale", "sign-flip", "flipped-labels", "inflated-loss"] = "none"  # kind of attack
    clients: int | list[int] = 1  # number of hostile clients, which are the first ones, or their indices
    factor: float | None = None  # of `scale` (-100), `sign-flip` (-1) and `inflated-loss` (100)

    def settings(self) -> Attack | None:
        """The attack of a run; None if there are no hostile clients."""
        if self.name == "none":
            return None
        from fedsaddle.robust.attacks import Attack

        return Attack(**self.model_dump())


class EngineSection(BaseModel):
    """[engine]: where the run is computed."""

    model_config = _STRICT
    # `processes`: workers on this machine; `ray`: workers on many machines; `nvflare`: real sites
    name: Literal["vectorised", "processes", "ray", "serial", "nvflare"] = "vectorised"
    chunk: int | None = Field(None, ge=1, le=1 << 20)  # clients that take a step together; none: by rule
    # threads of the vectorised engine, processes, or workers on Ray; none: by rule, the cores, or the cluster's CPUs
    workers: int | None = Field(None, ge=1, le=1 << 20)
    # of a Ray cluster: `auto` (one that runs here, else a new one), `local` (a new one) or `host:port`; none: `auto`
    address: str | None = None
    device: str = "cpu"  # where clients' tasks run: `auto`, `cpu`, `cuda`, `cuda:1` or `mps`
    precision: Literal["full", "bf16"] = "full"  # `bf16`: the network's layers compute in bfloat16
    deterministic: bool = False  # refuse operations of torch whose bits may differ from run to run
    compile: bool = False  # compile the gradient with `torch.compile`; for `problem.name = "supervised"` only


class TrackSection(BaseModel):
    """[track]: trackers that follow the run; metrics.jsonl and metrics.csv are always written."""

    model_config = _STRICT
    tensorboard: bool = False  # write event files to `tensorboard` in the run's folder
    mlflow: str | None = Field(None, min_length=1)  # URI of an MLflow server or store: `"http://127.0.0.1:5000"`
    wandb: str | None = Field(None, min_length=1)  # a project of Weights & Biases


class RowsConfig(BaseModel):
    """[data], [split] and [noise]: the rows, and which client has which."""

    model_config = _STRICT
    data: DataSection
    split: NamedSection
    noise: NoiseSection = NoiseSection()


class Experiment(BaseModel):
    """The other sections: what is trained on given rows, and how."""

    model_config = _STRICT
    model: NamedSection
    algorithm: NamedSection
    problem: ProblemSection = ProblemSection()
    run: RunSection = RunSection()
    robust: RobustSection = RobustSection()
    attack: AttackSection = AttackSection()
    privacy: PrivacySection = PrivacySection()
    engine: EngineSection = EngineSection()
    track: TrackSection = TrackSection()


class Config(Experiment, RowsConfig):
    """A config file."""


Sections = TypeVar("Sections", bound=BaseModel)


def _ignore(text: str) -> None:
    """Take no note."""


def read_config(path: Path, changes: list[str] | None = None, note: Callable[[str], None] = _ignore) -> Config:
    """Read a TOML file, apply `a.b=c` changes and validate it; `note` is called with what the changes left out."""
    try:
        content = read_toml("config", path)
    except FileNotFoundError:
        raise MissingData(f"config = {str(path)!r}: the file does not exist; `fedsaddle init` writes one") from None
    search_in(path.parent)  # for modules that the config names
    return config_with(content, changes, note)


def config_with(content: JsonObject, changes: list[str] | None = None, note: Callable[[str], None] = _ignore) -> Config:
    """Apply `a.b=c` changes to a dictionary and validate it as a config."""
    before = copy.deepcopy(content.get("algorithm"))
    for change in changes or []:
        apply_change(content, change)
    for key, value in leave_out_others(before, content.get("algorithm")).items():
        note(f"note: algorithm.{key} = {value!r} is left out: {content['algorithm']['name']} does not take it")
    return validate_config(content)


def leave_out_others(before: object, now: object) -> JsonObject:
    """Remove keys of [algorithm] that the former algorithm has and the new one does not; return them.

    Keys that were changed as well, and unknown ones, stay: both are errors.
    """
    if not isinstance(before, dict) or not isinstance(now, dict) or before.get("name") == now.get("name"):
        return {}
    from fedsaddle.config.registry import keys_of_algorithm

    old, new = keys_of_algorithm(before.get("name")), keys_of_algorithm(now.get("name"))
    if old is None or new is None:
        return {}
    same = [key for key in before if key in now and now[key] == before[key]]
    left_out = {key: now[key] for key in same if key in old and key not in new}
    for key in left_out:
        del now[key]
    return left_out


def validate_config(content: JsonObject) -> Config:
    """Validate a dictionary as a config; raise `BadInput` for the first error."""
    config = _checked(Config, content)
    check_experiment(config)
    return config


def validate_experiment(content: JsonObject) -> Experiment:
    """Validate a dictionary as the sections of a config that do not describe rows."""
    experiment = _checked(Experiment, content)
    check_experiment(experiment)
    return experiment


def validate_rows(content: JsonObject) -> RowsConfig:
    """Validate a dictionary as the sections of a config that describe rows."""
    return _checked(RowsConfig, content)


def _checked(kind: type[Sections], content: JsonObject) -> Sections:
    try:
        return kind(**content)
    except ValidationError as error:
        first = first_error(error)
        section = kind.model_fields.get(str(first["loc"][0]))
        within_it = section.annotation if section is not None and len(first["loc"]) > 1 else kind
        known = within_it.model_fields if isinstance(within_it, type) and issubclass(within_it, BaseModel) else {}
        raise to_bad_input("", first, known) from None


def check_experiment(config: Experiment) -> None:
    """Raise `BadInput` for values that are valid alone, but not together or in what they name."""
    check_privacy(config)
    with within("attack"):
        if config.attack.name != "none":
            config.attack.settings()
    config.privacy.settings(config.run.rounds)
    with within("run"):
        if config.run.target is not None:
            Target.parse(config.run.target)
        if config.run.select is not None:
            Selection.parse(config.run.select)


def apply_change(content: JsonObject, change: str) -> None:
    """Apply `--set algorithm.local_steps=5`; a value that is not valid TOML is a string."""
    path, equals, text = change.partition("=")
    keys = [k.strip() for k in path.split(".")]
    if not equals or not all(keys) or len(keys) > DEEPEST:
        raise BadInput("--set", change, "write it like algorithm.local_steps=5")
    try:
        value = parse_toml(f"v = {text}")["v"]
    except TooDeep as error:
        raise BadInput("--set", change, f"has {error}; write it like algorithm.local_steps=5") from None
    except ValueError:
        value = text
    for key in keys[:-1]:
        content = content.setdefault(key, {})
        if not isinstance(content, dict):
            raise BadInput("--set", change, f"{key!r} is a value, not a section")
    content[keys[-1]] = value
