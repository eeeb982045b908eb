"""What a site receives at the end of a study: the model, and what it says of the site's own rows, which never leave."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedsaddle.array_types import Floats, Ints
from fedsaddle.config.build import build_on
from fedsaddle.config.run_config import run_config
from fedsaddle.config.schema import PrivacySection
from fedsaddle.data.federated import FederatedData
from fedsaddle.data.store import Stacked
from fedsaddle.data.table import Encoded, Table
from fedsaddle.deployment.study_messages import GoodbyeAsked
from fedsaddle.errors import Refused
from fedsaddle.files import write_atomically
from fedsaddle.metrics.calibration import Platt, Threshold, at_threshold
from fedsaddle.metrics.intervals import Interval
from fedsaddle.metrics.ranking import difference, rank
from fedsaddle.problems.protocols import HasModel, Problem
from fedsaddle.report.page.parts import Figure, Page, PageTable, Section, Text
from fedsaddle.report.page.render import render
from fedsaddle.runs.checkpoints import to_safetensors
from fedsaddle.runs.engines import Serial
from fedsaddle.studies.candidates import Candidate
from fedsaddle.studies.model_loader import write_loader
from fedsaddle.studies.study_plan import StudyPlan
from fedsaddle.studies.trial import ranked
from fedsaddle.text import safe_cell, visible

HOME = "model"  # in the site's folder of the study
ALONE = "trained on the rows of this site alone"
TENTHS = 10


@dataclass(frozen=True)
class ScoredRows:
    """One part of a site's rows with the scores of the study's model."""

    part: str
    numbers: Ints  # of the rows in the file, without those that have no label
    labels: Ints
    scores: Floats
    units: Ints | None = None


def write_home(
    folder: Path,
    asked: GoodbyeAsked,
    plan: StudyPlan,
    candidate: Candidate,
    built: tuple[Problem, FederatedData],
    parts: Sequence[ScoredRows],
    alone: Floats | None,
    site: str,
) -> None:
    """Write the model, its loader and card, the predictions of the site's own rows and a report about them.

    Nothing that came is run: the loader is written here.

    Args:
        folder: where to.
        asked: the message of the server.
        plan: the study.
        candidate: what the model is.
        built: its problem, and its features with placeholder rows.
        parts: the site's rows.
        alone: scores of the test rows by the site's own model.
        site: the site's name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    problem, data = built
    if not isinstance(problem, HasModel):
        raise Refused("the model of this study is no network or regression")
    module = problem.module(asked.w)
    state = {k: v.contiguous() for k, v in module.state_dict().items()}
    write_atomically(folder / "model.safetensors", to_safetensors(state), 0o600)
    platt, threshold = Platt(asked.slope, asked.intercept), Threshold(asked.threshold, visible(asked.reason))
    experiment = plan.config(replace(candidate, start=None))
    write_loader(build_on(experiment, data).model, data, module, folder, platt, threshold)
    write_atomically(folder / "MODEL_CARD.md", ("\n".join(visible(line) for line in asked.card) + "\n").encode(), 0o600)
    write_atomically(folder / "predictions.csv", predictions(parts, platt, threshold), 0o600)
    page = home_page(site, asked, parts, platt, threshold, alone)
    write_atomically(folder / "report.html", render(page).encode(), 0o600)


