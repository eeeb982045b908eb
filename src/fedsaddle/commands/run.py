"""`fedsaddle run`."""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console

from fedsaddle.build import Built, build
from fedsaddle.checkpoint import write_atomically, write_json
from fedsaddle.config import Config, read_config, validated
from fedsaddle.data.describe import describe
from fedsaddle.errors import BadCheckpoint, Diverged, MissingData
from fedsaddle.loop import run as run_loop
from fedsaddle.report import plots
from fedsaddle.report.progress import Progress
from fedsaddle.report.tables import console, one_run
from fedsaddle.result import Result

INTERRUPTED = 130


def run(path: Path, changes: list[str], out: Path | None, resume: bool) -> int:
    """Run a config; the exit code tells how it ended."""
    screen, errors = console(), Console(stderr=True)
    out = out or Path("runs") / path.stem
    config = read_config(path, changes)
    if config.engine.name == "nvflare":
        from fedsaddle.commands.run_deployed import run_deployed

        return run_deployed(config, path, out, resume)
    if resume:
        config = _same_as_before(config, out)
    built = build(config)
    about = describe(built.data)
    with Progress(errors, config.run.rounds, config.algorithm.name) as progress:
        try:
            result = _run(config, built, out, resume, progress)
        except Diverged as reason:
            if (out / "metrics.jsonl").exists():
                write_json(out / "summary.json", {"algorithm": config.algorithm.name, "stopped": "diverged",
                                                  "round": reason.round, "client": reason.client})  # fmt: skip
            raise
    result.summary["algorithm"] = config.algorithm.name
    write_json(out / "summary.json", result.summary)
    about.plot(out / "split.png")
    _draw(result, built, out)
    screen.print(one_run(result.summary))
    screen.print(f"written to {out}", highlight=False, markup=False, soft_wrap=True)
    if result.summary["stopped"] == "interrupted":
        errors.print(f"interrupted after round {result.summary['rounds']}; go on with --resume", highlight=False)
        return INTERRUPTED
    return 0


def _run(config: Config, built: Built, out: Path, resume: bool, progress: Progress) -> Result:
    settings = config.run

    def begun() -> None:
        progress.say(describe(built.data).headline())
        write_json(out / "config.json", config.model_dump(mode="json"))
        write_atomically(out / "split.json", json.dumps(describe(built.data).to_dict()).encode())

    return run_loop(
        built.algorithm,
        built.data,
        settings.rounds,
        seed=settings.seed,
        engine=config.engine.name,
        chunk=config.engine.chunk,
        workers=config.engine.workers,
        evaluate_every=settings.evaluate_every,
        evaluate_train=settings.evaluate_train,
        measures=built.measures,
        target=settings.target,
        lost_replies=settings.lost_replies,
        out=out,
        resume=resume,
        checkpoint_every=settings.checkpoint_every,
        watch=progress,
        begun=begun,
        warn=progress.warn,
    )


def _same_as_before(config: Config, out: Path) -> Config:
    """The config of the run to resume; only what does not shape the trajectory may differ."""
    stored = out / "config.json"
    if not stored.exists():
        if (out / "metrics.jsonl").exists():  # the run ended before it could write its config
            return config
        raise MissingData(f"--out = {str(out)!r}: no run to resume there; leave out --resume to begin one")
    try:
        before = validated(json.loads(stored.read_text()))
    except (ValueError, TypeError) as reason:
        raise BadCheckpoint(f"{stored} is damaged ({reason}); put it right, or choose another --out") from None
    free = {
        "rounds",
        "target",
        "checkpoint_every",
        "chunk",
        "workers",
    }  # the loop compares the last two as they turn out
    for section in Config.model_fields:
        old, new = getattr(before, section).model_dump(), getattr(config, section).model_dump()
        for key in sorted(old.keys() | new.keys()):
            if old.get(key) != new.get(key) and key not in free:
                raise BadCheckpoint(
                    f"{section}.{key} = {new.get(key)!r}: the run in {out} has {old.get(key)!r}; "
                    "resume with the same config, or choose another --out"
                )
    return config


def _draw(result: Result, built: Built, out: Path) -> None:
    if not result.history:  # interrupted before the first evaluation
        return
    name = result.summary["algorithm"]
    plots.progress(result.history, out / "progress.png", name)
    plots.clients({name: result.history}, built.data.names, out / "clients.png")
    for measure in built.measures:
        plots.pooled({name: result.history}, measure.name, out / f"{measure.name}.png", title=name)
    plots.mixture(result.history, built.data.names, out / "mixture.png")
