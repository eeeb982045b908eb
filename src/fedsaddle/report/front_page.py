"""The top of a report: what was asked, what was chosen and why, how good it is, for whom it is worst, and cautions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedsaddle.metrics.intervals import Interval
from fedsaddle.metrics.ranking import FEW
from fedsaddle.report.page.parts import Figure, Text
from fedsaddle.report.sections.decisions import chosen_figures, few_alarms
from fedsaddle.report.sections.missing import read_missing
from fedsaddle.report.sections.trials import cut_in_words, reason_in_words, ways_tried
from fedsaddle.report.sections.two_classes import two_classes
from fedsaddle.report.sections.worst import (
    gap_in_words,
    groups_of,
    least_found,
    worst_group,
    worst_site,
    worst_site_in_words,
)
from fedsaddle.report.stored_run import StoredRun
from fedsaddle.report.tables import against_fedavg
from fedsaddle.report.words import LEVEL, MINUS, of_100, percent, with_interval
from fedsaddle.shown import visible

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
        f"{against_fedavg(gaps)}."
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
    against = f" Against FedAvg the difference is {gap} on all rows together: {against_fedavg(gaps)}." if gap else ""
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
