"""FedSGDA's figures 1 and 3, and what all its figures share; fedsgda_auc.py has figures 2, 4, 5 and 6.

Figures 1 and 3 are the nonconvex-PL simulation: 500 clients, |∇Φ|² in closed form, the steps of table 1, which the
paper tuned for each S and K. Both algorithms also run with steps tuned alike, at S = 10 and K = 5.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedsaddle_papers.reproductions.claims import Claim, SeedValues, lower, non_inferior, time_to_common_level
from fedsaddle_papers.reproductions.curves import Runs
from fedsaddle_papers.reproductions.figure import Figure, Line, Options, Panel, Setting, Tuning

SOURCE = "Xie, Zhang, Zhang, Shen, Qian"
MB, STORM = "FedSGDA-MB", "FedSGDA-STORM"


def minibatch(eta: float, gamma: float) -> Options:
    """Options of FedSGDA-MB: constant steps η and γ."""
    return {"primal_step": eta, "dual_step": gamma}


def storm(c_eta: float, c_gamma: float, c_alpha: float, rho: float) -> Options:
    """Options of FedSGDA-STORM: `η_t = c_η / (t + 1)^ρ`, γ_t likewise, `α_t = min(1, c_α / (t + 1)^{2ρ})`."""
    alpha = {"name": "power", "c": float(c_alpha), "rho": 2 * rho, "at_most": 1.0}
    return {
        "primal_step": {"name": "power", "c": c_eta, "rho": rho},
        "dual_step": {"name": "power", "c": c_gamma, "rho": rho},
        "estimator": {"name": "storm", "alpha": alpha},
    }


def short(algorithm: str) -> str:
    """The estimator's name, "MB" or "STORM"."""
    return algorithm.removeprefix("FedSGDA-")


def line(
    label: str, algorithm: str, sampled: int | None, local: int, batch: int, steps: Options, rounds: int, colour: int
) -> Line:
    """A line with S = `sampled` clients a round (None: all) and K = `local` steps; MB is dashed."""
    options: dict[str, object] = {"local_steps": local, "batch_size": batch, **steps}
    if sampled is not None:
        options["sampled_clients"] = sampled
    return Line(label, algorithm, options, rounds, colour, "--" if algorithm == MB else "-")


# Figures 1 and 3

ROUNDS = 1500
EVALUATE_EVERY = 25  # rounds
COHORTS, LOCAL = (5, 10, 20), (5, 10, 20)  # S and K
FIGURE_1_K = 5  # the paper does not give it; table 1 has the same steps for every S at K = 5
PHI = "squared_gradient_of_phi"
LEVEL = 200  # rounds at the end whose mean is the final level
PLATEAU = 0.1  # a smaller relative decrease in the last quarter of the rounds is a plateau

# Table 1, (S, K): η, γ of MB; c_η, c_γ, c_α of STORM with ρ = 1/3.
TABLE_1: dict[tuple[int, int], tuple[tuple[float, float], tuple[float, float, float]]] = {
    (5, 5): ((1e-3, 1e-3), (1e-2, 1e-1, 1)),
    (5, 10): ((1e-4, 1e-3), (1e-3, 1e-2, 10)),
    (5, 20): ((1e-4, 1e-3), (1e-3, 1e-1, 1)),
    (10, 5): ((1e-3, 1e-3), (1e-2, 1e-1, 1)),
    (10, 10): ((1e-4, 1e-3), (1e-3, 1e-2, 1)),
    (10, 20): ((1e-4, 1e-3), (1e-3, 1e-2, 1)),
    (20, 5): ((1e-3, 1e-3), (1e-2, 1e-1, 1)),
    (20, 10): ((1e-3, 1e-2), (1e-3, 1e-2, 1)),
    (20, 20): ((1e-4, 1e-3), (1e-3, 1e-3, 1)),
}

_SETTING = Setting(
    data={"name": "nonconvex-pl", "split": "natural", "test_share": 0.0},
    model="none",
    problem="nonconvex-pl",
    evaluate_every=EVALUATE_EVERY,
)


def label(algorithm: str, sampled: int, local: int) -> str:
    """The label of a line."""
    return f"{short(algorithm)}, S = {sampled}, K = {local}"


def lines(local_steps: tuple[int, ...]) -> tuple[Line, ...]:
    """Both algorithms with every S and these K."""
    made = []
    for local in local_steps:
        for colour, sampled in enumerate(COHORTS):
            constant, decaying = TABLE_1[sampled, local]
            for algorithm, steps in ((MB, minibatch(*constant)), (STORM, storm(*decaying, rho=1 / 3))):
                made.append(line(label(algorithm, sampled, local), algorithm, sampled, local, 5, steps, ROUNDS, colour))
    return tuple(made)


def tuned_label(algorithm: str) -> str:
    """The label of a line with tuned steps."""
    return f"{short(algorithm)}, S = 10, K = {FIGURE_1_K}, tuned"


def tuned_lines() -> tuple[Line, ...]:
    """Both algorithms at S = 10 and K = 5 with tuned steps; they start from those of table 1."""
    constant, decaying = TABLE_1[10, FIGURE_1_K]
    made = []
    for algorithm, steps in ((MB, minibatch(*constant)), (STORM, storm(*decaying, rho=1 / 3))):
        name = tuned_label(algorithm)
        made.append(replace(line(name, algorithm, 10, FIGURE_1_K, 5, steps, ROUNDS, 3), tuned=name))
    return tuple(made)


def final_phi(runs: Runs, name: str) -> SeedValues:
    """The mean |∇Φ|² of the last rounds, for each seed."""
    return SeedValues(name, np.array([curves.final_level(PHI, LEVEL) for curves in runs[name]]), digits=4)


