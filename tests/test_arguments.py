"""The checks of Python arguments: what passes, what is refused, and that the argument is named."""

import doctest
import math

import numpy as np
import pytest
import torch

from fedsaddle import arguments
from fedsaddle.arguments import choice, flag, function, instance, number, optional, share, tensor, text, vector, whole
from fedsaddle.errors import BadInput


def test_examples_in_the_docstrings():
    assert doctest.testmod(arguments).failed == 0


@pytest.mark.parametrize("value", [1, np.int64(1), np.uint8(1), 2**63 - 1])
def test_whole_numbers_pass_and_come_back_as_python_ints(value):
    assert whole("clients", value) == value
    assert type(whole("clients", value)) is int


@pytest.mark.parametrize(
    "value",
    [0, -1, 2**63, 2**70, 10**5000, 1.0, 1.5, True, np.True_, "1", None, math.nan, [1], torch.tensor(1)],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_whole_number_is_refused(value):
    with pytest.raises(BadInput, match=r"^clients = .*must be a whole number of at least 1$"):
        whole("clients", value)


def test_the_limits_of_a_whole_number_are_named():
    assert whole("seed", 0, least=0) == 0
    with pytest.raises(BadInput, match="a whole number from 2 to 9"):
        whole("bins", 10, least=2, most=9)


@pytest.mark.parametrize("value", [1, 0.5, np.float32(0.5), np.int32(2), np.float64(1e-300)])
def test_numbers_pass_and_come_back_as_floats(value):
    assert number("step", value, above=0) == value
    assert type(number("step", value, above=0)) is float


@pytest.mark.parametrize(
    "value", [0, -1.0, math.nan, math.inf, -math.inf, np.float32("nan"), 10**400, True, "0.5", None, 1j, [0.5]]
)
def test_what_is_no_number_above_zero_is_refused(value):
    with pytest.raises(BadInput, match=r"^step = .*must be a positive number$"):
        number("step", value, above=0)


def test_the_limits_of_a_number_are_named():
    assert number("x", -3) == -3
    for wrong in (0.5, 2, 2.5):
        with pytest.raises(BadInput, match="a finite number of at least 1 and below 2"):
            number("x", wrong, least=1, below=2)
    with pytest.raises(BadInput, match=r"must be a finite number$"):
        number("x", math.nan)


def test_shares_run_from_0_to_1():
    assert (share("p", 0), share("p", 1), share("p", 0.25)) == (0, 1, 0.25)
    for wrong in (-0.1, 1.1, math.nan, "half", False):
        with pytest.raises(BadInput, match="p = "):
            share("p", wrong)


def test_a_choice_names_the_choices():
    assert choice("labels", "fine", ("fine", "coarse")) == "fine"
    for wrong in ("Fine", None, 1, ["fine"], np.array(["fine", "coarse"])):
        with pytest.raises(BadInput, match="choose one of 'fine', 'coarse'"):
            choice("labels", wrong, ("fine", "coarse"))


def test_flags_are_bools_and_nothing_else():
    assert flag("stratify", True) is True
    assert flag("stratify", np.False_) is False
    for wrong in (0, 1, "yes", None, np.array([True]), torch.tensor(True)):
        with pytest.raises(BadInput, match=r"stratify = .*must be True or False"):
            flag("stratify", wrong)


def test_text():
    assert text("name", "adult") == "adult"
    assert text("name", "", empty=True) == ""
    for wrong in ("", 1, None, b"adult"):
        with pytest.raises(BadInput, match=r"name = .*must be text"):
            text("name", wrong)


def test_optional_lets_none_pass():
    assert optional(share, "positives", None) is None
    assert optional(share, "positives", 0.5) == 0.5
    with pytest.raises(BadInput, match="positives = 2"):
        optional(share, "positives", 2)


def test_instances_and_functions():
    assert instance("split", 3, int, "give a split") == 3
    with pytest.raises(BadInput, match="split = 'x': give a split"):
        instance("split", "x", int, "give a split")
    function("load", len)
    with pytest.raises(BadInput, match="load = 3: must be a function"):
        function("load", 3)


def test_tensors():
    x = torch.zeros(2, 3)
    assert tensor("x", x) is x
    assert tensor("x", x, axes=2) is x
    with pytest.raises(BadInput, match=r"x = 'ndarray': must be a torch tensor"):
        tensor("x", np.zeros(3))
    with pytest.raises(BadInput, match=r"x\.shape = \(2, 3\): must have 1 axis"):
        tensor("x", x, axes=1)
    with pytest.raises(BadInput, match=r"x\.shape = \(\): must have at least 1 axis"):
        tensor("x", torch.tensor(1.0))
    with pytest.raises(BadInput, match=r"x = 'torch\.sparse_coo': must be a dense tensor"):
        tensor("x", x.to_sparse())


def test_a_value_that_cannot_be_shown_is_still_refused_in_one_line():
    class Silent:
        def __repr__(self) -> str:
            raise RuntimeError("no words")

    with pytest.raises(BadInput, match="clients = <Silent>: must be"):
        whole("clients", Silent())
    with pytest.raises(BadInput) as refused:
        whole("clients", "x" * 10_000)
    assert len(str(refused.value)) < 700


@pytest.mark.parametrize("value", [2**64, -(2**70), 1e39, -1e300])
def test_numbers_that_torch_cannot_take_are_too_large(value):
    with pytest.raises(BadInput, match=r"^step = .*: is too large"):
        number("step", value)


def test_numbers_of_double_precision_and_infinity_where_they_may_be():
    assert number("step", 1e200, largest=math.inf) == 1e200
    assert number("high", math.inf, infinite=True) == math.inf
    with pytest.raises(BadInput, match=r"^high = -inf: must be a positive number$"):
        number("high", -math.inf, above=0, infinite=True)
    with pytest.raises(BadInput, match=r"^high = nan: must be a number$"):
        number("high", math.nan, infinite=True)


def test_functions_by_their_number_of_arguments():
    function("watch", lambda round, record=None: None, takes=2)
    function("watch", [].append, takes=1)
    function("warn", print, takes=1)
    with pytest.raises(BadInput, match=r"^stop = .*: must be a function of no arguments$"):
        function("stop", lambda now: False, takes=0)
    with pytest.raises(BadInput, match=r"^stop = 'int': is a class"):
        function("stop", int, takes=0)


@pytest.mark.parametrize("value", [torch.zeros(1), torch.arange(3), torch.ones(2).half()])
def test_vectors_of_real_numbers_pass(value):
    assert vector("x", value) is value


@pytest.mark.parametrize(
    "value",
    [[1.0], 1.0, torch.tensor(1.0), torch.zeros(0), torch.zeros(2, 2), torch.tensor([math.nan]),
     torch.tensor([1j]), torch.tensor([True]), torch.ones(2).to_sparse()],
)  # fmt: skip
def test_what_is_no_vector_is_refused(value):
    with pytest.raises(BadInput, match=r"^x"):
        vector("x", value)
