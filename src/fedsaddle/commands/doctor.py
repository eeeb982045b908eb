"""`fedsaddle doctor`: check the installation."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version

import torch

from fedsaddle import __version__
from fedsaddle.algorithms.drfa import Drfa
from fedsaddle.commands.documents import SCHEMA, DoctorDocument
from fedsaddle.commands.output import output
from fedsaddle.config.data import load
from fedsaddle.data.sets.locate import search_folders
from fedsaddle.engines.device import available_devices
from fedsaddle.errors import install
from fedsaddle.problems.models.papers import logistic_regression
from fedsaddle.problems.supervised import Supervised
from fedsaddle.runs.run import run

PACKAGES = ("torch", "numpy", "scikit-learn", "safetensors")
TOLERANCE = 1e-4  # of the largest difference between the engines' models


def doctor() -> int:
    """Print versions and data sets, and check that both engines agree; the exit code is 0 if they do, else 1."""
    screen = output.screen()
    cores, versions = os.cpu_count() or 1, {name: version(name) for name in PACKAGES}
    screen.print(f"fedsaddle {__version__}, Python {platform.python_version()}, {cores} cores")
    screen.print(", ".join(f"{name} {number}" for name, number in versions.items()))
    screen.print(_workers(), markup=False, highlight=False, soft_wrap=True)
    devices = available_devices()
    screen.print(f"devices: {', '.join(devices)}", markup=False, highlight=False)
    folders = {f: sorted(p.name for p in f.iterdir() if p.is_dir()) if f.is_dir() else [] for f in search_folders()}
    for folder, found in folders.items():
        screen.print(f"data in {folder}: {', '.join(found) or 'none'}", highlight=False)
    data = load("digits", split="by-class", clients=10)
    algorithm = Drfa(problem=Supervised(logistic_regression(64, 10)), sampled_clients=5)
    serial, vectorised = (run(algorithm, data, 5, engine=name) for name in ("serial", "vectorised"))
    difference = float((serial.model - vectorised.model).abs().max())
    agree = difference < TOLERANCE and bool(torch.isfinite(vectorised.model).all())
    screen.print(f"serial and vectorised engines differ by {difference:.1e}: {'good' if agree else 'NOT GOOD'}")
    document: DoctorDocument = {
        "schema": SCHEMA,
        "command": "doctor",
        "fedsaddle": __version__,
        "python": platform.python_version(),
        "cores": cores,
        "versions": versions,
        "devices": devices,
        "data": [{"folder": str(folder), "datasets": found} for folder, found in folders.items()],
        "difference": difference,
        "agree": agree,
    }
    output.emit(document)
    return 0 if agree else 1


def _workers() -> str:
    """Which engines with workers can run here."""
    try:
        return f"workers: processes, and Ray {version('ray')}"
    except PackageNotFoundError:
        return f"workers: processes; Ray is not installed (for it, {install('ray')})"
