"""The server's part of a deployed run: agree with the sites, then run the loop, whatever carries the messages."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedsaddle.config.resume import FILE as CONFIG
from fedsaddle.config.resume import same_config
from fedsaddle.config.schema import Config
from fedsaddle.deployment.agreement import agree_on_encoding, build_from, digests
from fedsaddle.deployment.courier import Courier, Patience
from fedsaddle.deployment.expected_replies import ExpectedReplies, placeholder_rows
from fedsaddle.deployment.logs import logged
from fedsaddle.deployment.preflight import require_deployable
from fedsaddle.deployment.remote_clients import RemoteClients
from fedsaddle.deployment.remote_loop import RemoteLoop, RemoteRows
from fedsaddle.deployment.transport import Transport
from fedsaddle.errors import FedSaddleError
from fedsaddle.runs.checkpoints import write_json
from fedsaddle.runs.evaluation import Measures, asked
from fedsaddle.runs.fingerprint import shared_fingerprint
from fedsaddle.runs.folder import Output, RunFolder
from fedsaddle.runs.result import Result
from fedsaddle.runs.target import Target

log = logging.getLogger("fedsaddle.server")


@dataclass(frozen=True)
class DeployedRun:
    """What to run, for whom, and where to write it. Client i is the site `names[i]`, for the whole run."""

    config: Config
    name: str
    names: tuple[str, ...]
    out: Path
    patience: Patience

    def go(self, transport: Transport, watch: Callable[[int, dict[str, Any] | None], None] | None = None) -> Result:
        """Agree, then run; goes on from the newest checkpoint in the folder, if there is one."""
        require_deployable(self.config)
        with logged(log, self.out):
            try:
                return self._go(transport, watch)
            except FedSaddleError as reason:
                log.error("the run ended: %s", reason)
                raise

    def _go(self, transport: Transport, watch: Callable[[int, dict[str, Any] | None], None] | None) -> Result:
        if (self.out / CONFIG).exists():
            same_config(self.config, self.out)
        courier = Courier(transport, self.names, self.patience)
        facts, encoding = agree_on_encoding(courier, self.config, self.name, self.out)
        loop = self._loop(courier, facts, encoding, watch)
        settings = self.config.run
        folder = RunFolder(self.out, loop.fingerprint, settings.checkpoint_every)
        output = Output.to(folder, resume=folder.metrics.exists())
        loop.resume(output)
        for reason in output.refused:
            log.warning("%s; the checkpoint before it is used", reason)
        write_json(self.out / CONFIG, self.config.model_dump(mode="json"))
        if loop.done:
            log.info("resuming after round %d", loop.done)
        return loop.go(output)

    def _loop(
        self,
        courier: Courier,
        told: list[dict[str, Any]],
        agreed: dict[str, Any],
        watch: Callable[[int, dict[str, Any] | None], None] | None,
    ) -> RemoteLoop:
        settings = self.config.run
        algorithm, data = build_from(self.config, agreed, self.names)
        common = shared_fingerprint(algorithm, len(self.names), settings.seed)
        payload = {"config": digests(self.config), "names": list(self.names), "agreed": agreed}
        courier.request(
            "agree", self.name, payload, fingerprint=common, everyone=not (self.out / "metrics.jsonl").exists()
        )
        train, test = (np.array([each[k] for each in told], dtype=np.int64) for k in ("rows", "test_rows"))
        engine = RemoteClients(
            courier, train, self.name, common, ExpectedReplies(placeholder_rows(data.train.x, data.train.y))
        )
        return RemoteLoop(
            algorithm=algorithm,
            engine=engine,  # type: ignore[arg-type]
            train=RemoteRows("train", train, data.train.positives),  # type: ignore[arg-type]
            test=RemoteRows("test", test) if test.any() else None,  # type: ignore[arg-type]
            rounds=settings.rounds,
            seed=settings.seed,
            evaluate_every=settings.evaluate_every,
            evaluate_train=settings.evaluate_train or not test.any(),
            measures=Measures(asked(()), log.warning),
            target=None if settings.target is None else Target.parse(settings.target),
            lost_replies=settings.lost_replies,
            watch=watch,
        )
