"""A run that breaks off anywhere and is resumed ends in the same bits as one that was left in peace."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from run_cases import drfa, fedavg, files, iris, problem, same_end, same_result, story
from torch import Tensor

import fedsaddle as fs
from fedsaddle.algorithms.drfa import Drfa, DrfaGa
from fedsaddle.algorithms.qfedavg import QFedAvg
from fedsaddle.config.run_config import _may_change
from fedsaddle.engines.simulated import VectorisedEngine
from fedsaddle.errors import BadCheckpoint, BadInput
from fedsaddle.federation.records import Averaged, PerSample
from fedsaddle.numerics.regularisers import KullbackLeibler
from fedsaddle.processes import Interruption
from fedsaddle.runs.checkpoints import rounding_of
from fedsaddle.runs.evaluation import LocalEvaluator
from fedsaddle.runs.folder import RunFolder
from fedsaddle.runs.run import run


class Crash(BaseException):
    """What no `except Exception` may swallow."""


@dataclass(frozen=True)
class Diary:
    visits: Tensor
    marks: PerSample


@dataclass(frozen=True)
class Sent:
    w: Tensor


@dataclass(frozen=True)
class Step:
    step: Averaged


@dataclass(frozen=True)
class State:
    w: Tensor
    norm: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Remembering:
    """Clients that step less the more often they were asked, and mark their rows."""

    problem: object
    local_steps: int = 1

    def start(self, clients):
        return State(self.problem.initial())

    def round(self, server, clients, rng):
        _, reply = clients.ask(rng.choice(clients.count, 2), self.work, Sent(server.w))
        w = server.w - reply.step
        return State(w, float(w.norm()))

    def fresh(self, site):
        C = len(site.clients)
        return Diary(torch.zeros(C), torch.zeros(C, int(site.sizes.max())))

    def work(self, own, sent, site):
        g = self.problem.gradient(site.broadcast(sent.w), site.minibatch(0, 4))
        scale = (1 + own.visits + own.marks.mean(1))[:, None]
        return Diary(own.visits + 1, own.marks + 0.1), Step(g / scale)

    def model(self, server):
        return server.w


ALGORITHMS = {
    "FedAvg": fedavg,
    "FedAvg, average": lambda: fedavg(output="average"),
    "FedAvgM": lambda: fedavg(server_momentum=0.9, nesterov=True),
    "q-FedAvg": lambda: QFedAvg(problem=problem(), local_steps=2, sampled_clients=2),
    "DRFA": drfa,
    "DRFA, average": lambda: drfa(output="average", dual_decay=0.9),
    "DRFA, kl": lambda: drfa(regulariser=KullbackLeibler(0.1)),
    "DRFA-GA": lambda: DrfaGa(problem=problem(), local_steps=2, output="average", average_after=2),
    "with memory": lambda: Remembering(problem=problem()),
}


@pytest.mark.parametrize("engine", ["vectorised", "serial"])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_in_two_parts(tmp_path, name, engine):
    make = ALGORITHMS[name]
    options = {"engine": engine, "lost_replies": 0.2, "seed": 5, "options": fs.RunOptions(checkpoint_every=3)}
    whole = run(make(), iris(), 7, out=tmp_path / "whole", **options)
    run(make(), iris(), 4, out=tmp_path / "parts", **options)
    parts = run(make(), iris(), 7, out=tmp_path / "parts", resume=True, **options)
    assert same_result(parts, whole)
    assert same_end(tmp_path / "parts", tmp_path / "whole")
    name = "checkpoints/00000007.safetensors"
    assert files(tmp_path / "parts")[name] == files(tmp_path / "whole")[name]


def crashing_replace(monkeypatch, at, after):
    """The n-th file is not moved to its place, or just so."""
    real, calls = os.replace, []

    def replace(a, b):
        calls.append(b)
        if len(calls) == at and not after:
            raise Crash
        real(a, b)
        if len(calls) == at:
            raise Crash

    monkeypatch.setattr(os, "replace", replace)


def crashing_write(monkeypatch, at):
    """The n-th file gets half of its content on to the disk."""
    real, calls = os.fsync, []

    def fsync(number):
        calls.append(number)
        if len(calls) == at:
            os.ftruncate(number, os.fstat(number).st_size // 2)
            raise Crash
        real(number)

    monkeypatch.setattr(os, "fsync", fsync)


def crashing_record(monkeypatch, at):
    """The n-th line of the records is cut off."""
    real, calls = RunFolder.append, []

    def record(self, record, clients=()):
        calls.append(record)
        real(self, record, clients)
        if len(calls) == at:
            metrics = self.metrics
            metrics.write_text(metrics.read_text()[:-20])
            raise Crash

    monkeypatch.setattr(RunFolder, "append", record)


def crashing_unlink(monkeypatch, at):
    """The n-th old file is still there."""
    real, calls = Path.unlink, []

    def unlink(self, missing_ok=False):
        calls.append(self)
        if len(calls) == at:
            raise Crash
        real(self, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", unlink)


CRASHES = {
    "before a file is in place": lambda m, at: crashing_replace(m, at, after=False),
    "after a file is in place": lambda m, at: crashing_replace(m, at, after=True),
    "while a file is written": crashing_write,
    "while a record is written": crashing_record,
    "while an old checkpoint is removed": crashing_unlink,
}


@pytest.mark.parametrize("where", CRASHES)
def test_a_crash_at_every_write(tmp_path, monkeypatch, where):
    options = {"options": fs.RunOptions(checkpoint_every=2), "lost_replies": 0.3, "engine": fs.Vectorised(workers=1)}
    run(drfa(), iris(), 7, out=tmp_path / "whole", **options)
    for at in range(1, 100):
        out = tmp_path / str(at)
        with monkeypatch.context() as broken:
            CRASHES[where](broken, at)
            try:
                run(drfa(), iris(), 7, out=out, **options)
                break
            except Crash:
                pass
        said = []
        run(drfa(), iris(), 7, out=out, resume=True, callbacks=[fs.LambdaCallback(on_warning=said.append)], **options)
        cut = where == "while a record is written"
        assert [f"line {at} of {out / 'metrics.jsonl'} is incomplete" in text for text in said] == [True] * cut
        assert same_end(out, tmp_path / "whole"), at
    assert at > 4
    assert same_end(out, tmp_path / "whole")


def test_crash_after_crash(tmp_path, monkeypatch):
    """Each resumed run gets three files further than the one before it."""
    options = {"options": fs.RunOptions(checkpoint_every=1), "engine": fs.Vectorised(workers=1)}
    run(drfa(), iris(), 6, out=tmp_path / "whole", **options)
    crashes = 0
    for _ in range(50):
        with monkeypatch.context() as broken:
            crashing_replace(broken, 7, after=False)  # of records and progress up to four come first
            try:
                run(drfa(), iris(), 6, out=tmp_path / "out", resume=True, **options)
                break
            except Crash:
                crashes += 1
    assert crashes > 3
    assert same_end(tmp_path / "out", tmp_path / "whole")


@pytest.fixture
def ctrl_c():
    """Ctrl-C as in a script; a shell may have started the tests in the background, where it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupting(at):
    def watch(done, record):
        if done == at:
            signal.raise_signal(signal.SIGINT)

    return watch


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_saves_and_goes_on_to_the_caller(tmp_path):
    """In a script the loop around `fs.run` must end as well: nothing is swallowed, and no handler is installed."""
    whole = run(drfa(), iris(), 8, evaluate_every=4)
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        run(drfa(), iris(), 8, evaluate_every=4, out=tmp_path, callbacks=[fs.LambdaCallback(on_round=interrupting(3))])
    assert (tmp_path / "checkpoints" / "00000003.json").exists()
    assert before == (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM))
    assert same_result(run(drfa(), iris(), 8, evaluate_every=4, out=tmp_path, resume=True), whole)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_without_a_folder():
    with pytest.raises(KeyboardInterrupt):
        run(drfa(), iris(), 8, callbacks=[fs.LambdaCallback(on_round=interrupting(3))])


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_in_the_middle_of_a_round_drops_that_round(tmp_path):
    class Interrupted(Drfa):
        def local_loss(self, own, sent, site):
            calls.append(0)
            if len(calls) == 7:  # the first client of the fourth round
                signal.raise_signal(signal.SIGINT)
            return super().local_loss(own, sent, site)

    calls = [0] * 100
    options = {"problem": problem(), "sampled_clients": 2, "local_steps": 3, "batch_size": 8}
    algorithm = Interrupted(**options)
    whole = run(algorithm, iris(), 8, engine="serial")
    calls.clear()
    with pytest.raises(KeyboardInterrupt):
        run(algorithm, iris(), 8, out=tmp_path, engine="serial")
    saved = sorted(p.stem for p in (tmp_path / "checkpoints").glob("*.json"))
    assert saved == ["00000003"]
    assert same_result(run(algorithm, iris(), 8, out=tmp_path, resume=True, engine="serial"), whole)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_in_the_middle_of_an_evaluation_completes_it(tmp_path, monkeypatch):
    real, calls = LocalEvaluator.measure, []

    def measure(self, part, at):
        calls.append(part)
        if len(calls) == 3:
            signal.raise_signal(signal.SIGINT)
        return real(self, part, at)

    monkeypatch.setattr(LocalEvaluator, "measure", measure)
    with pytest.raises(KeyboardInterrupt):
        run(drfa(), iris(), 8, out=tmp_path)
    assert [r["round"] for r in story(tmp_path)] == [1, 2, 3]
    resumed = run(drfa(), iris(), 8, out=tmp_path, resume=True)
    assert same_result(resumed, run(drfa(), iris(), 8))


