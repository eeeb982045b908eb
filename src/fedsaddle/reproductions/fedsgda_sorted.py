"""FedSGDA's figure 6: as figure 2 where 90 % of the pictures are sorted by label, and against CODA on 50 clients.

The steps of K = 1, 10, 20 are those of table 3, but η and c_η are 0.03 where K = 20: 0.1 diverges on this network. On
50 clients all take part in every round of every algorithm, and FedSGDA's two exchanges a round count as two.
"""

from __future__ import annotations

from dataclasses import replace

from fedsaddle.reproductions.claims import Claim, levels, more, no_less, values_at
from fedsaddle.reproductions.fedsgda_auc import (
    AUC,
    LARGEST,
    LEVEL,
    LOCAL,
    ROUNDS,
    label,
    local_step_claims,
    setting,
    steps,
)
from fedsaddle.reproductions.fedsgda_lines import MB, SOURCE, STORM, line, short
from fedsaddle.reproductions.figure import Figure, Line, Panel
from fedsaddle.reproductions.tracks import Tracks

BATCH = 10
SMALLER = 0.03  # η and c_η where K = 20
CLOSE = 1.0  # points of AUC
EXCHANGES = 2 * ROUNDS
STAGE = 50  # rounds after which CODA computes its dual anew

# Table 3, K: η, γ of MB; c_η, c_γ, c_α of STORM, whose ρ is 1/5.
TABLE_3: dict[int, tuple[tuple[float, float], tuple[float, float, float]]] = {
    1: ((1, 1e-2), (1, 1e-1, 5)),
    10: ((1e-1, 1e-3), (1e-1, 1e-2, 10)),
    20: ((1e-1, 1), (1e-1, 1e-1, 10)),
}
FIGURE_6C = ((1e-1, 1e-1), (1.0, 1.0, 10.0))
CODA_STEPS = (1e-2, 1e-1)  # the paper's, and the next of its grid


def small(algorithm: str) -> str:
    """The name of a line on 50 clients."""
    return f"{short(algorithm)}, 50 clients"


def coda(step: float) -> str:
    """The name of CODA's line."""
    return f"CODA, step {step:g}, 50 clients"


def lines() -> tuple[Line, ...]:
    """K = 1, 10, 20 on 500 clients; K = 20 on 50 clients, with CODA."""
    made = []
    for colour, local in enumerate(LOCAL):
        for algorithm in (MB, STORM):
            found = steps(algorithm, local, *TABLE_3[local], largest=SMALLER if local == 20 else LARGEST)
            made.append(line(label(algorithm, local, BATCH), algorithm, 5, local, BATCH, found, ROUNDS, colour))
    fewer = {"clients": 50}
    for algorithm in (MB, STORM):
        found = steps(algorithm, 20, *FIGURE_6C, largest=SMALLER)
        made.append(replace(line(small(algorithm), algorithm, None, 20, BATCH, found, ROUNDS, 3), data=fewer))
    for colour, step in enumerate(CODA_STEPS, 4):
        options = {"local_steps": 20, "batch_size": BATCH, "primal_step": step, "stage_rounds": STAGE}
        made.append(Line(coda(step), "CODA", options, EXCHANGES, colour, data=fewer))
    return tuple(made)


def sorted_claims(tracks: Tracks) -> list[Claim]:
    """Local steps help, K = 10 is close to K = 20, and FedSGDA is above CODA after as many exchanges."""
    names = {(a, k): label(a, k, BATCH) for a in (MB, STORM) for k in LOCAL}
    said = "multiple local steps attain higher AUC than one (fig. 6a, 6b)"
    claims = local_step_claims(tracks, names, said, "")
    for algorithm in (MB, STORM):
        ten, twenty = (levels(tracks, names[algorithm, k], AUC, LEVEL) for k in (10, 20))
        text = f"{names[algorithm, 10]} ends at most {CLOSE:.0f} point below K = 20"
        claims.append(no_less(text, "the result of K = 10 is close to K = 20 (fig. 6a, 6b)", ten, twenty, CLOSE))
    last = min(tracks[small(MB)][0].columns["exchanges"][-1], tracks[coda(CODA_STEPS[0])][0].columns["exchanges"][-1])
    for algorithm in (MB, STORM):
        for step in CODA_STEPS:
            pair = [values_at(tracks, name, AUC, last, "exchanges") for name in (small(algorithm), coda(step))]
            text = f"{short(algorithm)} is above CODA with step {step:g} after {last:.0f} exchanges, 50 clients"
            claims.append(more(text, "both outperform CoDA (fig. 6c)", *pair))
    return claims


def _panel(algorithm: str) -> Panel:
    shown = tuple(label(algorithm, k, BATCH) for k in LOCAL)
    return Panel("round", AUC, f"test AUC, {short(algorithm)}, 500 clients", lines=shown)


SORTED = Figure(
    "FedSGDA, AUC on CIFAR-10 (8x8 pixels, MLP), 90 % sorted by label, against CODA",
    f"{SOURCE}, figure 6",
    setting({"split": "sorted", "share": 0.9, "column": "class"}),
    lines(),
    (
        _panel(MB),
        _panel(STORM),
        Panel(
            "exchanges",
            AUC,
            "test AUC, 50 clients",
            lines=(small(MB), small(STORM), *(coda(step) for step in CODA_STEPS)),
        ),
    ),
    sorted_claims,
    seeds=3,
    quick_seeds=2,
    quick_share=0.2,
)
