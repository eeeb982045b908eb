"""The plan of a run and its cost, for `--dry-run`: what would be run and what leaves a site. Nothing is written."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from rich.table import Table

from fedsaddle.commands.documents import SCHEMA, Cost, DryRunDocument, Leaving, PlannedTrials, RunPlan
from fedsaddle.commands.options import in_options
from fedsaddle.commands.output import output, say
from fedsaddle.commands.simulation import baseline_of, has_baseline
from fedsaddle.config.build import Setup, build, build_on
from fedsaddle.config.registry import ALGORITHMS, find
from fedsaddle.config.run_config import engine_of
from fedsaddle.config.schema import Config, Experiment, config_with, read_config
from fedsaddle.config.toml_files import parse_toml
from fedsaddle.data.federated import FederatedData
from fedsaddle.federation.records import Visibility
from fedsaddle.federation.wrappers import Ledger
from fedsaddle.report.tables import cell, megabytes
from fedsaddle.report.words import duration
from fedsaddle.runs.cost_probe import Length, rehearse
from fedsaddle.secure.secured import reply_fields
from fedsaddle.studies.table_config import TableConfig
from fedsaddle.text import visible

EVALUATION = "means and own figures, at evaluations"
COUNTS = "score counts, at evaluations"
ENCODING = "counts and ranges of the columns, before the first round"
SEEN = {
    Visibility.AVERAGED.value: "the server sees the mean over the clients only",
    Visibility.POOLED.value: "the server sees the rows of all clients together, without their names",
    Visibility.PER_CLIENT.value: "the server sees each client's own",
}


def length_of(config: Experiment) -> Length:
    """What the cost of a config's run depends on."""
    run = config.run
    return Length(
        run.rounds,
        run.seed,
        run.evaluate_every,
        run.lost_replies,
        engine_of(config),
    )


def plan_of(config: Experiment, setup: Setup) -> RunPlan:
    """The plan of a simulated run, with its cost by a probe."""
    estimate = rehearse(setup.algorithm, setup.data, length_of(config), setup.measures)
    ledger, clients = estimate.ledger, max(estimate.clients, 1)
    note = estimate.note
    if config.run.target is not None or config.run.patience is not None:
        note = f"at most, since the run may stop early; {note}"
    cost: Cost = {
        "rounds": config.run.rounds,
        "exchanges": ledger.exchanges,
        "bytes_down": ledger.bytes_down,
        "bytes_up": ledger.bytes_up,
        "bytes_down_per_client": ledger.bytes_down / clients,
        "bytes_up_per_client": ledger.bytes_up / clients,
        "samples": ledger.samples,
        "local_steps": estimate.local_steps,
        "exact": estimate.exact and config.run.target is None and config.run.patience is None,
        "seconds": estimate.seconds,
        "seconds_of_evaluation": estimate.seconds_of_evaluation,
        "note": note,
    }
    return {
        "algorithm": config.algorithm.name,
        "problem": config.problem.name,
        "model": config.model.name,
        "parameters": estimate.parameters,
        "dataset": config.data.name if isinstance(config, Config) else setup.data.name,
        "clients": estimate.clients,
        "clients_per_round": ledger.asked / max(ledger.exchanges, 1),
        "rows": rows_of(setup.data),
        "engine": config.engine.name,
        "cost": cost,
        "leaves_a_site": leaving(ledger),
    }


def plan_without_data(config: Config, sites: int, why: str) -> RunPlan:
    """The plan of a run whose rows are elsewhere: what leaves a site is known, sizes are not."""
    cost: Cost = {
        "rounds": config.run.rounds,
        "exchanges": None,
        "bytes_down": None,
        "bytes_up": None,
        "bytes_down_per_client": None,
        "bytes_up_per_client": None,
        "samples": None,
        "local_steps": None,
        "exact": False,
        "seconds": None,
        "seconds_of_evaluation": None,
        "note": why,
    }
    return {
        "algorithm": config.algorithm.name,
        "problem": config.problem.name,
        "model": config.model.name,
        "parameters": None,
        "dataset": config.data.name,
        "clients": sites,
        "clients_per_round": None,
        "rows": {},
        "engine": config.engine.name,
        "cost": cost,
        "leaves_a_site": leaving_by_type(config.algorithm.name),
    }


def rows_of(data: FederatedData) -> dict[str, int]:
    """Rows of each part."""
    parts = {"train": data.train, "validation": data.validation, "test": data.test}
    return {part: len(rows.y) for part, rows in parts.items() if rows is not None}


def leaving(ledger: Ledger) -> list[Leaving]:
    """The fields of replies, as the exchanges had them."""
    return [{"field": name, "visibility": seen} for name, seen in ledger.fields.items()]


def leaving_by_type(algorithm: str) -> list[Leaving]:
    """The fields that replies to an algorithm may have, from the types of its methods."""
    seen = reply_fields(find(ALGORITHMS, "algorithm.name", algorithm))
    return [{"field": name, "visibility": one.value} for name, one in seen.items()]


