"""The codec: what goes in comes out, to the bit; what a stranger sends is refused in one line."""

from __future__ import annotations

import json
import struct
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from fedsaddle.algorithms.drfa import Drfa
from fedsaddle.algorithms.sgda.local_sgda import LocalSgda
from fedsaddle.config.registry import ALGORITHMS
from fedsaddle.errors import BadMessage
from fedsaddle.federation.clients import Site
from fedsaddle.federation.tasks import records_of, tasks_of
from fedsaddle.federation.wire import LIMITS, Message, name_of, pack, read_tensors, tensor_parts, unpack
from fedsaddle.problems.minimax import Minimax
from fedsaddle.problems.supervised import Supervised


@dataclass(frozen=True)
class Inner:
    v: Tensor
    label: str = "a"


@dataclass(frozen=True)
class Outer:
    a: Any
    b: Any = None
    inner: Inner | None = None


KINDS = {name_of(kind): kind for kind in (Inner, Outer)}
TENSORS = [
    torch.tensor([1.0, float("nan"), float("inf"), -0.0, 5e-324], dtype=torch.float64),
    torch.arange(6, dtype=torch.float32).view(2, 3).T,
    torch.zeros(0, 3),
    torch.tensor(3.5),
    torch.tensor([True, False]),
    torch.arange(3),
    torch.ones(4).expand(2, 4),
    torch.tensor([1.5], dtype=torch.bfloat16),
    torch.ones(3, requires_grad=True),
]


def through(record: Any) -> Any:
    return unpack(pack(Message({"n": 1}, record)), KINDS).record


@pytest.mark.parametrize("value", TENSORS, ids=lambda t: f"{t.dtype} {tuple(t.shape)}")
def test_tensors_to_the_bit(value):
    back = through(Outer(value)).a
    assert back.dtype == value.dtype
    assert back.shape == value.shape
    assert torch.equal(
        back.contiguous().view(-1).view(torch.uint8), value.detach().contiguous().view(-1).view(torch.uint8)
    )


@pytest.mark.parametrize(
    "value", [None, True, 3, -(2**63), 0.1, 1e-308, float("inf"), "text ü", np.float64(0.1)], ids=repr
)
def test_plain_values(value):
    back = through(Outer(value)).a
    assert back == value
    assert type(back) is (float if isinstance(value, np.float64) else type(value))


def test_not_a_number_stays_one():
    assert np.isnan(through(Outer(float("nan"))).a)


def test_records_in_records_dictionaries_and_lists():
    record = Outer({"x": torch.ones(2), 3: [1, (2.5, None)]}, (torch.zeros(1), "s"), Inner(torch.arange(3), "b"))
    back = through(record)
    assert torch.equal(back.a["x"], torch.ones(2))
    assert back.a[3] == [1, (2.5, None)]
    assert torch.equal(back.b[0], torch.zeros(1))
    assert back.inner.label == "b"
    assert torch.equal(back.inner.v, torch.arange(3))


def test_one_tensor_in_two_fields_travels_once():
    v = torch.randn(1000)
    assert len(pack(Message({}, Outer(v, v)))) < len(pack(Message({}, Outer(v, v.clone())))) - 7000
    back = through(Outer(v, v))
    assert torch.equal(back.a, v)
    assert torch.equal(back.b, v)


def test_views_of_one_storage():
    v = torch.arange(10.0)
    back = through(Outer(v[:5], v[5:], Inner(v[2:4])))
    assert torch.equal(back.a, v[:5])
    assert torch.equal(back.b, v[5:])
    assert torch.equal(back.inner.v, v[2:4])


def test_what_arrives_is_nobody_elses():
    v = torch.zeros(3)
    back = through(Outer(v)).a
    back += 1
    assert not v.any()


@pytest.mark.parametrize(
    "value", [object(), np.zeros(3), {1, 2}, lambda: 0], ids=["object", "array", "set", "function"]
)
def test_other_things_cannot_be_sent(value):
    with pytest.raises(TypeError, match=r"record\.a is a"):
        pack(Message({}, Outer(value)))


def test_an_algorithm_knows_its_records_and_no_others():
    drfa = Drfa(problem=Supervised(nn.Linear(2, 2)))
    game = Minimax(lambda x, y, batch: batch.x @ x * y.sum(), start_x=torch.ones(4), start_y=torch.zeros(2))
    assert records_of(drfa).keys() == {"Start", "LocalModels", "Probe", "LocalLoss"}
    assert records_of(LocalSgda(problem=game, snapshot_every=2)).keys() == {"MidRound", "Start", "Local"}
    with pytest.raises(BadMessage, match="unknown kind"):
        unpack(pack(Message({}, Outer(1))), records_of(drfa))


@dataclass(frozen=True)
class Holder:
    inner: Inner | None = None


@dataclass(frozen=True)
class Nested:
    """An algorithm whose reply holds another record."""

    def work(self, own: None, sent: Holder, site: Site) -> tuple[None, Holder]:
        raise NotImplementedError


class Twice:
    @dataclass(frozen=True)
    class Holder:
        w: Tensor


