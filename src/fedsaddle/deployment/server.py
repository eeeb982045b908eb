"""The server's side of a deployed run: agree with the sites, then run the loop, over any transport."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fedsaddle.config.run_config import require_same_config, settings_of, trackers_of
from fedsaddle.config.schema import Config
from fedsaddle.data.tables.columns import summarised
from fedsaddle.deployment.agreed_groups import agreed_groups
from fedsaddle.deployment.agreement import (
    Agreement,
    agree_on_encoding,
    build_from,
    collect_keys,
    digests,
    missing_told,
    require_secure,
)
from fedsaddle.deployment.audit import log_to_folder
from fedsaddle.deployment.courier import Courier, Patience, Transport
from fedsaddle.deployment.evaluation import RemoteEvaluator
from fedsaddle.deployment.messages import AgreeTold, Answer, read_payload
from fedsaddle.deployment.project import require_deployable
from fedsaddle.deployment.remote_clients import Answered, ExpectedReplies, RemoteClients, placeholder_rows
from fedsaddle.deployment.secure_clients import SecureClients
from fedsaddle.errors import BadInput, BadMessage, FedSaddleError
from fedsaddle.files import JsonObject, make_folder
from fedsaddle.runs.callbacks import Callback, CallbackRunner, LambdaCallback
from fedsaddle.runs.checkpoints import RunIdentity, note_code, remote_fingerprint, shared_fingerprint
from fedsaddle.runs.folder import RunFolder, only_writer
from fedsaddle.runs.loop import Loop
from fedsaddle.runs.result import Result
from fedsaddle.runs.settings import parameters_of

ANSWERED = "answered.jsonl"  # in the folder of a run
log = logging.getLogger("fedsaddle.server")


@dataclass(frozen=True)
class DeployedRun:
    """The config, sites and folder of a deployed run. Client i is always the site `names[i]`.

    Args:
        config: of the run.
        name: of the run.
        names: of the sites, in the order of their clients.
        out: folder of the run, at the server.
        patience: how long to wait for answers.
    """

    config: Config
    name: str
    names: tuple[str, ...]
    out: Path
    patience: Patience

    def go(self, transport: Transport, callbacks: Sequence[Callback] = (), wait: float = 0.0) -> Result:
        """Agree with the sites and run; continue from the newest checkpoint in the folder, if there is one.

        Wait up to `wait` seconds for another process that writes to the folder.
        """
        require_deployable(self.config)
        make_folder("out", self.out)
        RunFolder(self.out).refuse_links()
        with only_writer(self.out, wait), log_to_folder(log, self.out):
            try:
                return self._go(transport, callbacks)
            except FedSaddleError as reason:
                log.error("the run ended: %s", reason)
                raise

    def _go(self, transport: Transport, callbacks: Sequence[Callback]) -> Result:
        folder = RunFolder(self.out)
        if folder.config.exists():
            require_same_config(self.config, folder)
        courier = Courier(transport, self.names, self.patience)
        agreement = agree_on_encoding(courier, self.config, self.name, folder)
        for note in summarised(agreement.notes) if agreement.new else ():
            log.warning("%s", note)
        resumes = folder.holds_run
        loop = self._loop(courier, agreement, folder, callbacks)
        if not resumes:
            folder.begin([])
        loop.resumed = resumes
        for reason in loop.resume():
            log.warning("%s", reason)
        for reason in note_code(folder, loop.algorithm):
            log.warning("%s", reason)
        folder.write_config(self.config.model_dump(mode="json"))
        if loop.done:
            log.info("resuming after round %d", loop.done)
        result = loop.run()
        (folder.path / ANSWERED).unlink(missing_ok=True)  # the last checkpoint has all that it is for
        return result

    def _loop(self, courier: Courier, agreement: Agreement, folder: RunFolder, callbacks: Sequence[Callback]) -> Loop:
        """The loop of the run, with the sites as clients and as evaluators."""
        given = self.config.run
        algorithm, data = build_from(self.config, agreement.encoding, self.names)
        common = shared_fingerprint(algorithm, len(self.names), given.seed)
        secure = self.config.privacy.secure_aggregation
        if secure:
            require_secure(self.names, algorithm)
        train, validation, test = (
            np.array(agreement.sizes[part], dtype=np.int64) for part in ("rows", "validation_rows", "test_rows")
        )
        self.agree(courier, agreement, folder, common)
        expected = ExpectedReplies(placeholder_rows(data.train.x, data.train.y))
        clients = (SecureClients if secure else RemoteClients)(
            courier, train, self.name, common, expected, minimum_sites=self._least_sites(agreement, algorithm),
            answered=Answered.read(folder.path / ANSWERED),
        )  # fmt: skip
        private, robust = self.config.privacy.of_clients(given.rounds), self.config.robust.settings(deployed=not secure)
        if private is not None and self.config.robust.bounds is None:
            robust = replace(robust, bounds=False)  # every update is clipped anyway
        settings = settings_of(self.config, robust, private)
        said: JsonObject = {"cautions": list(agreement.notes)} if agreement.notes else {}
        if agreement.told and agreement.told[0].columns:
            gaps = missing_told(agreement.told, self.names)
            said["missing"] = {column: cells._asdict() for column, cells in gaps.items()}
        evaluator = RemoteEvaluator(
            algorithm.problem, clients, test, validation, self._private, self._patients, agreed_groups(self.config)
        )
        if not evaluator.parts:
            remedy = "privacy measures held-out rows only, and no site has any; set data.test_share = 0.2"
            raise BadInput("data.test_share", self.config.data.test_share, remedy)
        own = LambdaCallback(
            on_result=lambda result: self.closing(evaluator) | said,
            on_warning=lambda text: log.warning("%s", text),
        )
        return Loop(
            algorithm,
            clients,
            evaluator,
            settings,
            RunIdentity(remote_fingerprint(algorithm, train, data.train.positives, given.seed, given.lost_replies)),
            self.config.algorithm.name,
            folder,
            CallbackRunner([own, *trackers_of(self.config), *callbacks]),
            clients_named=self.names,
            features_named=data.features,
            parameters=parameters_of(algorithm, settings),
        )

    def agree(self, courier: Courier, agreement: Agreement, folder: RunFolder, fingerprint: str) -> None:
        """Let all sites agree to the run, or those that are there if it goes on."""
        payload: dict[str, object] = {
            "config": digests(self.config), "names": list(self.names), "agreed": agreement.encoding,
        }  # fmt: skip
        if self.config.privacy.secure_aggregation:
            payload["keys"] = collect_keys(courier, self.config, self.name, folder)
            payload["sizes"] = agreement.sizes["rows"]
        train = agreement.sizes["rows"]

        def check(client: int, answer: Answer, record: object) -> None:
            if (rows := read_payload(AgreeTold, record).rows) != train[client]:
                raise BadMessage(f"another number of training rows ({rows}) than in its facts ({train[client]})")

        everyone = not folder.holds_run
        courier.request("agree", self.name, payload, fingerprint=fingerprint, everyone=everyone, check=check)

    @property
    def _patients(self) -> bool:
        """Whether rows of one patient belong together."""
        return bool(self.config.data.options().get("together"))

    def closing(self, evaluator: RemoteEvaluator) -> JsonObject:
        """What the summary says besides, from the sites' score counts."""
        return evaluator.probabilities() | evaluator.scores()

    @property
    def _private(self) -> bool:
        """Whether sites make noise, and measure no training rows."""
        return self.config.privacy.epsilon is not None and self.config.privacy.unit != "client"

    def _least_sites(self, agreement: Agreement, algorithm: object) -> int:
        """How many sites an average must be of; raise `BadInput` if there are never so many."""
        least, sampled = agreement.minimum_sites, getattr(algorithm, "sampled_clients", None)
        remedy = f"policies of sites ask for averages of at least {least} (minimum_sites)"
        if len(self.names) < least:
            raise BadInput("sites", len(self.names), remedy)
        if isinstance(sampled, int) and sampled < least:
            raise BadInput("algorithm.sampled_clients", sampled, remedy)
        return least
