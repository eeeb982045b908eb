"""Faults of sites and messages, one row each: the site is left out and named, everyone else goes on, it comes back."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from remembering import Model, Remembering

from deployment import RUN, deployed, sites
from fedsaddle.algorithms.drfa import Drfa, LocalLoss
from fedsaddle.data.store import Stacked
from fedsaddle.deployment.audit import AuditLog, read_audit
from fedsaddle.deployment.courier import Arrival, InProcess
from fedsaddle.deployment.messages import PROTOCOL, Answer, Ask, Failure, Fault, FaultKind
from fedsaddle.deployment.site_worker import InMemory, OnDisk, OwnRows
from fedsaddle.engines.simulated import SerialEngine
from fedsaddle.errors import BadCheckpoint, BadMessage, Diverged, NobodyAnswered, Refused, TooFewAnswered
from fedsaddle.federation.randomness import ClientKeys
from fedsaddle.federation.records import same
from fedsaddle.federation.tasks import records_of
from fedsaddle.federation.wire import Message, pack, unpack
from fedsaddle.problems.models.networks import logistic_regression
from fedsaddle.problems.supervised import Supervised
from small import classes, play, seeded


def drfa() -> Drfa:
    problem = Supervised(seeded(lambda: logistic_regression(4, 3)))
    return Drfa(problem=problem, local_steps=2, batch_size=3, weighting="weight")


def toy() -> Remembering:
    return Remembering(problem=Supervised(seeded(lambda: logistic_regression(4, 3))))


KINDS = records_of(drfa()) | records_of(toy())


def altered(content: bytes, **changes) -> bytes:
    message = unpack(content, KINDS)
    return pack(Message(message.about, replace(message.record, **changes)))


def nan(reply: bytes) -> bytes:
    record = unpack(reply, KINDS).record
    return altered(reply, final=torch.full_like(record.final, torch.nan)) if hasattr(record, "final") else reply


def wrong_shape(reply: bytes) -> bytes:
    record = unpack(reply, KINDS).record
    return altered(reply, final=record.final[:, :-1]) if hasattr(record, "final") else reply


def wrong_type(reply: bytes) -> bytes:
    record = unpack(reply, KINDS).record
    return altered(reply, final=record.final.float()) if hasattr(record, "final") else reply


def other_record(reply: bytes) -> bytes:
    message = unpack(reply, KINDS)
    kind = KINDS["LocalLoss"]
    return pack(Message(message.about, kind(torch.zeros(1))))


def other_nonce(reply: bytes) -> bytes:
    message = unpack(reply, KINDS)
    return pack(Message(message.about | {"nonce": "0" * 16}, message.record))


def no_facts(reply: bytes) -> bytes:
    return pack(Message({"protocol": PROTOCOL}, unpack(reply, KINDS).record))


def raises(reply: bytes) -> bytes:
    return pack(Message(Answer.failed("", RuntimeError("patient 4711")).to_dict()))


FAULTS = {
    "raises": (raises, "failed: RuntimeError"),
    "sends NaN": (nan, "sent a 'final' that is not finite"),
    "sends a wrong shape": (wrong_shape, "sent a 'final' of shape (1, 14), not (1, 15)"),
    "sends another precision": (wrong_type, "sent a 'final' of another type"),
    "sends another record": (other_record, "sent a LocalLoss, not a LocalModels"),
    "sends a huge reply": (lambda reply: reply + bytes(200_000), "more than the limit of 100,000"),
    "sends noise": (lambda reply: bytes(100), "not a message of this version"),
    "answers an old ask": (other_nonce, "sent a reply to another request"),
    "leaves out the facts": (no_facts, "sent a bad message: a message without 'nonce'"),
}


class Faulty(InProcess):
    """Site 2 spoils its reply in the given rounds."""

    def __init__(self, made, spoil, bad_rounds):
        super().__init__({i: site.answer for i, site in made.items()})
        self.spoil, self.bad_rounds, self.asked = spoil, bad_rounds, []

    def exchange(self, clients, content, least, timeout):
        about = unpack(content, KINDS).about
        self.asked.append((about["round"], about["exchange"], list(clients)))
        arrivals = super().exchange(clients, content, least, timeout)
        if about["round"] not in self.bad_rounds:
            return arrivals
        spoilt = [Arrival(a.client, self.spoil(a.content)) if a.client == 2 else a for a in arrivals]
        return [a for a in spoilt if a.content is not None]


@pytest.mark.parametrize(("spoil", "reason"), FAULTS.values(), ids=FAULTS)
def test_a_site_that(spoil, reason, caplog):
    rows = classes()
    transport = Faulty(sites(drfa, rows), spoil, {0})
    clients = deployed(drfa, rows, transport=transport, most_bytes=100_000)
    with caplog.at_level(logging.WARNING, "fedsaddle.server"):
        states = play(drfa(), clients, 3)
    assert sum(clients.attendance.left_out[2].values()) == 1, "once a round"
    assert all(torch.isfinite(state.w).all() for state in states)
    assert "round 1, exchange 1: site-2 left out" in caplog.text
    assert reason in caplog.text
    assert {r: 2 in who for r, e, who in transport.asked if e == 1} == {0: False, 1: True, 2: True}, "and asked again"
    lost = play(drfa(), Without(SerialEngine(rows), 2, {0}), 3)
    assert same(states[-1], lost[-1]), "as if it had not been drawn"


class Without:
    """A simulation in which one client takes no part in some rounds."""

    def __init__(self, inner, client, rounds):
        self.inner, self.client, self.rounds, self.round = inner, client, rounds, 0
        self.count, self.sizes, self.commit = inner.count, inner.sizes, inner.commit

    def begin(self, round):
        self.round = round
        self.inner.begin(round)

    def ask(self, cohort, task, sent, *, weights=None):
        kept = [n for n, i in enumerate(cohort) if i != self.client or self.round not in self.rounds]
        cohort = [cohort[n] for n in kept]
        weights = None if weights is None else [weights[n] for n in kept]
        return self.inner.ask(cohort, task, sent, weights=weights)


def test_a_site_that_hangs_rests_longer_and_longer():
    rows = classes()
    transport = Faulty(sites(drfa, rows), lambda reply: None, set(range(12)))
    clients = deployed(drfa, rows, transport=transport, timeout=5)
    play(drfa(), clients, 12)
    asked_in = sorted({r for r, _, who in transport.asked if 2 in who})
    assert asked_in == [0, 1, 3, 7]
    assert clients.attendance.left_out[2] == {"did not answer in 5 s": 4}


def test_all_replies_that_are_not_finite_are_a_divergence():
    rows = classes()
    rows.x.fill_(1e200)  # finite, but their products are not
    clients = deployed(drfa, rows)
    with pytest.raises(Diverged, match="client 0 sent a 'final'"):
        play(drfa(), clients, 1)


def test_a_cohort_whose_sites_all_rest_is_a_round_without_answers():
    """Half of six sites may be the silent ones where one site must be up: no round of theirs may end the run."""
    rows, alg = classes(), drfa()
    clients = deployed(drfa, rows, transport=Silent({}))
    for round in range(4):  # in round 2 all of them rest
        clients.begin(round)
        with pytest.raises(
            NobodyAnswered, match=rf"round {round + 1}, exchange 1: (none|all 3 sites of the cohort are paused)"
        ):
            clients.ask([0, 1, 2], alg.local_sgd, alg.start(clients))


class Silent(InProcess):
    def exchange(self, clients, content, least, timeout):
        return []


@dataclass(frozen=True)
class Puzzled(Remembering):
    """Its task fails in words that sound like a divergence."""

    def work(self, own, sent, site):
        raise BadMessage("the exponent is not finite")


def test_words_of_a_site_are_not_read_as_a_kind_of_fault():
    def puzzled() -> Puzzled:
        return Puzzled(problem=toy().problem)

    clients = deployed(puzzled, classes(), minimum=6, patience=0)
    clients.begin(0)
    alg = puzzled()
    with pytest.raises(TooFewAnswered, match=r"0 of at least 6 .*site-0 failed: the exponent is not finite"):
        clients.ask(range(6), alg.work, Model(alg.problem.initial()))


def test_a_site_cannot_choose_a_fault_that_is_for_the_server_to_find():
    about = Answer.failed("n", RuntimeError()).to_dict()
    with pytest.raises(BadMessage, match=r"a message whose 'failure.kind' is 'not_finite'"):
        Answer.read(about | {"failure": {"kind": "not_finite", "detail": "w"}})


ASK = Ask(run="r", fingerprint="f", nonce="n", round=0, exchange=0, task="t", starts={"0": "v"}, keep={}).to_dict()
BAD_ASKS = {
    "another protocol": ({"protocol": 1}, f"a message of protocol 1; this version uses {PROTOCOL}"),
    "a key too many": ({"more": 1}, "a message with an unknown 'more'"),
    "text for a number": ({"round": "0"}, "a message whose 'round' is '0'"),
    "true for a number": ({"round": True}, "a message whose 'round' is True"),
    "a round before the first": ({"round": -1}, "a message whose 'round' is -1"),
    "a list for a table": ({"starts": []}, r"a message whose 'starts' is \[\]"),
    "a number for a version": ({"starts": {"0": 1}}, "a message whose 'starts.0' is 1"),
    "a name of 101 characters": ({"run": "r" * 101}, "a message whose 'run' is 'r+\\.+r+'"),
    "text for a list of versions": ({"keep": {"0": "v"}}, "a message whose 'keep.0' is 'v'"),
}


@pytest.mark.parametrize(("change", "complaint"), BAD_ASKS.values(), ids=BAD_ASKS)
def test_a_message_is_refused_that_has(change, complaint):
    with pytest.raises(BadMessage, match=f"^{complaint}$"):
        Ask.read(ASK | change)


def test_a_name_may_have_100_characters():
    assert Ask.read(ASK | {"run": "r" * 100, "task": "t" * 100}).run == "r" * 100


def test_a_message_that_was_checked_cannot_be_changed():
    ask = Ask.read(ASK)
    with pytest.raises(ValidationError, match="frozen"):
        ask.round = -1
    assert ask.round == 0


def test_messages_read_what_they_wrote():
    assert Ask.read(ASK).to_dict() == ASK
    answer = Answer.failed("n", Refused("no"))
    assert Answer.read(answer.to_dict()) == answer
    assert answer.failure is not None
    assert answer.failure.fault(3) == Fault(FaultKind.REFUSED, 3, "no")
    with pytest.raises(BadMessage, match="a message without 'task'"):
        Ask.read({k: v for k, v in ASK.items() if k != "task"})


class Clock:
    def __init__(self):
        self.seconds = 0.0

    def now(self):
        return self.seconds

    def sleep(self, seconds):
        self.seconds += seconds


def test_fewer_than_the_minimum_ends_after_the_patience():
    rows, clock = classes(), Clock()
    transport = Faulty(sites(drfa, rows), lambda reply: None, {1})
    clients = deployed(drfa, rows, transport=transport, minimum=6, patience=10, pause=2.0, timeout=3)
    clients.courier.now, clients.courier.sleep = clock.now, clock.sleep
    alg = drfa()
    message = r"round 2, exchange 1: 5 of at least 6 sites answered within 10 s \(site-2 did not answer in 3 s\); start"
    with pytest.raises(TooFewAnswered, match=message) as reason:
        play(alg, clients, 3)
    assert reason.value.exit_code == 3
    assert clock.seconds == 10
    attempts = [who for r, _, who in transport.asked if r == 1]
    assert attempts == [[0, 1, 2, 3, 4, 5]] + [[2]] * 5, "only the missing are asked again"


def test_a_site_that_comes_back_in_time_leaves_no_trace():
    rows, clock = classes(), Clock()
    alg = drfa()
    transport = Faulty(sites(lambda: alg, rows), lambda reply: reply if clock.seconds > 3 else None, {1})
    clients = deployed(lambda: alg, rows, transport=transport, minimum=6, patience=10, pause=2.0)
    clients.courier.now, clients.courier.sleep = clock.now, clock.sleep
    found = play(alg, clients, 3)
    assert same(found[-1], play(alg, SerialEngine(rows), 3)[-1])


def test_a_reply_that_arrives_twice_counts_once():
    class Twice(InProcess):
        def exchange(self, clients, content, least, timeout):
            arrivals = super().exchange(clients, content, least, timeout)
            return [*arrivals, *reversed(arrivals)]

    rows = classes()
    made = sites(toy, rows)
    clients = deployed(toy, rows, transport=Twice({i: s.answer for i, s in made.items()}))
    assert same(play(toy(), clients, 4)[-1], play(toy(), SerialEngine(rows), 4)[-1])


def test_an_ask_that_arrives_twice_is_answered_alike():
    class Again(InProcess):
        def exchange(self, clients, content, least, timeout):
            super().exchange(clients, content, least, timeout)
            return super().exchange(clients, content, least, timeout)

    rows = classes()
    made = sites(toy, rows)
    clients = deployed(toy, rows, transport=Again({i: s.answer for i, s in made.items()}))
    assert same(play(toy(), clients, 4)[-1], play(toy(), SerialEngine(rows), 4)[-1])


def test_a_reply_of_an_earlier_exchange_is_late():
    class Late(InProcess):
        """Site 1's replies always arrive one exchange late."""

        held: bytes | None = None

        def exchange(self, clients, content, least, timeout):
            found = []
            for arrival in super().exchange(clients, content, least, timeout):
                if arrival.client == 1:
                    arrival, self.held = Arrival(1, self.held), arrival.content
                found.append(arrival)
            return found

    rows = classes()
    clients = deployed(drfa, rows, transport=Late({i: s.answer for i, s in sites(drfa, rows).items()}))
    states = play(drfa(), clients, 1)
    never = play(drfa(), Without(SerialEngine(rows), 1, {0}), 1)
    assert same(states[-1], never[-1])


