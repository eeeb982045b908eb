"""The top of the report of a run that is not a search: what was run, how it does for its clients, and cautions."""

from __future__ import annotations

from typing import Any

from fedsaddle.metrics.target import is_side, main_part_name, pooled_part
from fedsaddle.report.front_page import Front, answered, for_whom_it_is_worst
from fedsaddle.report.page.parts import Figure
from fedsaddle.report.sections.clients import clients_of, worst_first
from fedsaddle.report.sections.two_classes import two_classes
from fedsaddle.report.sections.worst import headline
from fedsaddle.report.stored_run import StoredRun
from fedsaddle.report.words import bounds, plus_minus, titled, with_interval
from fedsaddle.shown import visible

PARTS = {"test": "test rows", "validation": "validation rows", "train": "training rows"}
FEW_ROWS = 30  # of the worst client: below, its figure is uncertain


def front_of_clients(run: StoredRun) -> Front:
    """The front page of any run with an evaluation."""
    ranks = _ranks_only(run)  # then the value of the objective says nothing to a reader
    good = (_ranked(run), "" if ranks else _how_good(run), _measures(run))
    worst = (for_whom_it_is_worst(run), "" if ranks else _worst(run))
    answers = {
        "What was run": _asked(run),
        "How good it is": " ".join(filter(None, good)),
        "For whom it is worst": " ".join(filter(None, worst)),
        "How it ended": _ended(run),
    }
    return Front(answered(answers), headline(run) or _figures(run), _cautions(run, ranks))


def _ranks_only(run: StoredRun) -> bool:
    """Whether the run is about the order of rows: it has an AUROC, and no measure of clients but its objective."""
    found = measured(run)
    return found is not None and found[1] == "loss" and bool(_ranked(run))


def _asked(run: StoredRun) -> str:
    problem = run.setting("problem", "name")
    about = f" on the problem {visible(problem)}" if problem else ""
    data = run.split.get("data") or run.setting("data", "name")
    rows = f" with {visible(data)}" if data else ""
    clients = run.split.get("clients") or len(run.summary.get("sites", ())) or None
    where = f" at {clients:,} {'real sites' if run.is_deployed else 'clients'}" if isinstance(clients, int) else ""
    rounds = run.summary.get("rounds", run.history[-1]["round"] if run.history else 0)
    kept = run.summary.get("selected_round")
    chosen = f"; the model of round {kept} was kept, by {visible(run.summary.get('select', ''))}" if kept else ""
    return f"{visible(run.name)} was run{about}{rows}{where} for {rounds:,} rounds{chosen}."


def measured(run: StoredRun) -> tuple[str, str, dict[str, Any]] | None:
    """The part, the measure and its statistics that count; None where no evaluation can be read."""
    for source in (run.summary, run.history[-1] if run.history else {}):
        part = main_part_name(source)
        found = source.get(part)
        if isinstance(found, dict) and found:
            measure = "accuracy" if "accuracy" in found else next(iter(found))
            if isinstance(found[measure], dict):
                return part, measure, found[measure]
    return None


def _how_good(run: StoredRun) -> str:
    found = measured(run)
    if found is None:
        return ""
    part, measure, spread = found
    if measure == "accuracy":
        return (
            f"On the {PARTS[part]} it is right for {100 * spread['mean']:.1f} of 100 rows of the mean client, and for "
            f"{100 * spread['worst']:.1f} of 100 at the worst one (standard deviation over clients "
            f"{100 * spread['std']:.1f} points)."
        )
    return (
        f"On the {PARTS[part]} the mean client's {visible(measure)} is {spread['mean']:.4g}, the worst one's "
        f"{spread['worst']:.4g} (standard deviation over clients {spread['std']:.4g})."
    )


def worst_client(run: StoredRun) -> tuple[str, float, int | None] | None:
    """The client with the worst figure: its name, the figure and its rows; None where the run does not name clients."""
    found = measured(run)
    if found is None:
        return None
    part, measure, _ = found
    try:
        there = worst_first(clients_of(run, part), measure)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        return None
    if not there:
        return None
    sizes = run.split.get({"test": "test_sizes", "validation": "validation_sizes"}.get(part, "train_sizes")) or []
    names, worst = run.client_names, there[0]
    at = names.index(worst.name) if worst.name in names else len(sizes)
    rows = worst.rows if worst.rows is not None else sizes[at] if at < len(sizes) else None
    return worst.name, float(worst.figures[measure] or 0.0), rows


