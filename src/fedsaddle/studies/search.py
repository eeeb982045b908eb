"""`fs.search`: train several candidates, choose on validation rows, and compare with FedAvg tuned alike.

The default is a logistic regression with an intercept for each site, exact by `fs.Newton` where it has at most 500
parameters, else by FedAvg with server momentum, as for pictures. Any other candidate has to beat it on validation rows
by more than chance. Test rows are not looked at.
"""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from torch import Tensor

from fedsaddle.arguments import flag, function, instance, number, optional, whole
from fedsaddle.arguments import path as file_path
from fedsaddle.data.federated import FederatedData
from fedsaddle.data.table import Encoded
from fedsaddle.errors import BadCheckpoint, BadInput
from fedsaddle.files import make_folder, read_object, write_atomically, write_json
from fedsaddle.processes import cores
from fedsaddle.studies.aims import WORST_GROUP, Aim, aim_of
from fedsaddle.studies.candidates import (
    AVERAGED,
    BASE,
    FEDAVG,
    HINGES,
    Candidate,
    beyond,
    candidates,
)
from fedsaddle.studies.pool import Interrupted, Pool
from fedsaddle.studies.site_questions import LARGE, Model, SimulatedSites, Sites, TrialPool
from fedsaddle.studies.trial import Progress, Trial, TrialOutcome, run_trial
from fedsaddle.text import safe_cell, visible

CHANCE = 2.0  # standard errors by which a candidate has to be ahead
FIRST_RUNG = 4  # the first rung of the halving is this part of the rounds
SHORT = 10.0  # seconds
KEPT = 2  # steps that go on to the second rung
EXTENSIONS = 2  # times that a grid is extended by a step beyond its end

Tell = Callable[[Trial, int, float | None], None]


@dataclass(frozen=True)
class TrialRecord:
    """A line of trials.csv."""

    candidate: str
    step: float
    rounds: int
    selected_round: int | None
    value: float | None  # of the aim, on validation rows
    gain: float | None = None  # over what it had to beat
    error: float | None = None  # standard error of that
    seconds: float = 0.0
    note: str = ""


