"""Local SGDA's figures 1 to 4.

Every figure has τ = 1, 5, 10 without momentum and with momentum in two interpretations. "Box" is Algorithm 2 or 5 with
the appendix's "0.9 corresponds to αβ", which keeps only a tenth of the old direction. "Usual" is "momentum 0.9" in
PyTorch, the library of the paper's runs: d ← 0.9 d + ∇f at the same learning rate. In the box's terms that is αβ = 0.1
with steps ten times as long, except at the start, where the box's d is a whole gradient. Each client keeps its d, since
the paper says that its runs communicated models only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fedsaddle.reproductions.claims import Claim, SeedValues, final_level, lower, time_to_target
from fedsaddle.reproductions.curves import WINDOW, Runs
from fedsaddle.reproductions.figure import Claims, Figure, Line, Options, Panel, Setting

SOURCE = "Sharma, Panda, Joshi, Varshney 2022, Federated Minimax Optimization"
GAPS = (1, 5, 10)  # τ
STAGES = (0.5, 0.25, 0.25)  # of the rounds: 150, 75, 75 in tables 3 and 4; each stage divides the steps by 10
STEPS = (0.02, 0.016)  # η_x, η_y of the first stage
MOMENTA = {"momentum as boxed": ", momentum (box)", "usual momentum": ", momentum (usual)"}
VARIANTS = {"no momentum": "", **MOMENTA}

RoundsToTarget = Callable[[str], SeedValues]  # by the label of a line


def lines(algorithm: str, rounds: int, *, snapshots: bool = False) -> tuple[Line, ...]:
    """τ = 1, 5, 10 in every variant.

    Args:
        algorithm: "Local SGDA" or "Local SGDA+"; the variants with momentum are "Momentum ...".
        rounds: of every line.
        snapshots: whether to set S = τ², the interval of Local SGDA+'s snapshots.
    """
    plain, usual = _steps(1.0, rounds), _steps(10.0, rounds)
    box = {**plain, "primal_beta": 0.9, "dual_beta": 0.9}
    usual |= {"primal_beta": 0.1, "dual_beta": 0.1, "momentum_at_sync": "keep"}
    made = []
    for colour, gap in enumerate(GAPS):
        shared = {"batch_size": 32, "local_steps": gap, **({"snapshot_every": gap**2} if snapshots else {})}
        made.append(Line(label(gap), algorithm, {**shared, **plain}, rounds, colour))
        for suffix, options, style in zip(MOMENTA.values(), (box, usual), (":", "--"), strict=True):
            made.append(Line(label(gap, suffix), f"Momentum {algorithm}", {**shared, **options}, rounds, colour, style))
    return tuple(made)


def label(gap: int, suffix: str = "") -> str:
    """The label of a line, such as "τ = 5, momentum (box)"."""
    return f"τ = {gap}{suffix}"


def panels(y: str, title: str, target: float | None = None, window: int = 1) -> tuple[Panel, ...]:
    """One metric over the rounds, a panel for every variant."""
    drawn = {variant: tuple(label(gap, suffix) for gap in GAPS) for variant, suffix in VARIANTS.items()}
    return tuple(Panel("round", y, f"{title}, {name}", window, target, lines=drawn[name]) for name in drawn)


def fewer_rounds(rounds: RoundsToTarget, to: str, where: str, measure: str = "") -> list[Claim]:
    """A larger τ needs fewer rounds than τ = 1, and momentum fewer than no momentum."""
    claims, shown = [], f" ({measure})" if measure else ""
    for variant, suffix in VARIANTS.items():
        for gap in GAPS[1:]:
            text = f"τ = {gap} needs fewer rounds than τ = 1 to {to}, {variant}{shown}"
            pair = rounds(label(gap, suffix)), rounds(label(1, suffix))
            claims.append(lower(text, f"τ = 1 requires significantly more communication rounds ({where})", *pair))
    for variant, suffix in MOMENTA.items():
        for gap in GAPS:
            text = f"{variant} needs fewer rounds than none to {to}, τ = {gap}{shown}"
            pair = rounds(label(gap, suffix)), rounds(label(gap))
            claims.append(lower(text, f"the superior performance of momentum ({where})", *pair))
    return claims


def _steps(times: float, rounds: int) -> dict[str, Any]:
    """The stages of η_x and η_y, `times` the paper's."""
    steps = {}
    for key, first in zip(("primal_step", "dual_step"), STEPS, strict=True):
        stages = [[round(share * rounds), times * first / 10**k] for k, share in enumerate(STAGES)]
        steps[key] = {"name": "staged", "stages": stages}
    return steps