def cohort_claims(runs: Runs) -> list[Claim]:
    """Figure 1: a larger S is faster and ends lower; STORM ends below MB; MB has a plateau, STORM keeps decreasing."""
    local = FIGURE_1_K
    claims = [c for a in (MB, STORM) for c in _larger_cohort(runs, a, local, "converge faster as S increases (fig. 1)")]
    for sampled in COHORTS:
        claims.append(_storm_below_mb(runs, sampled, local, "STORM outperforms MB for all S (fig. 1)"))
    for sampled in COHORTS:
        claims += _plateau(runs, sampled, local)
    text = f"STORM ends below MB, S = 10, K = {local}, both tuned (last {LEVEL} rounds)"
    tuned = (final_phi(runs, tuned_label(a)) for a in (STORM, MB))
    return [*claims, lower(text, "STORM outperforms MB for all S (fig. 1)", *tuned)]


def grid_claims(runs: Runs) -> list[Claim]:
    """Figure 3: for every K a larger S ends lower and STORM below MB; S = K = 20 is the best setting."""
    claims = []
    for local in LOCAL[1:]:  # K = 5 is figure 1
        for algorithm in (MB, STORM):
            claims += _larger_cohort(runs, algorithm, local, "both converge faster as S increases (fig. 3)")
        claims += [_storm_below_mb(runs, s, local, "not said in words; drawn side by side (fig. 3)") for s in COHORTS]
    statement = "both achieve the best performance when S = 20 and K = 20 (fig. 3)"
    for algorithm in (MB, STORM):
        best = label(algorithm, 20, 20)
        for sampled, local in ((10, 20), (20, 10), (20, 5)):
            rival = label(algorithm, sampled, local)
            text = f"{short(algorithm)} with S = K = 20 ends below S = {sampled}, K = {local}"
            claims.append(lower(text, statement, final_phi(runs, best), final_phi(runs, rival)))
    return claims


def _larger_cohort(runs: Runs, algorithm: str, local: int, statement: str) -> list[Claim]:
    claims = []
    for few, many in ((5, 10), (10, 20)):
        pair = label(algorithm, many, local), label(algorithm, few, local)
        head = f"{short(algorithm)}, K = {local}: S = {many}"
        text = f"{head} ends with a smaller |∇Φ|² than S = {few} (last {LEVEL} rounds)"
        claims.append(lower(text, statement, *(final_phi(runs, name) for name in pair)))
        text = f"{head} needs fewer rounds than S = {few} to the level that both keep"
        claims.append(
            lower(text, statement, *time_to_common_level(runs, *pair, PHI, window=EVALUATE_EVERY, falling=True))
        )
    return claims


def _storm_below_mb(runs: Runs, sampled: int, local: int, statement: str) -> Claim:
    pair = (final_phi(runs, label(a, sampled, local)) for a in (STORM, MB))
    return lower(f"STORM ends below MB, S = {sampled}, K = {local} (last {LEVEL} rounds)", statement, *pair)


def _plateau(runs: Runs, sampled: int, local: int) -> list[Claim]:
    """The relative change from the third to the last quarter of the rounds, in per cent."""

    def change(algorithm: str) -> SeedValues:
        name = label(algorithm, sampled, local)
        found = []
        for curves in runs[name]:
            values = curves.column(PHI)
            quarter = max(1, len(values) // 4)
            third, last = values[: len(values) - quarter][-quarter:], values[-quarter:]
            found.append(100 * (last.mean() / third.mean() - 1) if len(third) else 0.0)
        return SeedValues(name, np.array(found), digits=1)

    still = SeedValues("0", np.zeros(len(runs[label(MB, sampled, local)])), digits=1)
    percent = 100 * PLATEAU
    text = (
        f"MB has come to rest: its last quarter is at most {percent:.0f} % below its third, S = {sampled}, K = {local}"
    )
    rests = non_inferior(text, "MB first decreases and then oscillates around a point", change(MB), still, percent)
    text = f"STORM goes on falling: its last quarter is below its third, S = {sampled}, K = {local}"
    return [rests, lower(text, "in contrast, STORM decreases as t increases", change(STORM), still)]


def _panel(local: int, more: tuple[str, ...] = ()) -> Panel:
    shown = (*(label(a, s, local) for s in COHORTS for a in (MB, STORM)), *more)
    return Panel("round", PHI, f"|∇Φ(x)|², K = {local}", log=True, lines=shown)


COHORT = Figure(
    f"FedSGDA on the nonconvex-PL simulation, 500 clients, K = {FIGURE_1_K}",
    f"{SOURCE}, figure 1",
    _SETTING,
    (*lines((FIGURE_1_K,)), *tuned_lines()),
    (_panel(FIGURE_1_K, tuple(tuned_label(a) for a in (MB, STORM))),),
    cohort_claims,
    quick_seeds=2,
    quick_share=0.1,
    looks=(5, 10),
    minutes=2.1,
    tuning=Tuning(PHI, {"primal_step": (1e-3, 1e-2, 1e-1), "dual_step": (1e-2, 1e-1, 1.0)}, falling=True, share=1.0),
)
GRID = Figure(
    "FedSGDA on the nonconvex-PL simulation, 500 clients, every S and K",
    f"{SOURCE}, figure 3",
    _SETTING,
    lines(LOCAL),
    tuple(_panel(local) for local in LOCAL),
    grid_claims,
    quick_seeds=2,
    quick_share=0.05,
    looks=(5, 10),
    minutes=6.0,  # beside the lines of figure 1
)