def _worst(run: StoredRun) -> str:
    found = worst_client(run)
    if found is None:
        return ""
    name, value, rows = found
    counted = f", of {rows:,} rows" if rows else ""
    return f"In the last evaluation it does worst at {visible(name)}: {value:.4g}{counted}."


def _ranked(run: StoredRun) -> str:
    """The AUROC of a run of two classes."""
    found = two_classes(run)
    if found is not None and found.choice.pooled.auroc is not None:
        text = f"Over all rows, the AUROC is {with_interval(found.choice.pooled.auroc, 3)}."
        gap = None if found.difference is None else found.difference.auroc
        if gap is None:
            return text
        return (
            f"{text} Against FedAvg on the same rows, not tuned, the difference is {with_interval(gap, 3, sign=True)}."
        )
    pooled = _pooled(run)
    scores = run.summary.get("scores") or {}
    missing = [visible(name) for name in scores.get("without_counts") or ()]
    over = "Over the rows of all sites" + (f" but {', '.join(missing)}" if missing else "")
    known = (scores.get("pooled") or {}).get("auroc_bounds")  # as in the section with the details
    if "auroc_low" in pooled:
        low, high = known or (pooled["auroc_low"], pooled["auroc_high"])
        return f"{over}, the AUROC lies in the range {bounds(low, high)} (bounds: sites merge small counts)."
    if "auroc" not in pooled:
        return f"None of the sites ({', '.join(missing)}) shares score counts, so that no AUROC is known." * bool(
            missing
        )
    if "auroc_error" in pooled:
        return f"{over}, the AUROC is {plus_minus(pooled['auroc'], pooled['auroc_error'])}."
    return f"{over}, the AUROC is {pooled['auroc']:.4f}."


def _measures(run: StoredRun) -> str:
    """Measures of a min-max run."""
    ranking = ("auroc", "partial", "two_way", "average_precision", "worst_site", "best_site", "std_site")
    own = {k: v for k, v in _pooled(run).items() if not k.startswith(ranking) and not is_side(k)}
    texts = [f"{visible(k).replace('_', ' ')} {v:.4g}" for k, v in own.items() if isinstance(v, float)]
    return f"At the end: {', '.join(texts)}." if texts else ""


def _pooled(run: StoredRun) -> dict[str, Any]:
    found = pooled_part(run.summary) or (pooled_part(run.history[-1]) if run.history else {})
    return found if isinstance(found, dict) else {}


def _ended(run: StoredRun) -> str:
    how = run.summary.get("stopped")
    if how in (None, "finished"):
        return "" if how else "The run has not finished, or its summary is lost."
    return f"{visible(how)[:1].upper()}{visible(how)[1:]}."


def _figures(run: StoredRun) -> list[Figure]:
    found = measured(run)
    if found is None:
        return []
    part, measure, spread = found
    names = {"worst": "worst client", "bottom10": "worst tenth of clients", "mean": "mean client", "std": "spread"}
    return [
        Figure(f"{visible(measure)}, {name}", f"{spread[key]:.3f}", PARTS[part])
        for key, name in names.items()
        if isinstance(spread.get(key), float)
    ]


def _cautions(run: StoredRun, ranks: bool) -> list[str]:
    found, measured_on = [], measured(run)
    if measured_on is not None and measured_on[0] == "train":
        found.append("The figures are of rows that the model was trained on: on new rows it will do worse.")
    if run.summary.get("tuned") is False:
        found.append(
            f"{visible(run.name)} is not tuned: its step is that of its config, and part of a difference to other "
            "methods may be that. Without --algorithm, `fedsaddle run` chooses steps on validation rows."
        )
    worst = None if ranks else worst_client(run)
    if worst is not None and worst[2] is not None and worst[2] < FEW_ROWS:
        found.append(
            f"The worst client, {visible(worst[0])}, has {worst[2]} rows: the lowest figure of many small clients is "
            "low by chance too."
        )
    if run.is_deployed:
        found.append(
            "The figures come from what may leave the sites: means, and counts of scores. Their bounds say how far the "
            "counts leave them open; they are no confidence intervals."
        )
    notes = run.summary.get("cautions", ())
    return [*(f"{titled(visible(line))}." for line in notes), *found]
