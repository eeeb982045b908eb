"""Newton against the literal box, and against statsmodels on the pooled rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from agreement import ENGINES, Losing, agree
from newton_box import by_rows, cox_client, logistic_row, newton, poisson_row, softmax_row, square_row
from torch import nn

import fedsaddle as fs
from fedsaddle.metrics.inference import likelihood_ratio
from fedsaddle.secure.secured import Secured
from small import play, relabelled, rows_of, seeded

SIZES = (60, 35, 110, 20)
ROUNDS = 10
engines = pytest.mark.parametrize("engine", ENGINES)
FAMILIES = ["logistic", "softmax", "square", "poisson", "cox"]
family = pytest.mark.parametrize("kind", FAMILIES)
LOSSES = {
    "logistic": fs.losses.Logistic,
    "softmax": fs.losses.CrossEntropy,
    "square": fs.losses.Square,
    "poisson": fs.losses.Poisson,
}


def rows(kind, sizes=SIZES, seed=0):
    """Clients with means of their own; three columns of unlike scales."""
    rng, xs, ys = np.random.default_rng(seed), [], []
    for n in sizes:
        x = (rng.normal(size=(n, 3)) + rng.normal(size=3) / 2) * [1.0, 0.2, 3.0]
        s = x @ [0.6, -2.0, 0.1] + 0.4
        if kind == "logistic":
            y = rng.random(n) < 1 / (1 + np.exp(-s))
        elif kind == "softmax":
            p = np.exp(np.stack([0 * s, s, -s], 1))
            y = (rng.random((n, 1)) > (p / p.sum(1, keepdims=True)).cumsum(1)).sum(1)
        elif kind == "square":
            y = s + rng.normal(size=n)
        elif kind == "poisson":
            exposure = rng.uniform(0.5, 4, n)
            y = np.stack([rng.poisson(exposure * np.exp(s - 0.5)), exposure], 1)
        else:
            time = np.ceil(4 * rng.exponential(np.exp(-s)))  # many ties
            y = np.stack([time, rng.random(n) < 0.7], 1)
        xs.append(torch.from_numpy(x))
        ys.append(torch.from_numpy(y.astype(np.int64 if kind in ("logistic", "softmax") else np.float64)))
    return rows_of(xs, ys)


def problem(kind, l2=0.0, columns=3):
    """From zero, as statsmodels."""
    if kind == "cox":
        layer = seeded(lambda: nn.Linear(columns, 1, bias=False))
    else:
        layer = seeded(lambda: nn.Linear(columns, 3 if kind == "softmax" else 1))
    for p in layer.parameters():
        nn.init.zeros_(p)
    return fs.Cox(layer, l2) if kind == "cox" else fs.Supervised(layer, LOSSES[kind](), l2, l2_biases=False)


def solved(kind, of, l2=0.0, engine="serial", rounds=ROUNDS, lost=None, columns=3, **options):
    """The algorithm and its states."""
    algorithm = fs.Newton(problem=problem(kind, l2, columns), **options)
    clients = ENGINES[engine](of)
    return algorithm, play(algorithm, clients if lost is None else Losing(clients, lost), rounds)


BOXES = {
    "logistic": by_rows(logistic_row),
    "softmax": by_rows(softmax_row, 3),
    "square": by_rows(square_row),
    "poisson": by_rows(poisson_row),
    "cox": lambda w, x, y: cox_client(w, x, y[:, 0], y[:, 1]),
}


@family
@engines
@pytest.mark.parametrize(("l2", "damping"), [(0.0, 1.0), (0.3, 0.7)])
def test_the_box(kind, engine, l2, damping):
    of = rows(kind)
    algorithm, states = solved(kind, of, l2, engine, damping=damping)
    clients = [tuple(part.numpy() for part in of.client(i)) for i in range(of.count)]
    ridge = algorithm.problem.ridge().numpy()
    points = newton(BOXES[kind], clients, algorithm.problem.initial().numpy(), ridge, ROUNDS, damping)
    agree([s.point for s in states[1:]], points)


def pooled(kind, of):
    """The fits of statsmodels to the pooled rows: plain, and robust where it has one."""
    sm = pytest.importorskip("statsmodels.api")
    x, y = of.x.numpy(), of.y.numpy()
    X, exact = np.column_stack([x, np.ones(len(x))]), {"disp": 0, "tol": 1e-14, "maxiter": 100, "method": "newton"}
    if kind == "logistic":
        fits = sm.Logit(y, X).fit(**exact), sm.Logit(y, X).fit(**exact, cov_type="HC0")
    elif kind == "softmax":
        fits = sm.MNLogit(y, X).fit(**exact), None
    elif kind == "square":
        fits = sm.OLS(y, X).fit(), sm.OLS(y, X).fit(cov_type="HC0")
    elif kind == "poisson":
        model = sm.GLM(y[:, 0], X, family=sm.families.Poisson(), exposure=y[:, 1])
        fits = model.fit(tol=1e-14), model.fit(tol=1e-14, cov_type="HC0")
    else:
        site = np.repeat(np.arange(of.count), of.sizes)
        model = sm.PHReg(y[:, 0], x, status=y[:, 1], strata=site, ties="efron")
        fits = model.fit(**exact), None
    return fits


def flat(kind, values):
    """statsmodels' order, class by class, as ours: weights, then intercepts."""
    values = np.asarray(values)
    return np.concatenate([values[:-1].T.ravel(), values[-1]]) if kind == "softmax" else values


