"""FedSGDA's figures 2, 4 and 5: min-max AUC on CIFAR-10, airplane against the rest, over 500 clients.

CPU-sized: 10,000 training pictures (`data_batch_1`) averaged to 8x8 pixels, so 20 a client instead of 100, and an MLP
192-32-32-32-32-1 of as many weight layers as the paper's network (3 convolutions and 2 dense). The steps are those of
table 2, but η and c_η are at most 0.1 where K > 1: there 1 diverges on this network.
"""

from __future__ import annotations

import numpy as np

from fedsaddle.reproductions.claims import Claim, Figures, less, levels, more, time_to_same_level
from fedsaddle.reproductions.fedsgda_lines import MB, SOURCE, STORM, line, minibatch, short, storm
from fedsaddle.reproductions.figure import Figure, Line, Options, Panel, Setting
from fedsaddle.reproductions.tracks import Tracks

ROUNDS = 100
EVERY = 10  # rounds between evaluations
LEVEL = 20  # rounds at the end that make up a level
LOCAL, BATCHES = (1, 10, 20), (5, 10)  # K and the minibatch
LARGEST = 0.1  # of η and c_η where K > 1
RHO = 1 / 5
AUC = "auroc"

# Table 2, (S, K, minibatch): η, γ of MB; c_η, c_γ, c_α of STORM, whose ρ is 1/5.
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
    """The pictures, the network and the problem of all AUC figures."""
    options = {"positive": ["airplane"], "normalise": "symmetric", "first": 10_000, "side": 8}
    return Setting(
        data={"name": "cifar10", **split, "clients": 500, "options": options},
        model="mlp",
        model_options={"hidden": [32, 32, 32, 32]},
        problem="auc",
        evaluate_every=EVERY,
    )


def steps(
    algorithm: str,
    local: int,
    flat: tuple[float, float],
    falling: tuple[float, float, float],
    largest: float = LARGEST,
) -> Options:
    """A row of the table, with η and c_η small enough for this network."""
    most = 1.0 if local == 1 else largest
    if algorithm == MB:
        return minibatch(min(most, flat[0]), float(flat[1]))
    return storm(min(most, falling[0]), float(falling[1]), falling[2], RHO)


def label(algorithm: str, local: int, batch: int, sampled: int | None = None) -> str:
    """The name of a line; S is named where it is not the figure's."""
    return f"{short(algorithm)}, K = {local}, batch {batch}" + ("" if sampled is None else f", S = {sampled}")


def lines(sampled: int) -> list[Line]:
    """Both algorithms with every K and minibatch."""
    made = []
    for batch in BATCHES:
        for colour, local in enumerate(LOCAL):
            for algorithm in (MB, STORM):
                found = steps(algorithm, local, *TABLE_2[sampled, local, batch])
                name = label(algorithm, local, batch)
                made.append(line(name, algorithm, sampled, local, batch, found, ROUNDS, colour))
    return made


def fewer_clients() -> list[Line]:
    """K = 20 with minibatches of 10 at the S of the other figures."""
    made = []
    for colour, sampled in ((3, 5), (4, 10)):
        for algorithm in (MB, STORM):
            found = steps(algorithm, 20, *TABLE_2[sampled, 20, 10])
            made.append(line(label(algorithm, 20, 10, sampled), algorithm, sampled, 20, 10, found, ROUNDS, colour))
    return made


def local_step_claims(tracks: Tracks, names: dict[tuple[str, int], str], said: str, best: str) -> list[Claim]:
    """K = 10 and 20 above K = 1 at the end and sooner at its level; K = 20 above K = 10."""
    claims = []
    for algorithm in (MB, STORM):
        once = names[algorithm, 1]
        for local in (10, 20):
            many = names[algorithm, local]
            pair = [levels(tracks, name, AUC, LEVEL) for name in (many, once)]
            claims.append(more(f"{many} ends with a higher AUC than K = 1 (last {LEVEL} rounds)", said, *pair))
            sooner = time_to_same_level(tracks, many, once, AUC, window=EVERY)
            claims.append(less(f"{many} needs fewer rounds than K = 1 to the level that both keep", said, *sooner))
        if best:
            pair = [levels(tracks, names[algorithm, local], AUC, LEVEL) for local in (20, 10)]
            claims.append(more(f"{names[algorithm, 20]} ends with a higher AUC than K = 10", best, *pair))
    return claims


