"""Local SGDA's figure 1: class-fair classification of Fashion-MNIST over 20 clients."""

from __future__ import annotations

from fedsaddle.reproductions.claims import Claim, Figures, time_to
from fedsaddle.reproductions.figure import Figure, Setting
from fedsaddle.reproductions.sgda_lines import SOURCE, fewer_rounds, lines, panels
from fedsaddle.reproductions.tracks import WINDOW, Tracks

TARGET = 0.5  # accuracy of the worst class
WORST = "worst_class_accuracy"
MEASURES = (("first time there", 1), (f"mean of {WINDOW} rounds", WINDOW))


def fair_claims(tracks: Tracks) -> list[Claim]:
    """Rounds to 50 % of the worst class."""
    claims = []
    for measure, window in MEASURES:

        def rounds(label: str, window: int = window) -> Figures:
            return time_to(tracks, label, TARGET, column=WORST, window=window)

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
