"""What others can learn about the rows: from what each site sends, and from the model itself."""

from __future__ import annotations

from collections.abc import Mapping

from fedsaddle.documents.stored import CHANCE, ReleaseCheck
from fedsaddle.documents.summary import LedgerTotals, SiteAnswers, StoredFigure
from fedsaddle.report.page.parts import Block, Bullets, PageTable, Section, Text
from fedsaddle.report.stored_run import StoredRun
from fedsaddle.report.words import amount, many
from fedsaddle.text import shortened, visible

LISTED = 200
SEEN = {
    "averaged": "averaged: the server uses only the weighted mean over the clients",
    "pooled": "pooled: the server sees the values of all clients together, without their names",
    "per client": "per client: the server sees the value of each client, with its name",
}
WORDS = {  # of the fields of replies
    "loss": "the client's loss on a batch of its rows",
    "final": "the model after the client's local steps",
    "w": "the model after the client's local steps",
    "x": "the model after the client's local steps",
    "y": "the variables of the maximisation after the local steps",
    "snapshot": "the model at a random local step",
    "picked": "the model at a random local step",
    "path": "the sum or mean of the local iterates",
    "path_x": "the sum or mean of the local iterates",
    "delta": "the update of the model, weighted by the client's loss",
    "h": "a number that scales the update of the model",
    "G": "a running estimate of the gradient",
    "scores1": "scores of sampled rows, without row numbers",
    "scores2": "scores of sampled rows, without row numbers",
    "count1": "number of rows of the first class",
    "count2": "number of rows of the second class",
    "any1": "whether the client has rows of the first class",
    "any2": "whether the client has rows of the second class",
}

MARKS = (
    "This describes what the method uses. Without secure aggregation the operator of the server could read a single "
    "reply before it is summed, and a mean over one client is that client's value."
)


def left_sites(run: StoredRun) -> Section | None:
    """Replies of the algorithm and who sees them, evaluations, and bytes.

    Args:
        run: The run.
    """
    if run.finished is None:
        return None
    ledger, budget = run.finished.ledger, run.finished.privacy
    fields = {visible(name): seen for name, seen in ledger.fields.items()}
    blocks: list[Block] = [Text(_first(run, "pooled" in fields.values()))]
    if fields:
        about = {name: (_meaning(name), SEEN.get(seen, seen)) for name, seen in fields.items()}
        rows = [[name, *(_in_terms(run, text) for text in both)] for name, both in about.items()]
        blocks.append(PageTable(["reply", "what it is", "who sees it"], rows, caption="In every exchange"))
    blocks.append(Bullets(_beside(run)))
    blocks.append(Text(_in_terms(run, _amounts(ledger, run))))
    if run.run_summary is not None and run.run_summary.sites:
        blocks += _by_site(run.run_summary.sites)
    if budget is not None:
        said = ", ".join(f"{visible(k)} {visible(v)}" for k, v in budget.to_dict().items())
        blocks.append(Text(f"Noise was added for differential privacy: {said}."))
    if "averaged" in fields.values():
        blocks.append(
            Text(
                _in_terms(run, MARKS) + ("" if budget is not None else " No noise was added for differential privacy."),
                "note",
            )
        )
    return Section("left-sites", "What left each site", blocks)


def _first(run: StoredRun, pooled: bool) -> str:
    if not run.is_deployed:
        return (
            "This was a simulation: all rows were on one machine, and nothing left it. At real sites the same "
            "algorithm would send what is listed here, and the rows would stay at the sites."
        )
    if pooled:
        return "The rows stayed at the sites. The sites sent the following to the server; it includes scores of rows."
    return "The rows and the scores of single rows stayed at the sites. The sites sent the following to the server."


def _in_terms(run: StoredRun, words: str) -> str:
    """The text with "site" in place of "client" where the clients are the sites of a table."""
    if not (run.is_search or run.is_deployed):
        return words
    return words.replace("client", "site").replace("Client", "Site")


def _meaning(name: str) -> str:
    return WORDS.get(name.rsplit(".", 1)[-1], "values that the algorithm computes at the client")


def _beside(run: StoredRun) -> list[str]:
    """What is sent in addition to the replies of the algorithm."""
    sent = "sent" if run.is_deployed else "would send"
    lines = [
        f"Before the first round each site {sent} its number of rows, the counts of its labels and, for a table, "
        "statistics of the columns in the config: sums, counts in bins and counts of categories; no count below the "
        "site's minimum cell, 5 unless its policy sets another."
    ]
    if run.history:
        times = many(len(run.history), "evaluation")
        lines.append(
            f"In each of {times} each site {sent} the mean of every measure over its rows, which the server sees per "
            "site."
        )
    pooled = (run.run_summary.pooled or run.run_summary.pooled_validation or {}) if run.run_summary else {}
    if "auroc" in pooled or run.is_search:
        stored = "; this folder has their sum over sites" if run.is_deployed else ""
        lines.append(
            f"For two classes each site {sent} counts of its positives and negatives in bins of the score, merged "
            f"until none is below its minimum cell{stored}."
        )
    return lines


