"""The coefficients of a study's default with their standard errors, in units that a person knows."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from fedsaddle.algorithms.newton import Newton, NewtonState
from fedsaddle.array_types import Floats
from fedsaddle.documents.summary import Coefficient, Coefficients, SiteInfluence
from fedsaddle.engines.choose import make_engine
from fedsaddle.errors import BadInput
from fedsaddle.metrics.inference import Inference, inference
from fedsaddle.runs.callbacks import LambdaCallback
from fedsaddle.runs.engines import Vectorised
from fedsaddle.runs.run import run
from fedsaddle.studies.site_questions import Model

Measure = Literal["odds ratio", "rate ratio", "hazard ratio", "difference"]
MOST_SITES = 40  # that are left out in turn
ROUNDS = 30


def coefficients(model: Model, measure: Measure = "odds ratio", scale: float = 1.0) -> Coefficients | str | None:
    """Those of an exact regression, by a fit in double precision; why not, or None for another model.

    Standard errors allow for the penalty as a normal prior, and for several rows of a patient where patients are known.

    Args:
        model: The regression.
        measure: What its coefficients are, or the logarithms of.
        scale: Of the labels, which were divided by it.
    """
    algorithm, data = model.algorithm, replace(model.data, test=None, validation=None)
    if not isinstance(algorithm, Newton) or not data.encoding:
        return None
    patients = data.train.units is not None
    exact = replace(algorithm, sandwich=patients)
    quiet = LambdaCallback(on_warning=lambda text: None)
    result = run(exact, data, ROUNDS, evaluate_every=ROUNDS, engine=Vectorised(workers=1), callbacks=[quiet])
    try:
        classes = data.classes if len(data.classes) > 2 else None
        own = inference(result, classes=classes, covariance="sandwich" if patients else "model", prior=True)
    except BadInput as reason:
        return f"the default has no standard errors: {reason.remedy}"
    combinations, names = own.combinations_per(data)
    combinations = scale * combinations
    if not names:
        return None
    found = own.combined(combinations, names)
    made = Coefficients(
        of=model.name,
        measure=measure,
        rows=found.rows,
        patients=found.units,
        penalty=float(exact.problem.ridge().max()) * found.rows,
        listed=[
            Coefficient(
                name=name,
                estimate=float(found.estimate[k]),
                standard_error=float(found.standard_error[k]),
                interval=(float(found.interval[k, 0]), float(found.interval[k, 1])),
                p_value=float(found.p_value[k]),
            )
            for k, name in enumerate(names)
        ],
        sites=_without_each(exact, result.server, model, combinations, found),
    )
    return made if classes is None else made.model_copy(update={"against": classes[0]})


def _without_each(
    algorithm: Newton, server: NewtonState, model: Model, combinations: Floats, found: Inference
) -> list[SiteInfluence]:
    """What leaving out each site changes most; nothing for many sites, or where the others have no solution."""
    data = model.data
    if not 2 < data.count <= MOST_SITES:
        return []
    clients = make_engine("vectorised", algorithm.problem, data.train, 0, workers=1)
    try:
        each = algorithm.without_each(server, clients)
    except BadInput:
        return []
    contrasts = algorithm.problem.layout().contrasts()
    own = each if contrasts is None else each @ contrasts.T
    moved = own.numpy() @ combinations.T
    changes = (moved - found.estimate) / found.standard_error
    most = np.abs(changes).argmax(1)
    return [
        SiteInfluence(
            site=data.names[i],
            rows=int(data.train.sizes[i]),
            coefficient=found.names[k],
            estimate=float(moved[i, k]),
            change=float(changes[i, k]),
        )
        for i, k in enumerate(most)
    ]
