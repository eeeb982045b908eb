"""Local SGDA's figures 2 to 4: training against one shared perturbation, CIFAR-10 and Fashion-MNIST over 20 clients."""

from __future__ import annotations

from typing import Any

from fedsaddle.reproductions.claims import Claim, Figures, ends, time_to
from fedsaddle.reproductions.figure import Figure, Panel, Setting
from fedsaddle.reproductions.sgda_lines import SOURCE, VARIANTS, fewer_rounds, label, lines, panels
from fedsaddle.reproductions.tracks import Tracks

ACCURACY, LOSS = "robust_accuracy", "robust_loss"
ROUNDS = 160  # the paper has 300: its schedule in less time
LEVEL = 20  # rounds at the end whose mean is the level to get to


def accuracy_claims(tracks: Tracks, where: str = "fig. 2") -> list[Claim]:
    """Rounds to the robust accuracy that τ = 1 without momentum ends with, seed by seed."""
    target = ends(tracks, label(1), ACCURACY, LEVEL)

    def rounds(name: str) -> Figures:
        return time_to(tracks, name, target, column=ACCURACY)

    return fewer_rounds(rounds, "the robust accuracy that τ = 1 without momentum ends with", where)


def loss_claims(tracks: Tracks, where: str = "fig. 3") -> list[Claim]:
    """The same for the robust loss."""
    target = ends(tracks, label(1), LOSS, LEVEL)

    def rounds(name: str) -> Figures:
        return time_to(tracks, name, target, column=LOSS, falling=True)

    return fewer_rounds(rounds, "the robust loss that τ = 1 without momentum ends with", where)


def both_claims(tracks: Tracks) -> list[Claim]:
    """Loss and accuracy."""
    return loss_claims(tracks, "fig. 4") + accuracy_claims(tracks, "fig. 4")


def _figure(number: int, title: str, data: dict[str, Any], drawn: tuple[Panel, ...], claims: Any) -> Figure:
    return Figure(
        f"Local SGDA+ on {title}",
        f"{SOURCE}, figure {number}",
        Setting(
            data={"split": "dirichlet", "clients": 20, "alpha": 0.1, **data},
            model="mlp",
            model_options={"hidden": [50]},
            problem="robust",
            problem_options={"radius": 1.0, "norm": "l2", "attack_rows": 500},
            evaluate_every=4,
        ),
        lines("Local SGDA+", ROUNDS, snapshots=True),
        drawn,
        claims,
        seeds=3,
        quick_seeds=3,
        quick_share=0.25,
        rows=len(drawn) // len(VARIANTS),
    )


_CIFAR = {"name": "cifar10", "options": {"side": 16, "first": 10_000}}
_CIFAR_TITLE = "CIFAR-10 (10,000 pictures, 16x16), robust training, MLP 768-50-10"
_ACCURACY, _LOSS = panels(ACCURACY, "robust accuracy"), panels(LOSS, "robust loss")

CIFAR_ACCURACY = _figure(2, _CIFAR_TITLE, _CIFAR, _ACCURACY, accuracy_claims)
CIFAR_LOSS = _figure(3, _CIFAR_TITLE, _CIFAR, _LOSS, loss_claims)
FASHION = _figure(
    4, "Fashion-MNIST, robust training, MLP 784-50-10", {"name": "fashion-mnist"}, _LOSS + _ACCURACY, both_claims
)
