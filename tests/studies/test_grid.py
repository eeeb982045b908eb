"""The values of a sweep, from text and from Python."""

from __future__ import annotations

import pytest

from fedsaddle.errors import BadInput
from fedsaddle.studies.grid import Axis, Range, cells_of, config_of, make_axis, parse_axis

CONTENT = {
    "data": {"name": "iris"},
    "split": {"name": "iid", "clients": 3},
    "model": {"name": "logistic"},
    "algorithm": {"name": "FedAvg"},
}


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a.b=0.01,0.03,0.1", (0.01, 0.03, 0.1)),
        ("a.b=5", (5,)),
        ("a.b=FedAvg,DRFA", ("FedAvg", "DRFA")),
        ("a.b=Local SGDA,FedAvg", ("Local SGDA", "FedAvg")),
        ('a.b="x,y","z"', ("x,y", "z")),
        ("a.b=[50],[50,50]", ([50], [50, 50])),
        ('a.b={ name = "kl", strength = 0.1 },{ name = "kl", strength = 1.0 }',
         ({"name": "kl", "strength": 0.1}, {"name": "kl", "strength": 1.0})),
        ("a.b=true,false", (True, False)),
        ("a.b=0.001..1:log", Range(0.001, 1.0, log=True)),
        ("a.b=1..20", Range(1.0, 20.0, whole=True)),
        ("a.b=1e-3..1E0", Range(0.001, 1.0)),
    ],
)  # fmt: skip
def test_values(text, values):
    assert parse_axis(text) == Axis("a.b", values)


@pytest.mark.parametrize("text", ["a.b", "a.b=", "b=1", ".b=1", "a.b=1,1", "run.seed=1,2", "a.b=2..1", "a.b=0..1:log"])
def test_what_is_no_axis(text):
    with pytest.raises(BadInput):
        parse_axis(text)


def test_all_combinations():
    axes = [make_axis("a.x", [1, 2]), make_axis("a.y", ["u", "v", "w"])]
    cells = cells_of(axes)
    assert len(cells) == 6
    assert cells[1] == {"a.x": 1, "a.y": "v"}
    with pytest.raises(BadInput, match="is there twice"):
        cells_of([axes[0], axes[0]])
    with pytest.raises(BadInput, match="a range is for a search"):
        cells_of([make_axis("a.x", "1..2")])
    with pytest.raises(BadInput, match="at most 10,000"):
        cells_of([make_axis(f"a.{k}", list(range(50))) for k in "xyz"])


def test_keys_are_checked_before_anything_runs():
    assert config_of(CONTENT, {"algorithm.local_steps": 3}, 7).run.seed == 7
    for key, said in (
        ("algorithm.primal_stepp", "did you mean 'primal_step'"),
        ("algorithmm.local_steps", "did you mean 'algorithm'"),
        ("run.round", "did you mean 'rounds'"),
        ("data.name.x", "is a value, not a section"),
    ):
        with pytest.raises(BadInput, match=said):
            config_of(CONTENT, {key: 1}, 0)
    with pytest.raises(BadInput, match="a sweep is for simulations"):
        config_of(CONTENT, {"engine.name": "nvflare"}, 0)
