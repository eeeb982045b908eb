"""What a run for the AUROC is compared with: FedAvg on cross-entropy, on the same rows and the same model."""

from __future__ import annotations

from typing import Any

from fedsaddle.config.schema import Config, Named, ProblemSection

NAME = "FedAvg"


def wanted(config: Config) -> bool:
    """Whether the run is one for the AUROC, and the comparison is not switched off."""
    return config.run.compare and config.problem.name == "auc"


def baseline(config: Config, algorithm: Any, rounds: int) -> Config:
    """The same rounds, clients, local steps, batches and start; FedAvg's own step."""
    own = {k: getattr(algorithm, k, None) for k in ("sampled_clients", "local_steps", "batch_size")}
    return config.model_copy(
        update={
            "algorithm": Named(name=NAME, **{k: v for k, v in own.items() if isinstance(v, int)}),
            "problem": ProblemSection(name="supervised", loss="logistic"),
            "run": config.run.model_copy(update={"rounds": rounds, "target": None, "measures": []}),
        }
    )
