"""Each projection is the argmin it claims to be."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsaddle.errors import BadInput
from fedsaddle.numerics.projections import Ball, Box, Everywhere, Simplex, _few_passes, check_projection

numbers = st.floats(-1e3, 1e3, allow_nan=False, width=64)
vectors = st.lists(numbers, min_size=1, max_size=12).map(lambda v: torch.tensor(v, dtype=torch.float64))
SETS = {"everywhere": Everywhere(), "ball": Ball(1.5), "box": Box(-0.5, 2.0), "simplex": Simplex()}
projections = pytest.mark.parametrize("name", SETS)
some = settings(max_examples=60, deadline=None)


def distance_to_set(name: str, u: torch.Tensor) -> float:
    """How far u is from being feasible."""
    if name == "ball":
        return max(float(u.norm()) - 1.5, 0.0)
    if name == "box":
        return max(float((-0.5 - u).max()), float((u - 2.0).max()), 0.0)
    if name == "simplex":
        return max(float(-u.min()), abs(float(u.sum()) - 1), 0.0)
    return 0.0


def point_of_set(name: str, d: int, seed: int) -> torch.Tensor:
    """A random feasible point, found without the projection."""
    g = torch.Generator().manual_seed(seed)
    v = torch.randn(d, generator=g)
    if name == "ball":
        return 1.5 * float(torch.rand(1, generator=g)) * v / v.norm()
    if name == "box":
        return -0.5 + 2.5 * torch.rand(d, generator=g)
    if name == "simplex":
        e = torch.rand(d, generator=g).log().neg() * (torch.rand(d, generator=g) > 0.5)
        e[0] += 1e-3
        return e / e.sum()
    return 10 * v


@projections
@some
@given(w=vectors, seed=st.integers(0, 10_000))
def test_the_nearest_point_of_the_set(name, w, seed):
    """Feasible, and `(w - u) . (v - u) <= 0` for every feasible v: the variational inequality of the argmin."""
    u = SETS[name](w)
    scale = 1 + float(w.abs().max())
    assert u.shape == w.shape
    assert distance_to_set(name, u) <= 1e-12 * scale
    for k in range(5):
        v = point_of_set(name, len(w), seed + k)
        assert float((w - u) @ (v - u)) <= 1e-10 * scale**2


@projections
@some
@given(w=vectors)
def test_projecting_twice_is_projecting_once(name, w):
    u = SETS[name](w)
    torch.testing.assert_close(SETS[name](u), u, rtol=0, atol=1e-12 * (1 + float(w.abs().max())))


@projections
def test_points_of_the_set_stay_where_they_are(name):
    for seed in range(20):
        v = point_of_set(name, 6, seed)
        torch.testing.assert_close(SETS[name](v), v, rtol=0, atol=1e-13)


@projections
def test_every_row_on_its_own(name):
    w = 3 * torch.randn(4, 5, 6)
    rows = torch.stack([torch.stack([SETS[name](v) for v in block]) for block in w])
    torch.testing.assert_close(SETS[name](w), rows, rtol=0, atol=1e-13)


@projections
def test_the_argument_is_left_alone(name):
    w = 3 * torch.randn(7)
    before = w.clone()
    SETS[name](w)
    assert torch.equal(w, before)


@some
@given(w=vectors, shift=numbers)
def test_the_simplex_does_not_see_a_common_shift(w, shift):
    tolerance = 1e-11 * (1 + abs(shift) + float(w.abs().max()))
    torch.testing.assert_close(Simplex()(w + shift), Simplex()(w), rtol=0, atol=tolerance)


@pytest.mark.parametrize(
    ("w", "u"),
    [
        ([5.0], [1.0]),
        ([-7.0, -7.0], [0.5, 0.5]),
        ([0.0, 9.0, 1.0], [0.0, 1.0, 0.0]),
        ([0.5, 0.6, -3.0], [0.45, 0.55, 0.0]),
        ([0.2, 0.3, 0.5], [0.2, 0.3, 0.5]),
        ([1.0, 0.0], [1.0, 0.0]),
    ],
)
def test_simplex_by_hand(w, u):
    torch.testing.assert_close(Simplex()(torch.tensor(w)), torch.tensor(u), rtol=0, atol=1e-15)


@pytest.mark.parametrize("d", [3, 5000])
def test_the_simplex_is_exact_for_huge_entries(d):
    w = torch.full((d,), -1e18)
    w[1:3] = 1e18
    u = Simplex()(w)
    assert u[1:3].tolist() == [0.5, 0.5]
    assert float(u.sum()) == 1


@pytest.mark.parametrize("kind", ["normal", "spiked", "near uniform", "equal", "one large"])
def test_without_a_sort_for_many_clients(kind):
    """Above 4096 entries the threshold is found in a few passes; a batch of the same vector still sorts."""
    d = 5000
    w = {
        "normal": torch.randn(d),
        "spiked": torch.randn(d) * (torch.rand(d) > 0.99) * 10,
        "near uniform": torch.full((d,), 1 / d) + 1e-5 * torch.randn(d),
        "equal": torch.full((d,), 3.0),
        "one large": torch.zeros(d).index_fill(0, torch.tensor([17]), 1e6),
    }[kind]
    sorted_ = Simplex()(w[None])[0]
    torch.testing.assert_close(Simplex()(w), sorted_, rtol=0, atol=1e-12)
    assert float(Simplex()(w).sum()) == pytest.approx(1, abs=1e-9)


@some
@given(w=vectors)
def test_a_few_passes_find_the_sorts_threshold(w):
    tolerance = 1e-12 * (1 + float(w.abs().max()))
    torch.testing.assert_close(_few_passes(w), Simplex()(w), rtol=0, atol=tolerance)


def test_few_passes_are_used_above_4096(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("sorted")

    monkeypatch.setattr(torch.Tensor, "sort", refuse)
    Simplex()(torch.randn(4097))
    with pytest.raises(AssertionError, match="sorted"):
        Simplex()(torch.randn(4096))


@pytest.mark.parametrize("radius", [0.0, -1.0, float("nan"), float("inf")])
def test_a_ball_without_radius(radius):
    with pytest.raises(BadInput, match="radius = "):
        Ball(radius)


@pytest.mark.parametrize(("low", "high"), [(1.0, 0.0), (float("nan"), 0.0), (0.0, float("nan"))])
def test_a_box_without_inside(low, high):
    with pytest.raises(BadInput, match=r"low = |high = nan"):
        Box(low, high)


def test_single_precision_stays():
    w = torch.randn(3, 5, dtype=torch.float32)
    assert all(project(w).dtype == torch.float32 for project in SETS.values())


@projections
def test_a_projection_is_a_value(name):
    with pytest.raises(FrozenInstanceError):
        SETS[name].radius = 3.0


def test_a_small_ball():
    assert Ball(0.5)(torch.tensor([3.0, 4.0])).tolist() == pytest.approx([0.3, 0.4])


def halfway(w):
    return w / 2


def flat_ball(w):
    """The ball of a whole cohort in place of each client's."""
    return w / w.norm().clamp(min=1)


