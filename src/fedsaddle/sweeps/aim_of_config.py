"""By which figure of which rows the cells of a sweep are compared, found before anything is run."""

from __future__ import annotations

from collections.abc import Sequence

from fedsaddle.config.build import Experiment, build
from fedsaddle.config.schema import Config
from fedsaddle.engines.choose import make_engine
from fedsaddle.errors import BadInput
from fedsaddle.metrics.selection import Selection
from fedsaddle.metrics.target import Target
from fedsaddle.problems.protocols import MinimaxProblem, MinimisationProblem
from fedsaddle.runs.compatibility import check_algorithm, check_rows
from fedsaddle.runs.evaluation import LocalEvaluator, Solution
from fedsaddle.sweeps.figures import Aim, Part

CAUTIONS = {
    "validation": "",
    "test": "the best cell was chosen on test rows, so its figure is too good; hold out others to choose by: "
    "--set data.validation_share=0.16",
    "train": "the best cell was chosen on training rows, so its figure says nothing about new rows; set "
    "data.test_share and data.validation_share",
}


def aim_of_config(config: Config, by: str | None) -> Aim:
    """The aim: `by`, else `run.select`, else the AUROC, the worst client's accuracy or its loss.

    Builds the data of the config, so that what is wrong with them is told before anything is run.

    Raises:
        BadInput: if the problem has no such figure.
    """
    built = build(config)
    rows, pooled, parts = _measures(config, built)
    wanted = by if by is not None else config.run.select
    part: Part = "validation" if "validation" in parts else "test" if "test" in parts else "train"
    if wanted is None:
        wanted = "auroc" if rows == ["loss"] and "auroc" in pooled else f"worst {rows[-1] if rows else 'loss'}"
        if "accuracy" in rows:
            wanted = "worst accuracy"
    try:
        selection = Selection.parse(wanted)
    except BadInput as error:
        raise BadInput("by", error.value, error.remedy) from None
    known: Sequence[str] = pooled if selection.statistic is None else rows
    if selection.measure not in known:
        raise BadInput("by", wanted, f"the problem has no such figure; of this kind there are: {', '.join(known)}")
    target = None if config.run.target is None else str(Target.parse(config.run.target))
    return Aim(selection, part, target)


def _measures(config: Config, built: Experiment) -> tuple[list[str], list[str], Sequence[str]]:
    """The measures of clients, the pooled ones, and the parts of the rows."""
    algorithm, data = built.algorithm, built.data
    check_algorithm(algorithm)
    train = check_rows(algorithm, data.train, data.test, data.validation)
    problem = algorithm.problem
    assert isinstance(problem, MinimisationProblem | MinimaxProblem)  # checked before
    evaluator = LocalEvaluator(problem, train, data.test, built.measures, validation=data.validation)
    engine = make_engine("serial", problem, train, config.run.seed)
    at = Solution(algorithm.model(algorithm.start(engine)), None, 0)
    return evaluator.row_measures(at), evaluator.pooled_measures(at), evaluator.parts