@family
def test_statsmodels(kind):
    of = rows(kind)
    algorithm, states = solved(kind, of, sandwich=True, rounds=ROUNDS + 1)
    assert states[ROUNDS].settled, "at most 10 exchanges"
    found, (plain, robust) = fs.inference(algorithm.fit(states[-1])), pooled(kind, of)
    np.testing.assert_allclose(found.estimate, flat(kind, plain.params), rtol=0, atol=1e-8)
    np.testing.assert_allclose(found.standard_error, flat(kind, plain.bse), rtol=0, atol=1e-8)
    np.testing.assert_allclose(found.p_value, flat(kind, plain.pvalues), rtol=0, atol=1e-8)
    assert algorithm.fit(states[-1]).log_likelihood == pytest.approx(plain.llf, abs=1e-8)
    if kind != "softmax":
        np.testing.assert_allclose(found.interval, plain.conf_int(), rtol=0, atol=1e-8)
    if robust is not None:
        found = fs.inference(algorithm.fit(states[-1]), covariance="sandwich")
        np.testing.assert_allclose(found.standard_error, robust.bse, rtol=0, atol=1e-8)
    if kind in ("logistic", "square", "poisson"):
        test = fs.inference(algorithm.fit(states[-1])).wald(["x0", "x2"])
        expected = plain.wald_test(np.eye(4)[[0, 2]], scalar=True)
        assert test.statistic == pytest.approx(float(expected.statistic), rel=1e-8)
        assert test.p_value == pytest.approx(float(expected.pvalue), abs=1e-8)


