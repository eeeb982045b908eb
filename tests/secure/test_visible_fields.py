"""What secure aggregation hides of an algorithm's replies, and which of them it refuses."""

import numpy as np
import pytest
import torch
from test_masking import Reply

import fedsaddle as fs
from fedsaddle.deployment.secure_site import read_opening
from fedsaddle.errors import BadMessage, Diverged
from fedsaddle.federation.records import Visibility
from fedsaddle.secure.keys import SEED
from fedsaddle.secure.secured import SecureReduction, reply_fields


def test_the_fields_of_all_tasks_by_what_the_server_sees():
    hidden, each = Visibility.AVERAGED, Visibility.PER_CLIENT
    drfa = {"LocalModels.final": hidden, "LocalModels.snapshot": hidden, "LocalModels.path": hidden}
    assert reply_fields(fs.Drfa) == {"LocalLoss.loss": each, **drfa}
    assert set(reply_fields(fs.FedAvg).values()) == {hidden}
    assert Visibility.POOLED in reply_fields(fs.FedX1).values()


@pytest.mark.parametrize(("w", "h", "field"), [([1.0, np.nan], 1.0, "w"), ([1.0, 2.0], np.inf, "h")])
def test_one_number_that_is_not_finite_names_its_field(w, h, field):
    reply = Reply(torch.tensor([[0.0, 0.0], w]), torch.tensor([1.0, h]), torch.zeros(2))
    with pytest.raises(Diverged, match=f"client 5 sent a '{field}'"):
        SecureReduction(None, [3, 5], [0.5, 0.5]).add(np.array([3, 5]), np.ones(2), reply)


def opening(**other):
    given = {"own": torch.zeros(SEED), "lost": torch.zeros(1, SEED), "agreed": torch.ones(2, SEED)} | other
    return {name: value if value is None else value.to(torch.uint8) for name, value in given.items()}


def test_an_opening_is_read_with_the_parts_of_its_sites():
    found = read_opening(opening(), 1, [0, 1, 4], [2])
    assert found.own == bytes(SEED)
    assert found.lost == {2: bytes(SEED)}
    assert found.agreed == {0: b"\1" * SEED, 4: b"\1" * SEED}


@pytest.mark.parametrize(
    "given",
    [
        None,
        {},
        {"own": torch.zeros(SEED, dtype=torch.uint8)},
        opening() | {"more": torch.zeros(1)},
        opening() | {"own": torch.zeros(SEED)},
        opening(lost=torch.zeros(2, SEED)),
        opening(agreed=torch.zeros(1, SEED)),
        opening(own=torch.zeros(SEED + 1)),
    ],
)
def test_another_opening_is_refused(given):
    with pytest.raises(BadMessage, match="an opening of masks"):
        read_opening(given, 1, [0, 1, 4], [2])