def claims_of(number: int) -> list[str]:
    """The paper's words, with the figure's number."""
    return [
        f"multiple local iterations achieve significantly higher AUC than one (fig. {number})",
        f"both achieve the best performance when K = 20 (fig. {number})",
        f"STORM outperforms MB at K = 20 (fig. {number})",
        f"MB varies with the minibatch, STORM is insensitive (fig. {number})",
    ]


def auc_claims(tracks: Tracks, number: int) -> list[Claim]:
    """Local steps help, STORM is above MB at K = 20, and less sensitive to the minibatch."""
    many, best, above, steady = claims_of(number)
    claims = []
    for batch in BATCHES:
        names = {(a, k): label(a, k, batch) for a in (MB, STORM) for k in LOCAL}
        claims += local_step_claims(tracks, names, many, best)
        pair = [levels(tracks, names[a, 20], AUC, LEVEL) for a in (STORM, MB)]
        claims.append(more(f"STORM ends with a higher AUC than MB, K = 20, batch {batch}", above, *pair))

    def gap(algorithm: str) -> Figures:
        small, large = (levels(tracks, label(algorithm, 20, b), AUC, LEVEL).values for b in BATCHES)
        return Figures(f"{short(algorithm)}'s gap", np.abs(large - small), digits=1)

    text = "MB's AUC differs more between minibatches of 5 and 10 than STORM's, K = 20"
    return [*claims, more(text, steady, gap(MB), gap(STORM))]


def five_claims(tracks: Tracks) -> list[Claim]:
    """Figure 2."""
    return auc_claims(tracks, 2)


def ten_claims(tracks: Tracks) -> list[Claim]:
    """Figure 4."""
    return auc_claims(tracks, 4)


def twenty_claims(tracks: Tracks) -> list[Claim]:
    """Figure 5, and that more clients a round help."""
    claims = auc_claims(tracks, 5)
    said = "when K = 20, both achieve higher test AUC as S increases (figs. 2, 4, 5)"
    for algorithm in (MB, STORM):
        names = {5: label(algorithm, 20, 10, 5), 10: label(algorithm, 20, 10, 10), 20: label(algorithm, 20, 10)}
        for few, many in ((5, 10), (10, 20)):
            pair = [levels(tracks, names[s], AUC, LEVEL) for s in (many, few)]
            text = f"{short(algorithm)}, K = 20, batch 10: S = {many} ends with a higher AUC than S = {few}"
            claims.append(more(text, said, *pair))
    return claims


def _panels(extra: tuple[str, ...] = ()) -> tuple[Panel, ...]:
    panels = []
    for batch in BATCHES:
        for algorithm in (MB, STORM):
            shown = tuple(label(algorithm, k, batch) for k in LOCAL)
            panels.append(Panel("round", AUC, f"test AUC, {short(algorithm)}, batch {batch}", lines=shown))
        both = tuple(label(a, 20, batch) for a in (MB, STORM)) + (extra if batch == 10 else ())
        panels.append(Panel("round", AUC, f"test AUC, K = 20, batch {batch}", lines=both))
    return tuple(panels)


def _figure(number: int, sampled: int) -> Figure:
    extra = fewer_clients() if sampled == 20 else []
    return Figure(
        f"FedSGDA, AUC on CIFAR-10 (8x8 pixels, MLP), airplane against the rest, 500 clients, S = {sampled}",
        f"{SOURCE}, figure {number}",
        setting({"split": "iid"}),
        tuple(lines(sampled) + extra),
        _panels(tuple(made.label for made in extra)),
        {2: five_claims, 4: ten_claims, 5: twenty_claims}[number],
        seeds=3,
        quick_seeds=2,
        quick_share={5: 0.4, 10: 0.3, 20: 0.2}[sampled],
        rows=2,
    )


FIVE = _figure(2, 5)
TEN = _figure(4, 10)
TWENTY = _figure(5, 20)