def test_a_lost_reply_does_not_move_the_memory():
    """The site ran, and wrote a version; the server never heard of it. 'Timed out' does not mean 'did not run'."""
    rows = classes()
    made = sites(toy, rows)
    transport = Faulty(made, lambda reply: None, {1})
    clients = deployed(toy, rows, transport=transport)
    alg = replace(toy(), sampled_clients=6)
    sent = Model(alg.problem.initial())
    visits = {}
    for r in range(3):
        clients.begin(r)
        who, reply = clients.ask(range(6), alg.work, sent)
        clients.commit()
        visits[r] = dict(zip(who.tolist(), reply.visits.tolist(), strict=True))
    assert visits[0] == dict.fromkeys(range(6), 1)
    assert 2 not in visits[1]
    assert visits[2] == {0: 3, 1: 3, 2: 2, 3: 3, 4: 3, 5: 3}


def test_a_site_refuses_a_run_it_is_not_configured_for():
    rows = classes()
    made = sites(drfa, rows)
    other = deployed(lambda: replace(drfa(), primal_step=0.7), rows, patience=0, minimum=6,
                     transport=InProcess({i: s.answer for i, s in made.items()}))  # fmt: skip
    with pytest.raises(TooFewAnswered, match="refused: this site is configured for run 'trial' with fingerprint"):
        play(drfa(), other, 1)


