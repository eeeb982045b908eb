"""Local SGDA's figures 1 to 4.

Every figure has τ = 1, 5, 10 without momentum and with momentum in two interpretations. "Box" is Algorithm 2 or 5 with
the appendix's "0.9 corresponds to αβ", which keeps only a tenth of the old direction (shown for τ = 5). "Usual" is
"momentum 0.9" in PyTorch, the library of the paper's runs: d ← 0.9 d + ∇f at the same learning rate. In the box's terms
that is αβ = 0.1 with steps ten times as long, except at the start, where the box's d is a whole gradient. Each client
keeps its d, since the paper says that its runs communicated models only.

Steps that are ten times as long change more than momentum does, so that "tenfold step" is the control: no momentum, and
the same step in sum as "usual". The lines that count are tuned alike, with momentum and without.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fedsaddle_papers.reproductions.claims import Claim, SeedValues, final_level, lower, time_to_target
from fedsaddle_papers.reproductions.curves import WINDOW, Runs
from fedsaddle_papers.reproductions.figure import Claims, Figure, Line, Options, Panel, Setting, Tuning

SOURCE = "Sharma, Panda, Joshi, Varshney 2022, Federated Minimax Optimization"
GAPS = (1, 5, 10)  # τ
STAGES = (0.5, 0.25, 0.25)  # of the rounds: 150, 75, 75 in tables 3 and 4; each stage divides the steps by 10
STEPS = (0.02, 0.016)  # η_x, η_y of the first stage
CONTROL, BOX, TUNED = ", tenfold step", ", momentum (box)", ", tuned"
VARIANTS = {
    "no momentum": "",
    "usual momentum": ", momentum (usual)",
    "tenfold step": CONTROL,
    "tuned": TUNED,
    "momentum, tuned": ", momentum, tuned",
}
KEEP: Options = {"momentum_at_sync": "keep"}  # each client its own

RoundsToTarget = Callable[[str], SeedValues]  # by the label of a line


def lines(algorithm: str, rounds: int, *, snapshots: bool = False) -> tuple[Line, ...]:
    """τ = 1, 5, 10 in every variant.

    Args:
        algorithm: "Local SGDA" or "Local SGDA+"; the variants with momentum are "Momentum ...".
        rounds: of every line.
        snapshots: whether to set S = τ², the interval of Local SGDA+'s snapshots.
    """
    plain, tenfold = _steps(1.0, rounds), _steps(10.0, rounds)
    box = {**plain, "primal_beta": 0.9, "dual_beta": 0.9}
    usual = {**tenfold, "primal_beta": 0.1, "dual_beta": 0.1, **KEEP}
    with_momentum, made = f"Momentum {algorithm}", []
    for colour, gap in enumerate(GAPS):
        shared = {"batch_size": 32, "local_steps": gap, **({"snapshot_every": gap**2} if snapshots else {})}
        made += [
            Line(label(gap), algorithm, {**shared, **plain}, rounds, colour),
            Line(label(gap, ", momentum (usual)"), with_momentum, {**shared, **usual}, rounds, colour, "--"),
            Line(label(gap, CONTROL), algorithm, {**shared, **tenfold}, rounds, colour, ":"),
            Line(label(gap, TUNED), algorithm, {**shared, **plain}, rounds, colour, tuned=label(gap, TUNED)),
        ]
        name = label(gap, ", momentum, tuned")
        made.append(Line(name, with_momentum, {**shared, **usual}, rounds, colour, "--", tuned=name))
        if gap == 5:
            made.append(Line(label(gap, BOX), with_momentum, {**shared, **box}, rounds, 4, "-."))
    return tuple(made)


def label(gap: int, suffix: str = "") -> str:
    """The label of a line, such as "τ = 5, momentum (box)"."""
    return f"τ = {gap}{suffix}"


def panels(y: str, title: str, target: float | None = None, window: int = 1) -> tuple[Panel, ...]:
    """One metric over the rounds, a panel for every variant."""
    drawn = {variant: tuple(label(gap, suffix) for gap in GAPS) for variant, suffix in VARIANTS.items()}
    drawn["no momentum"] += (label(5, BOX),)
    return tuple(Panel("round", y, f"{title}, {name}", window, target, lines=drawn[name]) for name in drawn)


def fewer_rounds(rounds: RoundsToTarget, to: str, where: str) -> list[Claim]:
    """A larger τ needs fewer rounds than τ = 1, and momentum fewer than no momentum."""
    claims = []
    for variant, suffix in VARIANTS.items():
        for gap in GAPS[1:]:
            text = f"τ = {gap} needs fewer rounds than τ = 1 to {to}, {variant}"
            pair = rounds(label(gap, suffix)), rounds(label(1, suffix))
            claims.append(lower(text, f"τ = 1 requires significantly more communication rounds ({where})", *pair))
    superior = f"the superior performance of momentum ({where})"
    for gap in GAPS:
        usual, tuned = rounds(label(gap, ", momentum (usual)")), rounds(label(gap, ", momentum, tuned"))
        for other, than in ((label(gap), "none"), (label(gap, CONTROL), "none with the tenfold step")):
            text = f"usual momentum needs fewer rounds than {than} to {to}, τ = {gap}"
            claims.append(lower(text, superior, usual, rounds(other)))
        text = f"momentum needs fewer rounds than none to {to}, both tuned, τ = {gap}"
        claims.append(lower(text, superior, tuned, rounds(label(gap, TUNED))))
    text = f"momentum as boxed needs fewer rounds than none to {to}, τ = 5"
    return [*claims, lower(text, superior, rounds(label(5, BOX)), rounds(label(5)))]


def _steps(times: float, rounds: int) -> dict[str, Any]:
    """The stages of η_x and η_y, `times` the paper's."""
    steps = {}
    for key, first in zip(("primal_step", "dual_step"), STEPS, strict=True):
        stages = [[round(share * rounds), times * first / 10**k] for k, share in enumerate(STAGES)]
        steps[key] = {"name": "staged", "stages": stages}
    return steps


