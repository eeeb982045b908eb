"""The description of a benchmark: tasks, methods with their candidates, and a budget that is the same for all.

A task and a method are parts of a config, as in a TOML file: together with one candidate, a number of exchanges and a
seed they are a run. `suite_of(tasks, methods)` needs nothing heavy, so that names can be listed quickly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fedsaddle.arguments import did_you_mean
from fedsaddle.errors import BadInput

Options = Mapping[str, Any]  # a table of a config: any TOML value
Candidate = Mapping[str, Any]  # keys of a config, such as "algorithm.primal_step", and a value for each

PRIMAL = "algorithm.primal_step"
DUAL = "algorithm.dual_step"
SERVER = "algorithm.server_step"
TABLES = "tables"  # the folder below FEDSADDLE_DATA in which tables of sites are looked for
FALLING = ("loss", "gradient", "gap", "distance")  # a measure with such a word in its name is better where it is small


@dataclass(frozen=True)
class Task:
    """Data at clients, a model and what is measured: the same for all methods."""

    name: str
    about: str
    data: Options  # [data]; a `table` instead of a name is a file of the folder `tables`
    split: Options  # [split]
    model: Options  # [model]
    measures: tuple[str, ...]  # columns of a run, the first is the question: "test worst", "auroc", "duality_gap"
    exchanges: int  # between server and clients in a run, for every method
    local: Options = field(default_factory=dict)  # local_steps, batch_size ...: for each algorithm that has them
    step: float = 1.0  # the scale of steps, by which those of the candidates are multiplied
    scaled: tuple[str, ...] = (PRIMAL,)  # the keys that it multiplies
    problem: Options = field(default_factory=dict)  # [problem] where the task sets it, as a game does
    extra: tuple[Any, ...] = ()  # measures that a run takes in addition: names, or tables with a name
    evaluations: int = 20  # of a run
    seconds: float = 1.0  # of one core for a run of one method, the mean of all: measured on a short piece
    validated: bool = True  # whether candidates are measured on held-out rows; otherwise on another draw of the rows
    dtype: str = "float32"


@dataclass(frozen=True)
class Method:
    """An algorithm with its problem, and the candidates among which it is tuned."""

    label: str
    algorithm: Options  # [algorithm]
    candidates: tuple[Candidate, ...]
    problem: Options = field(default_factory=dict)  # [problem]
    data: Options = field(default_factory=dict)  # more of [data], such as positives_per_batch
    exchanges: int = 1  # in a round
    steps: str = "constant"  # or "two stages": a third of the step in the second half of the rounds


@dataclass(frozen=True)
class Suite:
    """A question, and all that `fedsaddle benchmark` needs to answer it."""

    name: str
    question: str
    tasks: tuple[Task, ...]
    methods: tuple[Method, ...]
    seeds: int = 5
    tuning_seeds: tuple[int, ...] = (1000, 1001)  # not among those of the final runs
    tuning_share: float = 0.5  # of the exchanges, in the runs that tune
    quick_tasks: tuple[str, ...] = ()
    quick_share: float = 0.25  # of the exchanges
    quick_seeds: int = 2
    quick_candidates: int = 2
    quick: bool = False
    part: bool = False  # of the tasks, methods or seeds
    asked: str = ""  # the measure that was asked for in the place of the tasks' own

    def __post_init__(self) -> None:
        counts = {len(method.candidates) for method in self.methods}
        if len(counts) > 1:
            raise BadInput("methods", sorted(counts), "all methods of a suite must have as many candidates")
        for key, names in (("tasks", [t.name for t in self.tasks]), ("methods", [m.label for m in self.methods])):
            twice = [name for name in names if names.count(name) > 1]
            if not names or twice:
                raise BadInput(key, twice, "give at least one, and each name once")
        if not self.tuning_seeds or min(self.tuning_seeds) < self.seeds:
            raise BadInput("tuning_seeds", self.tuning_seeds, f"give some that are not below seeds, {self.seeds}")

    @property
    def baseline(self) -> str:
        """The method that all others are compared with in pairs of seeds: the first."""
        return self.methods[0].label

    @property
    def budget(self) -> int:
        """Candidates of each method."""
        return len(self.methods[0].candidates)

    def shortened(self) -> Suite:
        """A version of a few minutes, from which nothing can be concluded: fewer tasks, seeds and exchanges."""
        kept = [task for task in self.tasks if not self.quick_tasks or task.name in self.quick_tasks]
        tasks = tuple(replace(t, exchanges=max(4, round(t.exchanges * self.quick_share)), evaluations=5) for t in kept)
        methods = tuple(replace(m, candidates=_middle(m.candidates, self.quick_candidates)) for m in self.methods)
        tuning = self.tuning_seeds[:1]
        return replace(self, tasks=tasks, methods=methods, seeds=self.quick_seeds, tuning_seeds=tuning, quick=True)

    def chosen(self, tasks: Sequence[str], methods: Sequence[str], seeds: int | None, measure: str | None) -> Suite:
        """The same with some tasks and methods, another number of seeds, and another measure as the question.

        Raises:
            BadInput: for a name that the suite has not.
        """
        made = replace(self, part=bool(tasks or methods or seeds is not None))
        if tasks:
            known = {task.name: task for task in self.tasks}
            made = replace(made, tasks=tuple(_one(known, "--tasks", name) for name in dict.fromkeys(tasks)))
        if methods:
            labels = {method.label: method for method in self.methods}
            made = replace(made, methods=tuple(_one(labels, "--only", name) for name in dict.fromkeys(methods)))
        if seeds is not None:
            most = min(self.tuning_seeds)
            if not 1 <= seeds <= most:
                raise BadInput("--seeds", seeds, f"give a number from 1 to {most}")
            made = replace(made, seeds=seeds)
        return made if measure is None else made.by(measure)

    def by(self, measure: str) -> Suite:
        """The same suite with another question: methods are tuned for that measure, and ranked by it."""
        known = dict.fromkeys(name for task in self.tasks for name in task.measures)
        if measure not in known:
            raise BadInput("--measure", measure, f"choose one of {', '.join(known)}")
        kept = [task for task in self.tasks if measure in task.measures]
        first = [replace(t, measures=(measure, *(m for m in t.measures if m != measure))) for t in kept]
        return replace(self, tasks=tuple(first), asked=measure)

    def folder(self, name: str) -> str:
        """Where files go: a part, a quick run or another question does not take the place of the whole.

        >>> task, method = Task("t", "", {}, {}, {}, ("x", "y z"), 1), Method("m", {}, ({},))
        >>> Suite("a", "?", (task,), (method,)).by("y z").folder("a")
        'a-by-y-z'
        """
        by = f"-by-{self.asked.replace(' ', '-')}" if self.asked else ""
        return name.replace(":", ".") + by + ("-part" if self.part else "") + ("-quick" if self.quick else "")

    def runs(self) -> tuple[int, int]:
        """How many runs tune, and how many are final."""
        pairs = len(self.tasks) * len(self.methods)
        return pairs * self.budget * len(self.tuning_seeds), pairs * self.seeds

    def minutes(self) -> float:
        """Of one core, by the estimates of the tasks."""
        each = len(self.methods) * (self.budget * len(self.tuning_seeds) * self.tuning_share + self.seeds)
        share = self.quick_share if self.quick else 1.0
        return sum(task.seconds for task in self.tasks) * each * share / 60


def actual(task: Task, chosen: Candidate) -> dict[str, Any]:
    """The values of a candidate on a task, whose step they are multiplied by."""
    return {key: float(f"{value * task.step:.6g}") if key in task.scaled else value for key, value in chosen.items()}


def falls(measure: str) -> bool:
    """Whether small values of a measure are good.

    Examples:
        >>> falls("squared_gradient_of_phi"), falls("test worst")
        (True, False)
    """
    return any(word in measure for word in FALLING)


def steps(*values: float) -> tuple[Candidate, ...]:
    """Candidates that differ in their step alone, the smallest first."""
    return tuple({PRIMAL: value} for value in values)


def each(found: Sequence[Candidate], key: str, *values: Any) -> tuple[Candidate, ...]:
    """Every candidate with every value of one more key.

    Examples:
        >>> each(steps(0.1), "algorithm.q", 1, 5)
        ({'algorithm.primal_step': 0.1, 'algorithm.q': 1}, {'algorithm.primal_step': 0.1, 'algorithm.q': 5})
    """
    return tuple({**candidate, key: value} for candidate in found for value in values)


def _middle(candidates: tuple[Candidate, ...], count: int) -> tuple[Candidate, ...]:
    begin = max(0, (len(candidates) - count) // 2)
    return candidates[begin : begin + count]


def _one(known: Mapping[str, Any], key: str, name: str) -> Any:
    by_lower = {label.lower(): label for label in known}
    if name.lower() in by_lower:
        return known[by_lower[name.lower()]]
    raise BadInput(key, name, f"{did_you_mean(name, known)}choose among {'; '.join(known)}")