@pytest.mark.parametrize(
    "task", ["round", "start", "__init__", "model", "_aggregate", "problem", "no such", "local_steps"]
)
def test_a_site_runs_tasks_of_its_algorithm_and_nothing_else(task):
    site = sites(drfa, classes())[0]
    ask = Ask(run=RUN, fingerprint=site.fingerprint, nonce="n", round=0, exchange=0, task=task, starts={}, keep={})
    answer = Answer.read(unpack(site.answer(pack(Message(ask.to_dict()))), KINDS).about)
    assert answer.failure is not None
    assert answer.failure.kind == "failed"
    assert answer.failure.detail.startswith("Drfa has no task")


def work_of(site, round=0):
    """A task for a site without memory, and its record."""
    ask = Ask(
        run=RUN, fingerprint=site.fingerprint, nonce="n", round=round, exchange=0, task="work", starts={}, keep={}
    )
    return ask, Model(toy().problem.initial())


def test_draws_come_from_the_seed_without_a_budget_and_from_the_budget_with_one():
    rows, given = classes(), []
    number = int(rows.sizes.argmax())
    site = sites(toy, rows)[number]

    class Budget:
        def draws(self, ask, sent, own):
            given.append((ask, sent, own))
            return ClientKeys.of(99, ask.round, ask.exchange, np.array([number]))

    def reply():
        ask, sent = work_of(site)
        message = unpack(site.answer(pack(Message(ask.to_dict(), sent))), KINDS)
        assert Answer.read(message.about).failure is None
        return ask, sent, message.record

    *_, plain = reply()
    assert same(plain, reply()[-1])
    site.budget = Budget()
    ask, sent, drawn = reply()
    assert not torch.equal(drawn.step, plain.step), "other rows"
    ((found, record, own),) = given
    assert found == ask
    assert same(record, sent)
    assert own.visits.tolist() == [0]