def _tuning(column: str, steps: tuple[float, ...]) -> Tuning:
    """The same steps for all lines, and for those with momentum the box's and the usual one."""
    betas = tuple(label(gap, ", momentum, tuned") for gap in GAPS)
    grid = {"primal_step": steps, "dual_step": (0.016, 0.16), "primal_beta": (0.1, 0.9)}
    return Tuning(column, grid, share=0.4, seeds=(1000,), only={"primal_beta": betas})


# Figure 1: class-fair classification of Fashion-MNIST over 20 clients

FAIR_ROUNDS = 200  # 300 in the paper; the stages shrink alike

TARGET = 0.5  # accuracy of the worst class
WORST = "worst_class_accuracy"


def fair_claims(runs: Runs) -> list[Claim]:
    """Figure 1: rounds until the running mean of the worst class reaches 50 %."""

    def rounds(label: str) -> SeedValues:
        return time_to_target(runs, label, TARGET, column=WORST, window=WINDOW)

    return fewer_rounds(rounds, "50 % worst-class accuracy", "fig. 1")


FAIR = Figure(
    "Local SGDA on class-fair Fashion-MNIST, MLP 784-100-10",
    f"{SOURCE}, figure 1",
    Setting(
        data={"name": "fashion-mnist", "split": "dirichlet", "clients": 20, "alpha": 0.1},
        model="mlp",
        model_options={"hidden": [100]},
        problem="class-fair",
        problem_options={"penalty": 0.1},
        evaluate_every=2,
    ),
    lines("Local SGDA", FAIR_ROUNDS),
    panels(WORST, "worst-class accuracy", TARGET, WINDOW),
    fair_claims,
    quick_seeds=2,
    quick_share=0.15,
    looks=(5, 10),
    tuning=_tuning(WORST, (0.02, 0.06, 0.2, 0.6)),
    minutes=3.8,
)


# Figures 2 to 4: training against one shared perturbation, CIFAR-10 and Fashion-MNIST over 20 clients

ACCURACY, LOSS = "robust_accuracy", "robust_loss"
ROUNDS = 120  # 300 in the paper; the stages shrink alike
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


def _robust(
    number: int,
    title: str,
    data: Options,
    panels: tuple[Panel, ...],
    claims: Claims,
    tuning: Tuning | None = None,
    tuned_by: str = "",
) -> Figure:
    return Figure(
        f"Local SGDA+ on {title}",
        f"{SOURCE}, figure {number}",
        Setting(
            data={"split": "dirichlet", "clients": 20, "alpha": 0.1, **data},
            model="mlp",
            model_options={"hidden": [50]},
            problem="robust",
            problem_options={"radius": 1.0, "norm": "l2", "attack_rows": 500},
            evaluate_every=2,
        ),
        lines("Local SGDA+", ROUNDS, snapshots=True),
        panels,
        claims,
        quick_seeds=2,
        quick_share=0.25,
        rows=len(panels) // len(VARIANTS),
        seeds=5 if number < 4 else 3,
        looks=(5, 10) if tuning is not None else (5,) if number < 4 else (3,),
        minutes=0.1 if number == 3 else 2.7,  # figure 3 has the runs of figure 2
        tuning=tuning,
        tuned_by=tuned_by,
    )


_CIFAR = {"name": "cifar10", "options": {"side": 16, "first": 10_000}}
_CIFAR_TITLE = "CIFAR-10 (10,000 pictures, 16x16), robust training, MLP 768-50-10"
_ACCURACY, _LOSS = panels(ACCURACY, "robust accuracy"), panels(LOSS, "robust loss")

CIFAR_ACCURACY = _robust(
    2, _CIFAR_TITLE, _CIFAR, _ACCURACY, accuracy_claims, _tuning(ACCURACY, (0.02, 0.06, 0.2, 0.6, 1.5))
)
CIFAR_LOSS = _robust(3, _CIFAR_TITLE, _CIFAR, _LOSS, loss_claims, tuned_by="sgda-fig2")
FASHION = _robust(
    4,
    "Fashion-MNIST, robust training, MLP 784-50-10",
    {"name": "fashion-mnist"},
    _LOSS + _ACCURACY,
    loss_and_accuracy_claims,
    tuned_by="sgda-fig2",
)
