"""The best round of a run so far, by a measure of the validation rows, and its model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from fedsaddle.algorithms.protocols import OwnLayers
from fedsaddle.errors import BadInput
from fedsaddle.metrics.selection import Selection
from fedsaddle.runs.checkpoints import Checkpoint
from fedsaddle.runs.evaluation import Solution


@dataclass(frozen=True)
class Kept:
    """A round's solution and its figure."""

    figure: float
    at: Solution


@dataclass
class BestRound:
    """The best of the evaluated rounds; of equal ones the earliest.

    A run that is continued for more rounds must choose as if it had never ended. Its former last round may have been
    evaluated for no other reason than that it was the last, so that the best of the `regular` ones is kept beside it.
    """

    selection: Selection
    best: Kept | None = None
    regular: Kept | None = None

    def offer(self, record: dict[str, Any], at: Solution, regular: bool) -> None:
        """Keep the solution if its record is better than all before."""
        figure = self.selection.figure(record)
        if figure is None:
            return
        kept = Kept(figure, at._replace(model=at.model.clone(), dual=None if at.dual is None else at.dual.clone()))
        self.best = self._better(kept, self.best)
        if regular:
            self.regular = self._better(kept, self.regular)

    def _better(self, new: Kept, old: Kept | None) -> Kept:
        return new if old is None or self.selection.better(new.figure, old.figure) else old

    def worse_since(self, history: list[dict[str, Any]]) -> int:
        """How many evaluations have not been better than the best."""
        after = 0 if self.best is None else self.best.at.rounds
        return sum(record["round"] > after for record in history)

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint stores beside `notes`."""
        found: dict[str, Tensor] = {}
        for kept in (self.best, self.regular):
            if kept is not None:
                found[f"{kept.at.rounds}.model"] = kept.at.model
                if kept.at.dual is not None:
                    found[f"{kept.at.rounds}.dual"] = kept.at.dual
                if kept.at.own is not None:
                    found[f"{kept.at.rounds}.local"] = kept.at.own.local
                    found |= {f"{kept.at.rounds}.own.{i}": v for i, v in kept.at.own.layers.items()}
        return found

    def notes(self) -> dict[str, Any]:
        """The measure, the rounds and their figures."""
        both = {"best": self.best, "regular": self.regular}
        rounds = {name: None if kept is None else [kept.at.rounds, kept.figure] for name, kept in both.items()}
        return {"measure": str(self.selection), **rounds}

    def restore(self, checkpoint: Checkpoint, due: Callable[[int], bool]) -> None:
        """Continue from a checkpoint; `due` says which rounds are evaluated now."""
        notes, tensors = checkpoint.notes["selected"], checkpoint.selected
        self.regular = _kept(notes["regular"], tensors)
        best = _kept(notes["best"], tensors)
        self.best = best if best is not None and due(best.at.rounds) else self.regular


def require_same_selection(best: BestRound | None, checkpoint: Checkpoint) -> None:
    """Refuse to continue a run by another measure: the models of its earlier rounds are gone."""
    before = (checkpoint.notes.get("selected") or {}).get("measure")
    now = None if best is None else str(best.selection)
    if before != now:
        raise BadInput("select", now, f"the run started with {before}; resume with the same")


def _kept(noted: list[Any] | None, tensors: dict[str, Tensor]) -> Kept | None:
    if noted is None:
        return None
    rounds, figure = noted
    own, local, mine = None, tensors.get(f"{rounds}.local"), f"{rounds}.own."
    if local is not None:
        layers = {int(name.removeprefix(mine)): v for name, v in tensors.items() if name.startswith(mine)}
        own = OwnLayers(local, layers)
    return Kept(float(figure), Solution(tensors[f"{rounds}.model"], tensors.get(f"{rounds}.dual"), int(rounds), own))
