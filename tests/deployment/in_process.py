"""A whole deployed run inside the test's process: real configs, real files, the real codec; no network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fedsaddle as fs
from fedsaddle.commands.deploy_try import write_site_files
from fedsaddle.config.build import build
from fedsaddle.config.schema import Config, validate_config
from fedsaddle.deployment.courier import InProcess, Patience
from fedsaddle.deployment.server import DeployedRun
from fedsaddle.deployment.site import SiteService, SiteSettings
from fedsaddle.deployment.site_policy import SitePolicy
from fedsaddle.runs.run import run


def config(
    algorithm: dict[str, Any],
    data: str = "iris",
    problem: dict[str, Any] | None = None,
    held_out: dict[str, Any] | None = None,
    **settings: Any,
) -> Config:
    return validate_config(
        {
            "data": {"name": data, **(held_out or {})},
            "split": {"name": "iid", "clients": 4},
            "model": {"name": "logistic"},
            "problem": problem or {},
            "algorithm": {"batch_size": 4, **algorithm},
            "run": {"rounds": 6, "checkpoint_every": 2, "dtype": "float64", **settings},
        }
    )


OPEN = SitePolicy(  # for few rows that everybody has, and runs that a simulation repeats
    minimum_cell=1, minimum_rows=1, minimum_sites=1, draws="seed", most_runs=1000
)


def sites(config: Config, folder: Path, policy: SitePolicy = OPEN) -> dict[int, SiteService]:
    files = write_site_files(build(config).data, folder / "data")
    return {
        i: SiteService(config, SiteSettings(f"site-{i + 1}", path, folder / f"disk-{i}"), policy)
        for i, path in enumerate(files)
    }


def deployed(
    config: Config,
    made: dict[int, SiteService],
    out: Path,
    transport: Any = None,
    *,
    name: str = "trial",
    **patience: Any,
) -> Any:
    names = tuple(made[i].settings.name for i in sorted(made))
    transport = transport or InProcess({i: site.answer for i, site in made.items()})
    return DeployedRun(config, name, names, out, Patience(**patience)).go(transport)


def simulated(config: Config, **options: Any) -> Any:
    built, settings = build(config), config.run
    return run(
        built.algorithm,
        built.data,
        settings.rounds,
        seed=settings.seed,
        engine="serial",
        evaluate_every=settings.evaluate_every,
        select=settings.select,
        patience=settings.patience,
        target=settings.target,
        callbacks=[fs.LambdaCallback(on_warning=print)],
        **options,
    )