# Figure 1: class-fair classification of Fashion-MNIST over 20 clients

TARGET = 0.5  # accuracy of the worst class
WORST = "worst_class_accuracy"
COUNTS = (("first time there", 1), (f"mean of {WINDOW} rounds", WINDOW))


def fair_claims(runs: Runs) -> list[Claim]:
    """Figure 1: rounds to 50 % accuracy of the worst class."""
    claims = []
    for measure, window in COUNTS:

        def rounds(label: str, window: int = window) -> SeedValues:
            return time_to_target(runs, label, TARGET, column=WORST, window=window)

        claims += fewer_rounds(rounds, "50 % worst-class accuracy", "fig. 1", measure)
    return claims


FAIR = Figure(
    "Local SGDA on class-fair Fashion-MNIST, MLP 784-100-10",
    f"{SOURCE}, figure 1",
    Setting(
        data={"name": "fashion-mnist", "split": "dirichlet", "clients": 20, "alpha": 0.1},
        model="mlp",
        model_options={"hidden": [100]},
        problem="class-fair",
        problem_options={"penalty": 0.1},
        evaluate_every=5,
    ),
    lines("Local SGDA", 300),
    panels(WORST, "worst-class accuracy", TARGET, WINDOW),
    fair_claims,
    seeds=3,
    quick_seeds=3,
    quick_share=0.15,
)


# Figures 2 to 4: training against one shared perturbation, CIFAR-10 and Fashion-MNIST over 20 clients

ACCURACY, LOSS = "robust_accuracy", "robust_loss"
ROUNDS = 160  # 300 in the paper; the stages shrink alike
LEVEL = 20  # rounds at the end whose mean is the target


def accuracy_claims(runs: Runs, where: str = "fig. 2") -> list[Claim]:
    """Rounds to the final robust accuracy of τ = 1 without momentum, seed by seed."""
    target = final_level(runs, label(1), ACCURACY, LEVEL)

    def rounds(name: str) -> SeedValues:
        return time_to_target(runs, name, target, column=ACCURACY)

    return fewer_rounds(rounds, "the robust accuracy that τ = 1 without momentum ends with", where)


def loss_claims(runs: Runs, where: str = "fig. 3") -> list[Claim]:
    """Rounds to the final robust loss of τ = 1 without momentum, seed by seed."""
    target = final_level(runs, label(1), LOSS, LEVEL)

    def rounds(name: str) -> SeedValues:
        return time_to_target(runs, name, target, column=LOSS, falling=True)

    return fewer_rounds(rounds, "the robust loss that τ = 1 without momentum ends with", where)


def loss_and_accuracy_claims(runs: Runs) -> list[Claim]:
    """Figure 4: robust loss and robust accuracy."""
    return loss_claims(runs, "fig. 4") + accuracy_claims(runs, "fig. 4")


def _robust(number: int, title: str, data: Options, panels: tuple[Panel, ...], claims: Claims) -> Figure:
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
        panels,
        claims,
        seeds=3,
        quick_seeds=3,
        quick_share=0.25,
        rows=len(panels) // len(VARIANTS),
    )


_CIFAR = {"name": "cifar10", "options": {"side": 16, "first": 10_000}}
_CIFAR_TITLE = "CIFAR-10 (10,000 pictures, 16x16), robust training, MLP 768-50-10"
_ACCURACY, _LOSS = panels(ACCURACY, "robust accuracy"), panels(LOSS, "robust loss")

CIFAR_ACCURACY = _robust(2, _CIFAR_TITLE, _CIFAR, _ACCURACY, accuracy_claims)
CIFAR_LOSS = _robust(3, _CIFAR_TITLE, _CIFAR, _LOSS, loss_claims)
FASHION = _robust(
    4,
    "Fashion-MNIST, robust training, MLP 784-50-10",
    {"name": "fashion-mnist"},
    _LOSS + _ACCURACY,
    loss_and_accuracy_claims,
)
