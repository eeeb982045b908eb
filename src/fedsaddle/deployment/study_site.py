"""A site's side of a study: it answers what study.toml lists, for each trial as for a run of its own."""

from __future__ import annotations

import json
import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedsaddle.array_types import Floats, Ints
from fedsaddle.data.table import Table
from fedsaddle.data.tables.agreed_encoding import encode
from fedsaddle.data.tables.site_file import Part, SiteRows
from fedsaddle.deployment.agreement import build_from
from fedsaddle.deployment.audit import AuditLog, Occasion, log_to_folder
from fedsaddle.deployment.messages import AgreeAsked, Answer, Ask, MeasureAsked, Request, read_payload, require_shape
from fedsaddle.deployment.project import KIT_CONFIG
from fedsaddle.deployment.questions import digest
from fedsaddle.deployment.secure_site import NOTES, AnswerLogFile, SiteIdentity, SiteSecure, site_secure
from fedsaddle.deployment.site import SiteService, read_kit
from fedsaddle.deployment.site_measures import tell_own
from fedsaddle.deployment.site_policy import SitePolicy
from fedsaddle.deployment.site_rows import SiteSettings
from fedsaddle.deployment.site_worker import OwnRows, SiteWorker, failed, safe_name
from fedsaddle.deployment.study_home import HOME, ScoredRows, scores_alone, write_home
from fedsaddle.deployment.study_messages import (
    PARTS,
    BeginAsked,
    GoodbyeAsked,
    OwnAsked,
    StudyAsked,
    name_of,
    places_of,
)
from fedsaddle.deployment.study_questions import Scorer, StudyQuestions, shift_of
from fedsaddle.errors import BadMessage, Refused
from fedsaddle.federation.records import tensors
from fedsaddle.federation.wire import Message, about, pack, require_record, unpack
from fedsaddle.files import read_object, write_atomically, write_json
from fedsaddle.metrics.own_figures import OwnFigures
from fedsaddle.own_code import only_modules
from fedsaddle.problems.protocols import HasModel, Problem, Ranks
from fedsaddle.runs.checkpoints import to_safetensors
from fedsaddle.runs.folder import RunFolder
from fedsaddle.studies.candidates import Candidate
from fedsaddle.studies.study_plan import StudyPlan, is_study, read_plan

log = logging.getLogger("fedsaddle.site")
TRIALS, MASKS, START, SCORED = "trials", "masks", "start.safetensors", "scored.json"
MOST_VALIDATIONS = 2000  # models that are scored on validation rows
LIVE = 2  # trials whose rows stay in memory
OWNER = 0o600


@dataclass
class TrialService(SiteService):
    """One trial: a run of its own, with the study's rows, log and keys."""

    study: str = ""  # the run of the study
    home: Path = Path()  # the folder of the site's studies

    @property
    def audit(self) -> AuditLog:
        """The log of the site."""
        return AuditLog(self.home)

    def _measure(self, request: Request, asked: MeasureAsked, content: bytes) -> dict[str, Any]:
        if asked.part == "test":
            raise Refused("test rows are looked at when all trials are done; study.toml says so")
        return super()._measure(request, asked, content)

    def _secure(self, run: str, names: tuple[str, ...], payload: Any) -> SiteSecure | None:
        if not self.config.privacy.secure_aggregation:
            return None
        return _masks(self, self.home / self.study, self.study, self._folder(run), payload)


def _masks(site: SiteService, folder: Path, run: str, notes: Path, payload: Mapping[str, Any]) -> SiteSecure:
    """The study's keys, with a log of answers for each trial."""
    asked = read_payload(AgreeAsked, {key: value for key, value in payload.items() if key != "plan"})
    found = site_secure(site.identity, folder, run, asked.names, asked.keys, site.policy.minimum_sites)
    path = notes / MASKS / NOTES
    if not path.parent.is_dir():  # notes that are gone are not made again
        path.parent.mkdir(parents=True)
        AnswerLogFile.new(path)
    return SiteSecure(replace(found.masks, answers=AnswerLogFile(path)))