def test_told_to_stop(tmp_path):
    whole, seen = run(drfa(), iris(), 8, evaluate_every=4), []

    def stop():
        seen.append(0)
        return len(seen) == 3

    first = run(
        drfa(), iris(), 8, evaluate_every=4, out=tmp_path, callbacks=[fs.LambdaCallback(on_round=lambda *_: stop())]
    )
    assert (first.summary["stopped"], first.summary["rounds"], first.history) == ("interrupted", 3, [])
    assert same_result(run(drfa(), iris(), 8, evaluate_every=4, out=tmp_path, resume=True), whole)


def test_the_command_lines_handler(tmp_path):
    """A first signal is noted, a second one ends at once; afterwards all is as before."""
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with Interruption() as interruption:
        signal.raise_signal(signal.SIGTERM)
        assert interruption.requested
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert before == (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM))


def test_more_rounds(tmp_path):
    run(drfa(), iris(), 5, out=tmp_path, evaluate_every=3)
    assert [r["round"] for r in story(tmp_path)] == [3, 5]
    longer = run(drfa(), iris(), 8, out=tmp_path, evaluate_every=3, resume=True)
    assert [r["round"] for r in longer.history] == [3, 6, 8]
    assert same_result(longer, run(drfa(), iris(), 8, evaluate_every=3))
    assert story(tmp_path) == [{**r, "seconds": None} for r in longer.history]


