"""The plan of a run and its cost, as documents and as tables."""

from __future__ import annotations

from rich.table import Table

from fedsaddle.commands.documents import Cost, Leaving, Plan
from fedsaddle.config.build import Experiment
from fedsaddle.config.lookup import find
from fedsaddle.config.registry import ALGORITHMS
from fedsaddle.config.schema import Config
from fedsaddle.data.federated import FederatedData
from fedsaddle.federation.records import Visibility
from fedsaddle.federation.wrappers import Ledger
from fedsaddle.report.progress import duration
from fedsaddle.report.tables import cell, megabytes
from fedsaddle.runs.rehearsal import Length, rehearse
from fedsaddle.secure.visible import reply_fields

SEEN = {
    Visibility.AVERAGED.value: "the server sees the mean over the clients only",
    Visibility.POOLED.value: "the server sees the rows of all clients together, without their names",
    Visibility.PER_CLIENT.value: "the server sees each client's own",
}


def length_of(config: Config) -> Length:
    """What the cost of a config's run depends on."""
    run, engine = config.run, config.engine
    return Length(
        run.rounds,
        run.seed,
        run.evaluate_every,
        run.lost_replies,
        engine.name,
        engine.chunk,
        engine.workers,
        engine.device,
        engine.precision,
    )


def plan_of(config: Config, built: Experiment) -> Plan:
    """The plan of a simulated run, with the cost of a rehearsal."""
    estimate = rehearse(built.algorithm, built.data, length_of(config), built.measures)
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
        "dataset": config.data.name,
        "clients": estimate.clients,
        "clients_per_round": ledger.asked / max(ledger.exchanges, 1),
        "rows": rows_of(built.data),
        "engine": config.engine.name,
        "cost": cost,
        "leaves_a_site": leaving(ledger),
    }


def plan_without_data(config: Config, sites: int, why: str) -> Plan:
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


def plan_table(plan: Plan, title: str) -> Table:
    """A plan for the terminal."""
    table = Table(title=title, show_header=False, title_justify="left", caption_justify="left")
    table.caption = cell(plan["cost"]["note"])
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for head, text in _lines(plan):
        table.add_row(head, text)
    return table


def _lines(plan: Plan) -> list[tuple[str, str]]:
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


def _rounds(plan: Plan) -> str:
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
