"""The result of a run: the model, the history and a summary."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Generic

from torch import Tensor, nn
from typing_extensions import TypeVar

from fedsaddle.algorithms.protocols import Algorithm, OwnLayers, mixture_of
from fedsaddle.arguments import optional, text, whole
from fedsaddle.arguments import path as checked_path
from fedsaddle.documents.summary import RunSummary
from fedsaddle.errors import BadInput
from fedsaddle.files import Record
from fedsaddle.problems.protocols import HasModel

State = TypeVar("State", default=Any)  # of the server


@dataclass(frozen=True)
class Result(Generic[State]):
    """A finished run.

    Args:
        algorithm: as it was given to `fs.run`.
        server: its state after the last round.
        history: the evaluations, as in metrics.jsonl.
        document: the summary, as in summary.json, as a typed document.
        selected: the model of the best round, if the run chose one by validation rows; None: the last round's counts.
        own: layers that clients keep to themselves; None: there are none.
        features: names of the data's columns, where they are known.
    """

    algorithm: Algorithm[State]
    server: State
    history: list[Record]
    document: RunSummary
    selected: Tensor | None = None
    own: OwnLayers | None = None
    features: tuple[str, ...] = ()

    @cached_property
    def summary(self) -> Record:
        """The figures and totals, as in summary.json."""
        return self.document.to_dict()

    @property
    def model(self) -> Tensor:
        """The solution as a flat vector: of the best round if the run chose one, else of the last."""
        return self.algorithm.model(self.server) if self.selected is None else self.selected

    @property
    def mixture(self) -> Tensor | None:
        """λ, for algorithms that have one."""
        return mixture_of(self.algorithm, self.server)

    @property
    def warnings(self) -> list[str]:
        """What to know before the model is used: that it diverged, learnt nothing, or gives every row one score."""
        return [warning.text for warning in self.document.warnings]

    @property
    def has_module(self) -> bool:
        """Whether the solution is the parameter vector of a module."""
        problem = self.algorithm.problem
        return isinstance(problem, HasModel) and problem.model is not None

    def module(self) -> nn.Module:
        """The trained module."""
        problem = self.algorithm.problem
        if not isinstance(problem, HasModel) or problem.model is None:
            name = type(problem).__name__
            raise BadInput("problem", name, "has no model; the solution is the plain vector `result.model`")
        return problem.module(self.model)

    def client_model(self, client: int) -> Tensor:
        """The flat vector of one client, with the layers that it keeps to itself; the solution where there are none."""
        number = whole("client", client, least=0)
        return self.model if self.own is None else self.own.model_of(number, self.model)

    def client_module(self, client: int) -> nn.Module:
        """The trained module of one client, with its own layers."""
        return replace(self, selected=self.client_model(client)).module()

    def state_dict(self) -> dict[str, Tensor]:
        """The module's state dict; for a problem without a module, the solution vector as "x"."""
        if not self.has_module:
            return {"x": self.model.contiguous()}
        return {k: v.contiguous() for k, v in self.module().state_dict().items()}

    def final(self, measure: str | None = None, statistic: str = "worst") -> float:
        """A figure of the summary, on the test rows if there are any; by default accuracy, else the loss."""
        optional(text, "measure", measure)
        text("statistic", statistic)
        measured = self.document.main_measures
        measure = measure or ("accuracy" if "accuracy" in measured else "loss")
        if measure not in measured:
            raise BadInput("measure", measure, f"choose one of {', '.join(measured)}")
        if statistic not in measured[measure]:
            raise BadInput("statistic", statistic, f"choose one of {', '.join(measured[measure])}")
        return measured[measure][statistic]

    def plot(self, path: str | Path, measure: str | None = None, x: str = "round") -> Path:
        """Plot worst, mean and best over the rounds, or one pooled measure over `x`, such as "exchanges"."""
        from fedsaddle.report.plots import pooled, progress

        name, file = self.document.algorithm, checked_path("path", path)
        optional(text, "measure", measure)
        text("x", x)
        if file.is_dir():
            raise BadInput("path", str(file), "is a folder; name a file in it, such as plot.svg")
        try:
            if measure is None:
                return progress(self.history, file, title=name)
            return pooled({name: self.history}, measure, file, x=x, title=name)
        except OSError as reason:
            raise BadInput("path", str(file), f"cannot be written: {reason.strerror}; name another file") from None

    def report(self, path: str | Path) -> Path:
        """Write a page about this run to an HTML file, for people; a run with `out` has one in its folder."""
        from fedsaddle.documents.stored import complete_rounds
        from fedsaddle.report.run_report import write_page
        from fedsaddle.report.stored_run import StoredRun

        file = checked_path("path", path)
        if file.is_dir():
            raise BadInput("path", str(file), "is a folder; name a file in it, such as report.html")
        try:
            return write_page(StoredRun(file.parent, self.document, complete_rounds(self.history)[0]), file)
        except OSError as reason:
            raise BadInput("path", str(file), f"cannot be written: {reason.strerror}; name another file") from None