Twice.Holder.__qualname__ = "Holder"


@dataclass(frozen=True)
class Ambiguous(Nested):
    """A second record of the same name."""

    def more(self, own: None, sent: Twice.Holder, site: Site) -> tuple[None, Holder]:
        raise NotImplementedError


def test_records_are_those_of_the_tasks_alone():
    """What a module only imports or defines is no record, and names do not depend on modules."""
    assert records_of(Nested()) == {"Holder": Holder, "Inner": Inner}
    sent = Holder(Inner(torch.ones(2), "b"))
    assert unpack(pack(Message({}, sent)), records_of(Nested())).record.inner.label == "b"
    with pytest.raises(TypeError, match="two records called Holder"):
        records_of(Ambiguous())


class Overrides(Drfa):
    """Its task has no types of its own."""

    def local_sgd(self, own, sent, site):
        return super().local_sgd(own, sent, site)


@dataclass(frozen=True)
class Untyped:
    def work(self, own, sent, site):
        raise NotImplementedError


def test_tasks_without_types_have_those_they_override_or_the_records_of_their_module():
    problem = Supervised(nn.Linear(2, 2))
    assert records_of(Overrides(problem=problem)) == records_of(Drfa(problem=problem))
    assert {"Inner", "Outer", "Holder"} <= records_of(Untyped()).keys()
    assert "Drfa" not in records_of(Untyped())


def test_every_algorithm_knows_its_records():
    for entry in ALGORITHMS.values():
        kind = entry.load()
        tasks = tasks_of(kind).values()
        assert tasks, kind
        assert all(task.sent and task.replies for task in tasks), kind


def framed(said: Any, tail: bytes = b"") -> bytes:
    text = said if isinstance(said, bytes) else json.dumps(said).encode()
    return struct.pack("<4sI", b"FSW2", len(text)) + text + tail


GOOD = pack(Message({"n": 1}, Outer(torch.ones(4))))
EMPTY = save_tensors({})
BAD = {
    "nothing": b"",
    "noise": bytes(range(256)),
    "a pickle": b"\x80\x04cos\nsystem\n(S'true'\ntR.",
    "cut off": GOOD[:-3],
    "cut off in the text": GOOD[:30],
    "a length that lies": struct.pack("<4sI", b"FSW2", 2**31) + b"{}",
    "another version": b"FSW9" + GOOD[4:],
    "no JSON": framed(b"{"),
    "a list": framed([], EMPTY),
    "no facts": framed({"record": 1}, EMPTY),
    "facts that are a list": framed({"about": [], "record": 1}, EMPTY),
    "a tensor that is not there": framed({"about": {}, "record": {"$tensor": "9"}}, EMPTY),
    "code by name": framed({"about": {}, "record": {"$record": "os:system", "fields": {}}}, EMPTY),
    "a field too many": framed({"about": {}, "record": {"$record": name_of(Outer), "fields": {"z": 1}}}, EMPTY),
    "a tree without end": framed(b'{"about": {}, "record": ' + b"[" * 50000 + b"]" * 50000 + b"}", EMPTY),
}


def test_a_message_without_tensors_is_read():
    """The tail of the bad ones below is sound: it is not what they are refused for."""
    assert unpack(framed({"about": {"n": 1}, "record": 2}, EMPTY), {}) == Message({"n": 1}, 2)


@pytest.mark.parametrize("content", BAD.values(), ids=BAD)
def test_bad_bytes_are_refused(content):
    with pytest.raises(BadMessage) as reason:
        unpack(content, KINDS)
    assert "\n" not in str(reason.value)


@pytest.mark.parametrize("seed", range(200))
def test_flipped_bytes_never_do_worse_than_refusal(seed):
    chance = np.random.default_rng(seed)
    content = bytearray(GOOD)
    for at in chance.integers(0, len(content), 3):
        content[at] ^= int(chance.integers(1, 256))
    with suppress(BadMessage):
        assert isinstance(unpack(bytes(content), KINDS), Message)


class Derived(Drfa):
    """An algorithm outside of the package, in a module that names none of its parent's records."""


def test_an_algorithm_knows_the_records_of_its_parents():
    problem = Supervised(nn.Linear(2, 2))
    assert set(records_of(Drfa(problem=problem))) <= set(records_of(Derived(problem=problem)))


def test_tensors_are_written_as_safetensors_has_them():
    kinds = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16)
    given = {str(n): torch.arange(6).reshape(2, 3).to(kind) for n, kind in enumerate((torch.int8, *kinds, torch.uint8))}
    given |= {"bool": torch.tensor([True, False]), "none": torch.zeros(0, 3), "one": torch.tensor(2.5)}
    given["columns"] = torch.arange(6.0).reshape(2, 3).T
    written = b"".join(tensor_parts(given))
    for found in (load_tensors(written), read_tensors(memoryview(written), LIMITS)):
        assert found.keys() == given.keys()
        assert all(torch.equal(found[key], value) and found[key].dtype == value.dtype for key, value in given.items())
    assert len(written) == len(save_tensors({key: value.contiguous() for key, value in given.items()}))
