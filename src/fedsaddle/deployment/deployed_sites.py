"""The server's side of a study: the study asks, and sites elsewhere answer, one trial after the other in one job."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from fedsaddle.algorithms.protocols import Algorithm
from fedsaddle.config.schema import Config
from fedsaddle.data.federated import FederatedData
from fedsaddle.deployment.agreement import Agreement, build_from
from fedsaddle.deployment.courier import Courier, Patience, Transport
from fedsaddle.deployment.evaluation import RemoteEvaluator
from fedsaddle.deployment.messages import AgreeTold, Answer, FaultKind, read_payload
from fedsaddle.deployment.questions import digest
from fedsaddle.deployment.remote_clients import ExpectedReplies, RemoteClients, placeholder_rows
from fedsaddle.deployment.secure_clients import SecureClients
from fedsaddle.deployment.server import DeployedRun
from fedsaddle.deployment.site_measures import read_own
from fedsaddle.deployment.study_messages import name_of
from fedsaddle.deployment.study_questions import ComparedModels, Placeholder, ScoredModel, StudyQuestions, shift_of
from fedsaddle.deployment.study_site import encoding_for
from fedsaddle.documents.files import RunFiles
from fedsaddle.errors import BadCheckpoint, BadMessage, Diverged, FedSaddleError
from fedsaddle.federation.records import Record, tensors
from fedsaddle.files import JsonObject, make_folder, read_object, write_atomically, write_json
from fedsaddle.metrics.histograms import ScoreHistogram
from fedsaddle.metrics.own_figures import OwnFigures
from fedsaddle.metrics.score_sums import EDGES, BinCounts, SpreadQuestion, SquareSums
from fedsaddle.metrics.sum_figures import SummedScores
from fedsaddle.runs.callbacks import Callback, LambdaCallback
from fedsaddle.runs.checkpoints import to_safetensors
from fedsaddle.runs.folder import RunFolder
from fedsaddle.studies.candidates import Facts
from fedsaddle.studies.site_questions import Gain, Model, Trained
from fedsaddle.studies.study_plan import StudyPlan
from fedsaddle.studies.trial import FIELDS, Trial, TrialOutcome

log = logging.getLogger("fedsaddle.server")
AIMS = {"auroc": "auroc", "average-precision": "average_precision", "partial-auroc": "partial_auroc"}
Own = dict[str, OwnFigures]  # by site
Watch = Callable[[Trial, int], None]


class RefusedBySite(FedSaddleError):
    """A site refuses a trial; the study goes on without it."""


@dataclass(frozen=True)
class TrialRun(DeployedRun):
    """The run of one trial: its sites have agreed to the study, and need not agree again."""

    start: Tensor | None = None
    start_trial: str | None = None

    def agree(self, courier: Courier, agreement: Agreement, folder: RunFolder, fingerprint: str) -> None:
        """Begin the trial at the sites that are there; end it if one of them refuses."""
        payload = {"start": self.start, "start_trial": self.start_trial}

        def check(client: int, answer: Answer, record: object) -> None:
            read_payload(AgreeTold, record)

        courier.request("begin", self.name, payload, everyone=False, check=check)
        for client, faults in courier.attendance.left_out.items():
            refused = next((said for said in faults if said.startswith(str(FaultKind.REFUSED.value))), None)
            if refused is not None:
                raise RefusedBySite(f"{self.names[client]} {refused}")

    def closing(self, evaluator: RemoteEvaluator) -> JsonObject:
        """Nothing: models are compared by the study."""
        return {}


@dataclass
class DeployedSites:
    """Sites elsewhere; implements `studies.site_questions.Sites`.

    Args:
        plan: what all have agreed to.
        run: the name of the study.
        names: of the sites.
        out: the study's folder at the server.
        transport: to the sites.
        patience: how long to wait for answers.
        agreement: what the sites agreed on.
        least_sites: that an average must be of.
        stop: asked between rounds; True ends the study.
        watch: called with a trial and its rounds so far.
    """

    plan: StudyPlan
    run: str
    names: tuple[str, ...]
    out: Path
    transport: Transport
    patience: Patience
    agreement: Agreement
    stop: Callable[[], bool] = lambda: False
    watch: Watch = lambda trial, done: None
    refused: list[str] = field(default_factory=list)  # a line for each trial that a site refused
    _counts: dict[tuple[str, str], ScoreHistogram] = field(default_factory=dict)
    parts: dict[str, AskedPart] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._numbers = {name: k for k, name in enumerate(self.plan.trials)}

    def facts(self) -> Facts:
        """From the facts that the sites reported about their rows."""
        sizes, encoding = np.array(self.agreement.sizes["rows"]), self.agreement.encoding
        kinds: dict[str, int] = {}
        for feature in encoding.get("features") or ():
            kinds[feature["kind"]] = kinds.get(feature["kind"], 0) + 1
        counts = [int(n) for n in encoding["counts"]]
        batch = int(min(256, max(16, 2 ** np.ceil(np.log2(max(float(np.quantile(sizes, 0.9)), 1))))))
        return Facts(int(sizes.sum()), min(counts), kinds, "array" in encoding, len(self.names), batch, ())

    def train(self, trials: Sequence[Trial], may_begin: Callable[[Trial], bool]) -> list[TrialOutcome]:
        """One trial after the other; one that diverges, or that a site refuses, is an outcome too."""
        found = []
        for trial in trials:
            if self.stop():
                break
            if may_begin(trial):
                found.append(self._train(trial))
        return found

    def _train(self, trial: Trial) -> TrialOutcome:
        folder = RunFiles(self.out).trials / trial.name
        path = folder / f"after-{trial.rounds}.json"
        if path.exists():
            return self._stored(trial, path)
        try:
            outcome = self._run(trial, folder)
        except Diverged as reason:
            outcome = TrialOutcome(trial, failure=f"diverged: {reason}")
        except RefusedBySite as reason:
            self.refused.append(f"{trial.candidate.name}, step {trial.step:g}: {reason}")
            log.warning("%s", self.refused[-1])
            outcome = TrialOutcome(trial, failure=str(reason))
        if outcome.model is not None:
            write_atomically(path.with_suffix(".safetensors"), to_safetensors({"model": outcome.model.contiguous()}))
        kept: JsonObject = {key: getattr(outcome, key) for key in FIELDS}
        write_json(path, kept)
        return outcome

    def _stored(self, trial: Trial, path: Path) -> TrialOutcome:
        try:
            about = read_object(path)
            model = None if about["failure"] else load_file(path.with_suffix(".safetensors"))["model"]
            fields: JsonObject = {key: about[key] for key in FIELDS}
            return TrialOutcome(trial, model, None, **fields)
        except (OSError, ValueError, KeyError) as reason:
            raise BadCheckpoint(f"{path} cannot be read ({reason}); remove its folder and resume") from None

    def _run(self, trial: Trial, folder: Path) -> TrialOutcome:
        start, start_trial = None, None
        if trial.start is not None:
            start_trial = trial.start.name
            start = self._vector_of(start_trial)
        config = self.config(trial)
        make_folder("out", folder)
        write_json(RunFolder(folder).agreed, self._agreed(trial), 0o600)
        deployed = TrialRun(
            config, name_of(self.run, trial.name), self.names, folder, self.patience, start, start_trial
        )
        callbacks: list[Callback] = [LambdaCallback(on_round=lambda done, record: self._after(trial, done))]
        result = deployed.go(self.transport, callbacks)
        document = result.document
        last, kept = result.algorithm.model(result.server), document.rounds
        if trial.candidate.grows and document.selected_round is not None:
            last, kept = result.model, document.selected_round
        return TrialOutcome(trial, last, None, document.rounds, kept, document.seconds)

    def _after(self, trial: Trial, done: int) -> bool:
        self.watch(trial, done)
        return self.stop()

    def _vector_of(self, name: str) -> Tensor:
        """The model of a trial that has ended."""
        candidate = self.plan.trials[name][0]
        path = RunFiles(self.out).trials / name / f"after-{candidate.rounds}.safetensors"
        return load_file(path)["model"]

    def config(self, trial: Trial) -> Config:
        """The config of a trial, to its rounds."""
        found = self.plan.config(trial.candidate, trial.step, trial.start)
        return found.model_copy(update={"run": found.run.model_copy(update={"rounds": trial.rounds})})

    def _agreed(self, trial: Trial) -> dict[str, object]:
        """What the sites agreed on, for a trial: its features, and no test rows."""
        sizes = {**self.agreement.sizes, "test_rows": [0] * len(self.names)}
        encoding = dict(encoding_for(self.agreement.encoding, trial.candidate))
        about = {"names": list(self.names), "sizes": sizes, "minimum_sites": self.agreement.minimum_sites}
        return {**about, "agreed": encoding, "notes": [], "told": []}

    def built(self, trial: Trial) -> tuple[Algorithm[object], FederatedData]:
        """The algorithm of a trial, and its features with placeholder rows."""
        return build_from(self.config(trial), dict(encoding_for(self.agreement.encoding, trial.candidate)), self.names)

    def model(self, trained: TrialOutcome) -> Model:
        """With a placeholder row of each class."""
        trial = trained.trial
        algorithm, data = self.built(trial)
        return Model(trial.candidate.name, trained.vector, algorithm, data, trial, None, trained.selected_round)

    def value(self, trained: Trained) -> float:
        """Of the sum of all counts of validation rows."""
        counts, aim = self.counts(trained, "validation"), self.plan.study.aim
        if aim == "accuracy":
            half = self.half(trained)
            right = int(counts.positives[half:].sum() + counts.negatives[:half].sum())
            return right / max(sum(counts.sides), 1)
        found = SummedScores((counts,)).figures()[AIMS[aim]]
        return float(np.mean(found.bounds)) if found.value is None else found.value

    def gain(self, ours: Trained, theirs: Trained) -> Gain:
        """With the closed form of the standard error, from sums of squared influences over patients."""
        if self._key(ours) == self._key(theirs):
            return Gain(0.0, 0.0)
        summed = self.compared(ours, theirs, "validation", ((self.half(ours),), (self.half(theirs),)))
        return Gain(self.value(ours) - self.value(theirs), standard_error(summed, self.plan.study.aim))

    def shift(self, trained: Trained) -> float:
        """What sites subtract from a model's scores before they count them."""
        return shift_of(trained.trial.candidate, [int(n) for n in self.agreement.encoding["counts"]])

    def half(self, trained: Trained) -> int:
        """The first bin of scores above 0."""
        return int(np.searchsorted(EDGES, -self.shift(trained), side="right"))

    def _key(self, trained: Trained) -> str:
        return f"{trained.trial.name}-{digest(trained.vector)}"

    def counts(self, trained: Trained, part: str) -> ScoreHistogram:
        """The rows of all sites in each bin of the score."""
        key = (part, self._key(trained))
        if key not in self._counts:
            sent = ScoredModel(trained.vector, self._numbers[trained.trial.name])
            reply = self._ask(part, "count_scores", sent, f"counts-{key[1]}")
            assert isinstance(reply, BinCounts)
            self._counts[key] = reply.histogram()
        return self._counts[key]

    def compared(
        self, ours: Trained, theirs: Trained, part: str, cuts: Sequence[Sequence[int]] = ((), ())
    ) -> SummedScores:
        """The scores of two models, and how far each patient moves their figures."""
        both = (self.counts(ours, part), self.counts(theirs, part))
        least = self.plan.data.minimum_cell
        asked = SpreadQuestion.of(both, cuts, least)
        sent = ComparedModels(
            ours.vector, theirs.vector, self._numbers[ours.trial.name], self._numbers[theirs.trial.name],
            *(torch.from_numpy(np.asarray(value)) for value in (asked.positives, asked.negatives, asked.cuts)),
        )  # fmt: skip
        reply = self._ask(part, "spread", sent, f"spread-{self._key(ours)}-{self._key(theirs)}-{len(asked.cuts[0])}")
        assert isinstance(reply, SquareSums)
        return SummedScores(both, least, asked, reply)

    def _ask(self, part: str, task: str, sent: Record, key: str) -> BinCounts | SquareSums:
        """The sum of the sites' answers; an answer is kept, so that a study that goes on does not ask again."""
        folder = self.out / "answers"
        path = folder / f"{part}-{digest_of_text(key)}.safetensors"
        kind = BinCounts if task == "count_scores" else SquareSums
        if path.exists():
            return kind(**load_file(path))
        make_folder("out", folder)
        asked = self._part(part)
        asked.clients.begin(len(list(folder.glob(f"{part}-*.safetensors"))))
        sites, mean = asked.clients.ask(np.arange(len(self.names)), getattr(asked.questions, task), sent)
        asked.clients.commit()
        found = kind.of_mean(dict(tensors(mean)), len(sites))
        write_atomically(path, to_safetensors(dict(tensors(found))))
        return found

    def own_figures(self, trained: Trained, cuts: Sequence[int]) -> tuple[Own, Own]:
        """Each site's exact figures of a model on its own test rows, and those of a model that it trained alone."""
        path = self.out / "answers" / "own.json"
        if not path.exists():
            payload = {
                "w": trained.vector, "trial": self._numbers[trained.trial.name], "cuts": list(cuts),
                "alone": self.plan.study.alone,
            }  # fmt: skip
            sizes = self.agreement.sizes["test_rows"]

            def check(client: int, answer: Answer, record: object) -> dict[str, object]:
                if not isinstance(record, dict) or record.keys() != {"own", "alone"}:
                    raise BadMessage("own figures with other parts than they should have")
                read_own(record["own"], sizes[client], len(cuts))
                if record["alone"] is not None:
                    read_own(record["alone"], sizes[client], 0)
                return record

            courier = Courier(self.transport, self.names, self.patience)
            told = courier.request("own", name_of(self.run, "test"), payload, check=check)
            write_json(path, {self.names[i]: record for i, record in sorted(told.items())})
        stored = read_object(path)
        rows = dict(zip(self.names, self.agreement.sizes["test_rows"], strict=True))
        own = {name: read_own(record["own"], rows[name], len(cuts)) for name, record in stored.items()}
        alone = {
            name: read_own(record["alone"], rows[name], 0)
            for name, record in stored.items()
            if record["alone"] is not None
        }
        return own, alone

    def goodbye(self, trained: Trained, asked: Mapping[str, object]) -> list[str]:
        """Send the model to all sites; return those that did not take it."""
        courier = Courier(self.transport, self.names, self.patience)
        payload = {"w": trained.vector, "trial": trained.trial.name, **asked}

        def check(client: int, answer: Answer, record: object) -> None:
            read_payload(AgreeTold, record)

        told = courier.request("goodbye", self.run, payload, check=check)
        return [name for i, name in enumerate(self.names) if i not in told]

    def _part(self, part: str) -> AskedPart:
        """The clients that answer questions about one part of the rows."""
        if part not in self.parts:
            secure = self.plan.privacy.secure_aggregation
            _, data = build_from(self.plan.base, self.agreement.encoding, self.names)
            questions = StudyQuestions({k: Placeholder() for k in self._numbers.values()})
            sizes = np.array(self.agreement.sizes[f"{part}_rows"], dtype=np.int64)
            clients = (SecureClients if secure else RemoteClients)(
                Courier(self.transport, self.names, self.patience), sizes, name_of(self.run, part),
                self.plan.digest()[:16], ExpectedReplies(placeholder_rows(data.train.x, data.train.y)),
                minimum_sites=self.agreement.minimum_sites,
            )  # fmt: skip
            self.parts[part] = AskedPart(clients, questions)
        return self.parts[part]