@pytest.mark.parametrize(
    ("project", "said"),
    [
        (3, "project_x = 3: must be a function"),
        (lambda w: w.tolist(), "gave a list; it must give the nearest point"),
        (lambda w: w.sum(-1), r"project_x = '\(3,\) torch.float64': changed the shape or type of \(3, 4\)"),
        (lambda w: w @ torch.zeros(2), r"cannot take points of shape \(3, 4\)"),
        (flat_ball, "project_x = 'flat_ball': mixes vectors of several clients"),
        (halfway, "project_x = 'halfway': is not a projection: applied twice"),
        (Ball(0.5), r"start_x = \[0\.5, 0\.5, 0\.5, 0\.5\]: lies outside of project_x"),
        (Box(0.0, 0.25), "start_x = .*: lies outside of project_x"),
        (Box(0.75, 1.0), "start_x = .*: lies outside of project_x"),
    ],
)
def test_what_is_no_projection_of_the_start(project, said):
    with pytest.raises(BadInput, match=said):
        check_projection("project_x", project, torch.full((4,), 0.5))


@pytest.mark.parametrize("project", [Everywhere(), Ball(1.0), Box(0.0, 0.5), lambda w: w.clamp(min=0)])
def test_projections_that_hold_the_start(project):
    check_projection("project_x", project, torch.full((4,), 0.5))
