"""What `Stacked` and `Lazy` refuse: wrong types, wrong shapes, and rows that are not finite."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fedsaddle.data.store import Lazy, Stacked
from fedsaddle.errors import BadInput

X, Y = torch.arange(8.0).view(4, 2), torch.tensor([0, 1, 0, 1])
GOOD: dict[str, Any] = {"x": X, "y": Y, "offsets": [0, 1, 4]}
PARTS: dict[str, Any] = {"x": X, "y": Y, "parts": [[3], [0, 1]]}
LAZY: dict[str, Any] = {"sizes": [2, 1], "load": lambda i: (X[: 2 - i], Y[: 2 - i])}


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"x": None}, "x"),
        ({"x": X.numpy()}, "x"),
        ({"x": torch.tensor(1.0)}, "x.shape"),
        ({"y": [0, 1, 0, 1]}, "y"),
        ({"y": torch.tensor(1)}, "y.shape"),
        ({"y": Y[:3]}, "offsets"),
        ({"offsets": "x"}, "offsets"),
        ({"offsets": None}, "offsets"),
        ({"offsets": []}, "offsets"),
        ({"offsets": [0]}, "offsets"),
        ({"offsets": [0, 1.5, 4]}, "offsets"),
        ({"offsets": [[0, 4]]}, "offsets"),
        ({"offsets": [[0, 4], [1]]}, "offsets"),
        ({"offsets": [0, 1, 3]}, "offsets"),
        ({"offsets": [0, 2**70]}, "offsets"),
        ({"offsets": [True, False]}, "offsets"),
        ({"offsets": [0, 0, 4]}, "rows of client 0"),
        ({"offsets": [0, 5, 4]}, "rows of client 1"),
        ({"offsets": [0, 5, 4], "allow_empty": True}, "rows of client 1"),
        ({"allow_empty": "no"}, "allow_empty"),
        ({"positives": 1.0}, "positives"),
        ({"positives": "half"}, "positives"),
        ({"positives": math.nan}, "positives"),
    ],
)
def test_arguments_of_stacked_are_named(change, key):
    with pytest.raises(BadInput) as refused:
        Stacked(**{**GOOD, **change})
    assert refused.value.key == key


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"x": None}, "x"),
        ({"y": "y"}, "y"),
        ({"y": Y[:3]}, "len(y)"),
        ({"parts": None}, "parts"),
        ({"parts": []}, "parts"),
        ({"parts": "01"}, "parts"),
        ({"parts": 3}, "parts"),
        ({"parts": [[0.5]]}, "parts[0]"),
        ({"parts": [[0], "x"]}, "parts[1]"),
        ({"parts": [[0], None]}, "parts[1]"),
        ({"parts": [[0], [4]]}, "row number in parts"),
        ({"parts": [[0], [-1]]}, "row number in parts"),
        ({"parts": [[0], []]}, "rows of client 1"),
        ({"allow_empty": 1}, "allow_empty"),
    ],
)
def test_arguments_of_stacked_of_are_named(change, key):
    with pytest.raises(BadInput) as refused:
        Stacked.of(**{**PARTS, **change})
    assert refused.value.key == key


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"sizes": "x"}, "sizes"),
        ({"sizes": []}, "sizes"),
        ({"sizes": [1.5, 2]}, "sizes"),
        ({"sizes": [2, 0]}, "sizes[1]"),
        ({"sizes": [2, -1]}, "sizes[1]"),
        ({"load": None}, "load"),
        ({"keep": -1}, "keep"),
        ({"keep": 1.5}, "keep"),
        ({"positives": 2}, "positives"),
        ({"load": lambda i: X}, "load(1)"),
        ({"load": lambda i: (X, None)}, "y of load(1)"),
        ({"load": lambda i: (X, Y)}, "sizes[1]"),
        ({"load": lambda i: (torch.tensor([[math.nan]]), Y[:1])}, "feature 0 of client 1, row 0"),
    ],
)
def test_arguments_of_lazy_are_named(change, key):
    with pytest.raises(BadInput) as refused:
        Lazy(**{**LAZY, **change}).client(1)
    assert refused.value.key == key


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_rows_that_are_not_finite_are_named(wrong):
    x = X.clone()
    x[2, 1] = wrong
    with pytest.raises(BadInput, match=r"^feature 1 of client 1, row 1 = -?(nan|inf): is not a finite number"):
        Stacked(x, Y, GOOD["offsets"])
    y = Y.double()
    y[3] = wrong
    with pytest.raises(BadInput, match=r"^label of client 1, row 2 = "):
        Stacked(X, y, GOOD["offsets"])
    pictures = torch.zeros(4, 1, 2, 2)
    pictures[2, 0, 1, 1] = wrong
    with pytest.raises(BadInput, match=r"^feature 3 of client 0, row 2 = "):
        Stacked(pictures, Y, np.array([0, 4]))


def test_both_infinities_do_not_hide_each_other_and_large_numbers_pass():
    with pytest.raises(BadInput, match="feature 0 of client 0, row 0 = inf"):
        Stacked(torch.tensor([[math.inf], [-math.inf]]), Y[:2], np.array([0, 2]))
    large = torch.full((4, 2), 3e38)  # its sum is infinite
    assert Stacked(large, Y, np.array([0, 4])).count == 1


def test_other_rows_of_a_lazy_store_are_not_the_old_ones():
    first = Lazy(np.array([1]), lambda i: (torch.zeros(1, 1), torch.zeros(1)))
    assert first.client(0)[0].item() == 0
    assert replace(first, load=lambda i: (torch.ones(1, 1), torch.zeros(1))).client(0)[0].item() == 1


def test_whole_numbers_of_any_kind_will_do():
    for offsets in ([0, 1, 4], (0, 1, 4), np.array([0, 1, 4], dtype=np.int32), torch.tensor([0, 1, 4])):
        assert Stacked(X, Y, offsets).sizes.tolist() == [1, 3]
    assert Lazy([np.int64(2), 1], LAZY["load"]).sizes.dtype == np.int64
