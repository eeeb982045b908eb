"""The figures that can be run anew, as a plain table: reading it imports nothing heavy."""

from __future__ import annotations

from fedsaddle.data.registry import Entry

_DRFA = "Deng, Kamani, Mahdavi 2020"
_SGDA = "Sharma, Panda, Joshi, Varshney 2022"

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
    "sgda-fig1": Entry(
        "fedsaddle.experiments.sgda_fair:FAIR",
        "Local SGDA with τ = 1, 5, 10: class-fair classification of Fashion-MNIST",
        f"{_SGDA}, figure 1",
    ),
    "sgda-fig2": Entry(
        "fedsaddle.experiments.sgda_robust:CIFAR_ACCURACY",
        "Local SGDA+ with τ = 1, 5, 10: robust test accuracy on CIFAR-10",
        f"{_SGDA}, figure 2",
    ),
    "sgda-fig3": Entry(
        "fedsaddle.experiments.sgda_robust:CIFAR_LOSS",
        "the same runs: robust test loss on CIFAR-10",
        f"{_SGDA}, figure 3",
    ),
    "sgda-fig4": Entry(
        "fedsaddle.experiments.sgda_robust:FASHION",
        "Local SGDA+ with τ = 1, 5, 10: robust test loss and accuracy on Fashion-MNIST",
        f"{_SGDA}, figure 4",
    ),
}
