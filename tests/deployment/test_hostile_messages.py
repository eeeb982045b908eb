"""Sites and servers that lie: each message is refused in time, its sender is named, and nobody else is harmed."""

from __future__ import annotations

import logging
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hostile_cases import ASK, BEFORE, DURING, GIVEN, LARGEST, RUN, TO_SITES, Lies, framed
from in_process import deployed, simulated
from in_process import sites as services
from test_deployed_runs import of_files, own_files, with_own_files

from fedsaddle.data.tables.agreed_encoding import SiteFacts
from fedsaddle.deployment.audit import log_to_folder, traceback_lines
from fedsaddle.deployment.courier import Arrival, Courier, InProcess
from fedsaddle.deployment.messages import (
    PROTOCOL,
    AgreeAsked,
    AgreedEncoding,
    Answer,
    Ask,
    Fault,
    FaultKind,
    Request,
    read_payload,
)
from fedsaddle.errors import BadMessage, FedSaddleError
from fedsaddle.federation.wire import SMALL, unpack

SECONDS = 5.0
SPARE = 32 << 20  # bytes beside twice the message


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    own_files(folder)
    given = of_files(folder)
    return given, with_own_files(given, folder)


@pytest.mark.parametrize(("do", "lie", "reason"), BEFORE.values(), ids=BEFORE)
def test_before_the_first_round_a_lie_ends_the_run_in_a_line_that_names_the_site(do, lie, reason, tables, tmp_path):
    given, made = tables
    transport = Lies(made, do, lie)
    began = time.monotonic()
    with pytest.raises(FedSaddleError) as ended:
        deployed(
            given,
            made,
            tmp_path / "out",
            transport,
            name=tmp_path.name,
            patience=0 if "another request" in reason else 10_000,
        )
    assert time.monotonic() - began < SECONDS
    said = str(ended.value)
    assert "site-2" in said
    assert reason in said
    assert "\n" not in said
    assert len(said) < 1000
    assert "site-1" not in said, "no other site is blamed"
    log = (tmp_path / "out" / "log.txt").read_text()
    assert log.count("the run ended") == 1
    assert not (tmp_path / "out" / "metrics.jsonl").exists()


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    """Services at four sites, and the run without site 2's replies."""
    folder = tmp_path_factory.mktemp("sites")
    return services(GIVEN, folder), simulated(GIVEN)


@pytest.mark.parametrize(("do", "lie", "reason"), DURING.values(), ids=DURING)
def test_in_a_round_a_lie_leaves_the_site_out_and_all_others_go_on(do, lie, reason, honest, tmp_path):
    made, expected = honest
    transport = Lies(made, do, lie)
    began = time.monotonic()
    result = deployed(GIVEN, made, tmp_path / "out", transport, name=tmp_path.name)
    assert time.monotonic() - began < 3 * SECONDS
    assert transport.lied
    assert result.summary["rounds"] == 3
    sites = result.summary["sites"]
    assert any(reason in why for why in sites["site-2"]["left_out"]), sites["site-2"]
    assert not any(sites[name]["left_out"] for name in ("site-1", "site-3", "site-4"))
    assert torch.isfinite(result.model).all()
    assert torch.equal(result.model, expected.model) == (do == "measure")
    log = (tmp_path / "out" / "log.txt").read_text()
    assert all(line[:4] == "2026" or line[:2] == "20" for line in log.splitlines()), "no line is forged"
    assert "INFO all is well" not in [line[24:] for line in log.splitlines()]
    assert "\x1b" not in log


def test_answers_for_other_sites_and_for_nobody_are_ignored(honest, tmp_path):
    """A transport vouches for senders; what it says of clients that were not asked counts for nothing."""
    made, expected = honest

    class Meddles(InProcess):
        def exchange(self, clients, content, least, timeout):
            found = super().exchange(clients, content, least, timeout)
            strangers = [Arrival(i, b"x") for i in (-1, 4, 99) if i not in clients]
            return [*strangers, *found, *(a._replace(content=b"late") for a in found)]

    result = deployed(
        GIVEN, made, tmp_path / "out", Meddles({i: s.answer for i, s in made.items()}), name=tmp_path.name
    )
    assert torch.equal(result.model, expected.model)


def test_a_replayed_answer_is_stale(honest, tmp_path):
    made, _ = honest
    kept: dict[str, bytes] = {}
    replay = Lies(made, "task", lambda content, ask: kept.setdefault("first", content))
    result = deployed(GIVEN, made, tmp_path / "out", replay, name=tmp_path.name)
    assert result.summary["sites"]["site-2"]["left_out"].keys() == {"sent a reply to another request"}
    assert result.summary["sites"]["site-2"]["answered"] == 1


