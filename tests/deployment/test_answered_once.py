"""A site answers the plan of its run, each question once, whatever the server asks; rows are drawn by its secret."""

from __future__ import annotations

import json
import stat
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest
import torch
from in_process import OPEN, config, deployed, sites

from fedsaddle.deployment.courier import InProcess
from fedsaddle.deployment.messages import Ask
from fedsaddle.deployment.questions import FILE, MOST_REFUSALS, SECRET, Measurement, OffPlan, Questions
from fedsaddle.deployment.site_plan import Plan
from fedsaddle.errors import Refused
from fedsaddle.federation.randomness import ClientKeys
from fedsaddle.federation.wire import about

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "lying_server.py"
SECRET_DRAWS = OPEN.model_copy(update={"draws": "secret"})


@pytest.fixture(scope="module")
def attacks():
    """benchmarks/lying_server.py, under a name that no installed package has."""
    spec = spec_from_file_location("benchmark_lying_server", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ANSWERED = {  # attack -> most messages that are answered
    "exchanges": 3,  # the first one, of each site
    "weights": 0,
    "sums": 6,  # one sum
    "measured": 0,
    "counts": 0,
    "agree": 0,
}


@pytest.mark.parametrize("name", ANSWERED)
def test_an_attack_is_refused_and_recovers_no_row(name, attacks, tmp_path):
    found = attacks.ATTACKS[name](tmp_path)
    assert found.answered <= ANSWERED[name]
    assert found.asked > found.answered
    assert found.rows == 0
    assert not found.note.startswith(("1", "2", "3")), found.note


def test_without_the_secret_the_same_messages_recover_rows(attacks, tmp_path, monkeypatch):
    """What the attacks measure is there: with draws from the seed the rounds of a run show rows."""
    monkeypatch.setattr(attacks, "POLICY", attacks.POLICY.model_copy(update={"draws": "seed"}))
    found = attacks.memory(tmp_path)
    assert found.rows > 0.5 * found.of


def test_minibatches_are_of_a_secret_that_stays_when_the_site_restarts(tmp_path):
    given = config({"name": "FedAvg", "local_steps": 3})
    first = deployed(given, sites(given, tmp_path / "a", SECRET_DRAWS), tmp_path / "a" / "out")
    again = deployed(given, sites(given, tmp_path / "b", SECRET_DRAWS), tmp_path / "b" / "out")
    seeded = deployed(given, sites(given, tmp_path / "c"), tmp_path / "c" / "out")
    assert not torch.equal(first.model, again.model)
    assert not torch.equal(first.model, seeded.model)
    secrets = [path.read_bytes() for path in sorted((tmp_path / "a").rglob(SECRET))]
    assert len(set(secrets)) == 4
    assert all(len(one) == 32 for one in secrets)
    for path in (tmp_path / "a").rglob(SECRET):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    repeated = deployed(given, sites(given, tmp_path / "a", SECRET_DRAWS), tmp_path / "a" / "elsewhere")
    assert torch.equal(first.model, repeated.model), "the same questions have the same answers"


def test_secret_draws_depend_on_every_part_of_the_key():
    one = ClientKeys.secret(b"s" * 32, 1, 2)
    others = [ClientKeys.secret(secret * 32, *at) for secret, *at in ((b"t", 1, 2), (b"s", 12, 2), (b"s", 1, 1))]
    assert len({int(each.keys[0]) for each in (one, *others)}) == 4
    drawn = np.concatenate([ClientKeys.secret(b"s" * 32, r, 0).rows(np.array([5]), 0, 50)[0] for r in range(200)])
    counts = np.bincount(drawn, minlength=5)
    assert ((counts - 2000) ** 2 / 2000).sum() < 23.5  # chi-square, 4 degrees of freedom, 1e-4


class Loses(InProcess):
    """Site 2 does not answer in round 3; the server dies in round 4."""

    dies = True

    def exchange(self, clients, content, least, timeout):
        message = about(content)
        found = super().exchange(clients, content, least, timeout)
        if self.dies and message.get("round") == 2:
            return [a for a in found if a.client != 1]
        if self.dies and message.get("round") == 3:
            raise KeyboardInterrupt
        return found


@pytest.mark.parametrize("policy", [OPEN, SECRET_DRAWS], ids=["seed", "secret"])
def test_a_resumed_run_repeats_exchanges_with_those_who_counted(policy, tmp_path):
    given = config({"name": "FedAvg", "local_steps": 3}, checkpoint_every=100)
    made = sites(given, tmp_path, policy)
    transport = Loses({i: s.answer for i, s in made.items()})
    with pytest.raises(KeyboardInterrupt):
        deployed(given, made, tmp_path / "out", transport)
    (saved,) = (tmp_path / "out" / "checkpoints").glob("*.json")
    saved.unlink()  # a server that is killed saves nothing
    for path in (tmp_path / "out").glob("metrics.jsonl"):
        path.unlink()
    noted = [json.loads(line) for line in (tmp_path / "out" / "answered.jsonl").read_text().splitlines() if line]
    transport.dies = False
    found = deployed(given, made, tmp_path / "out", transport)
    assert found.summary["rounds"] == 6
    assert noted[2][2:] == [0, 2, 3]
    assert not any(one["left_out"] for one in found.summary["sites"].values()), "nobody refuses"


PLAN = Plan(4, frozenset({("a", "b")}), frozenset("ab"), everyone=True, carries=True, rehearsed=4)


def ask(round: int, exchange: int, task: str) -> Ask:
    return Ask(run="r", fingerprint="f", nonce="n", round=round, exchange=exchange, task=task, starts={}, keep={})


def test_questions_are_answered_in_order_once_and_remembered(tmp_path):
    asked = Questions(tmp_path)
    asked.task(ask(0, 0, "a"), PLAN, "x", ["w0"])
    asked.task(ask(0, 1, "b"), PLAN, "y")
    asked.task(ask(1, 1, "b"), PLAN, "z")  # this site was in the second cohort only
    for again in (asked, Questions(tmp_path)):
        again.task(ask(0, 0, "a"), PLAN, "x", ["w0"])
    assert len((tmp_path / FILE).read_text().splitlines()) == 3
    for at, task, given, why in (
        ((0, 0), "a", "other", "round 1, exchange 1 was answered before, and this is another question"),
        ((0, 0), "b", "x", "another question"),
        ((1, 0), "a", "q", "round 2, exchange 1 is before what was answered last"),
        ((2, 1), "a", "q", "the algorithm has no 'a' as exchange 2 of a round"),
    ):
        with pytest.raises(OffPlan, match=why):
            Questions(tmp_path).task(ask(*at, task), PLAN, given)
    with pytest.raises(OffPlan):
        Questions(tmp_path).task(ask(2, 7, "a"), PLAN, "q")
    assert MOST_REFUSALS == 5
    with pytest.raises(Refused, match="refused 5 questions that the run does not need, and answers nothing more"):
        asked.task(ask(2, 0, "a"), PLAN, "q", ["w2"])


def test_a_cut_line_is_a_question_that_was_not_answered(tmp_path):
    Questions(tmp_path).task(ask(0, 0, "a"), PLAN, "x")
    path = tmp_path / FILE
    path.write_bytes(path.read_bytes() + b'{"what": "task", "gi')
    again = Questions(tmp_path)
    again.task(ask(1, 0, "a"), PLAN, "y")
    assert [each.given for each in Questions(tmp_path).entries] == []
    assert path.read_text().count("\n") == 2
    path.write_text("nonsense\n")
    with pytest.raises(Refused, match="notes of what it answered are damaged"):
        Questions(tmp_path).task(ask(2, 0, "a"), PLAN, "z")
    path.unlink()
    with pytest.raises(Refused, match="notes of what it answered are gone"):
        again.task(ask(2, 0, "a"), PLAN, "z")


def test_the_secret_is_not_made_anew_in_the_middle_of_a_run(tmp_path):
    asked = Questions(tmp_path)
    assert asked.secret() == Questions(tmp_path).secret()
    asked.task(ask(0, 0, "a"), PLAN, "x")
    (tmp_path / SECRET).unlink()
    with pytest.raises(Refused, match="the secret that this site draws its rows with is gone"):
        Questions(tmp_path).secret()


def test_a_measured_model_is_the_one_of_its_round_before_and_after_the_task(tmp_path):
    asked = Questions(tmp_path / "before")
    asked.measure(Measurement("w0", "", "test", 0), PLAN, 9)
    asked.measure(Measurement("w0", "", "train", 0), PLAN, 9)
    with pytest.raises(Refused, match="measured after round 0 is not the one that its next task carries"):
        asked.task(ask(0, 0, "a"), PLAN, "x", ["w1"])
    with pytest.raises(Refused, match="answers no more in this run"):
        Questions(tmp_path / "before").task(ask(0, 0, "a"), PLAN, "y", ["w0"])
    after = Questions(tmp_path / "after")
    after.task(ask(0, 0, "a"), PLAN, "x", ["w0"])
    after.measure(Measurement("w0", "", "test", 0), PLAN, 1)
    with pytest.raises(Refused, match="most_evaluations = 1"):
        after.measure(Measurement("w1", "", "test", 1), PLAN, 1)
    with pytest.raises(Refused, match="another model was measured after round 0"):
        after.measure(Measurement("w9", "", "test", 0), PLAN, 9)


def test_shares_of_a_sum_are_those_of_the_algorithm():
    plan = Plan(4, weights={"a": frozenset({"size"}), "b": frozenset({"uniform"}), "c": frozenset({"own", "size"})})
    sizes = [100, 300, 600]
    assert plan.shares_objection("a", {0: 0.1, 1: 0.3, 2: 0.6}, sizes) == ""
    assert plan.shares_objection("a", {0: 0.1, 2: 0.6}, sizes) == "", "of those who answer"
    assert "not those of the algorithm (size)" in plan.shares_objection("a", {0: 0.8, 1: 0.1, 2: 0.1}, sizes)
    assert "not those of the algorithm (uniform)" in plan.shares_objection("b", {0: 0.1, 1: 0.3, 2: 0.6}, sizes)
    assert plan.shares_objection("b", {0: 0.5, 1: 0.5}, sizes) == ""
    assert plan.shares_objection("c", {0: 0.8, 1: 0.1, 2: 0.1}, sizes) == "", "weights of its own"
