"""The lines and claims that Local SGDA's figures share.

Every figure has τ = 1, 5, 10 without momentum and with momentum in two readings. "Box" is Algorithm 2 or 5 with the
appendix's "0.9 corresponds to αβ", which lets only a tenth of the old direction stay. "Usual" is what "momentum 0.9"
means in PyTorch, which the paper's runs were written in: d ← 0.9 d + ∇f at the same learning rate. In the box's terms
that is αβ = 0.1 with steps ten times as long, but for the start, where the box's d is a whole gradient. Each client
keeps its d, since the paper says that its runs sent models only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fedsaddle.reproductions.claims import Claim, Figures, less
from fedsaddle.reproductions.figure import Line, Panel

SOURCE = "Sharma, Panda, Joshi, Varshney 2022, Federated Minimax Optimization"
GAPS = (1, 5, 10)  # τ
STAGES = (0.5, 0.25, 0.25)  # of the rounds, as 150, 75, 75 in tables 3 and 4; each has a tenth of the last one's steps
STEPS = (0.02, 0.016)  # η_x, η_y of the first stage
MOMENTA = {"momentum as boxed": ", momentum (box)", "usual momentum": ", momentum (usual)"}
VARIANTS = {"no momentum": "", **MOMENTA}

Count = Callable[[str], Figures]  # the rounds that a line needs


def lines(algorithm: str, rounds: int, *, snapshots: bool = False) -> tuple[Line, ...]:
    """τ = 1, 5, 10 in every variant; with `snapshots`, S = τ²."""
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
    """Such as "τ = 5, momentum (box)"."""
    return f"τ = {gap}{suffix}"


def panels(y: str, title: str, target: float | None = None, window: int = 1) -> tuple[Panel, ...]:
    """One measure over the rounds, a panel for every variant."""
    drawn = {variant: tuple(label(gap, suffix) for gap in GAPS) for variant, suffix in VARIANTS.items()}
    return tuple(Panel("round", y, f"{title}, {name}", window, target, lines=drawn[name]) for name in drawn)


def fewer_rounds(rounds: Count, to: str, where: str, measure: str = "") -> list[Claim]:
    """A larger τ needs fewer rounds than τ = 1, and momentum fewer than none."""
    claims, shown = [], f" ({measure})" if measure else ""
    for variant, suffix in VARIANTS.items():
        for gap in GAPS[1:]:
            text = f"τ = {gap} needs fewer rounds than τ = 1 to {to}, {variant}{shown}"
            pair = rounds(label(gap, suffix)), rounds(label(1, suffix))
            claims.append(less(text, f"τ = 1 requires significantly more communication rounds ({where})", *pair))
    for variant, suffix in MOMENTA.items():
        for gap in GAPS:
            text = f"{variant} needs fewer rounds than none to {to}, τ = {gap}{shown}"
            pair = rounds(label(gap, suffix)), rounds(label(gap))
            claims.append(less(text, f"the superior performance of momentum ({where})", *pair))
    return claims


def _steps(times: float, rounds: int) -> dict[str, Any]:
    """η_x and η_y, `times` the paper's, by stages."""
    steps = {}
    for key, first in zip(("primal_step", "dual_step"), STEPS, strict=True):
        stages = [[round(share * rounds), times * first / 10**k] for k, share in enumerate(STAGES)]
        steps[key] = {"name": "staged", "stages": stages}
    return steps
