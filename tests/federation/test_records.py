from dataclasses import dataclass
from typing import Optional

import pytest
import torch
from torch import Tensor

from fedsaddle.errors import BadInput, Diverged, FedSaddleError, NobodyAnswered
from fedsaddle.federation.records import (
    Averaged,
    Layout,
    PerClient,
    PerSample,
    Pooled,
    Visibility,
    field_marks,
    nbytes,
    same,
    tensors,
    visibility,
)
from fedsaddle.federation.wrappers import reply_bytes


@dataclass(frozen=True)
class Reply:
    mean: Averaged
    heap: Pooled
    each: PerClient
    maybe: Averaged | None = None
    perhaps: Optional[PerClient] = None  # noqa: UP045


@dataclass(frozen=True)
class Diary:
    drift: Tensor
    marks: PerSample
    visits: int = 0


@dataclass(frozen=True)
class Sent:
    w: Tensor
    steps: int
    rate: float
    again: bool
    word: str = "hello"
    nothing: Tensor | None = None


@dataclass(frozen=True)
class Other:
    w: Tensor
    steps: int
    rate: float
    again: bool
    word: str = "hello"
    nothing: Tensor | None = None


def reply() -> Reply:
    return Reply(torch.zeros(3), torch.zeros(4, 2), torch.zeros(5))


def test_marks():
    assert field_marks(Reply) == {
        "mean": Visibility.AVERAGED,
        "heap": Visibility.POOLED,
        "each": Visibility.PER_CLIENT,
        "maybe": Visibility.AVERAGED,
        "perhaps": Visibility.PER_CLIENT,
    }
    assert field_marks(Diary) == {"marks": Layout.PER_SAMPLE}
    assert visibility(Reply) == field_marks(Reply)


@pytest.mark.parametrize("record", [Diary, Sent])
def test_a_reply_must_say_how_each_field_is_seen(record):
    with pytest.raises(TypeError, match=r"\.(drift|w) must be Averaged, Pooled or PerClient"):
        visibility(record)


def test_a_mark_of_layout_is_not_a_mark_of_sight():
    @dataclass(frozen=True)
    class Memory:
        marks: PerSample

    with pytest.raises(TypeError, match=r"Memory\.marks must be"):
        visibility(Memory)


def test_tensors_in_order():
    assert [name for name, _ in tensors(reply())] == ["mean", "heap", "each"]
    assert [name for name, _ in tensors(Diary(torch.zeros(1), torch.zeros(2)))] == ["drift", "marks"]


def test_what_a_record_weighs():
    assert nbytes(Sent(torch.zeros(3), 2, 0.5, True)) == 3 * 8 + 8 + 8 + 8
    assert nbytes(Sent(torch.zeros(3, dtype=torch.float32), 2, 0.5, True, nothing=torch.zeros(2))) == 12 + 24 + 16
    assert nbytes(Sent(torch.zeros(0), 2, 0.5, False)) == 24


def test_what_all_clients_sent():
    assert reply_bytes(reply(), answered=5) == 5 * 3 * 8 + 8 * 8 + 5 * 8


def test_same():
    a = Sent(torch.tensor([1.0, 2.0]), 2, 0.5, True)
    assert same(a, Sent(torch.tensor([1.0, 2.0]), 2, 0.5, True))
    assert not same(a, Sent(torch.tensor([1.0, 2.0 + 1e-15]), 2, 0.5, True))
    assert not same(a, Sent(torch.tensor([1.0, 2.0]), 3, 0.5, True))
    assert not same(a, Sent(torch.tensor([1.0, 2.0]), 2, 0.5, True, word="bye"))
    assert not same(a, Sent(torch.tensor([1.0, 2.0]), 2, 0.5, True, nothing=torch.zeros(1)))
    assert not same(a, Sent(torch.tensor([1.0, 2.0, 3.0]), 2, 0.5, True))
    assert not same(a, Other(torch.tensor([1.0, 2.0]), 2, 0.5, True))


def test_errors_say_what_is_wrong():
    error = BadInput("local_steps", 0, "must be at least 1")
    assert str(error) == "local_steps = 0: must be at least 1"
    assert (error.key, error.value, error.remedy, error.exit_code) == ("local_steps", 0, "must be at least 1", 2)
    assert str(Diverged(3, "final")).startswith("client 3 sent a 'final' that is not finite")
    assert str(Diverged(3, "final", round=7)).startswith("round 7: client 3")
    assert issubclass(NobodyAnswered, FedSaddleError)