def plan_table(plan: RunPlan, title: str) -> Table:
    """A plan for the terminal."""
    table = Table(title=title, show_header=False, title_justify="left", caption_justify="left")
    table.caption = cell(plan["cost"]["note"])
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for head, text in _lines(plan):
        table.add_row(head, text)
    return table


def _lines(plan: RunPlan) -> list[tuple[str, str]]:
    cost = plan["cost"]
    size = "" if plan["parameters"] is None else f", {plan['parameters']:,} numbers"
    rows = ", ".join(f"{count:,} {part}" for part, count in plan["rows"].items())
    lines = [
        ("algorithm", f"{cell(plan['algorithm'])} on {cell(plan['problem'])}, engine {cell(plan['engine'])}"),
        ("model", f"{cell(plan['model'])}{size}"),
        ("data", f"{cell(plan['dataset'])}: {plan['clients']:,} clients{f', rows: {rows}' if rows else ''}"),
        ("rounds", _rounds(plan)),
    ]
    for key, head in (("down", "to clients"), ("up", "from clients")):
        total, each = cost[f"bytes_{key}"], cost[f"bytes_{key}_per_client"]  # type: ignore[literal-required]
        if total is not None:
            about = "" if cost["exact"] else "about "
            lines.append((head, f"{about}{megabytes(total)}, {about}{megabytes(round(each))} a client"))
    lines.append(("time", _time(cost)))
    for one in plan["leaves_a_site"]:
        lines.append(("leaves a site", f"{cell(one['field'])}: {SEEN.get(one['visibility'], one['visibility'])}"))
    return lines


def _rounds(plan: RunPlan) -> str:
    cost = plan["cost"]
    text = f"{cost['rounds']:,}"
    if cost["exchanges"] is not None:
        text += f", {cost['exchanges']:,} exchanges with {plan['clients_per_round'] or 0:.3g} clients each"
    if cost["local_steps"] is not None:
        text += f", {cost['local_steps']:,} local steps"
    return text if cost["samples"] is None else f"{text}, {cost['samples']:,} samples"


def _time(cost: Cost) -> str:
    if cost["seconds"] is None or cost["seconds_of_evaluation"] is None:
        return "unknown"
    return f"about {duration(cost['seconds'])}, and {duration(cost['seconds_of_evaluation'])} of evaluation"


def print_run_plan(
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
    text = None if table is None else in_options()(table.to_toml)()
    config = read_config(path, changes, say) if text is None else config_with(parse_toml(text), changes, say)
    _print(_deployed(config, path, folder) if config.engine.name == "nvflare" else _simulation(config, folder))
    return 0


def _document(kind: Literal["simulation", "search", "deployed"], folder: Path, plan: RunPlan) -> DryRunDocument:
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
    setup = build(config)
    document = _document("simulation", folder, plan_of(config, setup))
    if has_baseline(config):
        other = baseline_of(config, setup.algorithm, config.run.rounds)
        document["baseline"] = plan_of(other, build_on(other, setup.data))
    return document


def _deployed(config: Config, path: Path, folder: Path) -> DryRunDocument:
    """Checked as far as it can be without the sites."""
    from fedsaddle.deployment.project import read_project, require_deployable, require_named_columns

    require_deployable(config)
    project = read_project(path.parent)
    require_named_columns(config, project.files)
    why = "the rows are at the sites, so that sizes and times are unknown here; simulate a table like theirs"
    document = _document("deployed", folder, plan_without_data(config, len(project.names), why))
    document["sites"] = list(project.names)
    document["plan"]["leaves_a_site"] += [
        {"field": what, "visibility": "per client"} for what in (ENCODING, EVALUATION)
    ]
    visible = "averaged" if config.privacy.secure_aggregation else "per client"
    document["plan"]["leaves_a_site"].append({"field": COUNTS, "visibility": visible})
    return document


@in_options()
def _search(table: TableConfig, folder: Path, aim: str, budget: str | None) -> DryRunDocument:
    from fedsaddle.commands.options import seconds_of
    from fedsaddle.studies.aims import aim_of
    from fedsaddle.studies.candidates import Facts, candidates
    from fedsaddle.studies.table_study import BUDGET
    from fedsaddle.studies.trial import features_of

    aim_of(aim)
    data = table.federated(table.dataset())
    planned, plans = [], []
    for candidate in candidates(Facts.of(data), aim):
        experiment = candidate.experiment(candidate.steps[0], table.seed)
        plan = plan_of(experiment, build_on(experiment, features_of(data, candidate)))
        plans.append(plan)
        planned.append(_trials(candidate.name, candidate.about, candidate.rounds, len(candidate.steps), plan))
    document = _document("search", folder, plans[1])
    document["candidates"] = planned
    document["budget"] = BUDGET if budget is None else seconds_of(budget)
    return document


def _trials(name: str, about: str, rounds: int, steps: int, plan: RunPlan) -> PlannedTrials:
    """A quarter of the rounds with each step, then all rounds with the best two and with steps beyond the grid."""
    from fedsaddle.studies.search import EXTENSIONS, FIRST_RUNG, KEPT

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