def test_a_site_finds_the_rows_of_its_patients_whatever_its_number():
    x, y = torch.zeros(5, 2), torch.zeros(5)
    own = OwnRows(Stacked(x, y, np.array([0, 5]), units=np.array([7, 7, 3, 7, 3])), 2, 4)
    assert [rows.tolist() for rows in own.unit_rows(2)] == [[2, 4], [0, 1, 3]]
    assert own.sizes.tolist() == [0, 0, 5, 0]


def test_a_site_without_a_log_answers_and_one_with_a_log_notes_each_field(tmp_path):
    site = sites(toy, classes())[0]
    ask, sent = work_of(site, round=4)
    content = pack(Message(ask.to_dict(), sent))
    site.audit = AuditLog(tmp_path)
    noted = site.answer(content)
    entries = read_audit(tmp_path)
    assert {(e.round, e.request, e.field) for e in entries} == {(4, "work", f) for f in ("step", "scores", "visits")}
    site.audit = None
    assert site.answer(content) == noted
    assert len(read_audit(tmp_path)) == len(entries)


def test_answers_and_bytes_of_each_site_are_counted():
    """Of replies that are left out as well: they have used the network."""
    rows = classes()
    arrived: Counter[int] = Counter()
    sent: Counter[int] = Counter()

    class Counts(Faulty):
        def exchange(self, clients, content, least, timeout):
            arrivals = super().exchange(clients, content, least, timeout)
            sent.update(dict.fromkeys(clients, len(content)))
            arrived.update({a.client: len(a.content) for a in arrivals})
            return arrivals

    clients = deployed(toy, rows, transport=Counts(sites(toy, rows), lambda reply: b"noise", {0}))
    for r in range(2):
        clients.begin(r)
        clients.ask([0, 1, 2], toy().work, Model(toy().problem.initial()))
        clients.commit()
    told = clients.report()["sites"]
    assert [told[f"site-{i}"]["answered"] for i in range(4)] == [2, 2, 1, 0]
    assert {i: told[f"site-{i}"]["bytes_up"] for i in range(3)} == arrived
    assert {i: told[f"site-{i}"]["bytes_down"] for i in range(3)} == sent