@dataclass(frozen=True)
class Choice:
    """The result of a search.

    Args:
        aim: the figure that was optimised.
        chosen: the model of the chosen candidate.
        fedavg: FedAvg's, tuned alike.
        default: that of the default, which the others had to beat by more than chance.
        trials: all that was trained, a line each, as in trials.csv.
        reason: why this candidate was chosen.
        seconds: used, by all processes of the search.
        cut: candidates some of whose trials the budget left no time for.
    """

    aim: str
    chosen: Model
    fedavg: Model
    default: Model
    trials: tuple[TrialRecord, ...]
    reason: str
    seconds: float
    cut: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the chosen candidate."""
        return self.chosen.name


def search(
    data: FederatedData,
    aim: str = "auroc",
    *,
    seed: int = 0,
    budget: float | None = None,
    out: str | Path | None = None,
    workers: int | None = None,
    basic: bool = False,
    tell: Tell | None = None,
    stop: Callable[[], bool] | None = None,
) -> Choice:
    """Choose among candidates on the validation rows of `data`.

    Args:
        data: rows of two classes with validation rows, from `fs.federate(..., validation_share=0.16)`.
        aim: what counts: "auroc", "average-precision", "partial-auroc", "worst-site", "worst-group" or "accuracy".
        seed: keys every draw.
        budget: seconds after which no other trial begins; FedAvg and the default are always run. Those of earlier
            processes in `out` count.
        out: folder for the trials; a search that was stopped goes on from there. None: a temporary one.
        workers: processes; by default all cores, for searches that are not short.
        basic: FedAvg and the default only.
        tell: called with a trial, its rounds so far and the best figure.
        stop: called between rounds; True ends the search.

    Raises:
        BadInput: if the data have no validation rows or not two classes.
        Interrupted: if `stop` ended the search.

    Examples:
        >>> import fedsaddle as fs
        >>> data = fs.load("breast-cancer", split="iid", clients=4, validation_share=0.16, stratify=True)
        >>> choice = fs.search(data, "auroc", basic=True)
        >>> choice.chosen.vector.shape
        torch.Size([31])
    """
    instance("data", data, FederatedData, "must be the result of fs.load or fs.federate")
    goal = aim_of(aim)
    whole("seed", seed, least=0)
    if budget is not None:
        number("budget", budget, least=0)
    optional(whole, "workers", workers)
    flag("basic", basic)
    for key, called, takes in (("tell", tell, 3), ("stop", stop, 0)):
        if called is not None:
            function(key, called, takes)
    if data.validation is None:
        raise BadInput("data", "no validation rows", "hold some out: fs.federate(..., validation_share=0.16)")
    if goal.name == WORST_GROUP and not data.train_groups:
        raise BadInput(
            "groups", [], "name columns whose values are groups, such as the sex, to search for the worst one"
        )
    if len(data.classes) != 2 or data.train.y.ndim > 1:
        raise BadInput("data", f"{len(data.classes)} classes", "a search needs two classes; name the positive one")
    folder = optional(file_path, "out", out)
    with ExitStack() as stack:
        place = Path(stack.enter_context(TemporaryDirectory())) if folder is None else folder
        stopped = (lambda: False) if stop is None else (lambda: flag("stop()", stop()))
        if workers is None and (basic or (budget is not None and budget < SHORT)):
            workers = 1  # starting processes would take longer
        clock = Clock.at(place, budget)

        def report(trial: Trial, progress: Progress) -> None:
            clock.tick()
            if tell is not None:
                tell(trial, progress.rounds, progress.best)

        pool = stack.enter_context(trial_pool(data, workers, report, stopped))
        try:
            return Search(SimulatedSites(data, goal, seed, pool), goal, seed, clock, place, stopped).go(basic)
        finally:
            clock.keep()


def trial_pool(
    data: FederatedData,
    workers: int | None = None,
    tell: Callable[[Trial, Progress], None] = lambda trial, progress: None,
    stop: Callable[[], bool] = lambda: False,
) -> TrialPool:
    """A pool of trials on some rows, which its processes share; by default on all cores, unless the rows are many."""
    large = data.train.x.numel() > LARGE
    if workers is None:
        workers = 1 if large else cores()
    workers = min(workers, max(2, cores()))  # more do not pay
    rows = data if workers == 1 else _shared(data)
    return Pool(partial(run_trial, data=rows), workers, None if large and workers == 1 else 1, tell, stop)


def _shared(data: FederatedData) -> FederatedData:
    """The data without test rows, with tensors in shared memory, so that processes do not copy them."""
    for rows in (data.train, data.validation):
        if rows is not None:
            rows.x.share_memory_()  # type: ignore[no-untyped-call]
            rows.y.share_memory_()  # type: ignore[no-untyped-call]
    return data.without_test()


@dataclass
class Clock:
    """The seconds that all processes of a search have used, and the trials that have begun, stored in its folder.

    Once the budget is used up no other trial begins, in this process or in one that resumes the search; those that had
    begun run to their end. So a search that its budget ended chooses the same model, however often it was killed.
    """

    path: Path
    budget: float | None
    before: float = 0.0  # seconds of earlier processes
    ended: float | None = None  # the budget that was used up
    begun: set[str] = field(default_factory=set)  # names of trials, with their rounds
    _began: float = field(default_factory=time.monotonic)
    _kept: float = 0.0

    @classmethod
    def at(cls, folder: Path, budget: float | None) -> Clock:
        """The clock of the search in a folder.

        Raises:
            BadCheckpoint: if its file is damaged.
        """
        path = folder / "clock.json"
        if not path.exists():
            return cls(path, budget)
        try:
            stored = read_object(path)
            ended = None if stored["ended"] is None else float(stored["ended"])
            return cls(path, budget, float(stored["seconds"]), ended, set(map(str, stored["begun"])))
        except (ValueError, KeyError, TypeError) as reason:
            remedy = "remove it, and the budget starts anew"
            raise BadCheckpoint(f"{visible(path)} cannot be read ({reason}); {remedy}") from reason

    @property
    def seconds(self) -> float:
        """Used so far."""
        return self.before + time.monotonic() - self._began

    def may_begin(self, name: str) -> bool:
        """Whether a trial may begin, or go on if it had begun; it counts as begun from here on."""
        if name in self.begun:
            return True
        if self._over():
            return False
        self.begun.add(name)
        self.keep()
        return True

    def _over(self) -> bool:
        if self.budget is None:
            return False
        if (self.ended is None or self.ended < self.budget) and self.seconds > self.budget:
            self.ended = self.budget
            self.keep()
        return self.ended is not None and self.ended >= self.budget

    def tick(self) -> None:
        """Keep the seconds used now and then, so that a killed process loses few of them."""
        if time.monotonic() - self._kept > 1.0:
            self.keep()

    def keep(self) -> None:
        """Write the file."""
        self._kept = time.monotonic()
        make_folder("out", self.path.parent)
        write_json(self.path, {"seconds": round(self.seconds, 3), "ended": self.ended, "begun": sorted(self.begun)})


@dataclass
class Search:
    """A search at some sites, which it asks and never looks at, and what it has found so far."""

    sites: Sites
    aim: Aim
    seed: int
    clock: Clock
    folder: Path
    stop: Callable[[], bool]
    listed: Sequence[Candidate] = ()  # the candidates of a plan; by default those for such rows
    records: list[TrialRecord] = field(default_factory=list)
    cut: dict[str, None] = field(default_factory=dict)
    default: str = BASE  # the name of the second candidate

    def go(self, basic: bool = False) -> Choice:
        """Tune FedAvg and the default, then all that may be better; decide."""
        listed = list(self.listed) or candidates(self.sites.facts(), self.aim.name)
        first, others = listed[:2], [] if basic else listed[2:]
        self.default = listed[1].name
        models = self._tune(first, {}, always=True)
        if FEDAVG not in models or len(models) < 2:
            missing = next(c.name for c in first if c.name not in models)
            raise BadInput("data", missing, "diverged with every step; are the features scaled?")
        others = [c for c in others if c.start is None or c.start in models]
        models |= self._tune(others, models)
        chosen, reason = self._decide(models)
        default = models[self.default]
        records, cut = tuple(self.records), tuple(self.cut)
        return Choice(self.aim.name, chosen, models[FEDAVG], default, records, reason, self.clock.seconds, cut)

    def _tune(self, listed: Sequence[Candidate], known: dict[str, Model], always: bool = False) -> dict[str, Model]:
        """The best model of each candidate, by successive halving over its steps."""

        def may_begin(trial: Trial) -> bool:
            return always or self._may_begin(trial)

        def trial(candidate: Candidate, step: float, rounds: int) -> Trial:
            start = None if candidate.start is None else known[candidate.start].trial
            path = None if start is None else start.folder / start.name
            return Trial(candidate, step, rounds, self.seed, self.aim.name, self.folder, path)

        short = {c.name: max(1, c.rounds // FIRST_RUNG) if len(c.steps) > 1 else c.rounds for c in listed}
        rung = [trial(c, step, short[c.name]) for c in listed for step in c.steps]
        outcomes = self._run(rung, may_begin)
        going = []
        for candidate in listed:
            own = [o for o in outcomes if o.trial.candidate is candidate and o.model is not None]
            own.sort(key=lambda o: (o.trial.step != o.trial.candidate.steps[0], -self.sites.value(o)))
            going += [] if self._behind(own, known) else own[:KEPT]
        last = self._run([replace(o.trial, rounds=o.trial.candidate.rounds) for o in going], may_begin)
        finished = {(o.trial.name, o.trial.rounds) for o in last}
        for outcome in outcomes:
            if (outcome.trial.name, outcome.trial.candidate.rounds) not in finished:
                self._note(outcome)
        for outcome in last:
            self._note(outcome)
        for candidate in listed:
            if not any(o.trial.candidate is candidate for o in outcomes):
                self.records.append(TrialRecord(candidate.name, 0.0, 0, None, None, note="not run: budget"))
        last += self._extend(listed, last, trial)
        best = [self._best_step([o for o in (*last, *going) if o.trial.candidate is c]) for c in listed]
        return {outcome.trial.candidate.name: self.sites.model(outcome) for outcome in best if outcome is not None}

    def _behind(self, own: Sequence[TrialOutcome], known: dict[str, Model]) -> bool:
        """Whether even a candidate's best step is behind the default by more than chance after the first rung."""
        default = known.get(self.default)
        if default is None or not own or own[0].trial.rounds == own[0].trial.candidate.rounds:
            return False
        best = max(own, key=self.sites.value)
        gap, error = self.sites.gain(best, default)
        if gap >= -CHANCE * error:
            return False
        one, note = best.trial, f"against {default.name}; behind by more than chance, so it ended here"
        value = self.sites.value(best)
        self.records.append(TrialRecord(one.candidate.name, one.step, one.rounds, None, value, gap, error, note=note))
        return True

    def _extend(
        self, listed: Sequence[Candidate], last: Sequence[TrialOutcome], trial: Callable[[Candidate, float, int], Trial]
    ) -> list[TrialOutcome]:
        """Try longer or shorter steps where the best step of a candidate is an end of its grid, while there is time."""
        found: list[TrialOutcome] = []
        tried = {candidate.name: set(candidate.steps) for candidate in listed}
        for _ in range(EXTENSIONS):
            wanted = []
            for candidate in listed:
                best = self._best_step([o for o in (*last, *found) if o.trial.candidate is candidate])
                step = None if best is None else beyond(best.trial.step, tried[candidate.name])
                if step is not None:
                    tried[candidate.name].add(step)
                    wanted.append(trial(candidate, step, candidate.rounds))
            more = self._run(wanted, self._may_begin) if wanted else []
            for outcome in more:
                self._note(outcome)
            found += more
        return found

    def _may_begin(self, trial: Trial) -> bool:
        return self.clock.may_begin(f"{trial.name}, {trial.rounds} rounds")

    def _best_step(self, outcomes: Sequence[TrialOutcome]) -> TrialOutcome | None:
        """The preferred step, unless another is ahead by more than chance; of the last rung that was run."""
        there = [o for o in outcomes if o.model is not None]
        there = [o for o in there if o.trial.rounds == max(p.trial.rounds for p in there)]
        if not there:
            return None
        first = min(there, key=lambda o: (o.trial.step != o.trial.candidate.steps[0], -self.sites.value(o)))
        best, margin = first, 0.0
        for other in there:
            if other is not first:
                gap, error = self.sites.gain(other, first)
                if gap > CHANCE * error and gap > margin:
                    best, margin = other, gap
        return best

    def _run(self, trials: Sequence[Trial], may_begin: Callable[[Trial], bool]) -> list[TrialOutcome]:
        outcomes = self.sites.train(trials, may_begin)
        if self.stop():
            raise Interrupted("interrupted; what is done is kept. Continue with --resume")
        ran = {(o.trial.name, o.trial.rounds) for o in outcomes}
        self.cut |= dict.fromkeys(t.candidate.name for t in trials if (t.name, t.rounds) not in ran)
        return outcomes

    def _note(self, outcome: TrialOutcome) -> None:
        value = None if outcome.model is None else self.sites.value(outcome)
        trial = outcome.trial
        self.records.append(
            TrialRecord(
                trial.candidate.name, trial.step, outcome.rounds, outcome.selected_round, value,
                seconds=outcome.seconds, note=outcome.failure,
            )
        )  # fmt: skip

    def _decide(self, models: dict[str, Model]) -> tuple[Model, str]:
        """The default, unless a candidate beats it by more than chance."""
        default = models[self.default]
        if HINGES in models:
            both = self._averaged(default, models[HINGES])
            gap, error = self._compare(both, default, 0.0)
            if gap > 0:
                default = both
        best, reason = default, "the default: no candidate beat it by more than chance on validation rows"
        margin = 0.0
        for name, model in models.items():
            if name == self.default:
                continue
            gap, error = self._compare(model, default, CHANCE)
            if gap > CHANCE * error and gap > margin:
                best, margin = model, gap
                reason = f"ahead of the default by {gap:+.4f}, {gap / error:.1f} standard errors, on validation rows"
        return best, reason

    def _compare(self, model: Model, other: Model, needed: float) -> tuple[float, float]:
        (gap, error), value = self.sites.gain(model, other), self.sites.value(model)
        note = f"against {other.name}; needs {needed:g} standard errors" if needed else f"against {other.name}"
        self.records.append(
            TrialRecord(model.name, model.trial.step, model.trial.rounds, None, value, gap, error, note=note)
        )
        return gap, error

    def _averaged(self, straight: Model, bent: Model) -> Model:
        """The mean of two linear models, on the features of the larger one."""
        vector = averaged_vector(straight.vector, bent.vector, straight.data.encoding, bent.data.encoding)
        both = (straight.scores, bent.scores)
        scores = None if both[0] is None or both[1] is None else (both[0] + both[1]) / 2
        return replace(bent, name=AVERAGED, vector=vector, scores=scores)


def averaged_vector(
    straight: Tensor, bent: Tensor, straight_encoding: Sequence[Encoded], bent_encoding: Sequence[Encoded]
) -> Tensor:
    """The mean of two linear models, on the features of the larger one, `bent`."""
    places = {feature: k for k, feature in enumerate(bent_encoding)}
    vector = bent / 2
    at = [places[feature] for feature in straight_encoding]
    vector[at] += straight[:-1] / 2
    vector[-1] += straight[-1] / 2
    return vector


def trials_csv(records: Sequence[TrialRecord]) -> bytes:
    """The trials as CSV."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(
        ["candidate", "step", "rounds", "selected_round", "validation", "gain", "standard_error", "seconds", "note"]
    )
    for r in records:
        cells: list[str | int | None] = [safe_cell(r.candidate), f"{r.step:g}", r.rounds, r.selected_round]
        cells += [_number(r.value), _number(r.gain), _number(r.error), f"{r.seconds:.2f}", safe_cell(r.note)]
        lines.writerow(["" if cell is None else cell for cell in cells])
    return text.getvalue().encode()


def write_trials(records: Sequence[TrialRecord], path: Path) -> None:
    """Write trials.csv."""
    write_atomically(path, trials_csv(records))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6f}"
