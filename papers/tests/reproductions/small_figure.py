"""A figure of a few seconds: digits by class, DRFA against FedAvg."""

from fedsaddle_papers.reproductions.claims import Claim, lower, never_reached, time_to_target
from fedsaddle_papers.reproductions.curves import Runs
from fedsaddle_papers.reproductions.figure import Figure, Line, Panel, Setting, Tuning
from fedsaddle_papers.reproductions.hypotheses import Final, Hypothesis


def claims(runs: Runs) -> list[Claim]:
    rounds = [time_to_target(runs, label, 0.3) for label in ("DRFA", "FedAvg")]
    return [lower("DRFA is sooner", "yes", *rounds), never_reached("FedAvg never", "never", rounds[1])]


SMALL = Figure(
    title="Digits",
    source="nobody 2026, figure 0",
    setting=Setting({"name": "digits", "split": "by-class", "clients": 10}, "mlp", {"hidden": [5]}, evaluate_every=2),
    lines=(
        Line(
            "DRFA",
            "DRFA",
            {"batch_size": 10, "dual_step": 0.01, "primal_step": 0.1, "weighting": "sample"},
            12,
            tuned="DRFA",
        ),
        Line("FedAvg", "FedAvg", {"batch_size": 10}, 6, 1, "--", chunk=3),
    ),
    panels=(Panel("round", "test worst", "worst", 4, 0.5), Panel("local_steps", "test std", "deviation")),
    claims=claims,
    seeds=3,
    quick_seeds=2,
    quick_share=0.5,
    looks=(3, 4),
    tuning=Tuning("test mean", {"primal_step": (1e-4, 0.1, 1e30), "dual_step": (0.01,)}, seeds=(1000,), tolerance=0.0),
)

SENTENCES = (
    Hypothesis("small-1", "small", "DRFA is better", "page 0", (("DRFA", "FedAvg"),), Final("test worst", 2), 1.0),
)