def test_a_failure_names_no_data(caplog):
    rows = classes()
    site = sites(drfa, rows)[0]
    ask = Ask(
        run=RUN, fingerprint=site.fingerprint, nonce="n", round=0, exchange=0, task="local_sgd", starts={}, keep={}
    )

    def failure(sent):
        return Answer.read(unpack(site.answer(pack(Message(ask.to_dict(), sent))), KINDS).about).failure

    other = LocalLoss(torch.zeros(1))  # of another task
    assert failure(other) == Failure(kind="failed", detail="AttributeError"), "its text stays in the site's own log"
    assert "'LocalLoss' object has no attribute" in caplog.text
    assert failure(None) == Failure(kind="failed", detail="a message without a record")


def test_versions_that_no_checkpoint_needs_are_dropped(tmp_path):
    rows = classes()
    made = sites(toy, rows, versions=lambda i: OnDisk(tmp_path / str(i)))
    clients = deployed(toy, rows, transport=InProcess({i: s.answer for i, s in made.items()}))
    alg, sent = toy(), Model(toy().problem.initial())
    for r in range(8):
        clients.begin(r)
        clients.ask(range(6), alg.work, sent)
        clients.commit()
        if r % 3 == 2:
            clients.versions.checkpointed()
    kept = sorted(p.name[:8] for p in (tmp_path / "0").glob("*.memory"))
    assert kept == ["00000002", "00000005", "00000006", "00000007"], "two checkpoints, the last start, and the newest"


@pytest.mark.parametrize("where", ["in memory", "on disk"])
def test_only_the_versions_that_are_named_are_kept(tmp_path, where):
    versions = InMemory() if where == "in memory" else OnDisk(tmp_path)
    for k, name in enumerate("abc"):
        versions.write(name, Model(torch.full((3,), float(k))))
    versions.keep_only({"a", "c"})
    assert torch.equal(versions.read("c", records_of(toy())).w, torch.full((3,), 2.0))
    assert torch.equal(versions.read("a", records_of(toy())).w, torch.zeros(3))
    with pytest.raises(BadCheckpoint, match="memory b does not exist"):
        versions.read("b", records_of(toy()))


def test_memory_on_disk(tmp_path):
    rows = classes()
    found = []
    for versions in (lambda i: InMemory(), lambda i: OnDisk(tmp_path / str(i))):
        made = sites(toy, rows, versions=versions)
        clients = deployed(toy, rows, transport=InProcess({i: s.answer for i, s in made.items()}))
        found.append(play(toy(), clients, 4)[-1])
    assert same(*found)
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.mark.parametrize("harm", ["damaged", "missing"])
def test_damaged_memory_is_not_used(tmp_path, harm):
    disk = OnDisk(tmp_path)
    disk.write("a", Model(torch.ones(3)))
    path = next(tmp_path.glob("*.memory"))
    path.write_bytes(path.read_bytes()[:-1] + b"x") if harm == "damaged" else path.unlink()
    with pytest.raises(BadCheckpoint, match=r"memory a (is damaged|does not exist)"):
        disk.read("a", records_of(toy()))


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".hidden", "x" * 200, "a..b"])
def test_versions_cannot_name_other_files(tmp_path, name):
    with pytest.raises(BadMessage, match="is not a valid file name"):
        OnDisk(tmp_path).read(name, {})
