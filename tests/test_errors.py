"""The messages of errors: one line, with the section of the config where the key is one."""

from __future__ import annotations

import pytest

from fedsaddle.errors import BadInput, within


@pytest.mark.parametrize("key", ["clients", "test_share", "x"])
def test_a_key_gets_its_section(key):
    with pytest.raises(BadInput, match=f"^data.{key} = 3: no") as refused, within("data"):
        raise BadInput(key, 3, "no")
    assert refused.value.key == f"data.{key}"


@pytest.mark.parametrize(
    "key",
    ["row 8, column 'age'", "label of client 3", "len(x)", "x.shape", "y[3]", "split.clients", "--set",
     "mean, variance", "cells in row 2", "data"],
)  # fmt: skip
def test_what_is_no_key_gets_no_section(key):
    with pytest.raises(BadInput) as refused, within("data"):
        raise BadInput(key, 3, "no")
    assert refused.value.key == key


def test_a_value_of_several_lines_is_shown_in_one():
    assert "\n" not in str(BadInput("x", "a\nb", "no"))
    assert str(BadInput("x", type("Two", (), {"__repr__": lambda _: "a\n  b"})(), "no")) == "x = a b: no"