def test_fewer_rounds_than_were_run(tmp_path):
    whole = run(drfa(), iris(), 5, out=tmp_path)
    again = run(drfa(), iris(), 2, out=tmp_path, resume=True)
    assert again.summary["rounds"] == 5
    assert same_result(whole, again)


def test_resuming_what_is_not_there_begins(tmp_path):
    assert same_result(run(drfa(), iris(), 3, out=tmp_path / "new", resume=True), run(drfa(), iris(), 3))


def test_a_target_reached_before(tmp_path):
    whole = run(drfa(), iris(), 9, target="mean accuracy > 0.5", out=tmp_path)
    assert whole.summary["stopped"] == "target"
    again = run(drfa(), iris(), 9, target="mean accuracy > 0.5", out=tmp_path, resume=True)
    assert (again.summary["stopped"], again.summary["target_round"]) == ("target", whole.summary["target_round"])
    assert same_result(whole, again)
    on = run(drfa(), iris(), 9, out=tmp_path, resume=True)
    assert same_result(on, run(drfa(), iris(), 9))


def test_time_and_cost_go_on(tmp_path):
    first = run(drfa(), iris(), 3, out=tmp_path)
    second = run(drfa(), iris(), 6, out=tmp_path, resume=True)
    assert second.summary["seconds"] >= first.summary["seconds"]
    times = [r["seconds"] for r in second.history]
    assert times == sorted(times)
    whole = run(drfa(), iris(), 6)
    assert second.summary["ledger"] == whole.summary["ledger"]


def test_another_engine_is_refused(tmp_path):
    run(drfa(), iris(), 3, out=tmp_path)
    with pytest.raises(BadInput, match=r"the run started with .*'vectorised'.*; resume with the same"):
        run(drfa(), iris(), 6, out=tmp_path, resume=True, engine="serial")
    with pytest.raises(BadInput, match="resume with the same"):
        run(drfa(), iris(), 6, out=tmp_path, resume=True, engine=fs.Vectorised(chunk=3))


def test_another_number_of_threads_is_the_same_run(tmp_path):
    first = run(drfa(), iris(), 3, out=tmp_path, engine=fs.Vectorised(workers=2, chunk=2))
    assert first.summary["engine"] == {"name": "vectorised", "chunk": 2}
    resumed = run(drfa(), iris(), 6, out=tmp_path, resume=True, engine=fs.Vectorised(workers=3, chunk=2))
    assert same_result(resumed, run(drfa(), iris(), 6, engine=fs.Vectorised(workers=4, chunk=2)))


@pytest.mark.parametrize(("workers", "warnings"), [(1, 0), (2, 1)])
def test_a_checkpoint_that_holds_the_workers_is_resumed(tmp_path, monkeypatch, workers, warnings):
    """Earlier versions cut cohorts by the number of workers as well."""
    told = []
    with monkeypatch.context() as earlier:
        earlier.setattr(
            VectorisedEngine, "settings", lambda e: {"name": "vectorised", "chunk": e.chunk, "workers": workers}
        )
        run(drfa(), iris(), 3, out=tmp_path, options=fs.RunOptions(report=False))
    resumed = run(
        drfa(),
        iris(),
        6,
        out=tmp_path,
        resume=True,
        callbacks=[fs.LambdaCallback(on_warning=told.append)],
        options=fs.RunOptions(report=False),
    )
    assert resumed.summary["rounds"] == 6
    assert len(told) == warnings
    assert all(f"its {workers} workers" in text for text in told)


