"""Problems with clients to run them on. An algorithm's case runs in every world of its family."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedsaddle.data.store import Stacked
from fedsaddle.federation.clients import Batch
from fedsaddle.numerics.projections import Ball
from fedsaddle.numerics.regularisers import KullbackLeibler
from fedsaddle.problems import risks
from fedsaddle.problems.auc import CompositionalAuc, MinimaxAuc
from fedsaddle.problems.fair import ClassFair
from fedsaddle.problems.groups import GroupFair
from fedsaddle.problems.minimax import Minimax
from fedsaddle.problems.models.forest import Forest
from fedsaddle.problems.models.networks import CharacterGru, logistic_regression, mlp
from fedsaddle.problems.regression import Cox
from fedsaddle.problems.robust import RobustTraining
from fedsaddle.problems.supervised import Supervised
from small import classes, seeded, text


@dataclass(frozen=True)
class World:
    name: str
    problem: Callable[[], Any]
    rows: Callable[[], Stacked]

    def __str__(self) -> str:
        return self.name


class Smooth(nn.Module):
    """Neither a chain of linear layers nor a module with a cohort of its own: it goes through vmap."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.nn.functional.silu(self.a(x)))


class Single(nn.Module):
    """One score a row, through vmap."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 5), nn.Linear(5, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.nn.functional.silu(self.a(x)))


def times() -> Stacked:
    """Times with ties, and whether there was an event."""
    rows, g = classes(), torch.Generator().manual_seed(2)
    n = len(rows.x)
    time, event = torch.randint(1, 6, (n,), generator=g), torch.rand(n, generator=g) < 0.7
    return Stacked(rows.x, torch.stack([time, event], 1).double(), rows.offsets)


def patients() -> Stacked:
    """Classes, with two or three rows a patient."""
    rows = classes()
    return replace(rows, units=np.concatenate([np.arange(n) % (n // 2) for n in rows.sizes]))


def with_dropout(scores: int) -> nn.Module:
    return seeded(lambda: nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Dropout(0.4), nn.Linear(5, scores)))


LOGISTIC = World("logistic", lambda: Supervised(seeded(lambda: logistic_regression(4, 3))), classes)
MLP = World("mlp", lambda: Supervised(seeded(lambda: mlp(4, [5], 3)), l2=0.01), classes)
VMAP = World("vmap", lambda: Supervised(seeded(Smooth), l2=0.01), classes)
GRU = World("gru", lambda: Supervised(seeded(lambda: CharacterGru(6, 3, 4))), lambda: text(length=3))
DROPOUT = World("dropout", lambda: Supervised(with_dropout(3), l2=0.01), classes)

RIDGE = World("ridge", lambda: Supervised(seeded(lambda: nn.Linear(4, 3)), l2=0.1, l2_biases=False), classes)
PATIENTS = World("patients", lambda: Supervised(seeded(lambda: logistic_regression(4, 3)), l2=0.1), patients)
FOREST = World("forest", lambda: Supervised(Forest(4, 3, trees=9, depth=2)), classes)
COX = World("cox", lambda: Cox(seeded(lambda: nn.Linear(4, 1, bias=False)), l2=0.1), times)

MINIMISATION = (LOGISTIC, MLP, VMAP, GRU)


def game() -> Minimax:
    def rows(x: Tensor, y: Tensor, batch: Batch) -> Tensor:
        ax, ay = batch.x @ x, batch.x @ y
        return ax.cos() + ax * ay - y @ y / 2 + x @ x / 10

    x, y = torch.tensor([0.5, -0.3, 0.2, 0.1]), torch.tensor([0.1, 0.2, -0.1, 0.3])
    return Minimax(rows, start_x=x, start_y=y, project_y=Ball(0.6))


GAME = World("game", game, classes)
FAIR = World("fair classes", lambda: ClassFair(model=seeded(lambda: mlp(4, [5], 3)), classes=3), classes)


def with_groups() -> Stacked:
    """Targets (class, group); groups cross sites."""
    rows = classes()
    group = torch.randint(2, (len(rows.y),), generator=torch.Generator().manual_seed(4))
    return replace(rows, y=torch.stack([rows.y, group], 1))


GROUPS = World(
    "groups",
    lambda: GroupFair(model=seeded(lambda: mlp(4, [5], 3)), groups=("a", "b"), regulariser=KullbackLeibler(0.5)),
    with_groups,
)
ROBUST = World("robust", lambda: RobustTraining(model=seeded(lambda: mlp(4, [5], 3)), shape=(4,)), classes)
AUC = World("auc", lambda: MinimaxAuc(model=seeded(Single), positive_share=0.4), lambda: classes(classes=2))
AUC_MARGIN = World(
    "auc with a margin",
    lambda: MinimaxAuc(model=seeded(Single), positive_share=0.4, margin=0.1),
    lambda: classes(classes=2),
)

AUC_DROPOUT = World(
    "auc with dropout", lambda: MinimaxAuc(model=with_dropout(1), positive_share=0.4), lambda: classes(classes=2)
)

COMPOSITIONAL = World(
    "compositional auc",
    lambda: CompositionalAuc(model=seeded(Single), positive_share=0.4),
    lambda: classes(classes=2),
)

MINIMAX = (FAIR, GAME)
EVERY_MINIMAX = (FAIR, GAME, ROBUST, AUC)


def both_labels() -> Stacked:
    return classes(classes=2)


def linear() -> nn.Module:
    return seeded(lambda: nn.Linear(4, 1))


RANKING = World("ranking", lambda: risks.auc(seeded(Single)), both_labels)
METRIC = World("metric", lambda: risks.metric(seeded(lambda: mlp(4, [5], 3))), classes)
PARTIAL = World("partial auc", lambda: risks.partial_auc(seeded(lambda: mlp(4, [5], 1)), temperature=2.0), both_labels)
TWO_WAY = World("two-way", lambda: risks.two_way_partial_auc(linear(), temperature=5.0), both_labels)
PRECISION = World("precision", lambda: risks.average_precision(seeded(Single)), both_labels)
PUSH = World("p-norm push", lambda: risks.p_norm_push(linear(), power=2.0), both_labels)

PAIRS_DROPOUT = World("partial auc with dropout", lambda: risks.partial_auc(with_dropout(1)), both_labels)

LINEAR_PAIRS = (RANKING, METRIC)
PAIRS = (PARTIAL, TWO_WAY, PRECISION, PUSH)