def _amounts(ledger: LedgerTotals, run: StoredRun) -> str:
    clients = len(run.site_names or run.client_names)
    up, down = ledger.bytes_up, ledger.bytes_down
    words = (
        f"{many(ledger.exchanges, 'exchange')}: {amount(up)} of replies to the server and "
        f"{amount(down)} of models from it"
    )
    if clients:
        words += f", {amount(up / clients)} and {amount(down / clients)} per client on average"
    words += ", without headers and evaluations."
    if ledger.asked:
        words += f" Clients were asked {ledger.asked:,} times and answered {ledger.answered:,} times."
    if run.is_search:
        words += " That is the chosen run only; each other candidate costs about as much again."
    return words


def _by_site(sites: Mapping[str, SiteAnswers]) -> list[Block]:
    rows, missed = [], []
    for name, line in list(sites.items())[:LISTED]:
        why = "; ".join(f"{visible(reason)} ({n:,})" for reason, n in line.left_out.items())
        total = sum(line.left_out.values())
        rows.append(
            [
                visible(name),
                f"{line.answered:,}",
                f"{total:,}",
                amount(line.bytes_up),
                amount(line.bytes_down),
                shortened(why, 200),
            ]
        )
        if total:
            missed.append(f"{visible(name)} ({total:,} times)")
    heads = ["site", "answered", "left out", "sent", "received", "why left out"]
    caption = "With headers and evaluations, without encryption"
    found: list[Block] = [PageTable(heads, rows, caption=caption)]
    if missed:
        found.append(Text(f"Left out of some exchanges: {', '.join(missed)}. Their rows had less weight.", "caution"))
    return found


FEW = 5  # rows behind a feature, below which single rows may be disclosed


def release(run: StoredRun) -> Section | None:
    """The results of membership inference; None if the model was not checked, or has changed since.

    Args:
        run: The run.
    """
    check = run.release
    if check is None:
        return None
    rows = [[name, f"{auroc.value:.3f}", _interval(auroc)] for name, auroc in check.attacks.items()]
    blocks: list[Block] = [
        Text(verdict(check), "caution" if check.successful else "text"),
        PageTable(
            ["attack", "AUROC", "95 % interval"],
            rows,
            caption="Membership inference: training rows against held-out rows",
        ),
        Text(
            f"{CHANCE:g} is guessing, 1 is certainty. The attacks classify {many(check.members, 'training row')} and "
            f"{many(check.others, 'held-out row')} of the same sites by the model's loss, and by the likelihood ratio "
            f"against {many(check.shadows, 'shadow model')} of the same recipe.",
            "note",
        ),
        *(Text(line) for line in _cell_and_bound(check)),
    ]
    return Section("release", "May the model be released?", blocks)


def verdict(check: ReleaseCheck) -> str:
    """The outcome in a sentence.

    Args:
        check: Of the model.
    """
    best = max(check.attacks.values(), key=lambda auroc: auroc.value)
    if check.successful:
        return (
            f"Do not release this model: the attack by {' and by '.join(check.successful)} recognises training rows "
            f"better than chance (AUROC up to {best.value:.3f}). Train with fewer features or rounds, a larger penalty "
            "or differential privacy, and check again."
        )
    return f"No attack recognised training rows better than chance (AUROC at most {best.value:.3f})."


def _cell_and_bound(check: ReleaseCheck) -> list[str]:
    lines = []
    cell = check.smallest_cell
    if cell is not None:
        rarer = "" if cell.rarer is None else f", {cell.rarer:,} of them of the rarer class there"
        few = "; so few may be disclosed by its weight: merge the category with another" if cell.rows < FEW else ""
        lines.append(f"Smallest cell: {visible(cell.feature)} has {many(cell.rows, 'training row')}{rarer}{few}.")
    bound = check.privacy
    if bound is not None:
        lines.append(
            f"With epsilon = {bound.epsilon:.3g} and delta = {bound.delta:.2g} no attack on a single row can have an "
            f"AUROC above {bound.auroc:.3f}."
        )
    return lines


def _interval(auroc: StoredFigure) -> str:
    return "" if auroc.interval is None else f"{auroc.interval[0]:.3f} to {auroc.interval[1]:.3f}"