@dataclass(frozen=True)
class TrialScorer:
    """Scores rows that have all features of the study."""

    problem: Problem
    columns: list[int]
    shift: float = 0.0  # that is subtracted

    def scores(self, w: Tensor, x: Tensor) -> Floats:
        """The scores by this model, which uses some of the features."""
        if not isinstance(self.problem, Ranks):
            raise BadMessage("models of this trial rank nothing")
        start = self.problem.initial()  # type: ignore[attr-defined]
        require_shape(w, start[0] if isinstance(start, tuple) else start, "w")
        found = self.problem.ranking(w, x[:, self.columns]) if len(x) else torch.zeros(0)
        assert found is not None  # there are two classes
        return np.asarray(found.double().numpy()) - self.shift


class Scorers(dict[int, Scorer]):
    """The scorers of the plan's trials by number, made when they are needed."""

    def __init__(self, study: AgreedStudy) -> None:
        self.study = study

    def __missing__(self, number: int) -> Scorer:
        candidates = [candidate for candidate, _ in self.study.plan.trials.values()]
        if not 0 <= number < len(candidates):
            raise KeyError(number)
        candidate = candidates[number]
        for known, other in enumerate(candidates):
            if known in self and other is candidate:
                return self.setdefault(number, self[known])
        shift = shift_of(candidate, self.study.payload["agreed"]["counts"])
        made = TrialScorer(self.study.problem(candidate), self.study.columns(candidate), shift)
        return self.setdefault(number, made)


