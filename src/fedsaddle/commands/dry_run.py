"""`fedsaddle run --dry-run`: what would be run, what it costs, and what leaves a site. Nothing is written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

from rich.table import Table

from fedsaddle.arguments import renamed
from fedsaddle.commands.documents import SCHEMA, DryRunDocument, Plan, PlannedTrials
from fedsaddle.commands.output import output, say
from fedsaddle.commands.plans import plan_of, plan_table, plan_without_data
from fedsaddle.commands.run import baseline_of, has_baseline
from fedsaddle.commands.table_config import TableConfig
from fedsaddle.config.build import Experiment, build, build_algorithm, precision
from fedsaddle.config.schema import Config, config_with, read_config
from fedsaddle.config.toml_files import parse_toml
from fedsaddle.data.federated import FederatedData
from fedsaddle.report.progress import duration
from fedsaddle.report.tables import cell
from fedsaddle.shown import visible

EVALUATION = "means and score counts, at evaluations"
ENCODING = "counts and ranges of the columns, before the first round"


def dry_run(
    path: Path,
    changes: list[str],
    out: Path | None,
    table: TableConfig | None,
    aim: str | None,
    budget: str | None,
    searches: bool,
) -> int:
    """Print the plan of a run; `searches`: of a search on your own table. Return the exit code."""
    folder = out or Path("runs") / path.name.removesuffix(".gz").rsplit(".", 1)[0]
    if searches and table is not None:
        _print(_search(table, folder, aim or "auroc", budget))
        return 0
    text = None if table is None else table.to_toml()
    config = read_config(path, changes, say) if text is None else config_with(parse_toml(text), changes, say)
    _print(_deployed(config, path, folder) if config.engine.name == "nvflare" else _simulation(config, folder))
    return 0


def _document(kind: Literal["simulation", "search", "deployed"], folder: Path, plan: Plan) -> DryRunDocument:
    return {
        "schema": SCHEMA,
        "command": "run --dry-run",
        "kind": kind,
        "folder": str(folder),
        "plan": plan,
        "baseline": None,
        "candidates": [],
        "budget": None,
        "sites": [],
    }


def _simulation(config: Config, folder: Path) -> DryRunDocument:
    built = build(config)
    document = _document("simulation", folder, plan_of(config, built))
    if has_baseline(config):
        other = baseline_of(config, built.algorithm, config.run.rounds)
        with precision(config.run.dtype):
            algorithm, model = build_algorithm(other, built.data)
        plain = replace(built, algorithm=algorithm, model=model, measures=())
        document["baseline"] = plan_of(other, plain)
    return document


def _deployed(config: Config, path: Path, folder: Path) -> DryRunDocument:
    """Checked as far as it can be without the sites."""
    from fedsaddle.deployment.preflight import require_deployable, require_named_columns
    from fedsaddle.deployment.project import read_project

    require_deployable(config)
    project = read_project(path.parent)
    require_named_columns(config, project.files)
    why = "the rows are at the sites, so that sizes and times are unknown here; simulate a table like theirs"
    document = _document("deployed", folder, plan_without_data(config, len(project.names), why))
    document["sites"] = list(project.names)
    document["plan"]["leaves_a_site"] += [
        {"field": what, "visibility": "per client"} for what in (ENCODING, EVALUATION)
    ]
    return document


def _search(table: TableConfig, folder: Path, aim: str, budget: str | None) -> DryRunDocument:
    from fedsaddle.commands.run_table import SearchOptions, seconds_of
    from fedsaddle.trials.aims import aim_of
    from fedsaddle.trials.candidates import Facts, candidates

    with renamed({"aim": "--for"}):
        aim_of(aim)
    data = table.federated(table.dataset())
    planned, plans = [], []
    for candidate in candidates(Facts.of(data), aim):
        config = candidate.config(candidate.steps[0], table.seed)
        plan = _candidate_plan(config.model_copy(update={"data": config.data}), data, candidate.without)
        plans.append(plan)
        planned.append(_trials(candidate.name, candidate.about, candidate.rounds, len(candidate.steps), plan))
    document = _document("search", folder, plans[1])
    document["candidates"] = planned
    document["budget"] = SearchOptions().budget if budget is None else seconds_of(budget)
    return document


def _candidate_plan(config: Config, data: FederatedData, without: frozenset[str]) -> Plan:
    tabular = bool(data.encoding) and data.train.x.ndim <= 2
    own = data.with_features([feature.kind not in without for feature in data.encoding]) if tabular else data
    algorithm, model = build_algorithm(config, own)
    return plan_of(config, Experiment(own, algorithm, model))


def _trials(name: str, about: str, rounds: int, steps: int, plan: Plan) -> PlannedTrials:
    """A quarter of the rounds with each step, then all rounds with the best two and with steps beyond the grid."""
    from fedsaddle.trials.search import EXTENSIONS, FIRST_RUNG, KEPT

    first, going = max(1, rounds // FIRST_RUNG), min(KEPT, steps)
    beyond = EXTENSIONS if steps > 1 else 0
    total = steps * first + going * (rounds - first) + beyond * rounds
    seconds = plan["cost"]["seconds"]
    return {
        "candidate": name,
        "about": about,
        "trials": steps + going + beyond,
        "rounds": total,
        "seconds": None if seconds is None else seconds / rounds * total,
    }


def _print(document: DryRunDocument) -> None:
    screen = output.screen()
    screen.print(plan_table(document["plan"], _title(document)))
    if document["baseline"] is not None:
        screen.print(plan_table(document["baseline"], "FedAvg, to compare"))
    if document["candidates"]:
        screen.print(_candidates(document))
    if document["sites"]:
        screen.print(f"sites: {', '.join(map(visible, document['sites']))}", highlight=False, markup=False)
    screen.print(
        f"would write to {visible(document['folder'])}; nothing was written",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
    output.emit(document)


def _title(document: DryRunDocument) -> str:
    titles = {"simulation": "the run", "deployed": "the run at the sites", "search": "the default of the search"}
    return titles[document["kind"]]


def _candidates(document: DryRunDocument) -> Table:
    budget = document["budget"]
    seconds = sum(one["seconds"] or 0.0 for one in document["candidates"])
    limit = "" if budget is None else f"; no other trial begins after {duration(budget)}"
    table = Table(
        title="candidates, tuned on validation rows",
        caption=f"about {duration(seconds)} of rounds on one core for all{limit}",
        title_justify="left",
        caption_justify="left",
    )
    for head in ("candidate", "trains", "trials", "rounds", "seconds"):
        table.add_column(head, justify="left" if head in ("candidate", "trains") else "right")
    for one in document["candidates"]:
        cells = [str(one["trials"]), f"{one['rounds']:,}", f"{one['seconds'] or 0.0:.1f}"]
        table.add_row(cell(one["candidate"]), cell(one["about"]), *cells)
    return table
