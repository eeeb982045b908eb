"""The top of a report: what was asked, what was chosen and why, how good it is, for whom it is worst, and cautions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedsaddle.documents.summary import Figures
from fedsaddle.metrics.intervals import Interval
from fedsaddle.metrics.ranking import FEW
from fedsaddle.metrics.selection import is_side, main_part_name, pooled_part
from fedsaddle.report.page.parts import Figure, Text
from fedsaddle.report.sections.clients import clients_of, worst_first
from fedsaddle.report.sections.decisions import chosen_figures, few_alarms
from fedsaddle.report.sections.inputs import read_missing
from fedsaddle.report.sections.ranking import two_classes
from fedsaddle.report.sections.settings import cut_in_words, reason_in_words, ways_tried
from fedsaddle.report.sections.subgroups import (
    gap_in_words,
    groups_of,
    headline,
    least_found,
    worst_group,
    worst_site,
    worst_site_in_words,
)
from fedsaddle.report.stored_run import StoredRun
from fedsaddle.report.tables import against_fedavg
from fedsaddle.report.words import LEVEL, MINUS, PARTS, bounds, of_100, percent, plus_minus, titled, with_interval
from fedsaddle.text import visible

FEW_POSITIVES = 30  # test rows: below, every figure is uncertain
WIDE = 0.15  # of an interval of the AUROC
MUCH_MISSING = 0.3  # of a column
AIMS = {
    "auroc": "the AUROC, which says how often a positive row is ranked above a negative one",
    "average-precision": "the average precision, which says how pure the top of the ranking is",
    "partial-auroc": "the AUROC where at most 30 of 100 negatives are called positive",
    "worst-site": "the log loss of the site where it is largest",
    "accuracy": "the share of rows that are called right",
}


@dataclass(frozen=True)
class Front:
    """Answers, figures and cautions."""

    answers: Sequence[Text]
    figures: Sequence[Figure] = ()
    cautions: Sequence[str] = ()


def front_of_search(run: StoredRun) -> Front:
    """The front page of a search on a table."""
    answers = {
        "What was asked": _asked(run),
        "What was chosen, and why": _chosen(run),
        "How good it is": _how_good(run),
        "Better than plain averaging?": _against_fedavg(run),
        "As a decision": _decisions(run),
        "For whom it is worst": for_whom_it_is_worst(run),
        "At a site that was not trained on": at_new_sites(run.summary),
    }
    return Front(answered(answers), _figures(run), cautions_of_search(run))


def answered(answers: Mapping[str, str]) -> list[Text]:
    """The answers that there are, below their questions."""
    return [Text(words, head=head) for head, words in answers.items() if words]


def interval_text(figure: Any, *, sign: bool = False) -> str:
    """An entry of a summary as "0.822 (95 % interval 0.639 to 0.924)"; empty without a value."""
    found = interval_of(figure)
    if found is not None:
        return with_interval(found, 3, sign=sign)
    value = figure.get("value") if isinstance(figure, dict) else None
    return f"{value:{'+' if sign else ''}.3f}".replace("-", MINUS) if isinstance(value, float) else ""


def interval_of(figure: Any) -> Interval | None:
    """An entry of a summary as an interval; None where it has none."""
    if not isinstance(figure, dict):
        return None
    value, ends = figure.get("value"), figure.get("interval")
    if not isinstance(value, float) or not isinstance(ends, list) or len(ends) != 2:
        return None
    return Interval(value, *map(float, ends))


def _asked(run: StoredRun) -> str:
    asked, rows = run.search, run.summary.get("rows", {})
    total = sum(part.get("rows", 0) for part in rows.values())
    positives = sum(part.get("positives", 0) for part in rows.values())
    outcome = f"{visible(asked.get('label', 'label'))} = {visible(run.summary.get('positive', 'positive'))}"
    sites = max(_sites(run), len(run.client_names), 0 if run.test is None else len(run.test.names))
    where = f" at {sites} sites" if sites else ""
    aim = AIMS.get(str(run.summary.get("aim")), visible(run.summary.get("aim", "")))
    return (
        f"The question was which rows have {outcome}, learnt from {total:,} rows{where} of which {positives:,} have it "
        f"({100 * positives / max(total, 1):.1f} of 100). What counted is {aim}."
    )


def _chosen(run: StoredRun) -> str:
    tried = len(ways_tried(run))
    among = f" among {tried} ways to train" if tried else ""
    return f"Chosen{among}: {visible(run.summary['choice'])}{reason_in_words(run)}."


def _how_good(run: StoredRun) -> str:
    ours, rows = run.summary.get("pooled", {}).get("choice", {}), run.summary.get("rows", {}).get("test", {})
    area = ours.get("auroc")
    if not isinstance(area, dict) or "value" not in area:
        return ""
    words = (
        f"On {rows.get('rows', 0):,} test rows ({rows.get('positives', 0):,} positive), held out and looked at once, a "
        f"row with the outcome is ranked above one without it in {100 * area['value']:.0f} of 100 pairs: AUROC "
        f"{interval_text(area)}."
    )
    within = interval_text(ours.get("within_site_auroc"))
    return f"{words} Among rows of the same site it is {within}." if within else words


def _against_fedavg(run: StoredRun) -> str:
    if run.summary.get("choice") == "FedAvg":
        return ""
    gaps = run.summary.get("pooled", {}).get("difference", {})
    pooled, within = (interval_text(gaps.get(key), sign=True) for key in ("auroc", "within_site_auroc"))
    if not pooled:
        return ""
    inside = f", within sites {within}" if within else ""
    return (
        f"Against FedAvg, tuned alike, the difference of the AUROC is {pooled} on all sites' rows together{inside}: "
        f"{against_fedavg(Figures.model_validate(gaps))}."
    )


def at_new_sites(summary: Mapping[str, Any]) -> str:
    """What `--leave-one-site-out` found for the chosen model; empty where it was not asked for."""
    found: Mapping[str, Any] = summary.get("leave_one_site_out") or {}
    own = found.get(str(summary.get("choice")))
    if not isinstance(own, dict) or not interval_text(own.get("auroc")):
        return ""
    within = interval_text(own.get("within_site_auroc"))
    inside = f", among rows of the same site {within}" if within else ""
    clients = [c for c in own.get("clients", ()) if isinstance(c, dict) and interval_of(c.get("auroc")) is not None]
    worst = min(clients, key=lambda c: c["auroc"]["value"], default=None)
    lowest = (
        f" The lowest is {visible(worst['name'])} with {interval_text(worst['auroc'])}."
        if worst and clients[1:]
        else ""
    )
    gaps = found.get("difference", {})
    gap = interval_text(gaps.get("auroc"), sign=True) if isinstance(gaps, dict) else ""
    against = (
        f" Against FedAvg the difference is {gap} on all rows together: {against_fedavg(Figures.model_validate(gaps))}."
        if gap
        else ""
    )
    return (
        "The same way to train was repeated without each site in turn, and tested on the site that was left out: AUROC "
        f"{interval_text(own['auroc'])} on all rows together{inside}.{lowest}{against}"
    )


def _decisions(run: StoredRun) -> str:
    found = two_classes(run)
    at = None if found is None else chosen_figures(found)
    if found is None or at is None or at.sensitivity is None or at.alarms is None:
        return ""
    right = at.positive_predictive_value
    alarms = "" if right is None else f" Of 100 alarms, {_of_100(right)} are right."
    if right is None and at.raised:
        alarms = f" {few_alarms(at)}."
    return (
        f"If rows with a probability of at least {percent(at.threshold, 1)} are called positive, a threshold that "
        f"{visible(run.summary.get('threshold', {}).get('reason', ''))}, {_of_100(at.alarms)} of 100 rows raise an "
        f"alarm, and of 100 rows with the outcome {_of_100(at.sensitivity)} are found.{alarms}"
    )


def _of_100(figure: Interval) -> str:
    return f"{of_100(figure.value)} ({LEVEL} {of_100(figure.low)} to {of_100(figure.high)})"


def for_whom_it_is_worst(run: StoredRun) -> str:
    """The site and the group with the lowest AUROC, or why none can be named; empty without two classes."""
    found = two_classes(run)
    if found is None:
        return ""
    site, group = worst_site(run), worst_group(run)
    ranked = [s for s in found.choice.sites if s.auroc is not None]
    if site is not None:
        words = [worst_site_in_words(site)]
    elif len(found.choice.sites) > 1:
        few = f"only {visible(ranked[0].name)} has" if ranked else "none has"
        words = [f"No site can be named: of {len(found.choice.sites)} sites {few} {FEW} test rows of each class."]
    else:
        words = []
    if group is not None:
        words.append(
            f"Of the groups, {visible(group.name)} has the lowest AUROC: {with_interval(group.found.auroc, 3)}. "
            + gap_in_words(group.found, "group")
        )
    elif found.test is not None and found.test.groups:
        words.append(f"Fewer than two groups have {FEW} test rows of each class, so that none can be called the worst.")
    words.append(least_found(run))
    return " ".join(filter(None, words))


def _figures(run: StoredRun) -> list[Figure]:
    ours = run.summary.get("pooled", {}).get("choice", {})
    names = {
        "auroc": "AUROC, all rows",
        "within_site_auroc": "AUROC within sites",
        "average_precision": "Average precision",
    }
    found = []
    for key, name in names.items():
        figure = ours.get(key)
        if isinstance(figure, dict) and isinstance(figure.get("value"), float):
            ends: list[float] = figure.get("interval") or []
            detail = f"95 % interval {ends[0]:.2f} to {ends[1]:.2f}" if len(ends) == 2 else ""
            found.append(Figure(name, f"{figure['value']:.3f}", detail))
    brier = run.summary.get("probabilities", {}).get("brier_score")
    if isinstance(brier, float):
        rows = run.summary.get("rows", {}).get("test", {})
        share = rows.get("positives", 0) / max(rows.get("rows", 0), 1)
        found.append(
            Figure(
                "Brier score",
                f"{brier:.3f}",
                f"lower is better; the base rate for everybody has {share * (1 - share):.3f}",
            )
        )
    return found


def cautions_of_search(run: StoredRun) -> list[str]:
    """What to be careful about: few positives, wide intervals, missing cells, sites that differ."""
    summary = run.summary
    found = [words] if (words := cut_in_words(summary)) else []
    positives = summary.get("rows", {}).get("test", {}).get("positives")
    if isinstance(positives, int) and positives < FEW_POSITIVES:
        found.append(
            f"There are only {positives} positive test rows: look at the intervals rather than at the figures, and "
            "collect more before anybody decides by this."
        )
    area = summary.get("pooled", {}).get("choice", {}).get("auroc", {})
    ends = area.get("interval") if isinstance(area, dict) else None
    if ends and ends[1] - ends[0] > WIDE:
        found.append(f"The AUROC may be anything from {ends[0]:.2f} to {ends[1]:.2f}.")
    unranked, sites = _sites_without_figure(run)
    if unranked and sites:
        have = ("has", "its own", "there") if unranked == 1 else ("have", "their own", "at each of them")
        which = f"{unranked} of {sites}" if unranked < sites else f"All {sites}"
        found.append(
            f"{which} sites {have[0]} too few test rows of a class for a figure of {have[1]}: how good the model is "
            f"{have[2]} is not known."
        )
    few = _groups_without_figure(run)
    if few:
        found.append(f"Too few test rows of a class to say how well the model ranks these groups: {_some(few)}.")
    much = [c for c, entry in read_missing(run).items() if entry["share"] >= MUCH_MISSING]
    if much:
        where = "one column" if len(much) == 1 else f"{len(much)} columns"
        found.append(f"In {where}, {100 * MUCH_MISSING:.0f} of 100 cells or more are missing: {_some(much)}.")
    found += [visible(line)[:1].upper() + visible(line)[1:] + "." for line in summary.get("cautions", ())]
    found.append("The model was tested on rows of the same sites and time. Elsewhere and later it may do worse.")
    return found


def _some(names: Sequence[str], most: int = 5) -> str:
    """The first names, and how many more there are."""
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(visible(name) for name in names[:most]) + rest


def _sites_without_figure(run: StoredRun) -> tuple[int, int]:
    """How many sites have no AUROC of their own, and of how many."""
    found, roc = two_classes(run), run.summary.get("roc", {})
    if found is not None and len(found.choice.sites) > 1:
        return sum(site.auroc is None for site in found.choice.sites), len(found.choice.sites)
    return roc.get("single_class_clients", 0) + roc.get("few_clients", 0), _sites(run)


def _groups_without_figure(run: StoredRun) -> list[str]:
    found = two_classes(run)
    columns = {} if found is None else groups_of(found)
    return [f"{visible(column)} {g.name}" for column, own in columns.items() for g in own.groups if g.few]


def _sites(run: StoredRun) -> int:
    first: dict[str, Any] = next(iter(run.roc.get("models", {}).values()), {})
    return len(first.get("clients", ()))


FEW_ROWS = 30  # of the worst client: below, its figure is uncertain


def front_of_clients(run: StoredRun) -> Front:
    """The front page of any run with an evaluation."""
    ranks = _ranks_only(run)  # then the value of the objective says nothing to a reader
    good = (_ranked(run), "" if ranks else _how_good_for_clients(run), _measures(run))
    worst = (for_whom_it_is_worst(run), "" if ranks else _worst(run))
    answers = {
        "What was run": _asked_of_clients(run),
        "How good it is": " ".join(filter(None, good)),
        "For whom it is worst": " ".join(filter(None, worst)),
        "How it ended": _ended(run),
    }
    return Front(answered(answers), headline(run) or _figures_of_clients(run), _cautions(run, ranks))


def _ranks_only(run: StoredRun) -> bool:
    """Whether the run is about the order of rows: it has an AUROC, and no measure of clients but its objective."""
    found = measured(run)
    return found is not None and found[1] == "loss" and bool(_ranked(run))


def _asked_of_clients(run: StoredRun) -> str:
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


def _how_good_for_clients(run: StoredRun) -> str:
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
    if scores.get("summed") and known:
        exact = interval_text((scores.get("pooled") or {}).get("auroc"))
        return f"{over}, the AUROC {f'is {exact}' if exact else f'lies in the range {bounds(*known)}'}."
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


def _figures_of_clients(run: StoredRun) -> list[Figure]:
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
        summed = bool((run.summary.get("scores") or {}).get("summed"))
        found.append(
            "The figures come from what may leave the sites: means, figures of their own, and counts of scores."
            + ("" if summed else " Bounds say how far counts leave a figure open; they are no confidence intervals.")
        )
    notes = run.summary.get("cautions", ())
    return [*(f"{titled(visible(line))}." for line in notes), *found]
