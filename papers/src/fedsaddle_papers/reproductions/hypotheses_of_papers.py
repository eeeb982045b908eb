"""The sentences of the papers with their primary tests, as plain tables; DRFA's stand in a file of their own.

Lines named "tuned" have steps that were tuned alike for every method of the figure. Where a sentence compares several
methods, all comparisons must hold. δ of costs is the log of a ratio: a tenth fewer rounds, or a quarter fewer where the
paper says "far" or "significantly" fewer.
"""

from __future__ import annotations

from fedsaddle_papers.reproductions.hypotheses import (
    NOT_WORSE,
    POINT,
    QUARTER,
    TENTH,
    Decline,
    Final,
    Hypothesis,
    Selected,
    Times,
    than,
)
from fedsaddle_papers.reproductions.hypotheses_of_drfa import DRFA

_FAIR, _ROBUST = "section 5.1, last paragraph; fig. 1", "section 5.2, last paragraph; fig. 2"
_MORE_ROUNDS = "τ = 1 ... requires significantly more communication rounds to reach the same accuracy"
_ACCURACY = "robust_accuracy"
_GAP = than("τ = 10, tuned", "τ = 1, tuned")
_MOMENTUM = than("τ = 5, momentum, tuned", "τ = 5, tuned")

SGDA = (
    Hypothesis("sgda-1", "sgda-fig1", _MORE_ROUNDS, _FAIR, _GAP, Times("worst_class_accuracy", 0.5), QUARTER),
    Hypothesis(
        "sgda-2",
        "sgda-fig1",
        "the superior performance of Momentum Local SGDA, compared to Local SGDA",
        _FAIR,
        _MOMENTUM,
        Times("worst_class_accuracy", 0.5),
        TENTH,
    ),
    Hypothesis("sgda-3", "sgda-fig2", _MORE_ROUNDS, _ROBUST, _GAP, Times(_ACCURACY), QUARTER),
    Hypothesis(
        "sgda-4",
        "sgda-fig2",
        "the superior performance of Momentum Local SGDA+, compared to Local SGDA+ to reach the same accuracy level",
        _ROBUST,
        _MOMENTUM,
        Times(_ACCURACY),
        TENTH,
    ),
)

_PHI = "squared_gradient_of_phi"
_SIMULATION, _AUC = "section 6.1, last paragraph; fig. 1", "section 6.2, last paragraph; fig. 2"
_LAST_PHI = Final(_PHI, 200, falling=True, log=True)
_LAST_AUC = Final("auroc", 20)

