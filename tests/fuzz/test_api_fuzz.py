"""Wrong arguments of everything public: refused by name, or harmless; never a deep error of torch, never a hang."""

from __future__ import annotations

import inspect
import os
import random
import signal
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from valid_calls import CALLS, MODULES, Call, public
from wrong_values import BAD, Outcome, Wrong, every_wrong_call, judge

import fedsaddle as fs
from fedsaddle.errors import FedSaddleError
from fedsaddle.studies import search

EVERY = every_wrong_call(CALLS)
NOT_FUZZED = {  # parts that extensions are made from, what runs and loaders give, and readers of files (tests/data)
    "Choice", "ClientKeys", "ClientsState", "Dataset", "FederatedData", "Holds", "Ledger", "LocalSite",
    "Lossy", "Memory", "Metered", "Reduction", "Result", "SerialEngine", "Sweep", "Table", "VectorisedEngine",
    "Wrapper", "Callback", "LambdaCallback",
    "cohort_size", "describe", "draw_cohort", "from_file", "from_hugging_face", "merge_repeats", "nonconvex_pl",
    "pictures", "shares", "spread", "freeze_", "warm_started", "Beginning", "PlannedExchange", "per_step", "task",
    "ExactBounds", "UpdateOf", "Inference", "Study", "StudyResult", "StudyWatch", "likelihood_ratio",
    "study",  # takes minutes: tests/studies
    "study_at_sites",  # as much: tests/deployment/test_deployed_study.py
}  # fmt: skip
MOST_BAD = 0.01  # share of the calls that may end in another exception


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some wrong values are paths that can be written to; a search tries one step for a few rounds."""
    monkeypatch.chdir(tmp_path)
    real = search.candidates
    monkeypatch.setattr(search, "candidates", lambda *a: [replace(c, rounds=2, steps=(0.1,)) for c in real(*a)])


def made_by_users(name: str) -> bool:
    """Whether users call it with arguments of their own: no module, error, protocol or type to annotate with."""
    thing = getattr(fs, name)
    if not inspect.isclass(thing):
        return inspect.isfunction(thing)
    record = issubclass(thing, tuple) or issubclass(thing, FedSaddleError)
    return not record and not getattr(thing, "_is_protocol", False)


def test_every_public_name_has_a_valid_call():
    modules = {name for module in MODULES for name in public(module)}
    named = {call.target for call in CALLS.values()}
    missing = {name for name in fs.__all__ if made_by_users(name) and getattr(fs, name) not in named}
    assert missing == NOT_FUZZED
    assert modules - set(CALLS) == set()


@pytest.mark.filterwarnings("ignore:the steps did nothing")  # pairs of one score without a slope
@pytest.mark.parametrize("name", CALLS)
def test_the_valid_call_works(name: str):
    call: Call = CALLS[name]
    torch.manual_seed(0)
    call.use(call.target(**call.arguments()))


def fuzz(calls: int, seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Judge so many wrong calls, print a table, and bound the share of bad ones."""
    judged = [(wrong, judge(CALLS, wrong)) for wrong in random.Random(seed).sample(EVERY, calls)]
    counts = Counter(result.outcome for _, result in judged)
    bad = [(wrong, result) for wrong, result in judged if result.outcome in BAD]
    with capsys.disabled():
        print(f"\n{calls:,} of {len(EVERY):,} wrong calls")
        print(*(f"{counts[outcome]:7,}  {outcome.value}" for outcome in Outcome), sep="\n")
        for wrong, result in bad:
            print(f"  {wrong.call}({wrong.argument} = {wrong.value}): {result.outcome.value}: {result.said}")
    assert counts[Outcome.HANG] == 0
    assert len(bad) < MOST_BAD * calls


@pytest.mark.skipif(not hasattr(signal, "setitimer") or os.name == "nt", reason="needs a timer")
class TestWrongCalls:
    def test_two_hundred(self, capsys: pytest.CaptureFixture[str]):
        fuzz(200, seed=3, capsys=capsys)

    @pytest.mark.slow
    def test_two_thousand(self, capsys: pytest.CaptureFixture[str]):
        fuzz(2000, seed=0, capsys=capsys)

    @pytest.mark.parametrize(
        ("call", "argument", "value"),
        [
            ("FedAvg", "local_steps", "2**70"),  # these hung
            ("regularisers.Concave", "tolerance", "-inf"),
            ("regularisers.Concave", "most_steps", "10**12"),
            ("schedules.Power", "rho", "10**12"),
            ("measures.RobustAccuracy", "attack_steps", "10**12"),
            ("Supervised", "model", "a class of modules"),  # these ended deep in torch
            ("Supervised", "l2", "text"),
            ("Supervised", "loss", "text"),
            ("Supervised", "compiled", "-1"),
            ("FedAvg", "projection", "a class of projections"),
            ("FedAvg", "projection", "a function that gives None"),
            ("FedAvg", "primal_step", "1e300"),
            ("CodaPlus", "proximal", "2**70"),
            ("ClassFair", "classes", "1.5"),
            ("ClassFair", "class_shares", "list of a number"),
            ("RobustTraining", "shape", "7"),
            ("RobustTraining", "attack_step", "-1"),
            ("MinimaxAuc", "margin", "inf"),
            ("NonconvexPl", "dimension", "2**70"),
            ("Minimax", "start_y", "list of a number"),
            ("Minimax", "best_response", "sparse tensor"),
            ("models.mlp", "hidden", "text"),
            ("models.Vgg11", "width", "text"),
            ("projections.Box", "low", "nan"),
            ("measures.DistanceToSaddle", "x", "7"),
            ("run", "target", "7"),
            ("run", "watch", "a function of nothing"),
            ("run", "extend", "a function that gives None"),
            ("Result.final", "measure", "list of a number"),
            ("Result.plot", "path", "a folder"),
            ("PairwiseRisk", "first", "2**70"),
        ],
    )
    def test_refused_by_name(self, call: str, argument: str, value: str):
        result = judge(CALLS, Wrong(call, argument, value))
        assert result.outcome is Outcome.NAMED, result.said
