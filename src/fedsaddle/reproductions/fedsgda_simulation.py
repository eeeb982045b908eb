"""FedSGDA's figures 1 and 3: the nonconvex-PL simulation, 500 clients, |∇Φ|² in closed form, table 1's steps."""

from __future__ import annotations

import numpy as np

from fedsaddle.reproductions.claims import Claim, Figures, less, no_less, time_to_same_level
from fedsaddle.reproductions.fedsgda_lines import MB, SOURCE, STORM, line, minibatch, short, storm
from fedsaddle.reproductions.figure import Figure, Line, Panel, Setting
from fedsaddle.reproductions.tracks import Tracks

ROUNDS = 1500
EVERY = 50  # rounds between evaluations
COHORTS, LOCAL = (5, 10, 20), (5, 10, 20)  # S and K
FIGURE_1 = 5  # the K of figure 1, which the paper does not name: table 1 has the same steps there for every S
PHI = "squared_gradient_of_phi"
LEVEL = 200  # rounds at the end that make up a level
STEADY = 0.1  # a level that falls by less than this share in the last quarter of the rounds has come to rest

# Table 1, (S, K): η, γ of MB; c_η, c_γ, c_α of STORM, whose ρ is 1/3.
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
    evaluate_every=EVERY,
)


def label(algorithm: str, sampled: int, local: int) -> str:
    """The name of a line."""
    return f"{short(algorithm)}, S = {sampled}, K = {local}"


def lines(locals_: tuple[int, ...]) -> tuple[Line, ...]:
    """Both algorithms with every S, for these K."""
    made = []
    for local in locals_:
        for colour, sampled in enumerate(COHORTS):
            flat, falling = TABLE_1[sampled, local]
            for algorithm, steps in ((MB, minibatch(*flat)), (STORM, storm(*falling, rho=1 / 3))):
                made.append(line(label(algorithm, sampled, local), algorithm, sampled, local, 5, steps, ROUNDS, colour))
    return tuple(made)


def levels(tracks: Tracks, name: str) -> Figures:
    """|∇Φ|² at the end of each run."""
    return Figures(name, np.array([t.level(PHI, LEVEL) for t in tracks[name]]), digits=4)


def cohort_claims(tracks: Tracks) -> list[Claim]:
    """Larger S is faster and ends lower; STORM ends below MB; MB comes to rest and STORM goes on."""
    local = FIGURE_1
    claims = [
        c for a in (MB, STORM) for c in _more_clients(tracks, a, local, "converge faster as S increases (fig. 1)")
    ]
    for sampled in COHORTS:
        claims.append(_below(tracks, sampled, local, "STORM outperforms MB for all S (fig. 1)"))
    for sampled in COHORTS:
        claims += _rest(tracks, sampled, local)
    return claims


def grid_claims(tracks: Tracks) -> list[Claim]:
    """For every K: larger S ends lower, STORM below MB; S = K = 20 is the best of all."""
    claims = []
    for local in LOCAL:
        for algorithm in (MB, STORM):
            claims += _more_clients(tracks, algorithm, local, "both converge faster as S increases (fig. 3)")
        claims += [_below(tracks, s, local, "not said in words; drawn side by side (fig. 3)") for s in COHORTS]
    said = "both achieve the best performance when S = 20 and K = 20 (fig. 3)"
    for algorithm in (MB, STORM):
        best = label(algorithm, 20, 20)
        others = [label(algorithm, s, k) for s in COHORTS for k in LOCAL if (s, k) != (20, 20)]
        rival = min(others, key=lambda name: levels(tracks, name).values.mean())
        text = f"{short(algorithm)} with S = K = 20 ends below the best of its other eight settings"
        claims.append(less(text, said, levels(tracks, best), levels(tracks, rival)))
    return claims


def _more_clients(tracks: Tracks, algorithm: str, local: int, said: str) -> list[Claim]:
    claims = []
    for few, many in ((5, 10), (10, 20)):
        pair = label(algorithm, many, local), label(algorithm, few, local)
        head = f"{short(algorithm)}, K = {local}: S = {many}"
        text = f"{head} ends with a smaller |∇Φ|² than S = {few} (last {LEVEL} rounds)"
        claims.append(less(text, said, *(levels(tracks, name) for name in pair)))
        text = f"{head} needs fewer rounds than S = {few} to the level that both keep"
        claims.append(less(text, said, *time_to_same_level(tracks, *pair, PHI, window=EVERY, falling=True)))
    return claims


def _below(tracks: Tracks, sampled: int, local: int, said: str) -> Claim:
    pair = (levels(tracks, label(a, sampled, local)) for a in (STORM, MB))
    return less(f"STORM ends below MB, S = {sampled}, K = {local} (last {LEVEL} rounds)", said, *pair)


def _rest(tracks: Tracks, sampled: int, local: int) -> list[Claim]:
    """The change from the third to the last quarter of the rounds, in per cent of the third."""

    def change(algorithm: str) -> Figures:
        name = label(algorithm, sampled, local)
        found = []
        for track in tracks[name]:
            values = track.column(PHI)
            quarter = max(1, len(values) // 4)
            third, last = values[: len(values) - quarter][-quarter:], values[-quarter:]
            found.append(100 * (last.mean() / third.mean() - 1) if len(third) else 0.0)
        return Figures(name, np.array(found), digits=1)

    still = Figures("0", np.zeros(len(tracks[label(MB, sampled, local)])), digits=1)
    percent = 100 * STEADY
    text = (
        f"MB has come to rest: its last quarter is at most {percent:.0f} % below its third, S = {sampled}, K = {local}"
    )
    rests = no_less(text, "MB first decreases and then oscillates around a point", change(MB), still, percent)
    text = f"STORM goes on falling: its last quarter is below its third, S = {sampled}, K = {local}"
    return [rests, less(text, "in contrast, STORM decreases as t increases", change(STORM), still)]


def _panel(local: int) -> Panel:
    shown = tuple(label(a, s, local) for s in COHORTS for a in (MB, STORM))
    return Panel("round", PHI, f"|∇Φ(x)|², K = {local}", log=True, lines=shown)


COHORT = Figure(
    f"FedSGDA on the nonconvex-PL simulation, 500 clients, K = {FIGURE_1}",
    f"{SOURCE}, figure 1",
    _SETTING,
    lines((FIGURE_1,)),
    (_panel(FIGURE_1),),
    cohort_claims,
    seeds=3,
    quick_seeds=2,
    quick_share=0.5,
)
GRID = Figure(
    "FedSGDA on the nonconvex-PL simulation, 500 clients, every S and K",
    f"{SOURCE}, figure 3",
    _SETTING,
    lines(LOCAL),
    tuple(_panel(local) for local in LOCAL),
    grid_claims,
    seeds=3,
    quick_seeds=2,
    quick_share=0.2,
)
