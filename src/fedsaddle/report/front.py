"""The top of a report: the question, the choice and its reason, the main figures, the worst site, and cautions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedsaddle.documents.summary import Figures, PartName, RankedClient, RowCounts, SearchSummary, Spread, StoredFigure
from fedsaddle.metrics.intervals import Interval
from fedsaddle.metrics.ranking import FEW
from fedsaddle.metrics.selection import is_side
from fedsaddle.report.page.parts import Figure, Text
from fedsaddle.report.sections.clients import clients_of, worst_first
from fedsaddle.report.sections.decisions import few_alarms
from fedsaddle.report.sections.ranking import interval_of, outcome_of, two_classes
from fedsaddle.report.sections.settings import cut_in_words, reason_in_words, ways_tried
from fedsaddle.report.sections.subgroups import (
    gap_in_words,
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
    "auroc": "the AUROC, the probability that a positive row is ranked above a negative one",
    "average-precision": "the average precision, the mean precision over all levels of recall",
    "partial-auroc": "the AUROC up to a false positive rate of 30 %",
    "worst-site": "the largest log loss of a site",
    "worst-group": "the largest log loss of a group",
    "accuracy": "the share of rows that are classified correctly",
}


@dataclass(frozen=True)
class Front:
    """The top of a page.

    Args:
        answers: To the questions of a reader.
        figures: The main figures.
        cautions: What to be careful about.
    """

    answers: Sequence[Text]
    figures: Sequence[Figure] = ()
    cautions: Sequence[str] = ()


def front_of_search(run: StoredRun, summary: SearchSummary) -> Front:
    """The front page of a search on a table.

    Args:
        run: The search.
        summary: Its summary.
    """
    answers = {
        "What was asked": _asked(run, summary),
        "What was chosen, and why": _chosen(run, summary),
        "How good it is": _how_good(summary),
        "Better than plain averaging?": _against_fedavg(summary),
        "As a decision": _decisions(run, summary),
        "For whom it is worst": for_whom_it_is_worst(run),
        "At a site that was not trained on": at_new_sites(summary),
    }
    return Front(answered(answers), _figures(summary), cautions_of_search(run, summary))


def answered(answers: Mapping[str, str]) -> list[Text]:
    """The answers that are not empty, below their questions.

    Args:
        answers: By question.
    """
    return [Text(words, head=head) for head, words in answers.items() if words]


def interval_text(figure: StoredFigure | None, *, sign: bool = False) -> str:
    """A figure of a summary as "0.822 (95 % interval 0.639 to 0.924)"; empty without one.

    Args:
        figure: Of the summary.
        sign: Whether positive values have a plus sign.
    """
    if figure is None:
        return ""
    both = interval_of(figure)
    if both is not None:
        return with_interval(both, 3, sign=sign)
    return f"{figure.value:{'+' if sign else ''}.3f}".replace("-", MINUS)


def _asked(run: StoredRun, summary: SearchSummary) -> str:
    total = sum(part.rows for part in summary.rows.values())
    positives = sum(part.positives for part in summary.rows.values())
    sites = max(_sites(run), len(run.client_names), 0 if run.test is None else len(run.test.names))
    where = f" at {sites} sites" if sites else ""
    aim = AIMS.get(summary.aim, visible(summary.aim))
    return (
        f"The question was which rows have {outcome_of(run)}, learnt from {total:,} rows{where} of which "
        f"{positives:,} have it ({100 * positives / max(total, 1):.1f} of 100). What counted is {aim}."
    )


def _chosen(run: StoredRun, summary: SearchSummary) -> str:
    tried = len(ways_tried(run))
    among = f" among {tried} ways to train" if tried else ""
    return f"Chosen{among}: {visible(summary.choice)}{reason_in_words(summary)}."


def _test_rows(summary: SearchSummary) -> RowCounts:
    return summary.rows.get("test", RowCounts(rows=0, positives=0))


def _how_good(summary: SearchSummary) -> str:
    ours, rows = summary.pooled.choice, _test_rows(summary)
    if ours.auroc is None:
        return ""
    words = (
        f"On {rows.rows:,} test rows ({rows.positives:,} positive), held out and evaluated once, a "
        f"row with the outcome is ranked above one without it in {100 * ours.auroc.value:.0f} of 100 pairs: AUROC "
        f"{interval_text(ours.auroc)}."
    )
    within = interval_text(ours.within_site_auroc)
    return f"{words} Among rows of the same site it is {within}." if within else words


def _against_fedavg(summary: SearchSummary) -> str:
    if summary.choice == "FedAvg":
        return ""
    gaps = summary.pooled.difference
    pooled, within = (interval_text(gap, sign=True) for gap in (gaps.auroc, gaps.within_site_auroc))
    if not pooled:
        return ""
    inside = f", within sites {within}" if within else ""
    return (
        f"Against FedAvg, tuned alike, the difference of the AUROC is {pooled} on all sites' rows together{inside}: "
        f"{against_fedavg(gaps)}."
    )


def at_new_sites(summary: SearchSummary) -> str:
    """The result of `--leave-one-site-out` for the chosen model; empty without it.

    Args:
        summary: Of the search.
    """
    left_out = summary.leave_one_site_out
    own = left_out.models.get(summary.choice) if left_out else None
    if left_out is None or own is None or own.auroc is None:
        return ""
    within = interval_text(own.within_site_auroc)
    inside = f", among rows of the same site {within}" if within else ""
    gaps = left_out.difference or Figures()
    gap = interval_text(gaps.auroc, sign=True)
    against = f" Against FedAvg the difference is {gap} on all rows together: {against_fedavg(gaps)}." if gap else ""
    return (
        "Training was repeated without each site in turn, and tested on the site that was left out: AUROC "
        f"{interval_text(own.auroc)} on all rows together{inside}.{_lowest(own.clients)}{against}"
    )


def _lowest(clients: Sequence[RankedClient]) -> str:
    """The site with the lowest AUROC, where several have one."""
    ranked = [(own.value, client) for client in clients if (own := interval_of(client.auroc)) is not None]
    if len(ranked) < 2:
        return ""
    worst = min(ranked, key=lambda pair: pair[0])[1]
    return f" The lowest is {visible(worst.name)} with {interval_text(worst.auroc)}."


def _decisions(run: StoredRun, summary: SearchSummary) -> str:
    found = two_classes(run)
    at = None if found is None else found.at_threshold
    if found is None or at is None or at.sensitivity is None or at.alarms is None:
        return ""
    right = at.positive_predictive_value
    alarms = "" if right is None else f" Of 100 alarms, {_of_100(right)} are right."
    if right is None and at.raised:
        alarms = f" {few_alarms(at)}."
    return (
        f"If rows with a probability of at least {percent(at.threshold, 1)} are classified as positive, a threshold "
        f"that {visible(summary.threshold.reason)}, {_of_100(at.alarms)} of 100 rows raise an "
        f"alarm, and of 100 rows with the outcome {_of_100(at.sensitivity)} are found.{alarms}"
    )


def _of_100(figure: Interval) -> str:
    return f"{of_100(figure.value)} ({LEVEL} {of_100(figure.low)} to {of_100(figure.high)})"


def for_whom_it_is_worst(run: StoredRun) -> str:
    """The site and the group with the lowest AUROC, or why there is none; empty without two classes.

    Args:
        run: The run.
    """
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


def _figures(summary: SearchSummary) -> list[Figure]:
    ours = summary.pooled.choice
    named = {
        "AUROC, all rows": ours.auroc,
        "AUROC within sites": ours.within_site_auroc,
        "Average precision": ours.average_precision,
    }
    figures = []
    for name, figure in named.items():
        if figure is not None:
            own = interval_of(figure)
            detail = "" if own is None else f"95 % interval {own.low:.2f} to {own.high:.2f}"
            figures.append(Figure(name, f"{figure.value:.3f}", detail))
    brier = summary.probabilities.brier_score
    if brier is not None:
        rows = _test_rows(summary)
        share = rows.positives / max(rows.rows, 1)
        detail = f"lower is better; the base rate for everybody has {share * (1 - share):.3f}"
        figures.append(Figure("Brier score", f"{brier:.3f}", detail))
    return figures


def cautions_of_search(run: StoredRun, summary: SearchSummary) -> list[str]:
    """What to be careful about: few positives, wide intervals, missing cells, sites that differ.

    Args:
        run: The search.
        summary: Its summary.
    """
    cautions = [words] if (words := cut_in_words(summary)) else []
    if "test" in summary.rows and (positives := summary.rows["test"].positives) < FEW_POSITIVES:
        cautions.append(
            f"There are only {positives} positive test rows: rely on the intervals rather than on the figures, and "
            "collect more rows before using the model."
        )
    area = interval_of(summary.pooled.choice.auroc)
    if area is not None and area.high - area.low > WIDE:
        cautions.append(f"The AUROC is uncertain: its 95 % interval is {area.low:.2f} to {area.high:.2f}.")
    unranked, sites = _sites_without_figure(run, summary)
    if unranked and sites:
        have = ("has", "its own", "there") if unranked == 1 else ("have", "their own", "at each of them")
        which = f"{unranked} of {sites}" if unranked < sites else f"All {sites}"
        cautions.append(
            f"{which} sites {have[0]} too few test rows of a class for a figure of {have[1]}: the performance "
            f"{have[2]} is unknown."
        )
    few = _groups_without_figure(run)
    if few:
        cautions.append(f"Too few test rows of a class to say how well the model ranks these groups: {_some(few)}.")
    much = [column for column, missing in summary.missing.items() if missing.share >= MUCH_MISSING]
    if much:
        where = "one column" if len(much) == 1 else f"{len(much)} columns"
        cautions.append(f"In {where}, {100 * MUCH_MISSING:.0f} of 100 cells or more are missing: {_some(much)}.")
    cautions += [f"{titled(visible(line))}." for line in summary.cautions]
    cautions.append("The model was tested on rows of the same sites and period. Elsewhere and later it may be worse.")
    return cautions


def _some(names: Sequence[str], most: int = 5) -> str:
    """The first names, and how many more there are."""
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(visible(name) for name in names[:most]) + rest


def _sites_without_figure(run: StoredRun, summary: SearchSummary) -> tuple[int, int]:
    """How many sites have no AUROC of their own, and of how many."""
    found = two_classes(run)
    if found is not None and len(found.choice.sites) > 1:
        return sum(site.auroc is None for site in found.choice.sites), len(found.choice.sites)
    return (summary.roc.single_class_clients + summary.roc.few_clients if summary.roc else 0), _sites(run)


def _groups_without_figure(run: StoredRun) -> list[str]:
    found = two_classes(run)
    columns = {} if found is None else found.groups
    return [f"{visible(column)} {g.name}" for column, own in columns.items() for g in own.groups if g.few]


def _sites(run: StoredRun) -> int:
    return len(next(iter(run.roc.models.values())).clients) if run.roc else 0


FEW_ROWS = 30  # of the worst client: below, its figure is uncertain


def front_of_clients(run: StoredRun) -> Front:
    """The front page of any run with an evaluation.

    Args:
        run: The run.
    """
    ranks = _ranks_only(run)  # then the value of the objective is not meaningful to a reader
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
    """Whether the run optimises a ranking: it has an AUROC, and the only measure of its clients is the objective."""
    found = measured(run)
    return found is not None and found[1] == "loss" and bool(_ranked(run))


def _asked_of_clients(run: StoredRun) -> str:
    problem = run.setting("problem", "name")
    about = f" on the problem {visible(problem)}" if problem else ""
    rows = f" with {visible(run.data_name)}" if run.data_name else ""
    clients = run.split.clients if run.split else len(run.site_names)
    where = f" at {clients:,} {'real sites' if run.is_deployed else 'clients'}" if clients else ""
    rounds = run.finished.rounds if run.finished else run.history[-1].round if run.history else 0
    summary, chosen = run.run_summary, ""
    if summary is not None and summary.selected_round:
        chosen = f"; the model of round {summary.selected_round} was selected by {visible(summary.select or '')}"
    return f"{visible(run.name)} was run{about}{rows}{where} for {rounds:,} rounds{chosen}."


def measured(run: StoredRun) -> tuple[PartName, str, Spread] | None:
    """The main part and measure with its statistics; None without an evaluation.

    Args:
        run: The run.
    """
    if run.evaluation is None or not run.evaluation.main_measures:
        return None
    measures = run.evaluation.main_measures
    measure = "accuracy" if "accuracy" in measures else next(iter(measures))
    return run.evaluation.main_part, measure, measures[measure]


def _how_good_for_clients(run: StoredRun) -> str:
    found = measured(run)
    if found is None:
        return ""
    part, measure, spread = found
    if measure == "accuracy":
        return (
            f"On the {PARTS[part]} it classifies {100 * spread['mean']:.1f} of 100 rows of the mean client correctly, "
            f"and {100 * spread['worst']:.1f} of 100 at the worst one (standard deviation over clients "
            f"{100 * spread['std']:.1f} points)."
        )
    return (
        f"On the {PARTS[part]} the mean client's {visible(measure)} is {spread['mean']:.4g}, the worst one's "
        f"{spread['worst']:.4g} (standard deviation over clients {spread['std']:.4g})."
    )


def worst_client(run: StoredRun) -> tuple[str, float, int | None] | None:
    """The client with the worst figure: its name, the figure and its rows; None if clients are not listed.

    Args:
        run: The run.
    """
    found = measured(run)
    if found is None:
        return None
    part, measure, _ = found
    there = worst_first(clients_of(run, part), measure)
    if not there:
        return None
    sizes, names, worst = run.sizes(part), run.client_names, there[0]
    at = names.index(worst.name) if worst.name in names else len(sizes)
    rows = worst.rows if worst.rows is not None else sizes[at] if at < len(sizes) else None
    return worst.name, float(worst.figures[measure] or 0.0), rows


def _worst(run: StoredRun) -> str:
    found = worst_client(run)
    if found is None:
        return ""
    name, value, rows = found
    counted = f", of {rows:,} rows" if rows else ""
    return f"In the last evaluation it is worst at {visible(name)}: {value:.4g}{counted}."


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
    pooled, scores = run.pooled, run.run_summary.scores if run.run_summary else None
    missing = [visible(name) for name in scores.without_counts] if scores else []
    over = "Over the rows of all sites" + (f" but {', '.join(missing)}" if missing else "")
    known = scores.pooled.auroc_bounds if scores else None  # as in the section with the details
    if scores is not None and scores.summed and known:
        exact = interval_of(scores.pooled.auroc)
        return (
            f"{over}, the AUROC {f'is {with_interval(exact, 3)}' if exact else f'lies in the range {bounds(*known)}'}."
        )
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
    own = {k: v for k, v in run.pooled.items() if not k.startswith(ranking) and not is_side(k)}
    texts = [f"{visible(k).replace('_', ' ')} {v:.4g}" for k, v in own.items()]
    return f"At the end: {', '.join(texts)}." if texts else ""


def _ended(run: StoredRun) -> str:
    if run.summary is None:
        return "The run has not finished, or its summary is missing."
    return "" if run.summary.stopped == "finished" else f"{titled(run.summary.stopped)}."


def _figures_of_clients(run: StoredRun) -> list[Figure]:
    found = measured(run)
    if found is None:
        return []
    part, measure, spread = found
    names = {"worst": "worst client", "bottom10": "worst tenth of clients", "mean": "mean client", "std": "spread"}
    return [Figure(f"{visible(measure)}, {name}", f"{spread[key]:.3f}", PARTS[part]) for key, name in names.items()]


def _cautions(run: StoredRun, ranks: bool) -> list[str]:
    found, measured_on = [], measured(run)
    if measured_on is not None and measured_on[0] == "train":
        found.append("The figures are on training rows: on new rows the model will be worse.")
    if run.run_summary is not None and run.run_summary.tuned is False:
        found.append(
            f"{visible(run.name)} is not tuned: it has the step of its config, which may explain part of a difference "
            "from other methods. Without --algorithm, `fedsaddle run` tunes steps on validation rows."
        )
    worst = None if ranks else worst_client(run)
    if worst is not None and worst[2] is not None and worst[2] < FEW_ROWS:
        found.append(
            f"The worst client, {visible(worst[0])}, has {worst[2]} rows: the lowest figure of many small clients is "
            "also low by chance."
        )
    if run.is_deployed:
        summed = run.run_summary is not None and run.run_summary.scores is not None and run.run_summary.scores.summed
        found.append(
            "The figures are computed from what the sites share: means, figures of their own, and counts of scores."
            + ("" if summed else " Their bounds are the extremes that fit the counts, not confidence intervals.")
        )
    notes = run.finished.cautions if run.finished else ()
    return [*(f"{titled(visible(line))}." for line in notes), *found]