def test_which_engine_may_follow_which():
    names = ("vectorised", "processes", "ray", "serial", "nvflare")
    may = {(a, b) for a in names for b in names if _may_change("engine.name", a, b)}
    assert may == {(a, b) for a in names[:3] for b in names[:3]}
    assert not _may_change("run.seed", 1, 2)
    assert rounding_of({"name": "ray", "chunk": 3}) == rounding_of({"name": "vectorised", "chunk": 3, "workers": 2})
    assert rounding_of({"name": "ray", "chunk": 3}) != rounding_of({"name": "ray", "chunk": 4})
    assert rounding_of({"name": "serial"}) != rounding_of({"name": "vectorised", "chunk": 1})


def changed(part, tensor, at):
    """The data with one changed cell or label."""
    data = iris()
    rows = getattr(data, part)
    values = getattr(rows, tensor).clone()
    values[at] = values[at] + 0.001 if tensor == "x" else (values[at] + 1) % 3
    return replace(data, **{part: replace(rows, **{tensor: values})})


OTHERS = {
    "seed = 0 there, 1 here": lambda out: run(drfa(), iris(), 6, out=out, resume=True, seed=1),
    "lost_replies = 0.0 there, 0.1 here": lambda out: run(drfa(), iris(), 6, out=out, resume=True, lost_replies=0.1),
    "algorithm.primal_step = 0.1 there, 0.2 here": lambda out: run(
        drfa(primal_step=0.2), iris(), 6, out=out, resume=True
    ),
    "algorithm = Drfa there, FedAvg here": lambda out: run(fedavg(), iris(), 6, out=out, resume=True),
    "rows of each client, ": lambda out: run(drfa(), iris(5), 6, out=out, resume=True),
    "different: training features": lambda out: run(drfa(), changed("train", "x", (5, 1)), 6, out=out, resume=True),
    "different: training labels": lambda out: run(drfa(), changed("train", "y", 7), 6, out=out, resume=True),
    "different: test features": lambda out: run(drfa(), changed("test", "x", (3, 2)), 6, out=out, resume=True),
    "different: test labels": lambda out: run(drfa(), changed("test", "y", 1), 6, out=out, resume=True),
}


@pytest.mark.parametrize("what", OTHERS)
def test_another_run_is_refused(tmp_path, what):
    run(drfa(), iris(), 4, out=tmp_path, options=fs.RunOptions(checkpoint_every=2))
    before = files(tmp_path)
    with pytest.raises(BadCheckpoint, match="belongs to another run") as caught:
        OTHERS[what](tmp_path)
    assert what in str(caught.value)
    assert "00000004.json" in str(caught.value)
    assert "00000002.json" in str(caught.value)
    assert caught.value.exit_code == 2
    assert files(tmp_path) == before


@pytest.mark.parametrize(("kept", "holds"), [(0, "0 of the 4"), (2, "2 of the 4")])
def test_evaluations_that_are_gone_are_missed(tmp_path, kept, holds):
    run(drfa(), iris(), 4, out=tmp_path, options=fs.RunOptions(checkpoint_every=2))
    metrics, said = tmp_path / "metrics.jsonl", []
    metrics.write_text("".join(metrics.read_text().splitlines(keepends=True)[:kept]))
    run(drfa(), iris(), 6, out=tmp_path, resume=True, callbacks=[fs.LambdaCallback(on_warning=said.append)])
    assert len(said) == 1
    assert said[0].startswith(f"metrics.jsonl holds {holds} evaluations up to round 4")


def test_no_evaluation_is_missed_by_mistake(tmp_path):
    """A run that is made longer drops the evaluation of its former last round, also where it is killed then."""
    run(drfa(), iris(), 5, out=tmp_path, evaluate_every=3)
    said, lines = [], (tmp_path / "metrics.jsonl").read_text().splitlines(keepends=True)
    assert len(lines) == 2
    (tmp_path / "metrics.jsonl").write_text(lines[0])  # as a process leaves it that is killed in round 6
    run(
        drfa(),
        iris(),
        7,
        out=tmp_path,
        evaluate_every=3,
        resume=True,
        callbacks=[fs.LambdaCallback(on_warning=said.append)],
    )
    run(
        drfa(),
        iris(),
        9,
        out=tmp_path,
        evaluate_every=2,
        resume=True,
        callbacks=[fs.LambdaCallback(on_warning=said.append)],
    )
    assert said == []
