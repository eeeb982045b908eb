"""The check of the model before it is handed on, in the report and in the model card."""

from __future__ import annotations

from fedsaddle.documents.release import CHANCE, ReleaseCheck, model_digest
from fedsaddle.documents.stored import read_document
from fedsaddle.documents.summary import Figure
from fedsaddle.errors import MissingData
from fedsaddle.report.page.parts import Block, PageTable, Section, Text
from fedsaddle.report.stored_run import StoredRun
from fedsaddle.report.words import many
from fedsaddle.text import visible

FEW = 5  # rows behind a feature, below which single rows may be told


def release(run: StoredRun) -> Section | None:
    """What attacks by membership inference found; None if the model was not checked, or has changed since."""
    check = stored_check(run)
    if check is None:
        return None
    rows = [[name, f"{auroc.value:.3f}", _interval(auroc)] for name, auroc in check.attacks.items()]
    blocks: list[Block] = [
        Text(verdict(check), "caution" if check.successful else "text"),
        PageTable(["attack", "AUROC", "95 % interval"], rows, caption="Telling training rows from held-out rows"),
        Text(
            f"{CHANCE:g} is guessing, 1 is certainty. {many(check.members, 'training row')} and "
            f"{many(check.others, 'held-out row')} of the same sites were told apart by the model's loss, and by the "
            f"likelihood ratio against {many(check.shadows, 'shadow model')}, trained by the same recipe.",
            "note",
        ),
        *(Text(line) for line in _beside(check)),
    ]
    return Section("release", "May the model be handed on?", blocks)


def stored_check(run: StoredRun) -> ReleaseCheck | None:
    """The check of this very model; None without one.

    Raises:
        ValueError: if its file is damaged.
    """
    check = read_document(ReleaseCheck, run.folder / "release.json")
    try:
        same = check is not None and check.model == model_digest(run.folder / "model.safetensors")
    except MissingData:
        return None
    return check if same else None


def verdict(check: ReleaseCheck) -> str:
    """The outcome in a sentence."""
    best = max(check.attacks.values(), key=lambda auroc: auroc.value)
    if check.successful:
        return (
            f"Do not hand this model on as it is: the attack by {' and by '.join(check.successful)} tells training "
            f"rows from others better than chance (AUROC up to {best.value:.3f}). Train with fewer features or rounds, "
            "a larger penalty or differential privacy, and check again."
        )
    return f"No attack told training rows from others better than chance (AUROC at most {best.value:.3f})."


def _beside(check: ReleaseCheck) -> list[str]:
    lines = []
    cell = check.smallest_cell
    if cell is not None:
        rarer = "" if cell.rarer is None else f", {cell.rarer:,} of them of the rarer class there"
        few = "; so few may be told from its weight: merge the category with another" if cell.rows < FEW else ""
        lines.append(f"Smallest cell: {visible(cell.feature)} has {many(cell.rows, 'training row')}{rarer}{few}.")
    bound = check.privacy
    if bound is not None:
        lines.append(
            f"With epsilon = {bound.epsilon:.3g} and delta = {bound.delta:.2g} no attack on a single row can have an "
            f"AUROC above {bound.auroc:.3f}."
        )
    return lines


def _interval(auroc: Figure) -> str:
    return "" if auroc.interval is None else f"{auroc.interval[0]:.3f} to {auroc.interval[1]:.3f}"
