"""The figures that can be run anew, as a plain table: reading it imports nothing heavy."""

from __future__ import annotations

from fedsaddle.data.registry import Entry

_DRFA = "Deng, Kamani, Mahdavi 2020"

EXPERIMENTS: dict[str, Entry] = {
    "drfa-fig1": Entry(
        "fedsaddle.experiments.drfa_fashion:GAPS",
        "synchronisation gap 5, 10, 15 on Fashion-MNIST, one class a client",
        f"{_DRFA}, figure 1",
    ),
    "drfa-fig2": Entry(
        "fedsaddle.experiments.drfa_fashion:BASELINES",
        "DRFA, AFL, q-FedAvg and FedAvg on Fashion-MNIST, one class a client",
        f"{_DRFA}, figure 2",
    ),
    "drfa-fig3": Entry(
        "fedsaddle.experiments.drfa_fashion:GLOBAL",
        "global training accuracy on Fashion-MNIST over 100 rounds",
        f"{_DRFA}, figure 3",
    ),
    "drfa-fig4": Entry(
        "fedsaddle.experiments.drfa_adult:GENDER",
        "Adult by gender over 10 nodes, logistic regression",
        f"{_DRFA}, figure 4",
    ),
    "drfa-fig5": Entry(
        "fedsaddle.experiments.drfa_adult:RACE",
        "Adult by race over 10 nodes, MLP 14-50-50-2",
        f"{_DRFA}, figure 5",
    ),
    "drfa-fig6": Entry(
        "fedsaddle.experiments.drfa_shakespeare:SPEAKERS",
        "Shakespeare, 100 speakers, GRU with 50 units",
        f"{_DRFA}, figure 6",
    ),
}
