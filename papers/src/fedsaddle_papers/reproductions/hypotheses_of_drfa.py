"""The sentences of DRFA's paper with their primary tests, as a plain table; all lines are tuned alike."""

from __future__ import annotations

from fedsaddle_papers.reproductions.hypotheses import (
    BELOW_LEVEL,
    NOT_WORSE,
    POINT,
    QUARTER,
    TENTH,
    Final,
    Hypothesis,
    Mean,
    Peak,
    Times,
    than,
)

_WORST, _STD = "test worst", "test std"
_DRFA, _AFL, _Q, _FEDAVG = "DRFA, tuned", "AFL, tuned", "q-FedAvg, tuned", "FedAvg, tuned"
_GAPS = "section 5, paragraph 'Synchronization gap'"
_BASELINES = "section 5, paragraph 'Comparison with baselines'"
_ADULT = "appendix A, 'Experiments on Adult dataset'"

DRFA = (
    Hypothesis(
        "drfa-1",
        "drfa-fig1",
        "the larger synchronization gap needs fewer number of communication ... to achieve 50% accuracy in the worst "
        "distribution",
        f"{_GAPS}, last sentence; fig. 1b",
        than("τ = 15, tuned", "τ = 5, tuned"),
        Times(_WORST, 0.5),
        TENTH,
    ),
    Hypothesis(
        "drfa-2",
        "drfa-fig1",
        "the smaller the synchronization gap is, the fewer number of iterations required to achieve 50% accuracy in "
        "the worst distribution",
        f"{_GAPS}, last sentence but one; fig. 1a",
        than("τ = 5, tuned", "τ = 15, tuned"),
        Times(_WORST, 0.5, unit="local_steps"),
        TENTH,
    ),
    Hypothesis(
        "drfa-3",
        "drfa-fig2",
        "DRFA outperforms AFL, q-FedAvg and FedAvg in terms of number of communications ... to achieve the same level "
        "of worst distribution accuracy",
        f"{_BASELINES}; fig. 2a",
        than(_DRFA, _AFL, _Q, _FEDAVG),
        Times(_WORST, 0.5),
        TENTH,
    ),
    Hypothesis(
        "drfa-4",
        "drfa-fig2",
        "AFL can reach to the 50% worst distribution accuracy with fewer number of local iterations",
        f"{_BASELINES}; fig. 2b",
        than(_AFL, _DRFA),
        Times(_WORST, 0.5, unit="local_steps"),
        TENTH,
    ),
    Hypothesis(
        "drfa-5",
        "drfa-fig2",
        "FedAvg ... cannot reach the 50% accuracy even after 300 rounds of communication",
        f"{_BASELINES}, last paragraph; fig. 2a",
        than("FedAvg", "FedAvg"),
        Peak(_WORST),
        0.0,
        BELOW_LEVEL,
        50.0,
    ),
    Hypothesis(
        "drfa-6",
        "drfa-fig2",
        "DRFA can achieve the same level [of deviation] as AFL and q-FedAvg with fewer number of communication rounds",
        f"{_BASELINES}, last paragraph; fig. 2c",
        than(_DRFA, _AFL, _Q),
        Times(_STD, falling=True),
        TENTH,
    ),
    Hypothesis(
        "drfa-7",
        "drfa-fig3",
        "[in] global training accuracy ... DRFA performs as good as FedAvg",
        f"{_BASELINES}, last paragraph; fig. 3",
        than(_DRFA, _FEDAVG),
        Final("train global", 10),
        2 * POINT,
        NOT_WORSE,
    ),
    Hypothesis(
        "drfa-8",
        "drfa-fig3",
        "AFL needs more communication rounds to reach to the same level [of global accuracy]",
        f"{_BASELINES}, last sentence; fig. 3",
        than(_DRFA, _AFL),
        Times("train global"),
        TENTH,
    ),
    Hypothesis(
        "drfa-9",
        "drfa-fig4",
        "DRFA can achieve the same level of worst accuracy with a far fewer number of communication rounds",
        f"{_ADULT}, by gender; fig. 4a",
        than(_DRFA, _AFL, _Q),
        Times(_WORST),
        QUARTER,
    ),
    Hypothesis(
        "drfa-10",
        "drfa-fig4",
        "FedAvg after the same number of communications as AFL still cannot reach the same level of worst accuracy",
        f"{_ADULT}, by gender; fig. 4a",
        than(_DRFA, _FEDAVG),
        Final(_WORST),
        POINT,
    ),
    Hypothesis(
        "drfa-11",
        "drfa-fig4",
        "DRFA efficiently decreases the variance with a much fewer number of communication rounds with respect to "
        "other algorithms",
        f"{_ADULT}, by gender, last sentence; fig. 4c",
        than(_DRFA, _AFL, _Q, _FEDAVG),
        Mean(_STD, 300, falling=True),
        0.5 * POINT,
    ),
    Hypothesis(
        "drfa-12",
        "drfa-fig5",
        "DRFA can achieve the same worst-case accuracy with a much fewer number of communications than AFL and "
        "q-FedAvg",
        f"{_ADULT}, by race; fig. 5a",
        than(_DRFA, _AFL, _Q),
        Times(_WORST),
        QUARTER,
    ),
    Hypothesis(
        "drfa-13",
        "drfa-fig5",
        "with the same number of local iterations, AFL still cannot reach to the DRFA performance",
        f"{_ADULT}, by race; fig. 5b",
        than(_DRFA, _AFL),
        Final(_WORST, same="local_steps"),
        POINT,
    ),
    Hypothesis(
        "drfa-14",
        "drfa-fig5",
        "DRFA is more successful than q-FedAvg to balance the performance of clients",
        f"{_ADULT}, by race, last sentence; fig. 5c",
        than(_DRFA, _Q),
        Mean(_STD, 300, falling=True),
        0.5 * POINT,
    ),
    Hypothesis(
        "drfa-15",
        "drfa-fig6",
        "DRFA and FedAvg outperform the other two algorithms in terms of communication efficiency",
        "appendix A, caption of figure 6; fig. 6a",
        (*than(_DRFA, _AFL, _Q), *than(_FEDAVG, _AFL, _Q)),
        Final(_WORST, same="round"),
        POINT,
    ),
    Hypothesis(
        "drfa-16",
        "drfa-fig6",
        "AFL can achieve the same level with lower computation cost",
        "appendix A, caption of figure 6; fig. 6b",
        than(_AFL, _DRFA),
        Final(_WORST, same="local_steps"),
        2 * POINT,
        NOT_WORSE,
    ),
)
