"""FedX's figures 1 and 2: more local steps, more clients, larger buffers; FedX2 for partial AUC on CIFAR-10.

All lines take the same number of local iterations and the step that was tuned for 16 clients and K = 32.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from fedsaddle.reproductions.claims import Claim, more, no_less
from fedsaddle.reproductions.fedx_lines import CLIENTS, FPR30, FPR50, LOCAL_STEPS, ROUNDS, SOURCE, line, setting
from fedsaddle.reproductions.fedx_tables import MARGIN, SHOWN, final
from fedsaddle.reproductions.figure import Figure, Line, Panel
from fedsaddle.reproductions.tracks import Tracks

TASK = "CIFAR-10"
ITERATIONS = ROUNDS * LOCAL_STEPS
GAPS, COUNTS, KEPT = (4, 32, 96), (1, 4, CLIENTS), 5
SUB = "sub-sampled"
_HARMLESS = "tolerates a certain K without harming the performance (figure 1)"
_SOURCES = "data from more sources dramatically improve the performance (figure 1)"
_BUFFERS = "keeping some larger τ can improve the performance (figure 2)"
_SKIPS = "can tolerate to skip a big number of communications (figure 2)"


def named(K: int, clients: int = CLIENTS, τ: int = 1, sharing: str = "all") -> str:
    """Such as "K = 32, N = 16, τ = 5, sub-sampled"."""
    kept = f", τ = {τ}" if τ > 1 else ""
    return f"K = {K}, N = {clients}{kept}{f', {sharing}' if sharing != 'all' else ''}"


def fedx2(K: int, clients: int = CLIENTS, τ: int = 1, sharing: str = "all", colour: int = 0) -> Line:
    """The first so many of the 16 clients, each with its own rows; dashed with a larger buffer."""
    rounds = ITERATIONS // K
    made = line(TASK, "FedX2", rounds=rounds)
    return replace(
        made,
        label=f"{TASK}: {named(K, clients, τ, sharing)}",
        legend=named(K, clients, τ, sharing),
        options={**made.options, "local_steps": K, "buffer_rounds": τ, "sharing": sharing},
        data={**made.data, "sources": clients},
        evaluate_every=rounds // 8,
        colour=colour,
        style="--" if τ > 1 else "-",
    )


def ablation_claims(tracks: Tracks) -> list[Claim]:
    """A larger K does no harm; more clients help."""
    found = []
    for column in (FPR30, FPR50):
        for K in GAPS[1:]:
            text = f"K = {K} ends at most {MARGIN:g} point below K = {GAPS[0]} ({SHOWN[column]})"
            one, other = (final(tracks, TASK, named(k), column) for k in (K, GAPS[0]))
            found.append(no_less(text, _HARMLESS, one, other, MARGIN))
        for few, many in pairwise(COUNTS):
            text = f"N = {many} ends above N = {few} ({SHOWN[column]})"
            pair = (final(tracks, TASK, named(LOCAL_STEPS, n), column) for n in (many, few))
            found.append(more(text, _SOURCES, *pair))
    return found


def buffer_claims(tracks: Tracks) -> list[Claim]:
    """Buffers of several rounds help; with them a large K does no harm."""
    found = []
    for column in (FPR30, FPR50):
        for K, sharing in BUFFERED:
            pair = (final(tracks, TASK, named(K, τ=τ, sharing=sharing), column) for τ in (KEPT, 1))
            where = f"K = {K}{', sub-sampled scores' if sharing == SUB else ''}"
            found.append(more(f"τ = {KEPT} ends above τ = 1, {where} ({SHOWN[column]})", _BUFFERS, *pair))
        one, other = (final(tracks, TASK, named(K, τ=KEPT), column) for K in (GAPS[-1], LOCAL_STEPS))
        text = f"K = {GAPS[-1]} ends at most {MARGIN:g} point below K = {LOCAL_STEPS}, both with τ = {KEPT}"
        found.append(no_less(f"{text} ({SHOWN[column]})", _SKIPS, one, other, MARGIN))
    return found


BUFFERED = ((LOCAL_STEPS, "all"), (GAPS[-1], "all"), (LOCAL_STEPS, SUB))
_BY_GAP = tuple(fedx2(K, colour=c) for c, K in enumerate(GAPS))
_BY_COUNT = tuple(fedx2(LOCAL_STEPS, n, colour=3 + c) for c, n in enumerate(COUNTS[:-1]))
_AT_16 = f"{TASK}: {named(LOCAL_STEPS)}"
_COUNTED = (*(x.label for x in _BY_COUNT), _AT_16)

ABLATION = Figure(
    "FedX2 on CIFAR-10 with K local steps and N clients, MLP of 32 units",
    f"{SOURCE}, figure 1",
    setting(),
    (*_BY_GAP, *_BY_COUNT),
    tuple(
        Panel("local_steps", column, SHOWN[column], lines=lines)
        for lines in (tuple(x.label for x in _BY_GAP), _COUNTED)
        for column in (FPR30, FPR50)
    ),
    ablation_claims,
    seeds=5,
    quick_seeds=2,
    quick_share=0.5,
    rows=2,
)
BUFFERS = Figure(
    "FedX2 on CIFAR-10 with scores of τ rounds, N = 16, MLP of 32 units",
    f"{SOURCE}, figure 2",
    setting(),
    tuple(fedx2(K, τ=τ, sharing=sharing, colour=c) for c, (K, sharing) in enumerate(BUFFERED) for τ in (1, KEPT)),
    tuple(Panel("local_steps", column, SHOWN[column]) for column in (FPR30, FPR50)),
    buffer_claims,
    seeds=5,
    quick_seeds=2,
    quick_share=0.5,
)
