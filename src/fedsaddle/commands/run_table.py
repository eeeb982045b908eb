"""`fedsaddle run patients.csv`: a study of a table, with its progress and its figures on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path

from rich.console import Console
from rich.table import Table

from fedsaddle.commands.options import in_options
from fedsaddle.commands.output import output
from fedsaddle.commands.progress import SearchProgress
from fedsaddle.commands.report import emit_run, print_report
from fedsaddle.data.describe import describe
from fedsaddle.data.federated import FederatedData
from fedsaddle.data.tables.columns import summarised
from fedsaddle.documents.summary import Coefficients, OutcomeSummary
from fedsaddle.files import require_folder
from fedsaddle.processes import Interruption
from fedsaddle.report import plots as roc
from fedsaddle.report.outcomes import figure_name, figure_text
from fedsaddle.report.sections.effects import p_text, shown, strongest
from fedsaddle.report.sections.settings import cut_in_words
from fedsaddle.report.tables import cell, choice_table
from fedsaddle.runs.closing import exit_code
from fedsaddle.runs.folder import RunFolder, require_unused
from fedsaddle.studies.leave_one_out import LeaveOneSiteOut
from fedsaddle.studies.outcome_study import OutcomeStudy
from fedsaddle.studies.study import Study, StudyWatch, check_folder, study
from fedsaddle.studies.table_config import TableConfig
from fedsaddle.studies.table_study import StudyOptions, settings_of
from fedsaddle.studies.trial import Trial
from fedsaddle.text import visible

MOST_EFFECTS = 12


@in_options()
def run_table(table: TableConfig, options: StudyOptions, out: Path | None, resume: bool) -> int:
    """Run a study and print it; return the exit code."""
    assert isinstance(table.table, Path)
    folder = RunFolder(out or Path("runs") / table.table.name.removesuffix(".gz").rsplit(".", 1)[0])
    if resume and folder.summary.exists():
        require_folder("out", folder.path)
        check_folder(folder, settings_of(table, options), resume)
        return _show_finished(folder, table.table)
    roles = {f.name: getattr(table, f.name) for f in fields(table) if f.name not in ("table", "algorithm")}
    if table.event is not None:
        roles["time"] = roles.pop("label")
    with _OnTerminal(options.budget) as watch:
        found = study(
            table.table,
            **roles,
            aim=options.aim,
            budget=options.budget,
            sensitivity=options.sensitivity,
            leave_one_site_out=options.leave_one_site_out,
            out=folder.path,
            resume=resume,
            watch=watch,
        )
    if isinstance(found, OutcomeStudy):
        _print_outcome(found)
    else:
        _print(found)
    _say(output.errors(), [f"warning: {warning.text}" for warning in found.summary.warnings])
    if found.report is not None:
        output.screen().print(f"report: {visible(found.report)}", highlight=False, markup=False, soft_wrap=True)
    emit_run("search", folder.path, found.report, found.summary)
    return exit_code(found.summary)


class _OnTerminal(StudyWatch):
    """Prints the notes and the progress of a study; Ctrl-C ends it after the round."""

    def __init__(self, budget: float | None) -> None:
        self.errors, self.budget = output.errors(), budget
        self.stack, self.interruption = ExitStack(), Interruption()
        self.progress: SearchProgress | None = None

    def __enter__(self) -> _OnTerminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    def begin(self, data: FederatedData, notes: Sequence[str], cautions: Sequence[str], seconds: float) -> None:
        if not output.quiet:
            _say(self.errors, [describe(data).headline(), *(f"note: {note}" for note in summarised(list(notes)))])
        _say(self.errors, [f"warning: {line}" for line in cautions])
        self.stack.enter_context(self.interruption)
        self.progress = self.stack.enter_context(SearchProgress(self.budget, seconds))

    def trial(self, trial: Trial, done: int, best: float | None) -> None:
        if self.progress is not None:
            self.progress(trial, done, best)

    def step(self, text: str, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress.step(text, done, total)

    def warn(self, text: str) -> None:
        _say(self.errors, [f"warning: {text}"])

    def stop(self) -> bool:
        return self.interruption.requested


def _show_finished(folder: RunFolder, table: Path) -> int:
    """Print the results of a finished search; its test rows are not evaluated a second time."""
    require_unused(folder.path)
    stored, screen, errors = folder.stored_summary(), output.screen(), output.errors()
    summary = stored if isinstance(stored, OutcomeSummary) else folder.read_search()
    screen.print(outcome_table(summary) if isinstance(summary, OutcomeSummary) else choice_table(summary))
    told = f"the search in {visible(folder.path)} is finished, and nothing was trained or changed"
    _say(errors, [f"{told}; choose another --out for a new one"])
    page: Path | None = folder.report
    if page is not None and page.exists():
        screen.print(f"report: {visible(page)}", highlight=False, markup=False, soft_wrap=True)
    else:  # killed before it was written
        page = print_report(folder.path, screen, errors, table)
    emit_run("search", folder.path, page, summary)
    return 0


def _say(errors: Console, lines: Sequence[str]) -> None:
    for line in lines:
        errors.print(line, highlight=False, markup=False, soft_wrap=True)


def _print(found: Study) -> None:
    screen, summary = output.screen(), found.summary
    screen.print(choice_table(summary))
    if cut := cut_in_words(summary):
        _say(output.errors(), [f"warning: {cut[:1].lower()}{cut[1:]}"])
    screen.print(roc.table(found.test, "test"))
    if summary.coefficients is not None:
        screen.print(coefficient_table(summary.coefficients))
    if found.leave_one_out is not None:
        screen.print(left_out_table(found.leave_one_out))
    screen.print(f"written to {visible(str(found.folder))}", highlight=False, markup=False, soft_wrap=True)


def _print_outcome(found: OutcomeStudy) -> None:
    screen, summary = output.screen(), found.summary
    screen.print(outcome_table(summary))
    if summary.cut:
        _say(
            output.errors(),
            [f"warning: the time budget ended the search before all trials of {', '.join(summary.cut)}"],
        )
    if summary.coefficients is not None:
        screen.print(coefficient_table(summary.coefficients))
    screen.print(f"written to {visible(str(found.folder))}", highlight=False, markup=False, soft_wrap=True)


def outcome_table(summary: OutcomeSummary) -> Table:
    """The figures of a study of another outcome than two classes, for the terminal."""
    ours, theirs, gaps = (summary.figures.get(name, {}) for name in ("choice", "FedAvg", "difference"))
    rows = summary.rows
    caption = [
        f"chosen for {cell(summary.aim)}: {cell(summary.choice)}",
        cell(summary.reason),
        f"{rows.get('train', 0):,} training, {rows.get('validation', 0):,} validation, {rows.get('test', 0):,} test "
        f"rows; {summary.trials} trials in {summary.seconds:.0f} s",
    ]
    title = "test rows, with 95 % intervals"
    table = Table(title=title, caption="\n".join(caption), title_justify="left", caption_justify="left")
    table.add_column("")
    for head in ("the choice", "FedAvg, tuned alike", "difference"):
        table.add_column(head, justify="right")
    for key, figure in ours.items():
        texts = figure_text(figure), figure_text(theirs.get(key)), figure_text(gaps.get(key), "+")
        table.add_row(cell(figure_name(key)), *map(cell, texts))
    return table


def coefficient_table(found: Coefficients) -> Table:
    """The clearest effects of the default with their intervals, for the terminal."""
    ordered = strongest(found)
    patients = "" if found.patients is None else f", rows of {found.patients:,} patients count together"
    patients += "" if found.against is None else f", classes against {cell(found.against)}"
    more = f"; {len(ordered) - MOST_EFFECTS} more are in the report" if len(ordered) > MOST_EFFECTS else ""
    table = Table(
        title=f"{found.measure}s of {cell(found.of)}, with 95 % intervals",
        caption=f"{found.rows:,} training rows{patients}; intervals allow for the penalty{more}",
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("")
    error = "standard error" if found.measure == "difference" else "standard error of log"
    for head in (found.measure, error, "p"):
        table.add_column(head, justify="right")
    for one in ordered[:MOST_EFFECTS]:
        value, low, high = (shown(found, v) for v in (one.estimate, *one.interval))
        table.add_row(cell(one.name), f"{value} [{low}, {high}]", f"{one.standard_error:.3g}", p_text(one.p_value))
    return table


def left_out_table(left_out: LeaveOneSiteOut) -> Table:
    """The figures of sites that were left out, for the terminal."""
    shown = roc.table(left_out.rankings, "left-out sites'")
    shown.title = "AUROC at sites that were not trained on, with 95 % intervals"
    return shown
