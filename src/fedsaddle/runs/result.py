"""What a run leaves: the model, its history and a summary."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from fedsaddle.errors import BadInput


@dataclass(frozen=True)
class Result:
    """A finished run."""

    algorithm: Any
    server: Any
    history: list[dict[str, Any]]
    summary: dict[str, Any]

    @property
    def model(self) -> Tensor:
        """The solution as one flat vector."""
        w: Tensor = self.algorithm.model(self.server)
        return w

    @property
    def mixture(self) -> Tensor | None:
        """λ, for algorithms that have one."""
        return mixture_of(self.algorithm, self.server)

    def module(self) -> nn.Module:
        """The solution as a module of the kind that was trained."""
        trained: nn.Module = self.algorithm.problem.module(self.model)
        return trained

    def state_dict(self) -> dict[str, Tensor]:
        """The module's state for plain PyTorch; for a problem of plain vectors, the vector as "x"."""
        if getattr(self.algorithm.problem, "flat", None) is None:
            return {"x": self.model.contiguous()}
        return {k: v.contiguous() for k, v in self.module().state_dict().items()}

    def final(self, measure: str | None = None, statistic: str = "worst") -> float:
        """A figure of the last evaluation, on the test rows where there are any; by default accuracy, or the loss."""
        measured = main_part(self.summary)
        measure = measure or ("accuracy" if "accuracy" in measured else "loss")
        if measure not in measured:
            raise BadInput("measure", measure, f"this problem measures {', '.join(measured)}")
        if statistic not in measured[measure]:
            raise BadInput("statistic", statistic, f"choose one of {', '.join(measured[measure])}")
        return measured[measure][statistic]

    def plot(self, path: str | Path, measure: str | None = None, x: str = "round") -> Path:
        """Draw worst, mean and best over the rounds, or one pooled measure over `x`, such as "exchanges"."""
        from fedsaddle.report.plots import pooled, progress

        name = self.summary["algorithm"]
        if measure is None:
            return progress(self.history, Path(path), title=name)
        return pooled({name: self.history}, measure, Path(path), x=x, title=name)


def main_part(record: dict[str, Any]) -> dict[str, dict[str, float]]:
    """The figures that count: on the test rows where there are any."""
    part: dict[str, dict[str, float]] = record["test"] if "test" in record else record["train"]
    return part


def mixture_of(algorithm: Any, server: Any) -> Tensor | None:
    """λ, for algorithms that have one."""
    if not hasattr(algorithm, "mixture"):
        return None
    lam: Tensor = algorithm.mixture(server)
    return lam


def read_history(path: Path, most_rounds: int | None = None) -> list[dict[str, Any]]:
    """The records of a metrics.jsonl, without a last line that was cut off and those after `most_rounds`."""
    records: list[dict[str, Any]] = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            record = json.loads(line)
        except ValueError:
            break
        if most_rounds is not None and record["round"] > most_rounds:
            break
        records.append(record)
    return records
