"""A simulated run with its comparison, tables, plots and report; deployed runs are handed on."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from torch import Tensor

from fedsaddle.algorithms.protocols import AnyAlgorithm
from fedsaddle.commands.options import in_options
from fedsaddle.commands.output import output, say
from fedsaddle.commands.progress import RoundProgress
from fedsaddle.commands.report import emit_run, print_report
from fedsaddle.config.build import Setup, build, build_on
from fedsaddle.config.run_config import require_same_config, trackers_of
from fedsaddle.config.run_config import run_config as simulate_config
from fedsaddle.config.schema import Config, NamedSection, ProblemSection, config_with, read_config
from fedsaddle.config.toml_files import parse_toml
from fedsaddle.data.cautions import cautions_of_run
from fedsaddle.data.describe import describe
from fedsaddle.errors import BadInput, Diverged
from fedsaddle.files import Json, Record, require_folder, write_atomically
from fedsaddle.metrics.ranking import Ranking
from fedsaddle.metrics.selection import pooled_part
from fedsaddle.processes import Interruption, terminate_as_interrupt
from fedsaddle.report import plots
from fedsaddle.report import plots as roc
from fedsaddle.report.predictions import CHOICE, FEDAVG, TEST, VALIDATION, parts_of, platt_of, write_predictions
from fedsaddle.report.tables import one_run, ranks_only
from fedsaddle.runs.callbacks import Beginning, CallbackRunner, DeferredEnd, LambdaCallback
from fedsaddle.runs.closing import exit_code, figures_by_class
from fedsaddle.runs.folder import RunFolder, require_unused
from fedsaddle.runs.result import Result
from fedsaddle.studies.model_loader import write_loader
from fedsaddle.studies.table_config import TableConfig
from fedsaddle.text import visible

INTERRUPTED = 130
BASELINE = "FedAvg"  # the comparison of a run for the AUROC
MOST_PREDICTIONS = 1_000_000  # rows of a part; more are in the pooled figures only


def run_config(path: Path, changes: list[str], out: Path | None, resume: bool, table: TableConfig | None = None) -> int:
    """Run a config, or a generated one for your own table; return the exit code."""
    text = None if table is None else in_options()(table.to_toml)()
    config = read_config(path, changes, say) if text is None else config_with(parse_toml(text), changes, say)
    folder = RunFolder(out or Path("runs") / path.stem)
    require_folder("out", folder.path)
    require_unused(folder.path)
    if config.engine.name == "nvflare":
        return _run_at_sites(config, path, folder.path, resume, table)
    if resume:
        config = require_same_config(config, folder)
    tracked = [DeferredEnd(tracker) for tracker in trackers_of(config)]
    setup = build(config)
    with Interruption() as interruption:
        return Simulation(config, setup, folder, resume, interruption, table_config=text, tracked=tracked).go()


def _run_at_sites(config: Config, path: Path, out: Path, resume: bool, table: TableConfig | None) -> int:
    from fedsaddle.commands.run_deployed import emit_deployed, run_deployed

    if table is not None:
        remedy = "write a config for your table first, with `fedsaddle init --csv`, and run that"
        raise BadInput("engine.name", "nvflare", remedy)
    try:
        with terminate_as_interrupt():
            code = run_deployed(config, path, out, resume)
            emit_deployed(out)
            return code
    except KeyboardInterrupt:
        message = "interrupted; the job was aborted. Continue with --resume"
        output.errors().print(message, highlight=False)
        if output.json:
            output.emit_error("interrupted", message, INTERRUPTED)
        return INTERRUPTED


@dataclass
class Simulation:
    """A simulated run with its baseline, tables and plots."""

    config: Config
    setup: Setup
    folder: RunFolder
    resume: bool
    interruption: Interruption
    table_config: str | None = None  # the generated config for your own table
    errors: Console = field(default_factory=output.errors)
    rankings: dict[str, Ranking] = field(default_factory=dict)
    models: dict[str, tuple[object, Tensor]] = field(default_factory=dict)  # problem and vector, of the rankings
    baseline_interrupted: bool = False
    tracked: list[DeferredEnd] = field(default_factory=list)  # trackers, which get the pictures at the end as well

    def go(self) -> int:
        """Run, compare, write, plot and print; return the exit code."""
        try:
            return self._go()
        finally:
            warnings = LambdaCallback(on_warning=lambda text: _warn(self.errors, text))
            for one in self.tracked:
                if one.summary is not None:
                    CallbackRunner([one.callback, warnings]).end(one.summary)

    def _go(self) -> int:
        name = self.config.algorithm.name
        with RoundProgress(self.config.run.rounds, name, self.errors) as progress:
            result = self._run(self.config, self.setup, self.folder, progress, main=True)
        self._write(result)
        self._draw(result)
        screen = output.screen()
        screen.print(one_run(result.document))
        if self.rankings:
            screen.print(roc.table(self.rankings, self._part))
        if self.table_config is not None:
            screen.print(self._not_tuned(), highlight=False, markup=False, soft_wrap=True)
        screen.print(f"written to {visible(self.folder.path)}", highlight=False, markup=False, soft_wrap=True)
        given = self.config.data.options().get("path")
        table = Path(given) if isinstance(given, str) else None
        rankings = dict(zip((CHOICE, FEDAVG), self.rankings.values(), strict=False))
        page = print_report(self.folder.path, screen, self.errors, table, rankings)
        emit_run("simulation", self.folder.path, page, result.document)
        if result.document.stopped == "interrupted" or self.baseline_interrupted:
            text = f"interrupted after round {result.document.rounds}; continue with --resume"
            self.errors.print(text, highlight=False)
            return INTERRUPTED
        return exit_code(result.document)

    def _not_tuned(self) -> str:
        """What to know beside the figures of one algorithm on your own table."""
        names = " and ".join(self.rankings or [self.config.algorithm.name])
        have = "have the steps of their configs" if len(self.rankings) > 1 else "has the step of its config"
        return f"not tuned: {names} {have}; without --algorithm, steps are chosen on validation rows"

    def _run(self, config: Config, setup: Setup, folder: RunFolder, progress: RoundProgress, main: bool) -> Result:
        """Run the config (`main`) or its baseline."""
        about = describe(setup.data)

        def begin(beginning: Beginning) -> None:
            if main:
                progress.say(about.headline())
                for line in cautions_of_run(setup.data):
                    progress.warn(line)
            folder.write_config(config.model_dump(mode="json"), about.to_dict())

        def after_round(done: int, record: Record | None) -> bool:
            progress(done, record)
            return self.interruption.requested

        own = LambdaCallback(
            on_begin=begin,
            on_round=after_round,
            on_result=self._extend if main else None,
            on_warning=progress.warn,
        )
        return simulate_config(
            config,
            setup,
            out=folder.path,
            resume=self.resume and folder.holds_run,
            callbacks=[own, *(self.tracked if main else ())],
        )

    def _extend(self, result: Result) -> Record:
        """Entries of the summary beside the figures of every run."""
        tuned = {} if self.table_config is None else {"tuned": False}
        lines = cautions_of_run(self.setup.data)
        found = tuned | figures_by_class(result, self.setup.data) | self._rank(result)
        return {**found, "cautions": lines} if lines else found

    def _rank(self, result: Result) -> Record:
        """Rank the rows by our model and, in a run for the AUROC, by the baseline; return the summary entry."""
        if result.document.stopped == "interrupted" or result.own is not None:  # no one model ranks all rows
            return {}
        ours = roc.ranking_of(result.algorithm.problem, result.model, self.setup.data)
        if ours is None:
            return {}
        found = {self.config.algorithm.name: ours}
        self.models[CHOICE] = (result.algorithm.problem, result.model)
        if has_baseline(self.config):
            theirs = self._compare(result)
            if theirs is None:
                return {}
            found |= theirs
        self.rankings = found
        self._predict()
        return {"roc": roc.write(found, self._part, self.folder.path)}

    def _compare(self, result: Result) -> dict[str, Ranking] | None:
        """Run FedAvg on the same rows; empty if it diverged, None if it was interrupted."""
        other = baseline_of(self.config, self.setup.algorithm, result.document.rounds)
        setup = build_on(other, self.setup.data)
        try:
            with RoundProgress(other.run.rounds, f"{BASELINE}, to compare", self.errors) as progress:
                theirs = self._run(other, setup, self.folder.baseline, progress, main=False)
        except Diverged as reason:
            _warn(self.errors, f"{BASELINE} diverged ({reason}); there is no comparison")
            return {}
        if theirs.document.stopped == "interrupted":
            self.baseline_interrupted = True
            return None
        ranking = roc.ranking_of(setup.algorithm.problem, theirs.model, self.setup.data)
        if ranking is not None:
            self.models[FEDAVG] = (setup.algorithm.problem, theirs.model)
        return {} if ranking is None else {BASELINE: ranking}

    def _predict(self) -> None:
        """Write the scores of the held-out rows; of the test rows they are in the rankings already."""
        data, names = self.setup.data, [self.config.algorithm.name, BASELINE]
        if data.test is None or len(data.test.y) > MOST_PREDICTIONS:
            return
        found = {
            TEST: {m: self.rankings[n].scores for m, n in zip((CHOICE, FEDAVG), names, strict=True) if m in self.models}
        }
        if data.validation is not None and len(data.validation.y) <= MOST_PREDICTIONS:
            scores = {m: roc.scores_of(*model, data.validation) for m, model in self.models.items()}
            found[VALIDATION] = {m: s for m, s in scores.items() if s is not None}
        parts = parts_of(data, found)
        write_predictions(self.folder.path, parts, platt_of(parts))

    def _write(self, result: Result) -> None:
        if self.table_config is not None:
            write_atomically(self.folder.table_config, self.table_config.encode())
        if result.has_module:
            write_loader(self.setup.model, self.setup.data, result.module(), self.folder.path)

    def _draw(self, result: Result) -> None:
        describe(self.setup.data).plot(self.folder.picture("split"))
        if not result.history:  # interrupted before the first evaluation
            return
        data, name, picture = self.setup.data, self.config.algorithm.name, self.folder.picture
        names = data.names
        if not ranks_only(result.document):
            plots.progress(result.history, picture("progress"), name)
            tested = data.test is not None and data.validation is None  # the part that the history has
            plots.clients({name: result.history}, data.test_names if tested else names, picture("clients"))
        for measure in self.setup.measures:
            plots.pooled({name: result.history}, measure.name, picture(measure.name), title=name)
        plots.mixture(result.history, names, picture("mixture"))
        if self.rankings:
            roc.draw(self.rankings, self._part, picture("roc"))
            histories = {name: result.history}
            if BASELINE in self.rankings and name != BASELINE:
                histories[BASELINE] = self.folder.baseline.history()
            if all("auroc" in pooled_part(record) for history in histories.values() for record in history):
                plots.pooled(histories, "auroc", picture("auroc"), title="AUROC of all sites together")

    @property
    def _part(self) -> str:
        """The rows of the evaluation."""
        return "training" if self.setup.data.test is None else "test"


def _warn(errors: Console, text: str) -> None:
    errors.print(f"warning: {visible(text)}", highlight=False, markup=False, soft_wrap=True)


def has_baseline(config: Config) -> bool:
    """Whether the run optimises the AUROC and `run.compare` is on; another private run would spend another budget."""
    return config.run.compare and config.problem.name == "auc" and config.privacy.epsilon is None


def baseline_of(config: Config, algorithm: AnyAlgorithm, rounds: int) -> Config:
    """FedAvg on cross-entropy, with the same rounds, clients, local steps, batches and start, and its default step."""
    common = {k: getattr(algorithm, k, None) for k in ("sampled_clients", "local_steps", "batch_size")}
    alone: dict[str, Json] = {"rounds": rounds, "target": None, "measures": []}
    if config.run.measures:  # one of them may be what `select` names
        alone |= {"select": None, "patience": None}
    return config.model_copy(
        update={
            "algorithm": NamedSection(name=BASELINE, **{k: v for k, v in common.items() if isinstance(v, int)}),
            "problem": ProblemSection(name="supervised", loss="logistic"),
            "run": config.run.model_copy(update=alone),
        }
    )
