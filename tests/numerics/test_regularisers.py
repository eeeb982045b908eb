"""Each proximal map is the argmax it claims to be: `argmax_{u in simplex} { c g(u) - |z - u|^2 / 2 }`."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from fedsaddle.errors import BadInput
from fedsaddle.numerics.projections import Simplex
from fedsaddle.numerics.regularisers import Concave, KullbackLeibler, Quadratic

KINDS = {"quadratic": Quadratic, "KL": KullbackLeibler}
kinds = pytest.mark.parametrize("kind", KINDS)
zs = st.lists(st.floats(-5, 5), min_size=2, max_size=8).map(lambda v: torch.tensor(v, dtype=torch.float64))
strengths = st.floats(1e-3, 1e2)
some = settings(max_examples=60, deadline=None)


def prior_of(d: int, seed: int) -> torch.Tensor:
    p = torch.rand(d, generator=torch.Generator().manual_seed(seed)) + 0.05
    return p / p.sum()


def literal(kind: str, mu: float, pi: torch.Tensor):
    """g as written in its docstring, for autograd."""
    if kind == "quadratic":
        return lambda u: -(mu / 2) * ((u - pi) ** 2).sum()
    return lambda u: -mu * (u * torch.log(u / pi)).sum()


def exact_slope(kind: str, mu: float, pi: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """The gradient of g as it is, however steep."""
    if kind == "quadratic":
        return -mu * (u - pi)
    return -mu * ((u.clamp(min=torch.finfo(u.dtype).tiny) / pi).log() + 1)


def simplex_points(d: int, count: int, seed: int) -> torch.Tensor:
    g = torch.Generator().manual_seed(seed)
    e = torch.rand(count, d, generator=g).log().neg()
    return e / e.sum(1, keepdim=True)


@kinds
@some
@given(z=zs, mu=strengths, c=st.floats(1e-2, 10), seed=st.integers(0, 10_000), uniform=st.booleans())
def test_no_point_of_the_simplex_is_better(kind, z, mu, c, seed, uniform):
    g = KINDS[kind](mu, None if uniform else prior_of(len(z), seed))
    u = g.prox(z, c)

    def objective(v):
        return c * float(g.value(v)) - float((z - v).square().sum()) / 2

    assert float(u.min()) >= 0
    assert float(u.sum()) == pytest.approx(1, abs=1e-12)
    best, slack = objective(u), 1e-10 * (1 + c * mu + float(z.square().sum()))
    for v in simplex_points(len(z), 10, seed):
        assert objective(v) <= best + slack
        near = u + 1e-3 * (v - u)
        assert objective(near) <= best + slack


@kinds
@some
@given(z=zs, mu=strengths, seed=st.integers(0, 10_000))
def test_first_order_conditions(kind, z, mu, seed):
    """The slope of the objective is one number nu where u > 0 and no more than nu where u = 0."""
    pi, c = prior_of(len(z), seed), 0.7
    g = KINDS[kind](mu, pi)
    u = g.prox(z, c)
    exact = exact_slope(kind, mu, pi, u)
    gentle = torch.ones(len(u), dtype=torch.bool) if kind == "quadratic" else u >= pi / 1000
    torch.testing.assert_close(g.gradient(u)[gentle], exact[gentle], rtol=1e-12, atol=1e-12)
    slope = c * exact + z - u
    inside = u > 1e-9
    nu = float((slope * u).sum())
    tolerance = 1e-7 * (1 + c * mu + float(z.abs().max()))
    assert float((slope[inside] - nu).abs().max()) <= tolerance
    assert (slope[u == 0] <= nu + tolerance).all()


@kinds
def test_a_general_solver_finds_the_same(kind):
    for seed in range(6):
        z = torch.randn(5, generator=torch.Generator().manual_seed(seed))
        g = KINDS[kind](0.8, prior_of(5, seed))

        def loss(v, g=g, z=z):
            v = torch.from_numpy(np.maximum(v, 1e-12))
            return -0.5 * float(g.value(v)) + float((z - v).square().sum()) / 2

        found = minimize(
            loss,
            np.full(5, 0.2),
            method="SLSQP",
            bounds=[(0, 1)] * 5,
            constraints={"type": "eq", "fun": lambda v: v.sum() - 1},
            options={"ftol": 1e-15, "maxiter": 500},
        )
        np.testing.assert_allclose(g.prox(z, 0.5), found.x, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "scale"), [("quadratic", 0.1), ("quadratic", 1.0), ("quadratic", 10.0), ("KL", 0.1), ("KL", 1.0)]
)
def test_the_closed_form_is_what_projected_ascent_finds(kind, scale):
    for seed in range(5):
        z = scale * torch.randn(6, generator=torch.Generator().manual_seed(seed))
        pi = prior_of(6, seed)
        closed, general = KINDS[kind](1.5, pi), Concave(literal(kind, 1.5, pi), most_steps=2000)
        torch.testing.assert_close(general.prox(z, 0.6), closed.prox(z, 0.6), rtol=0, atol=1e-8)


def test_projected_ascent_keeps_its_tolerance():
    """Strong concavity makes the tolerance on the last move a bound on the error."""
    for seed in range(5):
        z = 3 * torch.randn(6, generator=torch.Generator().manual_seed(seed))
        for mu in (0.5, 5.0, 50.0):
            pi = prior_of(6, seed)
            found = Concave(literal("quadratic", mu, pi), tolerance=1e-10, most_steps=2000).prox(z, 0.6)
            torch.testing.assert_close(found, Quadratic(mu, pi).prox(z, 0.6), rtol=0, atol=1e-9)


def test_projected_ascent_takes_few_evaluations():
    calls = 0

    def quadratic(u):
        nonlocal calls
        calls += 1
        return -1.5 * (u - 1 / 8).square().sum()

    for seed in range(10):
        Concave(quadratic).prox(torch.randn(8, generator=torch.Generator().manual_seed(seed)), 0.7)
    assert calls < 10 * 500


def test_projected_ascent_on_a_g_that_mixes_coordinates():
    A = torch.randn(5, 5)
    Q = A @ A.T

    def g(u):
        return -(u @ Q @ u) / 2 - torch.logsumexp(3 * u, 0)

    z = torch.randn(5)
    u = Concave(g, most_steps=2000).prox(z, 0.4)
    assert float(u.min()) >= 0
    assert float(u.sum()) == pytest.approx(1, abs=1e-12)
    slope = 0.4 * Concave(g).gradient(u) + z - u
    for v in simplex_points(5, 200, 0):
        assert float(slope @ (v - u)) <= 1e-8


def test_projected_ascent_where_the_slope_is_infinite_on_the_boundary():
    """Entropy pulls away from the boundary with infinite force; the start may lie on it."""
    z = torch.tensor([0.3, 0.1, 2.0])
    calls = 0

    def entropy(u):
        nonlocal calls
        calls += 1
        assert calls < 20_000, "projected ascent does not come to an end"
        return -torch.special.xlogy(u, 3 * u).sum()

    torch.testing.assert_close(
        Concave(entropy, most_steps=2000).prox(z, 1.0), KullbackLeibler(1.0).prox(z, 1.0), rtol=0, atol=1e-7
    )


def test_a_general_g_works_where_gradients_are_switched_off():
    g = Concave(lambda u: -(u - 0.3).square().sum())
    z = torch.tensor([0.3, 0.1, 0.9])
    with torch.no_grad():
        torch.testing.assert_close(g.gradient(z), -2 * (z - 0.3))
        torch.testing.assert_close(g.prox(z, 0.5), Quadratic(2.0).prox(z, 0.5), rtol=0, atol=1e-8)


@kinds
@pytest.mark.parametrize("uniform", [True, False])
def test_value_and_gradient(kind, uniform):
    pi = torch.full((6,), 1 / 6) if uniform else prior_of(6, 3)
    g, written = KINDS[kind](0.7, None if uniform else pi), literal(kind, 0.7, pi)
    for u in simplex_points(6, 10, 1):
        at = u.clone().requires_grad_()
        (slope,) = torch.autograd.grad(written(at), at)
        assert float(g.value(u)) == pytest.approx(float(written(u)), abs=1e-14)
        torch.testing.assert_close(g.gradient(u), slope, rtol=0, atol=1e-12)
        general = Concave(written)
        assert float(general.value(u)) == float(written(u))
        torch.testing.assert_close(general.gradient(u), slope, rtol=0, atol=0)


def test_kl_at_the_boundary():
    g = KullbackLeibler(2.0)
    u = torch.tensor([0.5, 0.5, 0.0])
    assert float(g.value(u)) == pytest.approx(-2 * np.log(1.5))
    assert torch.isfinite(g.gradient(u)).all()
    inside, outside = -2 * (np.log(1.5) + 1), 2 * (np.log(1000) - 1)
    assert g.gradient(u).tolist() == pytest.approx([inside, inside, outside], rel=1e-14)


@pytest.mark.parametrize(
    ("u", "pi", "ratio"),
    [
        (0.0, 0.25, 1 / 1000),  # on the boundary
        (0.25e-6, 0.25, 1 / 1000),  # near it
        (0.25e-3, 0.25, 1 / 1000),
        (0.5e-3, 0.25, 2 / 1000),  # where the gradient is the exact one
        (0.5, 0.25, 2.0),
        (0.9, 1e-6, 9e5),  # a prior may be small
        (0.0, 0.0, 1000.0),  # a client without prior is pushed out, not drawn in
        (0.5, 0.0, 1000.0),
    ],
)
def test_the_slope_of_kl_is_bounded(u, pi, ratio):
    """`-mu (log(u / pi) + 1)` with u / pi of at least 1/1000, and 1000 where pi is 0."""
    g = KullbackLeibler(0.7, torch.tensor([pi, 1 - pi]))
    assert float(g.gradient(torch.tensor([u, 1 - u]))[0]) == pytest.approx(-0.7 * (np.log(ratio) + 1), rel=1e-12)


def test_the_map_of_kl_is_exact_where_its_slope_is_bounded():
    """The bound is for one step along the gradient; `prox` may give less than pi / 1000."""
    z, pi = torch.tensor([0.0, 2.0]), torch.tensor([0.5, 0.5])
    u = KullbackLeibler(0.125, pi).prox(z, 0.7)
    assert 0 < float(u[0]) < 0.5 / 1000
    slope = 0.7 * exact_slope("KL", 0.125, pi, u) + z - u
    torch.testing.assert_close(slope[0], slope[1], rtol=0, atol=1e-10)


def test_a_client_without_prior_gets_nothing():
    g = KullbackLeibler(0.5, torch.tensor([0.5, 0.5, 0.0]))
    u = g.prox(torch.tensor([0.3, 0.1, 2.0]), 1.0)
    assert float(u[2]) == 0
    pair = KullbackLeibler(0.5).prox(torch.tensor([0.3, 0.1]), 1.0)
    torch.testing.assert_close(u[:2], pair, rtol=0, atol=1e-12)


def test_kl_to_a_prior_that_leaves_a_client_out_is_finite_at_that_prior():
    pi = torch.tensor([0.5, 0.5, 0.0])
    assert float(KullbackLeibler(1.0, pi).value(pi)) == 0


@pytest.mark.parametrize("a", [1e-9, 1e-4, 1.0, 1e4, 1e8])
def test_kl_over_many_orders_of_strength(a):
    z = torch.tensor([3.0, -2.0, 0.4, 0.35])
    u = KullbackLeibler(a).prox(z, 1.0)
    assert float(u.sum()) == pytest.approx(1, abs=1e-12)
    assert (u >= 0).all()
    if a == 1e-9:
        torch.testing.assert_close(u, Simplex()(z), rtol=0, atol=1e-6)
    if a == 1e8:
        torch.testing.assert_close(u, torch.full((4,), 0.25), rtol=0, atol=1e-6)


def test_kl_far_outside_the_simplex():
    """The multiplier lies far beyond the first bracket."""
    for z in (torch.tensor([1e6, -1e6, 0.0]), torch.tensor([-1e6, -1e6, -1e6]), torch.tensor([1e3, 1e3, 1e3])):
        u = KullbackLeibler(2.0).prox(z, 3.0)
        assert float(u.sum()) == pytest.approx(1, abs=1e-12)
    torch.testing.assert_close(u, torch.full((3,), 1 / 3), rtol=0, atol=1e-9)


@kinds
def test_a_negative_strength_is_refused(kind):
    for wrong in (-1.0, float("nan"), float("inf")):
        with pytest.raises(BadInput, match="strength = "):
            KINDS[kind](wrong)


@kinds
def test_a_prior_of_the_wrong_length_is_refused(kind):
    with pytest.raises(BadInput, match="prior = '2 entries': give one for each of the 3 clients"):
        KINDS[kind](1.0, torch.tensor([0.5, 0.5])).prox(torch.zeros(3), 1.0)


@kinds
@pytest.mark.parametrize(
    ("prior", "said"),
    [
        (torch.tensor([1.0, 1.0]), "prior = 'sum 2': the entries must sum to 1"),
        (torch.tensor([1.5, -0.5]), "prior = -0.5: every entry must be"),
        (torch.tensor([float("nan"), 1.0]), "prior = nan: every entry must be"),
        (torch.full((2, 2), 0.25), "must be a flat tensor"),
        ([0.5, 0.5], "must be a flat tensor"),
    ],
)
def test_priors_that_are_no_mixture(kind, prior, said):
    with pytest.raises(BadInput, match=said) as caught:
        KINDS[kind](0.1, prior)
    assert "\n" not in str(caught.value)
