"""A valid call of everything public, and a short run that what it makes must survive."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache, partial
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

import fedsaddle as fs
from fedsaddle.data import splits
from fedsaddle.data.store import Stacked
from fedsaddle.data.table import Dataset, Table
from fedsaddle.problems.auc import MinimaxAuc
from fedsaddle.problems.fair import ClassFair
from fedsaddle.problems.games import NonconvexPl
from fedsaddle.problems.robust import RobustTraining
from fedsaddle.runs.callbacks import QUIET

SIZES = (3, 5, 4)
OFFSETS = np.cumsum([0, *SIZES])
N, D = sum(SIZES), 4
MODULES: tuple[ModuleType, ...] = (
    fs.losses, fs.measures, fs.models, fs.outers, fs.optimisers, fs.pair_losses, fs.projections, fs.regularisers,
    fs.risks, fs.schedules,
)  # fmt: skip
NOT_FOR_USERS = {  # protocols, bases to inherit from, and what the library says to itself
    "at", "check_map", "check_number", "check_projection", "check_step", "classified", "inner_parts",
    "is_everywhere", "log_mean", "Differentiated", "Exponential", "MarginLoss", "Plain", "Position", "RatioCaps",
    "MeasureResult", "Scores", "WeightedScores", "Moments", "check_local_optimiser", "check_server_optimiser",
    "divisor", "if_scheduled", "measures_of", "own_optimiser", "staged_at", "Objective", "SolverLimits",
    "TorchLoss", "as_loss", "check_regulariser",
}  # fmt: skip


@dataclass(frozen=True)
class Call:
    """What is called, with which arguments, and what must then work with the object that it gives."""

    target: Callable[..., Any]
    valid: dict[str, Callable[[], Any]]  # made anew each time
    use: Callable[[Any], Any] = lambda made: None

    def arguments(self) -> dict[str, Any]:
        return {name: make() for name, make in self.valid.items()}


# ---- small data ------------------------------------------------------------------------------------------------------


def rows(x: Tensor, y: Tensor) -> Stacked:
    return Stacked(x, y, OFFSETS)


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def labelled(k: int, *shape: int) -> Stacked:
    return rows(drawn(N, *(shape or (D,))), torch.arange(N) % k)


def two() -> Stacked:
    return labelled(2)


def three() -> Stacked:
    return labelled(3)


def text() -> Stacked:
    return rows(torch.arange(N * 5).view(N, 5) % 6, torch.arange(1, N * 5 + 1).view(N, 5) % 6)


def frame() -> pd.DataFrame:
    """Two sites, numbers, words, gaps and two classes."""
    n = np.arange(40)
    return pd.DataFrame({"site": n % 2, "age": np.where(n % 9, n * 7 % 31, np.nan), "sex": n % 3 > 0, "y": n % 5 < 2})


def tensors() -> Any:
    return torch.utils.data.TensorDataset(drawn(N, D), torch.arange(N) % 2)


def fit(estimator: Any, y: Any) -> Any:
    return estimator.fit(drawn(N, D).numpy(), y, sites=np.arange(N) % 3).predict(drawn(2, D).numpy())


def to_search() -> fs.FederatedData:
    return fs.federate(fs.from_frame(frame(), site="site", label="y"), splits.Natural("site"), 0, 0.2, True, 0.2)


# ---- small problems, and runs of two rounds --------------------------------------------------------------------------

LOCAL: dict[str, Any] = {"local_steps": 2, "batch_size": 2}


def linear(k: int = 3) -> nn.Module:
    return fs.models.logistic_regression(D, k)


def supervised() -> fs.Supervised:
    return fs.Supervised(linear())


def boost(forest: fs.models.Forest) -> Any:
    few = {"parallel": 2, "least_rows": 1, "least_curvature": 0.0}
    return run(fs.BoostedTrees(problem=fs.Supervised(forest), **few), three(), rounds=2)


def grown() -> fs.Supervised:
    return fs.Supervised(fs.models.Forest(D, 3, trees=4, depth=2))


def game_value(x: Tensor, y: Tensor, batch: Any) -> Tensor:
    return x @ x / 2 + batch.x @ x * y.sum() - y @ y / 2


def game() -> fs.Minimax:
    return fs.Minimax(game_value, start_x=torch.ones(D), start_y=torch.zeros(2))


def auc() -> MinimaxAuc:
    return MinimaxAuc(model=linear(1), positive_share=0.5)


def ranking() -> fs.PairwiseRisk:
    return fs.risks.auc(linear(1))


def run(algorithm: Any, data: Any, **options: Any) -> Any:
    return fs.run(algorithm, data, **({"rounds": 2} | options))


def train(problem: Any, data: Callable[[], Stacked] = three) -> Any:
    if problem.compiled:  # a compilation takes longer than all other calls together
        return None
    return run(fs.FedAvg(problem=problem, **LOCAL), data())


def survive(problem: Any) -> Any:
    """Times, and whether there was an event."""
    times = torch.arange(1.0, N + 1)
    return run(fs.FedAvg(problem=problem, **LOCAL), rows(drawn(N, D), torch.stack([times, times % 2], 1)))


def play(problem: Any, data: Callable[[], Stacked] = three) -> Any:
    return run(fs.LocalSgda(problem=problem, **LOCAL), data())


def rank(problem: Any) -> Any:
    return run(fs.FedX2(problem=problem, **LOCAL), two())


def with_pair_loss(loss: Any, outer: Any = None) -> Any:
    if outer is None:
        outer = fs.outers.Ratio() if isinstance(loss, fs.pair_losses.Precision) else fs.outers.Identity()
    return rank(fs.PairwiseRisk(model=linear(1), loss=loss, outer=outer, second=None))


def with_outer(outer: Any) -> Any:
    loss = fs.pair_losses.SquaredMargin()
    if isinstance(outer, fs.outers.Ratio):
        return with_pair_loss(fs.pair_losses.Precision(loss), outer)
    return with_pair_loss(loss, outer)


def with_regulariser(regulariser: Any) -> Any:
    for make in (fs.Drfa, fs.DrfaGa):
        run(make(problem=supervised(), regulariser=regulariser, **LOCAL), three())


def with_projection(projection: Any) -> Any:
    run(fs.FedAvg(problem=supervised(), projection=projection, **LOCAL), three())


def with_robust(robust: Any) -> Any:
    run(fs.FedAvg(problem=supervised(), **LOCAL), three(), robust=robust)


def with_attack(attack: Any) -> Any:
    run(fs.FedAvg(problem=supervised(), **LOCAL), three(), attack=attack)


def with_schedule(schedule: Any) -> Any:
    run(fs.FedAvg(problem=supervised(), primal_step=schedule, **LOCAL), three())


def with_optimiser(optimiser: Any) -> Any:
    run(fs.FedAvg(problem=supervised(), local_optimiser=optimiser, **LOCAL), three())


def with_server_optimiser(optimiser: Any) -> Any:
    run(fs.FedAvg(problem=supervised(), server_optimiser=optimiser, **LOCAL), three())


def with_estimator(estimator: Any) -> Any:
    run(fs.FedSgda(problem=game(), estimator=estimator, **LOCAL), three())


def with_measure(measure: Any, problem: Callable[[], Any] = game) -> Any:
    run(fs.LocalSgda(problem=problem(), **LOCAL), three(), measures=[measure], evaluate_every=2, callbacks=[QUIET])


def with_ranking_measure(measure: Any) -> Any:
    problem = fs.Supervised(linear(1), fs.losses.Logistic())
    run(fs.FedAvg(problem=problem, **LOCAL), two(), measures=[measure], evaluate_every=2)


def with_classes(loss: Any) -> Any:
    train(fs.Supervised(linear(2), loss), two)


def with_loss(loss: Any) -> Any:
    train(fs.Supervised(linear(2 if isinstance(loss, fs.losses.CrossEntropy) else 1), loss), two)


def with_privacy(privacy: Any) -> Any:
    run(fs.FedX1(problem=ranking(), privacy=privacy, **LOCAL), two())


def with_noise(noise: Any) -> Any:
    fs.load("iris", split="iid", clients=3, noise=noise)


def dataset() -> Dataset:
    """Rows that know their client, of two classes."""
    table = Table.of(drawn(12, 2).numpy(), np.arange(12) // 3 % 2, {"client": np.arange(12) % 3}, ("no", "yes"))
    return Dataset("small", table, None, "", "")


def with_split(split: Any) -> Any:
    fs.federate(dataset(), split)


def fair() -> ClassFair:
    return ClassFair(model=linear(), classes=3)


def lazy_rows(client: int) -> tuple[Tensor, Tensor]:
    return drawn(3, D), torch.arange(3)


@cache
def finished() -> Any:
    return train(supervised())


# ---- the table -------------------------------------------------------------------------------------------------------


def given(**values: Any) -> dict[str, Callable[[], Any]]:
    """Arguments: plain values as they are, lambdas and functions of this file called each time."""
    return {k: v if callable(v) else partial(lambda value: value, v) for k, v in values.items()}


def local(kind: Any) -> dict[str, Any]:
    """Small options, as far as the algorithm has them."""
    return {key: value for key, value in LOCAL.items() if key in {f.name for f in fields(kind)}}


def algorithms() -> dict[str, Call]:
    made: dict[Any, tuple[Callable[[], Any], Callable[[], Stacked]]] = {
        **dict.fromkeys((fs.FedAvg, fs.QFedAvg, fs.Scaffold, fs.Drfa, fs.DrfaGa), (supervised, three)),
        **dict.fromkeys((fs.DeltaFl, fs.Term, fs.AaggFf, fs.PropFair, fs.FedMgda), (supervised, three)),
        **dict.fromkeys((fs.FedNova, fs.ExponentialDro), (supervised, three)),
        **dict.fromkeys((fs.FessGda, fs.FedSgdaPlus, fs.FedGdaGt, fs.ProxSkip), (game, three)),
        **dict.fromkeys((fs.Extragradient, fs.Optimistic, fs.LocalExtragradient), (game, three)),
        **dict.fromkeys((fs.LocalSgda, fs.MomentumLocalSgda, fs.FedSgda), (game, three)),
        **dict.fromkeys((fs.Coda, fs.CodaPlus, fs.Codasca), (auc, two)),
        **dict.fromkeys((fs.FedX1, fs.FedX2, fs.LocalPair), (ranking, two)),
    }
    private = given(
        algorithm=lambda: fs.FedAvg(problem=supervised(), **LOCAL), privacy=lambda: fs.Privacy(epsilon=8.0, rounds=2)
    )
    layered = given(algorithm=lambda: fs.FedAvg(problem=supervised(), **LOCAL), layers=["*"])
    mixed = given(algorithm=lambda: fs.FedGdaGt(problem=game()), memory=2)
    return {
        "BoostedTrees": Call(
            fs.BoostedTrees,
            given(problem=grown, parallel=2, least_rows=1, least_curvature=0.0),
            lambda made: run(made, three(), rounds=2),
        ),
        "Newton": Call(fs.Newton, given(problem=supervised), lambda made: run(made, three(), rounds=20)),
        "Anderson": Call(fs.Anderson, mixed, lambda made: run(made, three())),
        "Personal": Call(fs.Personal, layered, lambda made: run(made, three())),
        "Private": Call(fs.Private, private, lambda made: run(made, three())),
        "Privacy": Call(
            fs.Privacy,
            given(epsilon=8.0, rounds=2),
            lambda made: run(fs.FedAvg(problem=supervised(), **LOCAL), three(), privacy=made),
        ),
    } | {
        kind.__name__: Call(kind, given(problem=problem, **local(kind)), partial(lambda d, a: run(a, d()), data))
        for kind, (problem, data) in made.items()
    }


def problems() -> dict[str, Call]:
    vectors = {"function": lambda: game_value, "start_x": lambda: torch.ones(D), "start_y": lambda: torch.zeros(2)}
    pairs = partial(play, data=lambda: rows(drawn(N, 6), torch.zeros(N)))
    return {
        "Supervised": Call(fs.Supervised, given(model=linear), train),
        "Cox": Call(fs.Cox, given(model=lambda: nn.Linear(D, 1, bias=False)), survive),
        "Minimax": Call(fs.Minimax, vectors, play),
        "ClassFair": Call(ClassFair, given(model=linear, classes=3), play),
        "MatrixGame": Call(fs.MatrixGame, given(actions=2)),
        "RobustLeastSquares": Call(fs.RobustLeastSquares, given(features=2, directions=2)),
        "GaussianMean": Call(fs.GaussianMean, given(dimension=2)),
        "GroupFair": Call(fs.GroupFair, given(model=linear, groups=("a", "b"))),
        "RobustTraining": Call(RobustTraining, given(model=linear, shape=(D,)), play),
        "MinimaxAuc": Call(MinimaxAuc, given(model=lambda: linear(1), positive_share=0.5), partial(play, data=two)),
        "CompositionalAuc": Call(
            fs.CompositionalAuc, given(model=lambda: linear(1), positive_share=0.5), partial(play, data=two)
        ),
        "NonconvexPl": Call(NonconvexPl, given(dimension=2), pairs),
        "QuadraticGame": Call(fs.QuadraticGame, given(dimension=2), pairs),
        "PairwiseRisk": Call(fs.PairwiseRisk, given(model=lambda: linear(1)), rank),
    } | {
        f"risks.{name}": Call(getattr(fs.risks, name), given(model=lambda: linear(1)), rank)
        for name in ("auc", "partial_auc", "two_way_partial_auc", "average_precision", "p_norm_push", "metric")
    }


def own_loss(scores: Tensor, y: Tensor) -> Tensor:
    return (scores.squeeze(-1) - y).square()


def parts() -> dict[str, Call]:
    """Losses, outer functions, projections, regularisers, schedules, estimators, noise."""
    table = {
        "rare_losses.Focal": Call(fs.rare_losses.Focal, {}, with_loss),
        "rare_losses.LogitAdjusted": Call(fs.rare_losses.LogitAdjusted, given(shares=(0.7, 0.3)), with_loss),
        "rare_losses.ClassBalanced": Call(
            fs.rare_losses.ClassBalanced, {}, lambda made: with_classes(made.with_counts((7, 3)))
        ),
        "losses.Custom": Call(fs.losses.Custom, {"function": lambda: own_loss}, with_loss),
        "pair_losses.CustomPairLoss": Call(
            fs.pair_losses.CustomPairLoss, {"function": lambda: lambda a, b: (a - b).sum(-1)}, with_pair_loss
        ),
        "pair_losses.Precision": Call(
            fs.pair_losses.Precision, {"surrogate": fs.pair_losses.SquaredHinge}, with_pair_loss
        ),
        "outers.Smooth": Call(fs.outers.Smooth, {"function": lambda: lambda u: u.sum(-1) ** 2}, with_outer),
        "outers.SmoothLog": Call(fs.outers.SmoothLog, {"function": lambda: lambda u: u.sum(-1)}, with_outer),
        "projections.Ball": Call(fs.projections.Ball, given(radius=1.0), with_projection),
        "projections.CappedSimplex": Call(fs.projections.CappedSimplex, given(high=0.7), with_projection),
        "projections.Box": Call(fs.projections.Box, given(low=-1.0, high=1.0), with_projection),
        "regularisers.Quadratic": Call(fs.regularisers.Quadratic, given(strength=0.1), with_regulariser),
        "regularisers.KullbackLeibler": Call(fs.regularisers.KullbackLeibler, given(strength=0.1), with_regulariser),
        "regularisers.Concave": Call(
            fs.regularisers.Concave, {"function": lambda: lambda u: -u.square().sum()}, with_regulariser
        ),
        "schedules.Power": Call(fs.schedules.Power, given(c=0.1, rho=0.5), with_schedule),
        "schedules.Staged": Call(fs.schedules.Staged, given(stages=((2, 0.1), (1, 0.01))), with_schedule),
        "schedules.Cosine": Call(fs.schedules.Cosine, given(first=0.1, rounds=3), with_schedule),
        "optimisers.Momentum": Call(fs.optimisers.Momentum, given(momentum=0.9, nesterov=True), with_optimiser),
        "optimisers.Adam": Call(fs.optimisers.Adam, given(beta1=0.9, beta2=0.99, weight_decay=0.1), with_optimiser),
        "optimisers.adamw": Call(fs.optimisers.adamw, given(weight_decay=0.1), with_optimiser),
        "optimisers.ServerAdam": Call(fs.optimisers.ServerAdam, given(step=0.1, beta1=0.9), with_server_optimiser),
        "optimisers.ServerYogi": Call(fs.optimisers.ServerYogi, given(step=0.1, beta2=0.9), with_server_optimiser),
        "optimisers.ServerAdagrad": Call(fs.optimisers.ServerAdagrad, given(step=0.1), with_server_optimiser),
        "schedules.Warmup": Call(fs.schedules.Warmup, given(rounds=2, of=0.1), with_schedule),
        "schedules.Geometric": Call(fs.schedules.Geometric, given(first=0.1, factor=0.5), with_schedule),
        "MiniBatch": Call(fs.MiniBatch, {}, with_estimator),
        "Storm": Call(fs.Storm, {}, with_estimator),
        "Spider": Call(fs.Spider, {}, with_estimator),
        "ScorePrivacy": Call(fs.ScorePrivacy, given(bound=1.0, noise=1.0), with_privacy),
        "Noise": Call(fs.Noise, {}, with_noise),
        "Robust": Call(fs.Robust, given(aggregation="median", bounds=True), with_robust),
        "Attack": Call(fs.Attack, given(name="sign-flip", clients=1), with_attack),
    }
    for module, use in (
        (fs.losses, with_loss), (fs.pair_losses, with_pair_loss), (fs.outers, with_outer),
        (fs.projections, with_projection),
    ):  # fmt: skip
        for name, kind in public(module).items():
            table.setdefault(name, Call(kind, {}, use))
    return table


def models() -> dict[str, Call]:
    def on(data: Callable[[], Stacked]) -> Callable[[Any], Any]:
        return lambda model: train(fs.Supervised(model), data)

    return {
        "models.logistic_regression": Call(fs.models.logistic_regression, given(inputs=D, classes=3), on(three)),
        "models.Forest": Call(fs.models.Forest, given(inputs=D, outputs=3, trees=2, depth=2), boost),
        "models.mlp": Call(fs.models.mlp, given(inputs=D, hidden=(3,), outputs=3), on(three)),
        "models.CharacterGru": Call(fs.models.CharacterGru, given(characters=6, embedding=2, units=2), on(text)),
        "models.McMahanCnn": Call(fs.models.McMahanCnn, given(side=4, classes=3), on(lambda: labelled(3, 1, 4, 4))),
        "models.TutorialCnn": Call(
            fs.models.TutorialCnn, given(side=18, channels=1, classes=3), on(lambda: labelled(3, 1, 18, 18))
        ),
        "models.SmallCnn": Call(
            fs.models.SmallCnn, given(side=4, classes=3, filters=(2, 3), units=4), on(lambda: labelled(3, 1, 4, 4))
        ),
        "models.Vgg11": Call(fs.models.Vgg11, given(width=1, classes=3), on(lambda: labelled(3, 3, 4, 4))),
    }


def measures() -> dict[str, Call]:
    saddle = {"x": lambda: torch.zeros(D)}
    sorting = partial(with_measure, problem=fair)
    return {
        "measures.GradientOfPhi": Call(fs.measures.GradientOfPhi, {}, with_measure),
        "measures.GradientOfEnvelope": Call(fs.measures.GradientOfEnvelope, given(smoothing=0.1), with_measure),
        "measures.DualityGap": Call(fs.measures.DualityGap, {}, with_measure),
        "measures.DistanceToSaddle": Call(fs.measures.DistanceToSaddle, saddle, with_measure),
        "measures.WorstClassAccuracy": Call(fs.measures.WorstClassAccuracy, {}, sorting),
        "measures.WorstClientAuroc": Call(fs.measures.WorstClientAuroc, {}, with_ranking_measure),
        "measures.RobustAccuracy": Call(fs.measures.RobustAccuracy, given(radius=0.1), sorting),
    }


def data() -> dict[str, Call]:
    stacked = {"x": lambda: drawn(N, D), "y": lambda: torch.arange(N) % 3, "offsets": OFFSETS.copy}
    lazy = {"sizes": lambda: [3, 3], "load": lambda: lazy_rows}
    each = {name: kind for name in splits.__all__ if not _protocol(kind := getattr(splits, name))}
    needs = {
        "ByColumn": given(column="client"),
        "Dirichlet": given(clients=2, alpha=1.0),
        "Imbalanced": given(clients=2, disjoint=False),
        "Natural": {},
    }
    quick = given(rounds=2, **LOCAL)
    return {
        "Stacked": Call(fs.Stacked, stacked, lambda made: run(fs.FedAvg(problem=supervised(), **LOCAL), made)),
        "Lazy": Call(fs.Lazy, lazy, lambda made: run(fs.FedAvg(problem=supervised(), **LOCAL), made)),
        "from_frame": Call(
            fs.from_frame,
            given(frame=frame, site="site", label="y", patient=None, positive=None),
            lambda made: fs.federate(made, splits.Natural("site")),
        ),
        "from_arrays": Call(
            fs.from_arrays,
            given(x=lambda: drawn(N, D), y=lambda: np.arange(N) % 2, sites=lambda: np.arange(N) % 3, patients=None),
            lambda made: fs.federate(made, splits.Natural("site")),
        ),
        "from_datasets": Call(
            fs.from_datasets,
            given(datasets=tensors, clients=lambda: np.arange(N) % 3),
            lambda made: fs.federate(made, splits.Iid(2)),
        ),
        "FederatedClassifier": Call(fs.FederatedClassifier, quick, lambda made: fit(made, np.arange(N) % 2)),
        "FederatedSurvival": Call(
            fs.FederatedSurvival,
            given(alpha=0.1, intervals=5),
            lambda made: fit(made, np.column_stack([np.arange(N) % 2, 1 + np.arange(N) % 7])),
        ),
        "FederatedRegressor": Call(fs.FederatedRegressor, quick, lambda made: fit(made, np.arange(N) / 3)),
        "federate": Call(fs.federate, given(dataset=dataset, split=lambda: splits.Iid(3))),
        "load": Call(fs.load, given(name="iris", split="iid", clients=3)),
        "load, Dirichlet": Call(fs.load, given(name="iris", split="dirichlet", clients=3, alpha=1.0, options=None)),
        "load, by class": Call(fs.load, given(name="iris", split="by-class", classes_per_client=1, clients=3)),
    } | {f"splits.{name}": Call(kind, needs.get(name, given(clients=3)), with_split) for name, kind in each.items()}


def trained() -> dict[str, Any]:
    return {"algorithm": fs.FedAvg(problem=supervised(), **LOCAL), "data": three()}


@cache
def regression() -> Any:
    return run(fs.Newton(problem=fs.Supervised(linear(), l2=0.1)), three(), rounds=20)


def runs() -> dict[str, Call]:
    fedavg = {"algorithm": lambda: fs.FedAvg(problem=supervised(), **LOCAL), "data": three, "rounds": lambda: 2}
    drfa = given(name="DRFA", problem=supervised, dual_step=0.01, regulariser=None, projection=None, **LOCAL)
    coda = given(name="CODA+", problem=auc, primal_step=0.1, stage_rounds=1, proximal=0.1, **LOCAL)
    small = {
        "data": {"name": "iris"},
        "split": {"name": "iid", "clients": 3},
        "model": {"name": "logistic"},
        "algorithm": {"name": "FedAvg"},
        "run": {"rounds": 1},
    }
    swept = given(config=small, values={"algorithm.local_steps": [1]}, seeds=1, workers=1)
    return {
        "run": Call(fs.run, fedavg),
        "search": Call(fs.search, given(data=to_search, aim="auroc", budget=1.0, workers=1, basic=True)),
        "sweep": Call(fs.sweep, swept),
        "algorithm, DRFA": Call(fs.algorithm, drfa, lambda made: run(made, three())),
        "algorithm, CODA+": Call(fs.algorithm, coda, lambda made: run(made, two())),
        "RunOptions": Call(fs.RunOptions, {}, lambda made: run(options=made, **trained())),
        "Serial": Call(fs.Serial, {}, lambda made: run(engine=made, **trained())),
        "Vectorised": Call(fs.Vectorised, given(chunk=2, workers=1), lambda made: run(engine=made, **trained())),
        "Processes": Call(fs.Processes, given(workers=1, chunk=2)),  # begins no processes
        "Ray": Call(fs.Ray, given(workers=1)),
        "inference": Call(fs.inference, given(fit=regression)),
        "Result.final": Call(lambda measure=None, statistic="worst": finished().final(measure, statistic), {}),
        "Result.plot": Call(
            lambda path, measure=None, x="round": finished().plot(path, measure, x), given(path="plot.svg")
        ),
    }


def public(module: ModuleType) -> dict[str, Any]:
    """What a module defines for users, by `module.name`."""
    return {
        f"{module.__name__.rpartition('.')[2]}.{name}": thing
        for name, thing in vars(module).items()
        if callable(thing) and str(getattr(thing, "__module__", "")).startswith(module.__name__)
        if not name.startswith("_") and name not in NOT_FOR_USERS and not _protocol(thing)
    }


def _protocol(thing: object) -> bool:
    return bool(getattr(thing, "_is_protocol", False))


CALLS = algorithms() | problems() | parts() | models() | measures() | data() | runs()