@dataclass
class AgreedStudy:
    """A study that the site has agreed to: its rows of each part, its trials, and what was scored."""

    plan: StudyPlan
    run: str
    folder: Path
    payload: Mapping[str, Any]  # as `StudyAsked`
    site: SiteService  # whose rows and keys they are
    policy: SitePolicy  # of the site
    trials: OrderedDict[str, TrialService] = field(default_factory=OrderedDict)
    workers: dict[str, SiteWorker] = field(default_factory=dict)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The sites."""
        return tuple(self.payload["names"])

    @property
    def client(self) -> int:
        """The number of this site."""
        return self.names.index(self.site.settings.name)

    @cached_property
    def tables(self) -> Mapping[str, Table]:
        """Training, validation and test rows, with all features."""
        made = encode(self.site._rows(), self.payload["agreed"], self.site.settings.name)
        return dict(zip(("train", *PARTS), made, strict=True))

    def encoding(self, candidate: Candidate) -> Mapping[str, Any]:
        """What the sites agreed on, with the features of a candidate only."""
        return encoding_for(self.payload["agreed"], candidate)

    def columns(self, candidate: Candidate) -> list[int]:
        """The places of a candidate's features among all."""
        features = self.payload["agreed"].get("features")
        if features is None:
            return list(range(self.tables["train"].x.shape[1]))
        return [k for k, feature in enumerate(features) if feature["kind"] not in candidate.without]

    def problem(self, candidate: Candidate) -> Problem:
        """The problem of a candidate."""
        config, agreed = self.plan.config(candidate), dict(self.encoding(candidate))
        problem: Problem = build_from(config, agreed, self.names)[0].problem
        return problem

    def trial(self, name: str) -> TrialService:
        """The service of a trial; refuse one that is not in the plan."""
        if name in self.trials:
            self.trials.move_to_end(name)
            return self.trials[name]
        if name not in self.plan.trials:
            raise Refused(f"study.toml has no trial {name!r:.60}; this site answers what is in it")
        candidate, step = self.plan.trials[name]
        own = self.site
        start = self.folder / TRIALS / name_of(self.run, name) / START
        if candidate.start is not None and not start.exists():
            raise Refused(f"trial {name!r:.60} starts from another model, which has not come")
        config = self.plan.config(candidate, step, start if candidate.start is not None else None)
        settings = replace(own.settings, folder=self.folder / TRIALS)
        self.policy.check(config, len(self.names))
        made = TrialService(
            config, settings, self.policy, own.identity, _read=own._rows(), study=self.run, home=own.settings.folder
        )
        whole = name_of(self.run, name)
        agreed = {key: value for key, value in self.payload.items() if key != "plan"}
        made._runs[whole] = made._prepare(whole, {**agreed, "agreed": self.encoding(candidate)})
        self.trials[name] = made
        while len(self.trials) > LIVE:
            self.trials.popitem(last=False)
        return made

    def begin(self, name: str, asked: BeginAsked) -> dict[str, int]:
        """Keep the model that a trial starts from, and see whether the policy allows the trial."""
        candidate, _ = self.plan.trials.get(name, (None, 0.0))
        if candidate is not None and candidate.start is not None:
            self._keep_start(name, candidate, asked)
        elif asked.start is not None:
            raise Refused("study.toml lets this trial start from no other model")
        return {"rows": len(self.trial(name)._runs[name_of(self.run, name)].rows["train"].x)}

    def _keep_start(self, name: str, candidate: Candidate, asked: BeginAsked) -> None:
        before, _ = self.plan.trials.get(asked.start_trial or "", (None, 0.0))
        if before is None or before.name != candidate.start or asked.start is None:
            raise Refused(f"study.toml lets this trial start from {candidate.start!r}")
        problem = self.problem(before)
        assert isinstance(problem, HasModel)
        start = problem.initial()  # type: ignore[attr-defined]
        require_shape(asked.start, start[0] if isinstance(start, tuple) else start, "start")
        path = self.folder / TRIALS / name_of(self.run, name) / START
        content = to_safetensors({k: v.contiguous() for k, v in problem.module(asked.start).state_dict().items()})
        if path.exists() and path.read_bytes() != content:
            raise Refused(f"trial {name!r:.60} has begun from another model")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content, OWNER)

    def worker(self, part: str) -> SiteWorker:
        """Answers questions about the scores of one part of the rows."""
        if part not in self.workers:
            own, whole = self.site, name_of(self.run, part)
            secure = None
            if self.plan.privacy.secure_aggregation:
                secure = _masks(own, self.folder, self.run, self.folder / TRIALS / whole, self.payload)
            questions = StudyQuestions(Scorers(self))
            rows = replace(own._stacked(self.tables[part], None), units=units_of(own._rows(), part))
            self.workers[part] = SiteWorker(
                questions, OwnRows(rows, self.client, len(self.names)), self.client, self.plan.study.seed, whole,
                self.plan.digest()[:16], audit=own.audit, secure=secure,
            )  # fmt: skip
        return self.workers[part]

    def score(self, part: str, content: bytes) -> bytes:
        """Answer a question about some models, if the plan has room for them."""
        worker = self.worker(part)
        message = unpack(content, worker.kinds)
        Ask.read(message.about)
        sent = require_record(message.record)
        self._count(part, [digest(value) for name, value in tensors(sent) if name in ("w", "other")])
        return worker.answer(content)

    def own_figures(self, asked: OwnAsked) -> dict[str, object]:
        """Exact figures of the site's own test rows, without small counts; and those of a model of its own."""
        self._count("test", [digest(asked.w)])
        x, y, units = self._held_out("test")
        least = self.policy.cell(self.site.config)
        scores = Scorers(self)[asked.trial].scores(asked.w, x)
        told: dict[str, object] = {"own": tell_own(OwnFigures.of(scores, y, least, asked.cuts, units)), "alone": None}
        if asked.alone and self.plan.study.alone and (alone := self._alone()) is not None:
            told["alone"] = tell_own(OwnFigures.of(alone, y, least, (), units))
        return told

    def _held_out(self, part: str) -> tuple[Tensor, Ints, Ints | None]:
        table = self.tables[part]
        rows = self.site._stacked(table, None)
        return rows.x, np.asarray(table.y), units_of(self.site._rows(), part)

    def _alone(self) -> Floats | None:
        """Scores of the test rows by the default candidate, trained here alone."""
        total = int(sum(self.payload["agreed"]["counts"]))
        return scores_alone(self.plan, self.tables, self.payload["agreed"], total)

    def goodbye(self, asked: GoodbyeAsked) -> dict[str, int]:
        """Keep the model, and write what it says of the site's own rows, which stay."""
        if asked.trial not in self.plan.trials:
            raise Refused(f"study.toml has no trial {asked.trial!r:.60}; this site answers what is in it")
        candidate, _ = self.plan.trials[asked.trial]
        algorithm, data = build_from(self.plan.config(candidate), dict(self.encoding(candidate)), self.names)
        scorer, parts = TrialScorer(algorithm.problem, self.columns(candidate)), []
        names: tuple[Part, ...] = ("train", "validation", "test")
        for part in names:
            x, y, units = self._held_out(part)
            numbers = np.asarray(self.site._rows().parts[part][1])
            parts.append(ScoredRows(part, numbers, y, scorer.scores(asked.w, x), units))
        alone = self._alone() if self.plan.study.alone else None
        place, name = self.folder / HOME, self.site.settings.name
        write_home(place, asked, self.plan, candidate, (algorithm.problem, data), parts, alone, name)
        return {"rows": len(self.tables["train"].x)}

    def _scored(self) -> dict[str, list[str]]:
        """Digests of the models that were scored, by part."""
        path = self.folder / SCORED
        return read_object(path) if path.exists() else {"validation": [], "test": []}

    def _count(self, part: str, models: Sequence[str]) -> None:
        """Note which models are scored; test rows are looked at as often as the plan says, after validation rows."""
        known = self._scored()
        new = [model for model in dict.fromkeys(models) if model not in known[part]]
        if not new:
            return
        if part == "test" and any(model not in known["validation"] for model in new):
            raise Refused("a model that was not compared on validation rows is not tested")
        most = 2 * self.plan.study.looks if part == "test" else MOST_VALIDATIONS
        if len(known[part]) + len(new) > most:
            looks = f"study.toml says looks = {self.plan.study.looks}, each at two models; the test rows were looked at"
            raise Refused(looks if part == "test" else f"{most} models were scored on validation rows, enough for all")
        known[part] += new
        write_json(self.folder / SCORED, known, OWNER)


