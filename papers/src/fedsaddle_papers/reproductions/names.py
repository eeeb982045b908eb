"""The figures that `fedsaddle reproduce` runs, as a plain table without heavy imports."""

from __future__ import annotations

from fedsaddle.config.registry import Entry

_DRFA = "Deng, Kamani, Mahdavi 2020"
_CODASCA = "Yuan, Guo, Xu, Ying, Yang 2021"
_FEDX = "Guo, Jin, Luo, Yang 2023"
_SGDA = "Sharma, Panda, Joshi, Varshney 2022"
_FEDSGDA = "Xie, Zhang, Zhang, Shen, Qian"

FIGURES: dict[str, Entry] = {
    "drfa-fig1": Entry(
        "fedsaddle_papers.reproductions.drfa:GAPS",
        "synchronisation gap 5, 10, 15 on Fashion-MNIST, one class a client",
        f"{_DRFA}, figure 1",
    ),
    "drfa-fig2": Entry(
        "fedsaddle_papers.reproductions.drfa:BASELINES",
        "DRFA, AFL, q-FedAvg and FedAvg on Fashion-MNIST, one class a client",
        f"{_DRFA}, figure 2",
    ),
    "drfa-fig3": Entry(
        "fedsaddle_papers.reproductions.drfa:GLOBAL",
        "global training accuracy on Fashion-MNIST over 100 rounds",
        f"{_DRFA}, figure 3",
    ),
    "drfa-fig4": Entry(
        "fedsaddle_papers.reproductions.drfa:GENDER",
        "Adult by gender over 10 nodes, logistic regression",
        f"{_DRFA}, figure 4",
    ),
    "drfa-fig5": Entry(
        "fedsaddle_papers.reproductions.drfa:RACE",
        "Adult by race over 10 nodes, MLP 14-50-50-2",
        f"{_DRFA}, figure 5",
    ),
    "drfa-fig6": Entry(
        "fedsaddle_papers.reproductions.drfa_speakers:SPEAKERS",
        "Shakespeare, 100 speakers, GRU with 50 units",
        f"{_DRFA}, figure 6",
    ),
    "sgda-fig1": Entry(
        "fedsaddle_papers.reproductions.sgda:FAIR",
        "Local SGDA with τ = 1, 5, 10: class-fair classification of Fashion-MNIST",
        f"{_SGDA}, figure 1",
    ),
    "sgda-fig2": Entry(
        "fedsaddle_papers.reproductions.sgda:CIFAR_ACCURACY",
        "Local SGDA+ with τ = 1, 5, 10: robust test accuracy on CIFAR-10",
        f"{_SGDA}, figure 2",
    ),
    "sgda-fig3": Entry(
        "fedsaddle_papers.reproductions.sgda:CIFAR_LOSS",
        "the same runs: robust test loss on CIFAR-10",
        f"{_SGDA}, figure 3",
    ),
    "sgda-fig4": Entry(
        "fedsaddle_papers.reproductions.sgda:FASHION",
        "Local SGDA+ with τ = 1, 5, 10: robust test loss and accuracy on Fashion-MNIST",
        f"{_SGDA}, figure 4",
    ),
    "fedsgda-fig1": Entry(
        "fedsaddle_papers.reproductions.fedsgda:COHORT",
        "the nonconvex-PL simulation, S = 5, 10, 20",
        f"{_FEDSGDA}, figure 1",
    ),
    "fedsgda-fig2": Entry(
        "fedsaddle_papers.reproductions.fedsgda_auc:FIVE",
        "AUC on CIFAR-10, airplane against the rest, 100 clients, S = 5",
        f"{_FEDSGDA}, figure 2",
    ),
    "fedsgda-fig3": Entry(
        "fedsaddle_papers.reproductions.fedsgda:GRID",
        "the nonconvex-PL simulation, every S and K of 5, 10, 20",
        f"{_FEDSGDA}, figure 3",
    ),
    "fedsgda-fig4": Entry(
        "fedsaddle_papers.reproductions.fedsgda_auc:TEN",
        "as figure 2, S = 10",
        f"{_FEDSGDA}, figure 4",
    ),
    "fedsgda-fig5": Entry(
        "fedsaddle_papers.reproductions.fedsgda_auc:TWENTY",
        "as figure 2, S = 20, and K = 20 for every S",
        f"{_FEDSGDA}, figure 5",
    ),
    "fedsgda-fig6": Entry(
        "fedsaddle_papers.reproductions.fedsgda_auc:SORTED",
        "AUC on CIFAR-10, 90 % sorted by label, and against CODA",
        f"{_FEDSGDA}, figure 6",
    ),
    "codasca-fig1": Entry(
        "fedsaddle_papers.reproductions.codasca:FASHION_10",
        "the window of CODASCA and CODA+ on Fashion-MNIST-IH, imratio 10 %",
        f"{_CODASCA}, figure 1",
    ),
    "codasca-fig2": Entry(
        "fedsaddle_papers.reproductions.codasca:CIFAR_10",
        "the same on CIFAR100-IH, imratio 10 %",
        f"{_CODASCA}, figure 2",
    ),
    "codasca-fig3": Entry(
        "fedsaddle_papers.reproductions.codasca:FASHION_30",
        "the same on Fashion-MNIST-IH, imratio 30 %",
        f"{_CODASCA}, figure 3",
    ),
    "codasca-fig4": Entry(
        "fedsaddle_papers.reproductions.codasca:CIFAR_30",
        "the same on CIFAR100-IH, imratio 30 %",
        f"{_CODASCA}, figure 4",
    ),
    "codasca-table3": Entry(
        "fedsaddle_papers.reproductions.codasca:SITES",
        "PneumoniaMNIST over 16 sites, windows of 128 and 256",
        f"{_CODASCA}, table 3",
    ),
    "codasca-table4": Entry(
        "fedsaddle_papers.reproductions.codasca:SOURCES_ADDED",
        "PneumoniaMNIST with 1 to 5 sources",
        f"{_CODASCA}, table 4",
    ),
    "codasca-parts": Entry(
        "fedsaddle_papers.reproductions.codasca_parts:PARTS",
        "CODASCA, CODA+, SCAFFOLD and FedAvg at 1 and 10 % positives: which part pays",
        f"beyond {_CODASCA}",
    ),
    "fedx-table1": Entry(
        "fedsaddle_papers.reproductions.fedx:TABLE_1",
        "partial AUC on CIFAR-10 and CIFAR-100: FedX2 and four others",
        f"{_FEDX}, table 1",
    ),
    "fedx-table2": Entry(
        "fedsaddle_papers.reproductions.fedx:TABLE_2",
        "AUC with 20 % flipped labels on CIFAR-10: FedX1 and four others",
        f"{_FEDX}, table 2",
    ),
    "fedx-fig1": Entry(
        "fedsaddle_papers.reproductions.fedx:ABLATION",
        "FedX2 with more local steps, and with more clients, on CIFAR-10",
        f"{_FEDX}, figure 1",
    ),
    "fedx-fig2": Entry(
        "fedsaddle_papers.reproductions.fedx:BUFFERS",
        "FedX2 with the scores of one round and of five, on CIFAR-10",
        f"{_FEDX}, figure 2",
    ),
    "fedx-skew": Entry(
        "fedsaddle_papers.reproductions.fedx:SKEW",
        "partial AUC on CIFAR-10 where sites have few positives or none",
        f"beyond {_FEDX}",
    ),
}