def predictions(parts: Sequence[ScoredRows], platt: Platt, threshold: Threshold) -> bytes:
    """A line for each of the site's rows."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(["row", "part", "label", "score", "probability", "called_positive"])
    for part in parts:
        p = platt.probability(part.scores)
        for row, label, score, own in zip(part.numbers, part.labels, part.scores, p, strict=True):
            called = int(own >= threshold.probability)
            lines.writerow([int(row), safe_cell(part.part), int(label), f"{score:.6g}", f"{own:.6f}", called])
    return text.getvalue().encode()


def home_page(
    site: str, asked: GoodbyeAsked, parts: Sequence[ScoredRows], platt: Platt, threshold: Threshold,
    alone: Floats | None,
) -> Page:  # fmt: skip
    """The report about the site's own rows; exact, because it stays there."""
    test = next((part for part in parts if part.part == "test" and len(part.labels)), None)
    answers = [
        Text(f"This page is about the rows of {visible(site)} alone. It was made there, and nothing of it left.")
    ]
    sections: list[Section] = []
    figures: list[Figure] = []
    if test is None:
        answers.append(Text("This site holds out no test rows, so that there is nothing to measure.", kind="caution"))
    else:
        ours = rank(test.scores, test.labels, [0, len(test.labels)], (site,), units=test.units)
        up = int(test.labels.sum())
        answers.append(Text(f"{len(test.labels):,} test rows, {up:,} of them positive.", head="What was measured"))
        figures.append(Figure("AUROC, own test rows", _shown(ours.pooled.auroc)))
        p = platt.probability(test.scores)
        sections += [_at(threshold, p, test), _calibration(p, test.labels)]
        if alone is not None:
            theirs = rank(alone, test.labels, [0, len(test.labels)], (site,), units=test.units)
            figures.append(Figure(f"AUROC of a model {ALONE}", _shown(theirs.pooled.auroc)))
            gap = difference(ours, theirs).auroc
            words = f"The study's model minus one {ALONE}: {_shown(gap, sign=True)}."
            answers.append(Text(words, head="Is the federation worth it here?"))
    return Page(
        title=f"{visible(asked.name)} at {visible(site)}",
        subtitle="A model of a study across sites, on the rows of one of them",
        answers=answers,
        figures=figures,
        cautions=["Keep this page as you keep the rows: small counts are not hidden on it."],
        sections=sections,
        footer="Made by FedSaddle at this site.",
    )


def _shown(figure: Interval | None, *, sign: bool = False) -> str:
    if figure is None:
        return "not to be said: rows of one class only"
    form = "+.3f" if sign else ".3f"
    return f"{figure.value:{form}} (95 % interval {figure.low:{form}} to {figure.high:{form}})"


def _at(threshold: Threshold, p: Floats, test: ScoredRows) -> Section:
    found = at_threshold(p, test.labels, threshold.probability, test.units)
    rows = []
    for name in ("sensitivity", "specificity", "positive_predictive_value", "negative_predictive_value"):
        figure = getattr(found, name)
        rows.append([name.replace("_", " "), "nothing to count" if figure is None else _shown(figure)])
    title = f"Calling rows positive from a probability of {threshold.probability:.3f} on"
    return Section("threshold", title, [PageTable(["figure", "on own test rows"], rows)])


def _calibration(p: Floats, labels: Ints) -> Section:
    order = np.argsort(p, kind="stable")
    groups = [own for own in np.array_split(order, min(TENTHS, len(order))) if len(own)]
    rows = [[f"{p[g].mean():.3f}", f"{labels[g].mean():.3f}", f"{len(g):,}"] for g in groups]
    table = PageTable(["mean probability", "share of positives", "rows"], rows)
    return Section("calibration", "Are the probabilities right here?", [table])


def scores_alone(
    plan: StudyPlan, tables: Mapping[str, Table], agreed: Mapping[str, object], rows: int
) -> Floats | None:
    """The scores of the test rows by the default candidate, trained on the training rows of this site alone.

    Args:
        plan: the study.
        tables: the site's rows, with all features.
        agreed: what the sites agreed on.
        rows: training rows of all sites: penalties are for so many.
    """
    candidate = plan.candidates[1]
    without = candidate.without | {"site"}
    features = agreed.get("features")
    encoding = [Encoded.from_dict(f) for f in features] if isinstance(features, list) else []
    keep = [k for k, feature in enumerate(encoding) if feature.kind not in without] if encoding else slice(None)
    train, test = tables["train"], tables["test"]
    if not len(test.x) or len(np.unique(train.y)) < 2:
        return None
    problem = dict(candidate.problem)
    l2 = problem.get("l2")
    if isinstance(l2, float):
        problem["l2"] = l2 * rows / len(train.x)
    x, y = torch.from_numpy(np.ascontiguousarray(train.x[:, keep])), torch.from_numpy(np.ascontiguousarray(train.y))
    kept = tuple(encoding[k] for k in keep) if isinstance(keep, list) else ()
    own = Stacked(x, y, np.array([0, len(x)], dtype=np.int64))
    classes = ("0", "1")
    data = FederatedData("own", own, None, ("own",), classes, tuple(f.name for f in kept), encoding=kept)
    here = replace(plan, privacy=PrivacySection())  # nothing leaves
    config = here.config(replace(candidate, problem=problem, without=frozenset(without)))
    setup = build_on(config, data)
    if config.algorithm.options().get("sampled_clients") is not None:
        return None
    model: Tensor = run_config(config, setup, engine=Serial()).model
    return ranked(setup.algorithm.problem, model, torch.from_numpy(np.ascontiguousarray(test.x[:, keep])))