@pytest.mark.parametrize("content", TO_SITES.values(), ids=TO_SITES)
def test_a_site_answers_anything_with_a_failure(content, tables, tmp_path, caplog):
    made = tables[1][0]
    before = set(made.settings.folder.parent.parent.rglob("*"))
    with caplog.at_level(logging.ERROR):
        answer = Answer.read(unpack(cost(len(content), lambda: made.answer(content)), {}).about)
    assert answer.failure is not None
    assert len(answer.failure.detail) < 600
    assert answer.failure.detail.isprintable()
    assert {p.name for p in set(made.settings.folder.parent.parent.rglob("*")) - before} <= {
        "audit.jsonl",
        "disk-0",
        "log.txt",
    }


def cost(size: int, do: Callable[[], Any]) -> Any:
    """Do it; fail where it takes longer, or more memory, than it may for a message of that size."""
    began = time.monotonic()
    do()
    assert time.monotonic() - began < SECONDS
    tracemalloc.start()
    try:
        found = do()
        assert tracemalloc.get_traced_memory()[1] < 2 * size + SPARE
    finally:
        tracemalloc.stop()
    return found


@pytest.mark.parametrize("said", LARGEST.values(), ids=LARGEST)
def test_the_largest_message_that_is_read_costs_no_more_than_it_may(said):
    """Just within the limits, in the forms that take most memory."""
    content = framed(b'{"about":{},"record":' + said + b"}")

    def refused() -> None:
        found = unpack(content, {}).record
        with pytest.raises(BadMessage):
            read_payload(SiteFacts, found)

    cost(len(content), refused)
    for more in (b"[" + said + b"," + said + b"]", b"[" * 40 + b"]" * 40):
        with pytest.raises(BadMessage, match=r"more than|nested deeper"):
            unpack(framed(b'{"about":{},"record":' + more + b"}"), {})


def test_a_message_of_64_mb_costs_next_to_nothing():
    content = TO_SITES["64 MB of [] in a sound frame"]

    def refused() -> None:
        with pytest.raises(BadMessage, match="bytes of text, more than the limit of 8,388,608"):
            unpack(content, {})

    assert len(content) > 60 << 20
    cost(0, refused)


def test_lines_of_a_log_are_the_logs_own(tmp_path):
    log = logging.getLogger("fedsaddle.test")
    with log_to_folder(log, tmp_path):
        try:
            raise ValueError("a\n2026-01-01 00:00:00,000 INFO all is well\x1b[31m")
        except ValueError as reason:
            log.error("failed: %s", reason)
            log.error("failed", exc_info=reason)
            log.error("failed: %s", traceback_lines(reason))
    lines = (tmp_path / "log.txt").read_text().splitlines()
    assert all(line.startswith("    | ") or line[10:11] == " " for line in lines)
    assert not [line for line in lines if line.startswith("2026-01-01")]
    assert "\x1b" not in "".join(lines)


def encoding(classes: int, positive: int | None = None) -> dict[str, Any]:
    """An agreed encoding of one feature and so many classes."""
    values = list(range(classes))
    return {
        "values": values, "classes": [str(v) for v in values], "counts": [5] * classes, "positive": positive,
        "features": [{"column": "age", "kind": "number"}],
    }  # fmt: skip


def test_an_encoding_may_have_many_classes():
    """Each site may tell of 1000 labels, and not all sites have the same."""
    assert len(read_payload(AgreedEncoding, encoding(2000)).values or ()) == 2000


@pytest.mark.parametrize("positive", [None, 0, 1])
def test_the_positive_class_is_one_of_the_classes_or_none(positive):
    assert read_payload(AgreedEncoding, encoding(2, positive)).positive == positive


def test_a_positive_class_that_is_not_there_is_refused():
    with pytest.raises(BadMessage, match="the positive class is not among the values"):
        read_payload(AgreedEncoding, encoding(2, 2))


def test_a_site_that_stands_twice_among_the_names_is_refused():
    """Two clients of one site would count its rows twice."""
    told = {"config": {}, "agreed": encoding(2)}
    assert read_payload(AgreeAsked, told | {"names": ["a", "b"]}).names == ["a", "b"]
    with pytest.raises(BadMessage, match="a site stands twice"):
        read_payload(AgreeAsked, told | {"names": ["a", "b", "a"]})


def test_a_reply_of_more_than_a_gibibyte_is_not_read_by_default():
    class Long(bytes):
        """Says that it is longer than it is."""

        def __len__(self) -> int:
            return (1 << 30) + 1

    courier = Courier(InProcess({}), ("a", "b"))
    found = courier._read(Arrival(1, Long(b"x")), "n", {}, lambda client, answer, record: record, SMALL)
    assert found == Fault(FaultKind.TOO_LARGE, 1, "1,073,741,825 bytes, more than the limit of 1,073,741,824")


def test_messages_are_what_they_were():
    """Requests and asks above are refused for what is odd in them, not for their form."""
    assert Ask.read(ASK).version == "00000000-000-n"
    assert Request.read({"protocol": PROTOCOL, "do": "facts", **RUN}).do == "facts"
    assert len(BEFORE) + len(DURING) + len(TO_SITES) >= 34
