"""What hostile sites say and hostile servers send, by name; who says it, and how it is refused."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any

import torch
from in_process import config

from fedsaddle.config.build import build
from fedsaddle.deployment.courier import Arrival, InProcess
from fedsaddle.deployment.messages import PROTOCOL
from fedsaddle.federation.tasks import records_of
from fedsaddle.federation.wire import Message, about, pack, unpack

Change = Callable[[Any], Any]


class Lies(InProcess):
    """Site 2 changes what it says to requests of one kind, always."""

    def __init__(self, made, do: str, lie: Callable[[bytes, bytes], bytes | None]) -> None:
        super().__init__({i: site.answer for i, site in made.items()})
        self.do, self.lie, self.lied = do, lie, 0

    def exchange(self, clients, content, least, timeout):
        found = super().exchange(clients, content, least, timeout)
        if about(content).get("do", "task") != self.do:
            return found
        self.lied += sum(a.client == 1 for a in found)
        return [Arrival(1, self.lie(a.content, content)) if a.client == 1 else a for a in found]


def record(change: Change) -> Callable[[bytes, bytes], bytes]:
    """What is said, with another record."""

    def lie(content: bytes, _: bytes) -> bytes:
        message = unpack(content, KINDS)
        return pack(Message(message.about, change(message.record)))

    return lie


def header(**changes: Any) -> Callable[[bytes, bytes], bytes]:
    """What is said, with another header."""

    def lie(content: bytes, _: bytes) -> bytes:
        message = unpack(content, KINDS)
        return pack(Message({**message.about, **changes}, message.record))

    return lie


def text(change: Callable[[str], str]) -> Callable[[bytes, bytes], bytes]:
    """What is said, with other JSON."""

    def lie(content: bytes, _: bytes) -> bytes:
        length = struct.unpack("<I", content[4:8])[0]
        return framed(change(content[8 : 8 + length].decode()).encode(), content[8 + length :])

    return lie


def raw(content: bytes) -> Callable[[bytes, bytes], bytes]:
    return lambda _, __: content


def framed(said: bytes, tail: bytes = b"\x08\0\0\0\0\0\0\0{}      ") -> bytes:
    return b"FSW2" + struct.pack("<I", len(said)) + said + tail


def with_column(**changes: Any) -> Callable[[bytes, bytes], bytes]:
    """Its first column of numbers, changed."""

    def change(told: Any) -> Any:
        columns = [{**c, **changes} if c["kind"] == "number" else c for c in told["columns"]]
        return {**told, "columns": columns}

    return record(change)


def label(**changes: Any) -> Callable[[bytes, bytes], bytes]:
    """What it says of its labels, changed."""
    return record(lambda told: {**told, "target": {**told["target"], **changes}})


def many_columns(told: Any) -> Any:
    more = [{**told["columns"][0], "name": f"x{n}"} for n in range(10_000)]
    return {**told, "columns": [*told["columns"], *more]}


def tensors(**changes: Any) -> Callable[[bytes, bytes], bytes]:
    """The same with another header of its tensors."""

    def lie(content: bytes, _: bytes) -> bytes:
        at = 8 + struct.unpack("<I", content[4:8])[0]
        length = int.from_bytes(content[at : at + 8], "little")
        told = json.loads(content[at + 8 : at + 8 + length])
        told = {key: {**value, **changes} for key, value in told.items()}
        new = json.dumps(told).encode()
        return content[:at] + len(new).to_bytes(8, "little") + new + content[at + 8 + length :]

    return lie


def altered(**changes: Change) -> Callable[[bytes, bytes], bytes]:
    """A record of tensors with other fields."""

    def change(found: Any) -> Any:
        return type(found)(**{**vars(found), **{k: f(getattr(found, k)) for k, f in changes.items()}})

    return record(change)


GIVEN = config({"name": "FedAvg", "local_steps": 3}, data="breast-cancer", rounds=3, evaluate_every=3)
KINDS = records_of(build(GIVEN).algorithm)
NAN, HUGE = float("nan"), 10**30

# What site 2 says before the first round, where everybody is needed -> how the error goes on after its name.
BEFORE = {
    "facts: None": ("facts", record(lambda told: None), "sent a bad message: a message whose '' is None"),
    "facts: {}": ("facts", record(lambda told: {}), "sent a bad message: a message without 'rows'"),
    "facts: a list": ("facts", record(lambda told: [told]), "sent a bad message: a message whose"),
    "facts: rows are text": ("facts", record(lambda told: told | {"rows": "x"}), "whose 'rows' is 'x'"),
    "facts: rows are 10**30": ("facts", record(lambda told: told | {"rows": HUGE}), "whose 'rows' is 1000"),
    "facts: rows are -5": ("facts", record(lambda told: told | {"rows": -5}), "whose 'rows' is -5"),
    "facts: rows are true": ("facts", record(lambda told: told | {"rows": True}), "whose 'rows' is True"),
    "facts: rows are 30.0": ("facts", record(lambda told: told | {"rows": 30.0}), "whose 'rows' is 30.0"),
    "facts: other rows than in columns": ("facts", record(lambda told: told | {"rows": 9}), "another number of rows"),
    "facts: no labels": (
        "facts", record(lambda told: {k: v for k, v in told.items() if k != "target"}), "without 'target'",
    ),
    "facts: labels of two kinds": (
        "facts", label(values=["ill", 1]), "whose 'target.values",
    ),
    "facts: another kind of labels": (
        "facts",
        record(lambda told: told | {"target": {"kind": "whole", "values": [0, 1], "counts": [1, told["rows"] - 1]}}),
        "target of site-2 = 'numbers': other sites have texts",
    ),
    "facts: a label twice": (
        "facts", label(values=["ill", "ill"]), "for each value",
    ),
    "facts: counts of labels are 10**11": (
        "facts", label(counts=[10**11] * 2), "not as many as",
    ),
    "facts: counts of labels below 0": (
        "facts", label(counts=[-1, 36]), "whose 'target.counts.0",
    ),
    "facts: means that are NaN": ("facts", with_column(plain=[NAN, 0.0, 0.0]), "whose 'columns"),
    "facts: means that are infinite": ("facts", with_column(logs=[float("inf"), 0.0, 0.0]), "whose 'columns"),
    "facts: squares below 0": ("facts", with_column(plain=[0.0, -1.0, 0.0]), "whose 'columns"),
    "facts: two moments": ("facts", with_column(plain=[0.0, 1.0]), "sent a bad message: a message without 'columns"),
    "facts: a column of another kind": ("facts", with_column(kind="shell"), "whose 'columns"),
    "facts: half a character": ("facts", with_column(name="\ud800"), "half a character"),
    "facts: a column twice": (
        "facts", record(lambda told: told | {"columns": told["columns"] + told["columns"][:1]}), "stands twice",
    ),
    "facts: 10,000 columns more": ("facts", record(many_columns), "columns of site-2 = 'x0': most sites have no such"),
    "facts: a name of a million letters": ("facts", with_column(name="x" * 10**6), "a string longer than 12,000"),
    "facts: a name of 5000 letters": ("facts", with_column(name="x" * 5000), "whose 'columns"),
    "facts: rows of patients": ("facts", record(lambda told: told | {"cells": [[1.0, 2.0]]}), "an unknown 'cells'"),
    "facts: an array where others have a table": (
        "facts", record(lambda told: told | {"columns": [], "array": {"shape": [2**31] * 8}}), "data of site-2 = 'an",
    ),
    "facts: nested 1000 deep": (
        "facts", raw(framed(b"[" * 1000 + b"]" * 1000)), "nested deeper than 32",
    ),
    "facts: nested without end": ("facts", raw(framed(b"[" * 10**6 + b"]" * 10**6)), "more than 200,000 elements"),
    "facts: 64 MB of []": ("facts", raw(framed(b"[]," * (64 << 20))[: 64 << 20]), "a bad message: "),
    "facts: a key twice": ("facts", text(lambda t: t.replace('"rows":', '"rows":1,"rows":', 1)), "a damaged message"),
    "facts: NaN in JSON": ("facts", text(lambda t: t.replace('"rows":', '"rows":NaN,"x":', 1)), "a damaged message"),
    "facts: text that is not ASCII": ("facts", text(lambda t: t.replace("age", "äge", 1)), "its text is not ASCII"),
    "facts: nothing": ("facts", raw(b""), "0 bytes are too short for a message"),
    "facts: a pickle": ("facts", raw(b"\x80\x04cos\nsystem\n(S'true'\ntR."), "not a message of this version"),
    "facts: a reply to another request": ("facts", header(nonce="0" * 16), "sent a reply to another request"),
    "counts: none": ("counts", record(lambda told: {}), "a message without 'counts'"),
    "counts: lists": ("counts", record(lambda told: {"counts": told["counts"].tolist()}), "a message without 'counts'"),
    "counts: 10**11": ("counts", record(lambda told: {"counts": told["counts"] * 10**11}), "sent a bad message: "),
    "counts: below 0": ("counts", record(lambda told: {"counts": told["counts"] - 1}), "a message whose"),
    "counts: too few bins": ("counts", record(lambda told: {"counts": told["counts"][:, 1:]}), "counts of shape"),
    "counts: too many columns": (
        "counts", record(lambda told: {"counts": told["counts"].repeat(9, 1)}), "counts of shape",
    ),
    "counts: real numbers": ("counts", record(lambda told: {"counts": told["counts"].double()}), "of whole numbers"),
    "agree: other rows": ("agree", record(lambda told: {"rows": 5}), "another number of training rows (5)"),
    "agree: nothing": ("agree", record(lambda told: None), "sent a bad message: a message whose '' is None"),
    "agree: a list of names": ("agree", record(lambda told: {"rows": ["a"] * 9}), "whose 'rows' is "),
}  # fmt: skip


# What site 2 says in a round or of a model -> why it is left out; all others go on.
DURING = {
    "task: None": ("task", record(lambda told: None), "sent a NoneType, not a LocalModel"),
    "task: a record of another kind": (
        "task", text(lambda t: t.replace("LocalModel", "Start")), "a Start with unknown",
    ),
    "task: code by name": ("task", text(lambda t: t.replace("LocalModel", "os:system")),
                           "a record of an unknown kind 'os:system'"),
    "task: text for a tensor": ("task", altered(final=lambda t: "final"), "a LocalModel whose 'final' is a str"),
    "task: NaN": ("task", altered(final=lambda t: t * NAN), "sent a 'final' that is not finite"),
    "task: infinite": ("task", altered(final=lambda t: t + float("inf")), "sent a 'final' that is not finite"),
    "task: too few numbers": ("task", altered(final=lambda t: t[:, 1:]), "sent a 'final' of shape"),
    "task: ten times as many": ("task", altered(final=lambda t: t.repeat(1, 10)), "sent a 'final' of shape"),
    "task: a dimension more": ("task", altered(final=lambda t: t[None]), "sent a 'final' of shape"),
    "task: single precision": ("task", altered(final=lambda t: t.float()), "sent a 'final' of another type"),
    "task: whole numbers": ("task", altered(final=lambda t: t.long()), "sent a 'final' of another type"),
    "task: a field more": ("task", altered(path=lambda t: torch.zeros(1, 31)), "sent an unexpected 'path'"),
    "task: a shape of 10**18 numbers": ("task", tensors(shape=[10**9, 10**9]), "whose shape does not fit its bytes"),
    "task: a shape below 0": ("task", tensors(shape=[-1, -62]), "a tensor of a wrong shape"),
    "task: a type nobody knows": ("task", tensors(dtype="PICKLE"), "a tensor of an unknown type"),
    "task: bytes that overlap": ("task", tensors(data_offsets=[1, 9]), "a damaged message"),
    "task: a header of tensors that is too long": (
        "task", lambda content, _: content[: 8 + struct.unpack("<I", content[4:8])[0]] + b"\xff" * 7 + bytes(65),
        "tensors with a wrong length",
    ),
    "task: bytes after the end": ("task", lambda content, _: content + b"x", "bytes after the tensors"),
    "task: cut off": ("task", lambda content, _: content[:-1], "a damaged message"),
    "task: a stale nonce": ("task", header(nonce="0" * 16), "sent a reply to another request"),
    "task: a nonce that is a path": ("task", header(nonce="../../x"), "a message whose 'nonce' is '../../x'"),
    "task: a version that is a path": ("task", header(version="../../x"), "a message whose 'version' is '../../x'"),
    "task: a version of another round": ("task", header(version="00000009-000-aa"), "a version of its memory that"),
    "task: 10**30 samples": ("task", header(samples=HUGE), "a message whose 'samples' is 1000"),
    "task: -1 samples": ("task", header(samples=-1), "a message whose 'samples' is -1"),
    "task: samples in words": ("task", header(samples="many"), "a message whose 'samples' is 'many'"),
    "task: another protocol": ("task", header(protocol=1), f"a message of protocol 1; this version uses {PROTOCOL}"),
    "task: a protocol without end": ("task", header(protocol=[[]] * 2000), "a message of protocol [[]"),
    "task: a header more": ("task", header(admin=True), "a message with an unknown 'admin'"),
    "task: a failure that sounds like divergence": (
        "task", header(failure={"kind": "failed", "detail": "not finite"}), "failed: not finite",
    ),
    "task: a kind of failure that is the server's": (
        "task", header(failure={"kind": "not_finite", "detail": "w"}), "whose 'failure.kind' is 'not_finite'",
    ),
    "task: a reason of a million letters": (
        "task", header(failure={"kind": "failed", "detail": "x" * 10**6}), "more than the limit of 65,536",
    ),
    "task: a reason that forges a line": (
        "task", header(failure={"kind": "failed", "detail": "x\r\n2026-01-01 00:00:00,000 INFO all is well\x1b[2J"}),
        "failed: x\\r\\n2026-01-01 00:00:00,000 INFO all is well\\x1b[2J",
    ),
    "task: a reason with half a character": (
        "task", text(lambda t: t.replace('"failure":null', '"failure":{"kind":"failed","detail":"\\ud800"}')),
        "half a character",
    ),
    "measure: None": ("measure", record(lambda told: None), "the reply has no number of rows"),
    "measure: other rows": ("measure", record(lambda told: told | {"rows": 10**11}), "is of 100000000000 rows"),
    "measure: one row more": ("measure", record(lambda told: told | {"rows": 10**3}), "is of 1000 rows"),
    "measure: counts of 10**11": (
        "measure", record(lambda told: told | {"scores": [[10**11] * 1000] * 2}), "do not sum up",
    ),
    "measure: means in words": (
        "measure", record(lambda told: told | {"means": {"loss": "small", "accuracy": "1"}}), "lacks the means",
    ),
    "measure: scores of single rows": ("measure", record(lambda told: told | {"rows_": [0.1]}), "an unknown 'rows_'"),
    "measure: a loss that is NaN": (
        "measure", record(lambda told: told | {"means": {"loss": NAN, "accuracy": 1.0}}), "sent a 'loss' that is not",
    ),
}  # fmt: skip


# What a server, or somebody in its place, sends to a site.
RUN = {"run": "trial", "fingerprint": "f", "nonce": "n"}
DIGESTS = {"config": {"data": "x"}}
ASK = {"protocol": PROTOCOL, **RUN, "round": 0, "exchange": 0, "task": "local_sgd", "starts": {}, "keep": {}}


def request(do: str, payload: Any, **changes: Any) -> bytes:
    return pack(Message({"protocol": PROTOCOL, "do": do, **RUN, **changes}, payload))


def ask(payload: Any = None, **changes: Any) -> bytes:
    return pack(Message({**ASK, **changes}, payload))


TO_SITES = {
    "nothing": b"",
    "noise": bytes(range(256)) * 9,
    "64 MB of []": framed(b"[" + b"[]," * (64 << 20) + b"[]]")[: 64 << 20],
    "64 MB of [] in a sound frame": framed(b"[" + b"[]," * ((64 << 20) // 3 - 9) + b"[]]"),
    "nested without end": framed(b'{"about":' + b"[" * 10**5 + b"]" * 10**5 + b"}"),
    "an unknown request": request("shell", {}),
    "a request of 10,000 letters": request("x" * 10_000, {}),
    "a run that is a path": request("measure", {"w": torch.zeros(3), "dual": None, "part": "test"}, run="../../etc"),
    "a task of a run that is a path": ask(run="../../etc"),
    "a task of a run that nobody agreed to": ask(run="other"),
    "a task of no run": ask(run=7),
    "facts without a config": request("facts", {}),
    "facts for nothing": request("facts", None),
    "facts for a list": request("facts", [1]),
    "a config of lists": request("facts", {"config": {"data": []}}),
    "another config": request("facts", DIGESTS),
    "drafts in words": request("counts", DIGESTS | {"drafts": "age"}),
    "drafts of an unknown kind": request("counts", DIGESTS | {"drafts": [{"column": "age", "kind": "shell"}]}),
    "a deviation of 0": request("counts", DIGESTS | {"drafts": [{"column": "age", "kind": "number", "std": 0.0}]}),
    "an encoding of nothing": request("agree", DIGESTS | {"names": ["site-1"], "agreed": None}),
    "an encoding of 10**18 numbers": request("agree", DIGESTS | {"names": ["site-1"], "agreed": {
        "values": None, "classes": None, "counts": [], "array": {"shape": [10**9] * 2, "mean": 0.0, "std": 1.0}}}),
    "a site twice": request("agree", DIGESTS | {"names": ["site-1"] * 2, "agreed": {}}),
    "a site that is a path": request("agree", DIGESTS | {"names": ["../x"], "agreed": {}}),
    "a part that is a path": request("measure", {"w": torch.zeros(3), "dual": None, "part": "../x"}),
    "a model in words": request("measure", {"w": "zeros", "dual": None, "part": "test"}),
    "a model of another shape": request("measure", {"w": torch.zeros(3), "dual": None, "part": "test"}),
    "a client that is a path": ask(starts={"../x": "v"}),
    "a version that is a path": ask(starts={"0": "../../x"}),
    "versions to keep without end": ask(keep={"0": ["v"] * 1000}),
    "a round of 10**30": ask(round=10**30),
    "a nonce with a line break": ask(nonce="n\n2026"),
    "a header that is text": framed(b'{"about":"x","record":null}'),
    "half a character": framed(b'{"about":{"do":"\\ud800"},"record":null}'),
}  # fmt: skip


LARGEST = {
    "empty lists": b"[" + b"[]," * 99_000 + b"[]]",
    "objects": b"[" + b'{"a":0},' * 99_000 + b"0]",
    "long texts": b"[" + b'"' + b"x" * 11_000 + b'",' * 1 + (b'"' + b"x" * 11_000 + b'",') * 700 + b"0]",
    "wide texts": b"[" + (b'"\\ud83d\\ude00' + b"x" * 11_000 + b'",') * 700 + b"0]",
    "real numbers": b"[" + b"0.12345678901234567," * 199_000 + b"0]",
    "columns": b'{"columns":[' + b",".join(
        b'{"kind":"number","name":"%d","count":9,"missing":0,"plain":[0.1,1.0,0.2],"logs":[0.1,1.0,0.2]}' % n
        for n in range(13_000)
    ) + b"]}",
}  # fmt: skip