def with_units(of, seed=5):
    """Each client's rows belong to patients, who have neighbouring numbers but no neighbouring rows."""
    rng = np.random.default_rng(seed)
    return replace(of, units=np.concatenate([100 * i + rng.integers(0, n // 3, n) for i, n in enumerate(of.sizes)]))


def clustered(kind, of):
    """The standard errors of statsmodels with the units as clusters, without and with the factor for small samples."""
    sm = pytest.importorskip("statsmodels.api")
    x, y, units = of.x.numpy(), of.y.numpy(), of.units
    X = np.column_stack([x, np.ones(len(x))])
    if kind == "cox":
        site = np.repeat(np.arange(of.count), of.sizes)
        model = sm.PHReg(y[:, 0], x, status=y[:, 1], strata=site, ties="efron")
        return [model.fit(groups=units, disp=0, tol=1e-14, maxiter=100, method="newton").bse, None]
    models = {
        "logistic": lambda: sm.GLM(y, X, family=sm.families.Binomial()),
        "square": lambda: sm.OLS(y, X),
        "poisson": lambda: sm.GLM(y[:, 0], X, family=sm.families.Poisson(), exposure=y[:, 1]),
    }
    options = {} if kind == "square" else {"tol": 1e-14}
    how = [{"groups": units, "use_correction": correction} for correction in (False, True)]
    return [models[kind]().fit(cov_type="cluster", cov_kwds=one, **options).bse for one in how]


@pytest.mark.parametrize("kind", ["logistic", "square", "poisson", "cox"])
@engines
def test_patients_are_clusters(kind, engine):
    of = with_units(rows(kind))
    if kind == "cox":  # residuals of statsmodels are those of Breslow's ties, and NaN before the first event
        of.y[:, 0] += torch.linspace(0, 1e-3, len(of.y), dtype=torch.float64)
        for i in range(of.count):
            y = of.client(i)[1]
            y[y[:, 0].argmin(), 1] = 1
    algorithm, states = solved(kind, of, engine=engine, sandwich=True, rounds=ROUNDS + 1)
    fit = algorithm.fit(states[-1])
    assert fit.units == len(np.unique(of.units)) < 0.5 * fit.rows
    for small, expected in zip((False, True), clustered(kind, of), strict=True):
        if expected is not None:
            found = fs.inference(fit, covariance="sandwich", small_sample=small)
            np.testing.assert_allclose(found.standard_error, expected, rtol=0, atol=1e-8)


@pytest.mark.parametrize("kind", FAMILIES)
def test_the_blocks_of_rows_do_not_matter_for_clusters(kind, monkeypatch):
    of = with_units(rows(kind))
    whole = solved(kind, of, sandwich=True, rounds=ROUNDS + 1)[1][-1].products
    monkeypatch.setattr("fedsaddle.problems.regression.BLOCK", 7)
    torch.testing.assert_close(
        solved(kind, of, sandwich=True, rounds=ROUNDS + 1)[1][-1].products, whole, rtol=0, atol=1e-10
    )


def test_the_sandwich_of_classes_and_of_survival_is_that_of_leaving_rows_out():
    """To first order the scores are the changes of the solution without a row, times the Hessian and the rows."""
    for kind in ("softmax", "cox"):
        of = rows(kind, (400, 300))
        algorithm, states = solved(kind, of, sandwich=True, rounds=ROUNDS + 1)
        robust = fs.inference(algorithm.fit(states[-1]), covariance="sandwich")
        changes = []
        for i in range(0, 700, 7):
            mine, first = (0, i) if i < 400 else (1, i - 400)
            parts = [of.client(c) for c in range(2)]
            kept = np.arange(len(parts[mine][0])) != first
            parts[mine] = tuple(p[torch.from_numpy(kept)] for p in parts[mine])
            less, found = solved(kind, rows_of(*zip(*parts, strict=True)))
            changes.append(fs.inference(less.fit(found[-1])).estimate - robust.estimate)
        jackknife = 7 * np.array(changes).T @ np.array(changes)
        assert np.sqrt(np.diag(jackknife)) == pytest.approx(robust.standard_error, rel=0.25)


@family
@engines
def test_one_client_with_all_rows_is_many(kind, engine):
    of = rows(kind)
    if kind == "cox":
        pytest.skip("each client is a stratum")
    whole = rows_of([of.x], [of.y])
    many, one = (solved(kind, each, 0.01, engine)[1] for each in (of, whole))
    agree([s.point for s in many], [s.point for s in one])


@family
def test_the_order_of_clients_does_not_matter(kind):
    of = rows(kind)
    a, b = (solved(kind, each)[1][-1].point for each in (of, relabelled(of, [2, 0, 3, 1])))
    torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


def test_the_solution_is_that_of_gradient_steps():
    of = rows("logistic")
    _, states = solved("logistic", of, 0.1)
    plain = fs.FedAvg(problem=problem("logistic", 0.1), local_steps=1, batch_size=1, primal_step=0.1)
    w = plain.problem.initial()[None]
    for _ in range(5000):
        w = w - 0.2 * plain.problem.gradient(w, fs.Batch(of.x[None], of.y[None]))
    torch.testing.assert_close(states[-1].point, w[0], rtol=0, atol=1e-8)


@family
def test_after_the_end_nothing_is_asked_and_the_bits_stay(kind):
    of = rows(kind)
    algorithm, states = solved(kind, of)
    clients = fs.Metered(ENGINES["serial"](of))
    later = play(algorithm, clients, 3, state=states[-1], first=ROUNDS)[-1]
    assert clients.ledger.exchanges == 0
    assert torch.equal(later.point, states[-1].point)
    assert torch.equal(algorithm.model(later), algorithm.model(states[-1]))


def test_a_missing_client_is_waited_for():
    of = rows("logistic")
    lost = lambda r, exchange: [1] if r in (1, 2) else []  # noqa: E731
    _, states = solved("logistic", of, rounds=ROUNDS, lost=lost)
    _, plain = solved("logistic", of, rounds=ROUNDS - 2)
    agree([s.point for s in [states[1], *states[4:]]], [s.point for s in plain[1:]])
    assert torch.equal(states[3].w, states[1].w)


def test_the_others_go_on_without_a_missing_client():
    of = rows("logistic")
    algorithm, states = solved("logistic", of, lost=lambda r, exchange: [1], missing="go on")
    some = rows_of(*zip(*[of.client(i) for i in (0, 2, 3)], strict=True))
    _, plain = solved("logistic", some)
    agree([s.point for s in states], [s.point for s in plain])
    assert states[-1].rows == sum(len(of.client(i)[0]) for i in (0, 2, 3))
    back = play(algorithm, ENGINES["serial"](of), ROUNDS, state=states[-1], first=ROUNDS)[-1]
    torch.testing.assert_close(back.point, solved("logistic", of)[1][-1].point, rtol=0, atol=1e-10)


def test_it_starts_from_the_model_and_leaves_it_there():
    of = rows("logistic")
    algorithm, states = solved("logistic", of)
    started = fs.Newton(problem=fs.Supervised(algorithm.problem.module(states[-1].point), fs.losses.Logistic()))
    states = play(started, ENGINES["serial"](of), 1)
    assert states[-1].settled
    torch.testing.assert_close(states[-1].point, states[0].point, rtol=0, atol=1e-14)


@pytest.mark.parametrize("mean", [-2.0, 0.0, 2.0, 4.0])
def test_counts_converge_from_a_start_that_is_far(mean):
    rng, xs, ys = np.random.default_rng(3), [], []
    for n in (60, 90):
        x = rng.normal(size=(n, 3))
        xs.append(torch.from_numpy(x))
        ys.append(torch.from_numpy(rng.poisson(np.exp(x @ [0.8, -0.5, 0.3] + mean)).astype(np.float64)))
    _, states = solved("poisson", rows_of(xs, ys), rounds=11)
    values = [s.value for s in states[1:]]
    assert states[-1].settled
    assert values == sorted(values, reverse=True)


def test_likelihood_ratio():
    sm = pytest.importorskip("statsmodels.api")
    of = rows("logistic")
    less = rows_of([of.client(i)[0][:, :1] for i in range(4)], [of.client(i)[1] for i in range(4)])
    a, b = (solved("logistic", each, columns=k) for each, k in ((of, 3), (less, 1)))
    full, restricted = (alg.fit(states[-1]) for alg, states in (a, b))
    test = likelihood_ratio(full, restricted)
    X = np.column_stack([of.x.numpy(), np.ones(len(of.x))])
    llf = [sm.Logit(of.y.numpy(), X[:, at]).fit(disp=0, tol=1e-14).llf for at in ([0, 1, 2, 3], [0, 3])]
    assert test.statistic == pytest.approx(2 * (llf[0] - llf[1]), abs=1e-8)
    assert test.degrees == 2
    with pytest.raises(fs.BadInput, match="no part"):
        likelihood_ratio(restricted, full)


def separated():
    g = torch.Generator().manual_seed(0)
    x = torch.randn(60, 3, generator=g, dtype=torch.float64)
    return rows_of([x[:30], x[30:]], [(x[:30, 1] > 0).long(), (x[30:, 1] > 0).long()])


@pytest.mark.parametrize("rounds", [10, 20, 60])
def test_separation_is_said_with_the_column(rounds):
    algorithm, states = solved("logistic", separated(), rounds=rounds)
    (text,) = algorithm.cautions(states[-1])
    assert ("of columns 1 grow without end" if rounds < 60 else "grow without end") in text  # later rounding is in it
    with pytest.raises(fs.BadInput):
        algorithm.fit(states[-1])
    algorithm, states = solved("logistic", separated(), 0.01, rounds=rounds)
    assert algorithm.cautions(states[-1]) == []


def test_rank_deficiency_is_said_with_the_columns():
    of = rows("logistic")
    twice = rows_of(
        [torch.cat([of.client(i)[0], 2 * of.client(i)[0][:, :1] - 1], 1) for i in range(4)],
        [of.client(i)[1] for i in range(4)],
    )
    algorithm, states = solved("logistic", twice, columns=4)
    assert algorithm.cautions(states[-1])[0].startswith(
        "the rows do not identify the coefficients of columns the intercept, 0, 3: leave out"
    )
    s = torch.cat([twice.x, torch.ones(len(twice.x), 1)], 1) @ states[-1].point
    plain = solved("logistic", of)[1][-1].point
    torch.testing.assert_close(s, of.x @ plain[:3] + plain[3], rtol=0, atol=1e-8)


@pytest.mark.parametrize("kind", FAMILIES)
def test_no_caution_without_cause(kind):
    algorithm, states = solved(kind, rows(kind))
    assert algorithm.cautions(states[-1]) == []


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: fs.Supervised(fs.models.mlp(3, [4], 2)), "model"),
        (lambda: fs.Supervised(nn.Linear(3, 1), fs.losses.Custom(lambda s, y: s[..., 0])), "loss"),
        (lambda: fs.Supervised(nn.Linear(3, 2), fs.rare_losses.Focal(2.0)), "loss"),
        (lambda: fs.Supervised(nn.Linear(3, 2), fs.losses.Poisson()), "takes one score"),
        (lambda: fs.Supervised(nn.Linear(3, 2), clip=1.0), "clip"),
        (lambda: fs.Supervised(nn.Linear(3, 2), trimmed=0.1), "trimmed"),
        (lambda: fs.Supervised(nn.Linear(1001, 1, bias=False), fs.losses.Logistic()), "501,501 numbers up"),
        (lambda: fs.Cox(nn.Linear(3, 1)), "bias=False"),
    ],
)
def test_problems_without_a_hessian_are_refused(make, match):
    with pytest.raises(fs.BadInput, match=match):
        fs.Newton(problem=make())


@pytest.mark.parametrize(
    ("kind", "column", "value", "match"),
    [
        ("cox", 0, -1.0, "time"),
        ("cox", 1, 2.0, "event"),
        ("poisson", 0, -1.0, "count"),
        ("poisson", 1, 0.0, "exposure"),
    ],
)
def test_targets_that_are_invalid_are_refused(kind, column, value, match):
    of = rows(kind)
    of.y[3, column] = value
    with pytest.raises(fs.BadInput, match=match):
        solved(kind, of, rounds=1)


@pytest.mark.parametrize("wrong", [{"tolerance": 0.0}, {"damping": 1.5}, {"missing": "stop"}, {"sampled_clients": 0}])
def test_invalid_arguments_are_refused(wrong):
    with pytest.raises(fs.BadInput, match=next(iter(wrong))):
        fs.Newton(problem=problem("logistic"), **wrong)


@pytest.mark.parametrize("kind", FAMILIES)
def test_behind_masks_the_steps_end_too(kind):
    pytest.importorskip("cryptography")
    of = rows(kind)
    algorithm, plain = solved(kind, of)
    states = play(algorithm, Secured(ENGINES["serial"](of)), ROUNDS)
    assert states[-1].settled
    torch.testing.assert_close(states[-1].point, plain[-1].point, rtol=0, atol=1e-8)


def single(of):
    """As runs have them: in single precision."""
    return fs.Stacked(of.x.float(), of.y.float() if of.y.is_floating_point() else of.y, of.offsets)


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_run_ends_by_itself(kind):
    model = problem(kind).model.float()
    made = fs.Cox(model) if kind == "cox" else fs.Supervised(model, LOSSES[kind]())
    result = fs.run(fs.Newton(problem=made, sandwich=True), single(rows(kind)), rounds=15)
    assert result.warnings == []
    assert result.summary["ledger"]["exchanges"] <= 11
    algorithm, states = solved(kind, rows(kind))
    expected = fs.inference(algorithm.fit(states[-1]))
    for covariance in ("model", "sandwich"):
        found = fs.inference(result, covariance=covariance)
        np.testing.assert_allclose(found.estimate, expected.estimate, rtol=0, atol=1e-5)
        assert found.to_pandas().shape == (len(found.names), 6)


def named(of):
    """As a federation whose columns have names."""
    names = tuple(f"site-{i}" for i in range(of.count))
    return fs.FederatedData("made", single(of), None, names, ("0", "1"), ("age", "dose", "time\n"))


def test_warnings_and_coefficients_have_the_names_of_columns():
    problem = fs.Supervised(nn.Linear(3, 1).float(), fs.losses.Logistic())
    with pytest.warns(UserWarning, match="of columns 'dose' grow without end"):
        fs.run(fs.Newton(problem=problem), named(separated()), rounds=15)
    result = fs.run(fs.Newton(problem=problem), named(rows("logistic")), rounds=15)
    assert fs.inference(result).names == ("age", "dose", "time\n", "intercept")
    assert fs.inference(result, columns=["a", "b", "c"]).names == ("a", "b", "c", "intercept")


def test_a_run_warns_of_separation():
    problem = fs.Supervised(nn.Linear(3, 1).float(), fs.losses.Logistic())
    with pytest.warns(UserWarning, match="of columns 1 grow without end"):
        result = fs.run(fs.Newton(problem=problem), single(separated()), rounds=15)
    assert "columns 1" in result.warnings[-1]
    with pytest.raises(fs.BadInput, match=r"rounds = 15|grow without end"):
        fs.inference(result)


def test_without_any_event_no_coefficient_is_known():
    of = rows("cox")
    of.y[:, 1] = 0
    algorithm, states = solved("cox", of, rounds=2)
    assert "do not identify the coefficients of columns 0, 1, 2" in algorithm.cautions(states[-1])[0]


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda r: fs.inference(r, columns=["a"]), "give 3"),
        (lambda r: fs.inference(r, covariance="HC0"), "covariance"),
        (lambda r: fs.inference(r, covariance="sandwich"), "sandwich=True"),
        (lambda r: fs.inference(r, level=1.0), "level"),
        (lambda r: fs.inference(r).wald(["age"]), "choose among x0, x1, x2, intercept"),
        (lambda r: fs.inference(r).wald(np.ones((2, 4))), "linearly independent"),
        (lambda r: fs.inference("newton"), "fs.Newton"),
    ],
)
def test_wrong_questions_about_a_fit_are_refused(call, match):
    algorithm, states = solved("logistic", rows("logistic"))
    with pytest.raises(fs.BadInput, match=match):
        call(algorithm.fit(states[-1]))


def test_a_penalty_is_said():
    algorithm, states = solved("logistic", rows("logistic"), 0.1)
    assert fs.inference(algorithm.fit(states[-1])).penalised
    with pytest.raises(fs.BadInput, match="without a penalty"):
        likelihood_ratio(algorithm.fit(states[-1]), algorithm.fit(states[-1]))


@family
@engines
def test_without_each_client_is_the_solution_of_the_others(kind, engine):
    of = rows(kind)
    algorithm, states = solved(kind, of, 0.01, engine)
    clients = ENGINES[engine](of)
    clients.begin(1)
    found = algorithm.without_each(states[-1], clients)
    contrasts = algorithm.problem.layout().contrasts()
    A = torch.eye(found.shape[1]).double() if contrasts is None else contrasts
    for i in range(len(SIZES)):
        each = [j for j in range(len(SIZES)) if j != i]
        spans = [slice(of.offsets[j], of.offsets[j + 1]) for j in each]
        _, own = solved(kind, rows_of([of.x[s] for s in spans], [of.y[s] for s in spans]), 0.01)
        np.testing.assert_allclose(A @ found[i], A @ own[-1].point, atol=1e-9)
        assert float((A @ (found[i] - states[-1].point)).abs().max()) > 1e-3