FEDSGDA = (
    Hypothesis(
        "fedsgda-1",
        "fedsgda-fig1",
        "as S increases, both FedSGDA-MB and FedSGDA-STORM converge faster",
        _SIMULATION,
        tuple((f"{a}, S = 20, K = 5", f"{a}, S = 5, K = 5") for a in ("MB", "STORM")),
        _LAST_PHI,
        TENTH,
    ),
    Hypothesis(
        "fedsgda-2",
        "fedsgda-fig1",
        "FedSGDA-STORM outperforms FedSGDA-MB for all S",
        _SIMULATION,
        tuple((f"STORM, S = {s}, K = 5", f"MB, S = {s}, K = 5") for s in (5, 10, 20)),
        _LAST_PHI,
        TENTH,
    ),
    Hypothesis(
        "fedsgda-3",
        "fedsgda-fig1",
        "FedSGDA-MB first decreases and then oscillates around a point. In contrast, ... FedSGDA-STORM decreases as t "
        "increases",
        _SIMULATION,
        than("STORM, S = 10, K = 5", "MB, S = 10, K = 5"),
        Decline(_PHI),
        TENTH,
    ),
    Hypothesis(
        "fedsgda-4",
        "fedsgda-fig3",
        "both algorithms achieve the best performance when S = 20 and K = 20",
        "appendix C.1; fig. 3",
        tuple(
            (f"{a}, S = 20, K = 20", f"{a}, S = {s}, K = {k}") for a in ("MB", "STORM") for s, k in ((10, 20), (20, 10))
        ),
        _LAST_PHI,
        TENTH,
    ),
    Hypothesis(
        "fedsgda-5",
        "fedsgda-fig2",
        "both ... with multiple local iterations achieve significantly higher AUC value than with only 1 local "
        "iteration",
        _AUC,
        tuple((f"{a}, K = 10, batch 10", f"{a}, K = 1, batch 10") for a in ("MB", "STORM")),
        _LAST_AUC,
        POINT,
    ),
    Hypothesis(
        "fedsgda-6",
        "fedsgda-fig2",
        "Both of them achieve the best performance when K = 20",
        _AUC,
        tuple((f"{a}, K = 20, batch 10", f"{a}, K = 10, batch 10") for a in ("MB", "STORM")),
        _LAST_AUC,
        0.5 * POINT,
    ),
    Hypothesis(
        "fedsgda-7",
        "fedsgda-fig2",
        "FedSGDA-STORM outperforms FedSGDA-MB when K is set to 20",
        _AUC,
        than("STORM, K = 20, batch 10", "MB, K = 20, batch 10"),
        _LAST_AUC,
        0.5 * POINT,
    ),
    Hypothesis(
        "fedsgda-8",
        "fedsgda-fig2",
        "FedSGDA-MB varies with different minibatches, while FedSGDA-STORM is insensitive to the minibatch size",
        _AUC,
        than("MB, K = 20, batch 5 | MB, K = 20, batch 10", "STORM, K = 20, batch 5 | STORM, K = 20, batch 10"),
        _LAST_AUC,
        0.5 * POINT,
    ),
    Hypothesis(
        "fedsgda-9",
        "fedsgda-fig5",
        "when K = 20, both ... achieve higher test AUC values as S increases",
        "appendix C.2.1; figs. 2, 4 and 5",
        tuple((f"{a}, K = 20, batch 10", f"{a}, K = 20, batch 10, S = 10") for a in ("MB", "STORM")),
        _LAST_AUC,
        0.5 * POINT,
    ),
    Hypothesis(
        "fedsgda-10",
        "fedsgda-fig6",
        "both algorithms with multiple local steps attain higher AUC values than only one local step",
        "appendix C.2.2; fig. 6a, 6b",
        tuple((f"{a}, K = 10, batch 10", f"{a}, K = 1, batch 10") for a in ("MB", "STORM")),
        _LAST_AUC,
        POINT,
    ),
    Hypothesis(
        "fedsgda-11",
        "fedsgda-fig6",
        "both FedSGDA-MB and FedSGDA-STORM outperform CoDA",
        "appendix C.2.2, last sentence; fig. 6c",
        tuple((f"{a}, 50 clients, tuned", "CODA, 50 clients, tuned") for a in ("MB", "STORM")),
        Final("auroc", 20, same="exchanges"),
        0.5 * POINT,
    ),
)

_WINDOW = "section 6.1, first observation"
_FINAL_AUC = Final("auroc", 1)

CODASCA = (
    Hypothesis(
        "codasca-1",
        "codasca-fig1",
        "CODASCA enjoys a larger communication window size without hurting the performance than CODA+",
        f"{_WINDOW}; fig. 1",
        than("K = 5, CODASCA, I = 64", "K = 5, CODA+, I = 64"),
        _FINAL_AUC,
        0.5 * POINT,
    ),
    Hypothesis(
        "codasca-2",
        "codasca-fig1",
        "CODASCA is consistently better for different values of K",
        "section 6.1, second observation; fig. 1",
        than("K = 2, CODASCA, I = 64", "K = 2, CODA+, I = 64"),
        _FINAL_AUC,
        0.5 * POINT,
    ),
    Hypothesis(
        "codasca-3",
        "codasca-fig2",
        "The same phenomena occur on CIFAR100 data",
        "section 6.1, second observation, last sentence; fig. 2",
        tuple((f"K = {k}, CODASCA, I = 64", f"K = {k}, CODA+, I = 64") for k in (16, 8)),
        _FINAL_AUC,
        0.5 * POINT,
    ),
    Hypothesis(
        "codasca-4",
        "codasca-table3",
        "CODASCA performs consistently better than CODA+ on C0, C2, C3, C4",
        "section 6.1, last sentence; table 3",
        than("CODASCA, I = 256", "CODA+, I = 256"),
        _FINAL_AUC,
        0.2 * POINT,
    ),
    Hypothesis(
        "codasca-5",
        "codasca-table4",
        "using more data sources from different organizations can efficiently improve the performance",
        "section 6.2, 'Results'; table 4",
        than("5 sources", "1 source"),
        _FINAL_AUC,
        0.2 * POINT,
    ),
)

_ABLATION, _BUFFERS = "section 4, 'Ablation Study'; fig. 1", "appendix, 'larger buffers'; fig. 2"
_PARTIAL = Selected("partial_auroc_30")

