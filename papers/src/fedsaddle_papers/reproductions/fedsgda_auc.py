"""FedSGDA's figures 2, 4, 5 and 6: min-max AUC on CIFAR-10, airplane against the rest.

Scaled down to a CPU: 10,000 training pictures (`data_batch_1`) averaged to 8x8 pixels, as 100 clients of 100 pictures
each (the paper: 500 of 100), and an MLP 192-32-32-32-32-1 with as many weight layers as the paper's network. One line
has the paper's network on pictures of 32x32 pixels. Scores go through a sigmoid: with raw scores the steps of tables 2
and 3 diverge for the MLP and the paper's network alike. That the paper used one is inferred. The steps are those of the
tables; lines named "tuned" have steps that were tuned alike, for S = 5.

In figure 6, 90 % of the pictures are sorted by label. Its comparison with CODA has 50 clients, all of which participate
in every round; FedSGDA's two exchanges a round count as two.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from fedsaddle_papers.reproductions.claims import (
    Claim,
    SeedValues,
    final_percent,
    higher,
    lower,
    non_inferior,
    percent_at,
    time_to_common_level,
)
from fedsaddle_papers.reproductions.curves import Runs
from fedsaddle_papers.reproductions.fedsgda import MB, SOURCE, STORM, line, minibatch, short, storm
from fedsaddle_papers.reproductions.figure import Claims, Figure, Line, Options, Panel, Setting, Tuning

ROUNDS = 100
CNN_ROUNDS = 50
CLIENTS = 100
EVALUATE_EVERY = 5  # rounds
LEVEL = 20  # rounds at the end whose mean is the final level
LOCAL, BATCHES = (1, 10, 20), (5, 10)  # K and the minibatch
RHO = 1 / 5
AUC = "auroc"

# Table 2, (S, K, minibatch): η, γ of MB; c_η, c_γ, c_α of STORM with ρ = 1/5.
TABLE_2: dict[tuple[int, int, int], tuple[tuple[float, float], tuple[float, float, float]]] = {
    (5, 1, 5): ((1, 1e-2), (1, 1e-1, 5)),
    (5, 1, 10): ((1, 1e-2), (1, 1e-1, 5)),
    (5, 10, 5): ((1e-1, 1e-2), (1, 1e-1, 10)),
    (5, 10, 10): ((1, 1e-1), (1, 1, 10)),
    (5, 20, 5): ((1e-1, 1e-1), (1, 1, 10)),
    (5, 20, 10): ((1, 1), (1, 1e-1, 10)),
    (10, 1, 5): ((1, 1e-2), (1, 1e-1, 5)),
    (10, 1, 10): ((1, 1e-3), (1, 1e-1, 5)),
    (10, 10, 5): ((1, 1), (1, 1, 5)),
    (10, 10, 10): ((1, 1e-1), (1, 1e-1, 5)),
    (10, 20, 5): ((1, 1e-1), (1, 1, 10)),
    (10, 20, 10): ((1, 1), (1, 1, 10)),
    (20, 1, 5): ((1, 1e-3), (1, 1e-1, 5)),
    (20, 1, 10): ((1, 1e-2), (1, 1e-1, 5)),
    (20, 10, 5): ((1, 1), (1, 1, 5)),
    (20, 10, 10): ((1, 1e-2), (1, 1e-1, 10)),
    (20, 20, 5): ((1, 1e-1), (1, 1e-1, 10)),
    (20, 20, 10): ((1, 1), (1, 1, 10)),
}


def setting(split: Options) -> Setting:
    """The data, the network and the problem of all AUC figures."""
    options = {"positive": ["airplane"], "normalise": "symmetric", "first": 10_000, "side": 8}
    return Setting(
        data={"name": "cifar10", **split, "clients": CLIENTS, "options": options},
        model="mlp",
        model_options={"hidden": [32, 32, 32, 32]},
        problem="auc",
        problem_options={"sigmoid": True},
        evaluate_every=EVALUATE_EVERY,
    )


def steps(algorithm: str, constant: tuple[float, float], decaying: tuple[float, float, float]) -> Options:
    """The steps of a row of the table."""
    if algorithm == MB:
        return minibatch(float(constant[0]), float(constant[1]))
    return storm(float(decaying[0]), float(decaying[1]), decaying[2], RHO)


def label(algorithm: str, local: int, batch: int, sampled: int | None = None) -> str:
    """The label of a line; it names S where `sampled` is given."""
    return f"{short(algorithm)}, K = {local}, batch {batch}" + ("" if sampled is None else f", S = {sampled}")


def iid_lines(sampled: int) -> list[Line]:
    """Both algorithms with every K and minibatch size."""
    made = []
    for batch in BATCHES:
        for colour, local in enumerate(LOCAL):
            for algorithm in (MB, STORM):
                found = steps(algorithm, *TABLE_2[sampled, local, batch])
                name = label(algorithm, local, batch)
                made.append(line(name, algorithm, sampled, local, batch, found, ROUNDS, colour))
    return made


def smaller_cohort_lines() -> list[Line]:
    """K = 20 with minibatches of 10 and the S of figures 2 and 4."""
    made = []
    for colour, sampled in ((3, 5), (4, 10)):
        for algorithm in (MB, STORM):
            found = steps(algorithm, *TABLE_2[sampled, 20, 10])
            made.append(line(label(algorithm, 20, 10, sampled), algorithm, sampled, 20, 10, found, ROUNDS, colour))
    return made


def tuned_lines(sampled: int) -> list[Line]:
    """K = 1 and 20 with minibatches of 10, with steps tuned alike."""
    made = []
    for colour, local in ((0, 1), (5, 20)):
        for algorithm in (MB, STORM):
            name, found = f"{label(algorithm, local, 10)}, tuned", steps(algorithm, *TABLE_2[sampled, local, 10])
            made.append(replace(line(name, algorithm, sampled, local, 10, found, ROUNDS, colour), tuned=name))
    return made


def paper_network_line(sampled: int) -> Line:
    """STORM with the paper's network, three convolutions and two dense layers, on pictures of 32x32 pixels."""
    found = steps(STORM, *TABLE_2[sampled, 10, 10])
    made = line(f"{label(STORM, 10, 10)}, CNN", STORM, sampled, 10, 10, found, CNN_ROUNDS, 4)
    options = {"positive": ["airplane"], "normalise": "symmetric", "first": 10_000, "images": True}
    return replace(made, data={"options": options}, model="cnn-3", evaluate_every=CNN_ROUNDS // 2)


def local_step_claims(runs: Runs, names: dict[tuple[str, int], str], statement: str, best: str) -> list[Claim]:
    """K = 10 and 20 end above K = 1 and reach its level sooner; with `best`, K = 20 ends above K = 10.

    Args:
        runs: all runs of the figure.
        names: the labels by algorithm and K.
        statement: the paper's statement on local steps.
        best: the paper's statement that K = 20 is best; empty if it makes none.
    """
    claims = []
    for algorithm in (MB, STORM):
        once = names[algorithm, 1]
        for local in (10, 20):
            many = names[algorithm, local]
            pair = [final_percent(runs, name, AUC, LEVEL) for name in (many, once)]
            claims.append(higher(f"{many} ends with a higher AUC than K = 1 (last {LEVEL} rounds)", statement, *pair))
            sooner = time_to_common_level(runs, many, once, AUC, window=EVALUATE_EVERY)
            claims.append(
                lower(f"{many} needs fewer rounds than K = 1 to the level that both keep", statement, *sooner)
            )
        if best:
            pair = [final_percent(runs, names[algorithm, local], AUC, LEVEL) for local in (20, 10)]
            claims.append(higher(f"{names[algorithm, 20]} ends with a higher AUC than K = 10", best, *pair))
    return claims


def statements(number: int) -> list[str]:
    """The paper's statements on a figure."""
    return [
        f"multiple local iterations achieve significantly higher AUC than one (fig. {number})",
        f"both achieve the best performance when K = 20 (fig. {number})",
        f"STORM outperforms MB at K = 20 (fig. {number})",
        f"MB varies with the minibatch, STORM is insensitive (fig. {number})",
    ]


def auc_claims(number: int, runs: Runs) -> list[Claim]:
    """Local steps help; STORM is above MB at K = 20, and less sensitive to the minibatch size."""
    many, best, above, insensitive = statements(number)
    claims = []
    for batch in BATCHES:
        names = {(a, k): label(a, k, batch) for a in (MB, STORM) for k in LOCAL}
        claims += local_step_claims(runs, names, many, best)
        pair = [final_percent(runs, names[a, 20], AUC, LEVEL) for a in (STORM, MB)]
        claims.append(higher(f"STORM ends with a higher AUC than MB, K = 20, batch {batch}", above, *pair))
    names = {(a, k): f"{label(a, k, 10)}, tuned" for a in (MB, STORM) for k in (1, 20)}
    for algorithm in (MB, STORM):
        pair = [final_percent(runs, names[algorithm, k], AUC, LEVEL) for k in (20, 1)]
        claims.append(higher(f"{short(algorithm)}, K = 20 ends with a higher AUC than K = 1, both tuned", many, *pair))
    pair = [final_percent(runs, names[a, 20], AUC, LEVEL) for a in (STORM, MB)]
    claims.append(higher("STORM ends with a higher AUC than MB, K = 20, both tuned", above, *pair))

    def gap(algorithm: str) -> SeedValues:
        small, large = (final_percent(runs, label(algorithm, 20, b), AUC, LEVEL).values for b in BATCHES)
        return SeedValues(f"{short(algorithm)}'s gap", np.abs(large - small), digits=1)

    text = "MB's AUC differs more between minibatches of 5 and 10 than STORM's, K = 20"
    return [*claims, higher(text, insensitive, gap(MB), gap(STORM))]


def cohort_claims(runs: Runs) -> list[Claim]:
    """Figure 5: the claims of figures 2 and 4, and that a larger S helps."""
    claims = auc_claims(5, runs)
    statement = "when K = 20, both achieve higher test AUC as S increases (figs. 2, 4, 5)"
    for algorithm in (MB, STORM):
        names = {5: label(algorithm, 20, 10, 5), 10: label(algorithm, 20, 10, 10), 20: label(algorithm, 20, 10)}
        for few, many in ((5, 10), (10, 20)):
            pair = [final_percent(runs, names[s], AUC, LEVEL) for s in (many, few)]
            text = f"{short(algorithm)}, K = 20, batch 10: S = {many} ends with a higher AUC than S = {few}"
            claims.append(higher(text, statement, *pair))
    return claims


_GRID = {"primal_step": (0.3, 1.0, 3.0, 10.0), "dual_step": (0.01, 0.1, 1.0, 10.0)}


def _iid_panels(extra: tuple[str, ...] = ()) -> tuple[Panel, ...]:
    panels = []
    for batch in BATCHES:
        for algorithm in (MB, STORM):
            shown = tuple(label(algorithm, k, batch) for k in LOCAL)
            panels.append(Panel("round", AUC, f"test AUC, {short(algorithm)}, batch {batch}", lines=shown))
        both = tuple(label(a, 20, batch) for a in (MB, STORM)) + (extra if batch == 10 else ())
        panels.append(Panel("round", AUC, f"test AUC, K = 20, batch {batch}", lines=both))
    return tuple(panels)


def _iid(number: int, sampled: int) -> Figure:
    extra = smaller_cohort_lines() if sampled == 20 else []
    beside = [*tuned_lines(sampled), *([paper_network_line(sampled)] if sampled == 5 else [])]
    claims: Claims = cohort_claims if sampled == 20 else partial(auc_claims, number)
    return Figure(
        f"FedSGDA, AUC on CIFAR-10 (8x8 pixels, MLP), airplane against the rest, {CLIENTS} clients, S = {sampled}",
        f"{SOURCE}, figure {number}",
        setting({"split": "iid"}),
        tuple(iid_lines(sampled) + extra + beside),
        _iid_panels(tuple(made.label for made in (*extra, *beside))),
        claims,
        quick_seeds=2,
        quick_share={5: 0.1, 10: 0.2, 20: 0.1}[sampled],
        rows=2,
        looks={5: (5, 10), 10: (3,), 20: (5, 10)}[sampled],
        seeds=3 if sampled == 10 else 5,
        minutes={5: 12.0, 10: 4.0, 20: 6.0}[sampled],
        tuning=Tuning(AUC, _GRID) if sampled == 5 else None,
        tuned_by="" if sampled == 5 else "fedsgda-fig2",
    )


FIVE = _iid(2, 5)
TEN = _iid(4, 10)
TWENTY = _iid(5, 20)


# Figure 6

SORTED_BATCH = 10
MARGIN = 1.0  # percentage points of AUC
EXCHANGES = 2 * ROUNDS
STAGE = 50  # rounds of CODA's stages

# Table 3, K: η, γ of MB; c_η, c_γ, c_α of STORM with ρ = 1/5.
TABLE_3: dict[int, tuple[tuple[float, float], tuple[float, float, float]]] = {
    1: ((1, 1e-2), (1, 1e-1, 5)),
    10: ((1e-1, 1e-3), (1e-1, 1e-2, 10)),
    20: ((1e-1, 1), (1e-1, 1e-1, 10)),
}
FIGURE_6C = ((1e-1, 1e-1), (1.0, 1.0, 10.0))
CODA_STEPS = (1e-2, 1e-1)  # the paper's, and the next value of its grid
TUNED_50 = "50 clients, tuned"


def label_50(algorithm: str) -> str:
    """The label of a FedSGDA line with 50 clients."""
    return f"{short(algorithm)}, 50 clients"


def label_coda(step: float) -> str:
    """The label of a CODA line."""
    return f"CODA, step {step:g}, 50 clients"


def sorted_lines() -> tuple[Line, ...]:
    """K = 1, 10, 20 with all clients; K = 20 and CODA with 50 clients, at the paper's steps and tuned."""
    made: list[Line] = []
    for colour, local in enumerate(LOCAL):
        for algorithm in (MB, STORM):
            found = steps(algorithm, *TABLE_3[local])
            name = label(algorithm, local, SORTED_BATCH)
            made.append(line(name, algorithm, 5, local, SORTED_BATCH, found, ROUNDS, colour))
    fewer = {"clients": 50}
    for algorithm in (MB, STORM):
        found = steps(algorithm, *FIGURE_6C)
        own = replace(line(label_50(algorithm), algorithm, None, 20, SORTED_BATCH, found, ROUNDS, 3), data=fewer)
        name = f"{short(algorithm)}, {TUNED_50}"
        made += [own, replace(own, label=name, tuned=name, colour=0, style="-" if algorithm == STORM else "--")]
    for colour, step in enumerate(CODA_STEPS, 4):
        options = {"local_steps": 20, "batch_size": SORTED_BATCH, "primal_step": step, "stage_rounds": STAGE}
        own = Line(label_coda(step), "CODA", options, EXCHANGES, colour, data=fewer)
        made.append(own)
    name = f"CODA, {TUNED_50}"
    return (*made, replace(own, label=name, tuned=name, colour=2))


def sorted_claims(runs: Runs) -> list[Claim]:
    """Figure 6: local steps help, K = 10 is close to K = 20, and FedSGDA is above CODA after as many exchanges."""
    names = {(a, k): label(a, k, SORTED_BATCH) for a in (MB, STORM) for k in LOCAL}
    statement = "multiple local steps attain higher AUC than one (fig. 6a, 6b)"
    claims = local_step_claims(runs, names, statement, "")
    for algorithm in (MB, STORM):
        ten, twenty = (final_percent(runs, names[algorithm, k], AUC, LEVEL) for k in (10, 20))
        text = f"{names[algorithm, 10]} ends at most {MARGIN:.0f} point below K = 20"
        claims.append(non_inferior(text, "the result of K = 10 is close to K = 20 (fig. 6a, 6b)", ten, twenty, MARGIN))
    last = min(
        runs[label_50(MB)][0].columns["exchanges"][-1], runs[label_coda(CODA_STEPS[0])][0].columns["exchanges"][-1]
    )
    for algorithm in (MB, STORM):
        for step in CODA_STEPS:
            pair = [percent_at(runs, name, AUC, last, "exchanges") for name in (label_50(algorithm), label_coda(step))]
            text = f"{short(algorithm)} is above CODA with step {step:g} after {last:.0f} exchanges, 50 clients"
            claims.append(higher(text, "both outperform CoDA (fig. 6c)", *pair))
    return claims


def _sorted_panel(algorithm: str) -> Panel:
    shown = tuple(label(algorithm, k, SORTED_BATCH) for k in LOCAL)
    return Panel("round", AUC, f"test AUC, {short(algorithm)}, {CLIENTS} clients", lines=shown)


SORTED = Figure(
    "FedSGDA, AUC on CIFAR-10 (8x8 pixels, MLP), 90 % sorted by label, against CODA",
    f"{SOURCE}, figure 6",
    setting({"split": "sorted", "share": 0.9, "column": "class"}),
    sorted_lines(),
    (
        _sorted_panel(MB),
        _sorted_panel(STORM),
        Panel(
            "exchanges",
            AUC,
            "test AUC, 50 clients",
            lines=tuple(made.label for made in sorted_lines() if "50 clients" in made.label),
        ),
    ),
    sorted_claims,
    quick_seeds=2,
    quick_share=0.1,
    looks=(5, 10),
    minutes=7.0,
    tuning=Tuning(AUC, _GRID),
)