@dataclass(frozen=True)
class AskedPart:
    """Those who answer questions about one part of the rows."""

    clients: RemoteClients
    questions: StudyQuestions


def standard_error(summed: SummedScores, aim: str) -> float:
    """Of the difference of two models' figures, patients being drawn."""
    if aim == "accuracy":
        assert summed.spread is not None
        assert summed.asked is not None
        rows, (up, down) = float(sum(summed.sides)), summed.sides
        right = np.array([0.0, 0.0, 1.0, -1.0, -1.0, 1.0])  # true minus false alarms of one model, minus the other's
        moments = summed.spread.moments[0, 0].numpy()
        cuts = summed.asked.cuts[:, 0].tolist()
        alarms = [c.positives[k:].sum() - c.negatives[k:].sum() for c, k in zip(summed.counts, cuts, strict=True)]
        rest = right - float(alarms[0] - alarms[1]) / rows * np.array([1.0, 1.0, 0.0, 0.0, 0.0, 0.0])
        return float(np.sqrt(max(rest @ moments @ rest, 0.0)) / rows) if up and down else float("inf")
    return summed.difference_error(AIMS[aim])


def digest_of_text(text: str) -> str:
    """A short name of a file for some text."""
    return hashlib.sha256(text.encode()).hexdigest()[:24]
