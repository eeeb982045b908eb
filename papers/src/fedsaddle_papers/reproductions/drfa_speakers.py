"""DRFA's figure 6: Shakespeare over 100 speakers, a GRU of 50 units that predicts the next character."""

from __future__ import annotations

from dataclasses import replace

from fedsaddle_papers.reproductions.claims import Claim, higher, non_inferior, percent_at
from fedsaddle_papers.reproductions.curves import WINDOW, Runs
from fedsaddle_papers.reproductions.drfa import (
    AFL,
    DRFA,
    FEDAVG_TUNED,
    MARGIN,
    SOURCE,
    VARIANTS,
    method_lines,
    short,
)
from fedsaddle_papers.reproductions.figure import Figure, Line, Panel, Setting, Tuning

_SPEAKER_ROUNDS = 40

_SHAKESPEARE = Setting(
    data={"name": "shakespeare", "split": "natural", "column": "speaker", "options": {"clients": 100}},
    model="gru",
    model_options={"embedding": 50, "units": 50},
    evaluate_every=2,
)


def speaker_lines(rounds: int) -> tuple[Line, ...]:
    """The published and the tuned lines; AFL, whose rounds are cheaper, runs three times as many."""
    shared = {"batch_size": 2, "primal_step": 0.8}
    lines = method_lines(shared, gamma=0.01, q=0.1, rounds=rounds, afl_rounds=3 * rounds)
    # q-FedAvg computes its loss on all rows; small chunks pad less.
    chunked = [replace(line, chunk=10) if line.algorithm == "q-FedAvg" else line for line in lines]
    return tuple(line for line in chunked if line.label not in (AFL, DRFA))


def speaker_claims(runs: Runs) -> list[Claim]:
    """Figure 6: after equally many rounds FedAvg and DRFA are about the same, AFL and q-FedAvg below."""
    end = runs[FEDAVG_TUNED][0].columns["round"][-1]
    claims = []
    for variant, drfa, afl, q, _ in VARIANTS[1:]:
        worst = {label: percent_at(runs, label, "test worst", end) for label in (drfa, afl, q, FEDAVG_TUNED)}
        text = f"DRFA's worst accuracy after {end:.0f} rounds is at most {MARGIN:.0f} points below FedAvg's, {variant}"
        statement = "DRFA has a slight advantage over FedAvg (fig. 6a)"
        claims.append(non_inferior(text, statement, worst[drfa], worst[FEDAVG_TUNED], MARGIN))
        for best in (drfa, FEDAVG_TUNED):
            for other in (afl, q):
                text = f"{short(best)}'s worst accuracy after {end:.0f} rounds is above {short(other)}'s, {variant}"
                statement = "DRFA and FedAvg outperform the other two in communication (fig. 6a)"
                claims.append(higher(text, statement, worst[best], worst[other]))
        means = [percent_at(runs, label, "test mean", end) for label in (drfa, afl)]
        text = f"DRFA's average accuracy after {end:.0f} rounds is above AFL's, {variant}"
        claims.append(higher(text, "AFL requires much more communication for the same average (fig. 6c)", *means))
    return claims


SPEAKERS = Figure(
    "DRFA and its baselines on Shakespeare, 100 speakers, GRU of 50 units",
    f"{SOURCE}, figure 6",
    _SHAKESPEARE,
    speaker_lines(_SPEAKER_ROUNDS),
    (
        Panel("round", "test worst", "worst distribution accuracy", WINDOW),
        Panel("local_steps", "test worst", "worst distribution accuracy", WINDOW),
        Panel("round", "test mean", "average accuracy", WINDOW),
    ),
    speaker_claims,
    quick_seeds=2,
    quick_share=0.5,
    looks=(5, 10),
    minutes=7.6,
    tuning=Tuning(
        "test worst",
        {"primal_step": (0.4, 0.8), "dual_step": (0.001, 0.01, 0.1), "q": (0.01, 0.1, 1.0)},
        share=0.5,
        seeds=(1000,),
    ),
    quick_setting=replace(_SHAKESPEARE, data={**_SHAKESPEARE.data, "options": {"clients": 20}}),
)