@dataclass
class StudySite:
    """Answers the messages of a study: only what its own study.toml lists and its policy allows."""

    plan: StudyPlan
    settings: SiteSettings
    policy: SitePolicy = field(default_factory=SitePolicy)
    identity: SiteIdentity | None = None
    unusable: str = ""
    _studies: dict[str, AgreedStudy] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # which algorithms are allowed is asked of each trial, so that a study goes on with the others
        policy = self.policy.model_copy(update={"algorithms": None, "problems": None})
        self.base = SiteService(self.plan.base, self.settings, policy, self.identity, self.unusable)

    @classmethod
    def from_kit(cls, kit: Path, name: str) -> StudySite:
        """The service of the site with that kit, in which lies the study's file."""
        plan = read_plan(kit / KIT_CONFIG)
        settings, policy, identity, unusable = read_kit(kit, name)
        return cls(plan, settings, policy, identity, unusable)

    @property
    def audit(self) -> AuditLog:
        """The log of everything that left."""
        return self.base.audit

    def answer(self, content: bytes) -> bytes:
        """Answer one message; a failure is reported by its kind only, because its text may contain data."""
        with log_to_folder(log, self.settings.folder), only_modules(self.policy.modules):
            nonce, occasion = "", Occasion("", "")
            try:
                header = about(content)
                run, place = places_of(safe_name(str(header.get("run", ""))))
                do = header.get("do")
                if self.unusable or (not place and do in ("facts", "counts", "keys")):
                    return self.base.answer(content)
                if place in PARTS and do in (None, "unmask"):
                    return self._about_part(run, place, content, do)
                if place and do in (None, "measure", "unmask"):
                    return self._study(run).trial(place).answer(content)
                message = unpack(content, {})
                request = Request.read(message.about)
                nonce, occasion = request.nonce, Occasion(request.run, request.do)
                record = self._do(request, run, place, message.record)
                self.audit.add(occasion, record)
                return pack(Message(Answer(nonce=nonce, version=None, samples=0, failure=None).to_dict(), record))
            except Exception as reason:
                return pack(failed(nonce or _nonce(content), reason, self.audit, occasion))

    def _about_part(self, run: str, part: str, content: bytes, do: object) -> bytes:
        study = self._study(run)
        if do is None:
            return study.score(part, content)
        from fedsaddle.deployment.messages import UnmaskAsked

        message = unpack(content, {})
        request, worker = Request.read(message.about), study.worker(part)
        if worker.secure is None:
            raise Refused("this site has no masks to open in this run")
        record = dict(worker.secure.open(read_payload(UnmaskAsked, message.record)))
        self.audit.add(Occasion(request.run, request.do), record)
        return pack(Message(Answer(nonce=request.nonce, version=None, samples=0, failure=None).to_dict(), record))

    def _do(self, request: Request, run: str, place: str, payload: object) -> Any:
        if request.do == "study" and not place:
            return self._agree(run, payload)
        if request.do == "begin" and place:
            return self._study(run).begin(place, read_payload(BeginAsked, payload))
        if request.do == "own" and place == "test":
            return self._study(run).own_figures(read_payload(OwnAsked, payload))
        if request.do == "goodbye" and not place:
            return self._study(run).goodbye(read_payload(GoodbyeAsked, payload))
        raise Refused(f"this site answers a study, and study.toml has no request {request.do!r:.40}")

    def _agree(self, run: str, payload: Any) -> dict[str, int]:
        asked = read_payload(StudyAsked, payload)
        self.base._allow(asked.config, len(asked.names), run)
        if asked.plan != self.plan.digest():
            raise Refused("this site's study.toml differs from the server's; use the same file at all sites")
        if self.settings.name not in asked.names:
            raise Refused(f"this site, {self.settings.name}, is not among the sites of the run")
        self._check_cells()
        made = AgreedStudy(self.plan, run, self.settings.folder / run, payload, self.base, self.policy)
        rows = len(made.tables["train"].x)
        path = RunFolder(made.folder).agreed
        if path.exists() and json.loads(path.read_text(encoding="utf-8")) != payload:
            raise Refused("this site has agreed to this run with another encoding; begin a new run")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, payload, OWNER)
        self._studies[run] = made
        return {"rows": rows}

    def _check_cells(self) -> None:
        """Exact counts leave this site only into a sum over three or more, which shows none below the study's cell."""
        least, shown = self.policy.minimum_cell, self.plan.data.minimum_cell
        if not self.plan.privacy.secure_aggregation and max(least, shown) > 1:
            why = "score counts of a study leave in sums of three or more sites only: set privacy.secure_aggregation"
            raise self.policy.broken("minimum_cell", max(least, shown), why)
        if least > shown:
            raise self.policy.broken("minimum_cell", least, f"the study shows sums of {shown}: raise data.minimum_cell")

    def _study(self, run: str) -> AgreedStudy:
        """The agreed study; a restarted process reads it from its disk."""
        if run not in self._studies:
            path = RunFolder(self.settings.folder / run).agreed
            if not path.is_file():
                raise BadMessage(f"this site has not agreed to study {run!r:.60}")
            payload = json.loads(path.read_text(encoding="utf-8"))
            if payload.get("plan") != self.plan.digest():
                raise Refused("study.toml has changed since this site agreed to the study; begin a new one")
            self._studies[run] = AgreedStudy(self.plan, run, path.parent, payload, self.base, self.policy)
        return self._studies[run]


def service_of(kit: Path, name: str) -> SiteService | StudySite:
    """The service of the site with that kit: of a study, or of one run."""
    return StudySite.from_kit(kit, name) if is_study(kit / KIT_CONFIG) else SiteService.from_kit(kit, name)


def encoding_for(agreed: Mapping[str, Any], candidate: Candidate) -> Mapping[str, Any]:
    """What the sites agreed on, with the features of a candidate only."""
    if "features" not in agreed or agreed["features"] is None:
        return agreed
    return {**agreed, "features": [f for f in agreed["features"] if f["kind"] not in candidate.without]}


def units_of(rows: SiteRows, part: Any) -> Any:
    """By number to whom each row of a part belongs, such as the patient; None if the file does not say."""
    source, own = rows.parts[part]
    if rows.units is None or source != 0:
        return None
    return np.unique(rows.units[own], return_inverse=True)[1].astype(np.int64)


def _nonce(content: bytes) -> str:
    """That of a message which could not be read further."""
    try:
        found = about(content).get("nonce")
    except BadMessage:
        return ""
    return found if isinstance(found, str) and found.isalnum() and len(found) <= 64 else ""