FEDX = (
    Hypothesis(
        "fedx-1",
        "fedx-table1",
        "FedX2 is better than all local methods (i.e., Local SGD, Local Pair and CODASCA)",
        "section 4, partial AUC, observations (i) to (iii); table 1",
        tuple(("CIFAR-10: FedX2", f"CIFAR-10: {m}") for m in ("Local SGD", "Local Pair", "CODASCA")),
        _PARTIAL,
        0.5 * POINT,
    ),
    Hypothesis(
        "fedx-2",
        "fedx-table1",
        "[FedX2] achieves competitive performance as the Centralized method",
        "section 4, partial AUC, observation (i); table 1",
        than("CIFAR-10: FedX2", "CIFAR-10: Centralised"),
        _PARTIAL,
        POINT,
        NOT_WORSE,
    ),
    Hypothesis(
        "fedx-3",
        "fedx-table2",
        "FedX1 is more robust to label noises compared to other local methods, including Local SGD, Local Pair, and "
        "CODASCA",
        "section 4, corrupted labels; table 2",
        tuple(("CIFAR-10, flipped: FedX1", f"CIFAR-10, flipped: {m}") for m in ("Local SGD", "Local Pair", "CODASCA")),
        Selected("auroc"),
        0.5 * POINT,
    ),
    Hypothesis(
        "fedx-4",
        "fedx-table2",
        "FedX1 has competitive performance with the Centralized method",
        "section 4, corrupted labels, last sentence; table 2",
        than("CIFAR-10, flipped: FedX1", "CIFAR-10, flipped: Centralised"),
        Selected("auroc"),
        POINT,
        NOT_WORSE,
    ),
    Hypothesis(
        "fedx-5",
        "fedx-fig1",
        "our algorithm can tolerate a certain value of K for skipping communications without harming the performance",
        _ABLATION,
        than("CIFAR-10: K = 32, N = 16", "CIFAR-10: K = 1, N = 16"),
        _PARTIAL,
        POINT,
        NOT_WORSE,
    ),
    Hypothesis(
        "fedx-6",
        "fedx-fig1",
        "using data from more sources can dramatically improve the performance",
        _ABLATION,
        than("CIFAR-10: K = 32, N = 16", "CIFAR-10: K = 32, N = 4"),
        _PARTIAL,
        POINT,
    ),
    Hypothesis(
        "fedx-7",
        "fedx-fig2",
        "keeping some larger τ can improve the performance",
        _BUFFERS,
        than("CIFAR-10: K = 32, N = 16, τ = 5", "CIFAR-10: K = 32, N = 16"),
        _PARTIAL,
        0.3 * POINT,
    ),
)

PAPERS: dict[str, tuple[Hypothesis, ...]] = {
    "DRFA": DRFA,
    "Local SGDA": SGDA,
    "FedSGDA": FEDSGDA,
    "CODASCA": CODASCA,
    "FedX": FEDX,
}

# Questions beyond the papers: tested in the same way, and not counted among their sentences.
BEYOND = (
    Hypothesis(
        "beyond-1",
        "codasca-parts",
        "at 1 % positives CODASCA is above FedAvg with cross-entropy",
        "not in a paper",
        than("1 %: CODASCA", "1 %: FedAvg"),
        _FINAL_AUC,
        0.5 * POINT,
    ),
    Hypothesis(
        "beyond-2",
        "codasca-parts",
        "at 1 % positives the AUC loss pays beside control variates",
        "not in a paper",
        than("1 %: CODASCA", "1 %: SCAFFOLD"),
        _FINAL_AUC,
        0.5 * POINT,
    ),
    Hypothesis(
        "beyond-3",
        "fedx-skew",
        "with skewed labels normalised weights are better than FedX2's own at K = 32",
        "not in a paper",
        than("CIFAR-10, skewed: FedX2, K = 32, normalised", "CIFAR-10, skewed: FedX2"),
        _PARTIAL,
        0.5 * POINT,
    ),
)


def papers() -> dict[str, tuple[Hypothesis, ...]]:
    """The sentences by paper."""
    return PAPERS


def of_figure(figure: str) -> tuple[Hypothesis, ...]:
    """The sentences that a figure tests, and questions beyond the papers."""
    everything = (*(h for hypotheses in papers().values() for h in hypotheses), *BEYOND)
    return tuple(h for h in everything if h.figure == figure)
