"""`fedsaddle run`."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from fedsaddle.commands.baseline import NAME, baseline, wanted
from fedsaddle.commands.model_loader import write_loader
from fedsaddle.commands.table_config import Own
from fedsaddle.config.build import Built, build, build_algorithm, precision
from fedsaddle.config.resume import same_config
from fedsaddle.config.schema import Config, changed, read_config
from fedsaddle.data.describe import describe
from fedsaddle.errors import BadInput, Diverged
from fedsaddle.metrics.ranking import Ranking
from fedsaddle.report import plots, roc
from fedsaddle.report.progress import Progress
from fedsaddle.report.tables import console, one_run
from fedsaddle.runs.checkpoints import write_atomically, write_json
from fedsaddle.runs.interruption import stoppable
from fedsaddle.runs.result import Result, read_history
from fedsaddle.runs.run import run as run_loop

INTERRUPTED = 130


def run(path: Path, changes: list[str], out: Path | None, resume: bool, own: Own | None = None) -> int:
    """Run a config, or the one for a table of one's own; the exit code tells how it ended."""
    screen, errors = console(), Console(stderr=True)
    out = out or Path("runs") / path.stem
    text = None if own is None else own.config()
    config = read_config(path, changes) if text is None else changed(tomllib.loads(text), changes)
    if config.engine.name == "nvflare":
        from fedsaddle.commands.run_deployed import run_deployed

        if own is not None:
            remedy = "for a table of your own write a config first, with `fedsaddle init --csv`, and run that"
            raise BadInput("engine.name", "nvflare", remedy)
        try:
            with stoppable():
                return run_deployed(config, path, out, resume)
        except KeyboardInterrupt:
            errors.print("interrupted; the job was ended, go on with --resume", highlight=False)
            return INTERRUPTED
    if resume:
        config = same_config(config, out)
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
    interrupted = result.summary["stopped"] == "interrupted"
    found = {} if interrupted else _ranked(config, built, result, out, resume, errors)
    if found is None:
        found, interrupted = {}, True
    if found:
        result.summary["roc"] = roc.write(found, _part(built), out)
    write_json(out / "summary.json", result.summary)
    if text is not None:
        write_atomically(out / "fedsaddle.toml", text.encode())
    write_loader(config, built.data, result.module(), out)
    about.plot(out / "split.png")
    _draw(result, built, out, found)
    screen.print(one_run(result.summary))
    if found:
        screen.print(roc.table(found, _part(built)))
    screen.print(f"written to {out}", highlight=False, markup=False, soft_wrap=True)
    if interrupted:
        errors.print(f"interrupted after round {result.summary['rounds']}; go on with --resume", highlight=False)
        return INTERRUPTED
    return 0


def _ranked(
    config: Config, built: Built, result: Result, out: Path, resume: bool, errors: Console
) -> dict[str, Ranking] | None:
    """The ranking of our model and, in a run for the AUROC, of the baseline's; None if the baseline was interrupted."""
    seed = config.run.seed
    ours = roc.ranking_of(built.algorithm.problem, result.model, built.data, seed)
    if ours is None:
        return {}
    found = {config.algorithm.name: ours}
    if not wanted(config):
        return found
    other = baseline(config, built.algorithm, result.summary["rounds"])
    with precision(config.run.dtype):
        plain = replace(built, algorithm=build_algorithm(other, built.data), measures=())
    folder = out / NAME.lower()
    try:
        with Progress(errors, other.run.rounds, f"{NAME}, to compare") as progress:
            again = resume and (folder / "metrics.jsonl").exists()
            theirs = _run(other, plain, folder, again, progress, aloud=False)
    except Diverged as reason:
        errors.print(f"warning: {NAME} diverged ({reason}); there is no comparison", highlight=False, soft_wrap=True)
        return found
    if theirs.summary["stopped"] == "interrupted":
        return None
    theirs.summary["algorithm"] = NAME
    write_json(folder / "summary.json", theirs.summary)
    ranking = roc.ranking_of(plain.algorithm.problem, theirs.model, built.data, seed)
    assert ranking is not None
    return {**found, NAME: ranking}


def _run(config: Config, built: Built, out: Path, resume: bool, progress: Progress, aloud: bool = True) -> Result:
    settings = config.run

    def begun() -> None:
        if aloud:
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


def _draw(result: Result, built: Built, out: Path, found: dict[str, Ranking]) -> None:
    if not result.history:  # interrupted before the first evaluation
        return
    name = result.summary["algorithm"]
    plots.progress(result.history, out / "progress.png", name)
    plots.clients({name: result.history}, built.data.names, out / "clients.png")
    for measure in built.measures:
        plots.pooled({name: result.history}, measure.name, out / f"{measure.name}.png", title=name)
    plots.mixture(result.history, built.data.names, out / "mixture.png")
    if found:
        roc.draw(found, _part(built), out / "roc.png")
        histories = {name: result.history}
        if NAME in found and name != NAME:
            histories[NAME] = read_history(out / NAME.lower() / "metrics.jsonl")
        plots.pooled(histories, "auroc", out / "auroc.png", title="AUROC of all sites together")


def _part(built: Built) -> str:
    """Which rows are measured."""
    return "training" if built.data.test is None else "test"
