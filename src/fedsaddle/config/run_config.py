"""Run what a config describes; its engine, its trackers, and the check that a run resumes with its original config."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fedsaddle.algorithms.protocols import AnyAlgorithm
from fedsaddle.config.build import Setup, build
from fedsaddle.config.schema import Config, Experiment, validate_config
from fedsaddle.data.store import Stacked
from fedsaddle.errors import BadCheckpoint, BadInput
from fedsaddle.files import Json, JsonObject
from fedsaddle.metrics.selection import Selection, Target
from fedsaddle.privacy.settings import Privacy
from fedsaddle.robust.settings import Robust
from fedsaddle.runs.callbacks import Callback
from fedsaddle.runs.checkpoints import BLOCKS
from fedsaddle.runs.engines import EngineSettings, Processes, Ray, Serial, Vectorised, engine_settings
from fedsaddle.runs.folder import RunFolder
from fedsaddle.runs.result import Result
from fedsaddle.runs.run import run
from fedsaddle.runs.settings import RunOptions, Settings


def run_config(
    config: Experiment,
    setup: Setup,
    *,
    name: str | None = None,
    engine: EngineSettings | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    report: bool = False,
    callbacks: Sequence[Callback] = (),
) -> Result:
    """Run what a config describes in simulation.

    Args:
        config: a whole config, or only the sections about training.
        setup: what was built of it: the rows, the algorithm and the measures.
        name: in the summary; None: the algorithm's.
        engine: instead of that of [engine].
        out: folder for metrics, model and checkpoints; None writes nothing.
        resume: continue from the newest checkpoint in `out`.
        report: write report.html at the end.
        callbacks: as for `fs.run`.
    """
    settings = config.run
    return run(
        setup.algorithm,
        setup.data,
        settings.rounds,
        seed=settings.seed,
        engine=engine_of(config) if engine is None else engine,
        evaluate_every=settings.evaluate_every,
        measures=setup.measures,
        target=settings.target,
        select=settings.select,
        patience=settings.patience,
        lost_replies=settings.lost_replies,
        robust=config.robust.settings(deployed=False),
        attack=config.attack.settings(),
        privacy=config.privacy.of_server(settings.rounds),
        out=out,
        resume=resume,
        callbacks=callbacks,
        options=RunOptions(
            name=config.algorithm.name if name is None else name,
            evaluate_train=settings.evaluate_train,
            checkpoint_every=settings.checkpoint_every,
            report=report,
        ),
    )


def engine_of(config: Experiment) -> EngineSettings:
    """The engine of [engine]."""
    given = config.engine
    if given.name == "serial":
        for key in ("chunk", "workers", "address"):
            if (value := getattr(given, key)) is not None:
                raise BadInput(f"engine.{key}", value, "the serial engine has no such option; leave it out")
        for key, plain in (("device", "cpu"), ("precision", "full")):
            if (value := getattr(given, key)) != plain:
                remedy = "the engines 'vectorised', 'processes' and 'ray' have it; choose one, or leave it out"
                raise BadInput(f"engine.{key}", value, remedy)
        return Serial(deterministic=given.deterministic)
    if given.address is not None and given.name != "ray":
        raise BadInput("engine.address", given.address, "is an option of the engine 'ray'; leave it out")
    common = given.model_dump(include={"chunk", "workers", "device", "precision", "deterministic"})
    if given.name == "vectorised":
        return Vectorised(**common)
    factory = config.model_dump(mode="json")
    if given.name == "processes":
        return Processes(**common, factory=factory)
    if given.name == "ray":
        return Ray(**common, factory=factory, address=given.address or "auto")
    return engine_settings(given.name)


def settings_of(config: Config, robust: Robust | None, privacy: Privacy | None) -> Settings:
    """The settings of a deployed run."""
    given = config.run
    return Settings(
        rounds=given.rounds,
        seed=given.seed,
        evaluate_every=given.evaluate_every,
        evaluate_train=given.evaluate_train,
        checkpoint_every=given.checkpoint_every,
        target=None if given.target is None else Target.parse(given.target),
        lost_replies=given.lost_replies,
        select=None if given.select is None else Selection.parse(given.select),
        patience=given.patience,
        robust=robust,
        privacy=privacy,
    )


def check_factory(given: Mapping[str, Json]) -> None:
    """Raise `BadInput` if the dictionary is no config; for workers, which make their algorithm and rows from it."""
    validate_config(dict(given))


def make(given: Mapping[str, Json]) -> tuple[AnyAlgorithm, Stacked]:
    """The algorithm and the training rows of a config; for workers."""
    built = build(validate_config(dict(given)))
    return built.algorithm, built.data.train


def trackers_of(config: Config) -> list[Callback]:
    """The trackers of [track].

    Raises:
        MissingData: if the package of one is not installed; names the command that installs it.
    """
    track, found = config.track, list[Callback]()
    given: JsonObject = config.model_dump(mode="json", exclude={"track"})
    if track.tensorboard:
        from fedsaddle.tracking.trackers import TensorBoard

        found.append(TensorBoard(parameters=given))
    if track.mlflow is not None:
        from fedsaddle.tracking.trackers import MLflow

        found.append(MLflow(track.mlflow, parameters=given))
    if track.wandb is not None:
        from fedsaddle.tracking.trackers import Wandb

        found.append(Wandb(track.wandb, parameters=given))
    return found


# Keys that do not affect the trajectory. The loop itself compares the resulting `chunk`.
CHANGEABLE = {
    "run.rounds",
    "run.target",
    "run.patience",
    "run.checkpoint_every",
    "run.compare",
    "engine.chunk",
    "engine.workers",
    "track.tensorboard",
    "track.mlflow",
    "track.wandb",
    "engine.address",
    "engine.device",
}


def require_same_config(config: Config, folder: RunFolder) -> Config:
    """Check that `config` can resume the run in `folder`, and return it.

    Raises:
        BadCheckpoint: if a key that affects the trajectory differs from the stored config.
        MissingData: if the folder contains no run.
    """
    stored = folder.read_config()
    if stored is None:  # the run ended before it wrote its config
        return config
    before = validate_config(stored)
    if config.privacy.epsilon is not None and config.privacy.rounds is None:  # the noise stays as it was planned
        config = _with_plan(config, before.privacy.rounds or before.run.rounds)
    for section in Config.model_fields:
        old, new = getattr(before, section).model_dump(), getattr(config, section).model_dump()
        for key in sorted(old.keys() | new.keys(), key=lambda key: (key != "name", key)):  # another name explains more
            if old.get(key) != new.get(key) and not _may_change(f"{section}.{key}", old.get(key), new.get(key)):
                raise BadCheckpoint(
                    f"{section}.{key} = {new.get(key)!r}: the run in {folder.path} has {old.get(key)!r}; "
                    "resume with the same config, or choose another --out"
                )
    return config


def _may_change(key: str, old: object, new: object) -> bool:
    """Whether a run may resume with another value of this key."""
    if key == "privacy.rounds" and old is None:
        return True
    return key in CHANGEABLE or (key == "engine.name" and old in BLOCKS and new in BLOCKS)


def _with_plan(config: Config, rounds: int) -> Config:
    """The config with privacy planned for this number of rounds, which is then the most."""
    planned = config.model_copy(update={"privacy": config.privacy.model_copy(update={"rounds": rounds})})
    planned.privacy.settings(config.run.rounds)
    return planned
