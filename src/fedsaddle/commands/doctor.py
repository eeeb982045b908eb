"""`fedsaddle doctor`: check the installation."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version

import torch
from rich.console import Console

from fedsaddle import __version__
from fedsaddle.algorithms.drfa import Drfa
from fedsaddle.config.data import load
from fedsaddle.data.sets.locate import search_folders
from fedsaddle.problems.models.papers import logistic_regression
from fedsaddle.problems.supervised import Supervised
from fedsaddle.runs.run import run

TOLERANCE = 1e-4  # of the largest difference between the engines' models


def doctor() -> int:
    """Print versions and data sets, and check that both engines agree; the exit code is 0 if they do, else 1."""
    console = Console()
    console.print(f"fedsaddle {__version__}, Python {platform.python_version()}, {os.cpu_count()} cores")
    console.print(", ".join(f"{name} {version(name)}" for name in ("torch", "numpy", "scikit-learn", "safetensors")))
    console.print(_workers(), markup=False, highlight=False, soft_wrap=True)
    for folder in search_folders():
        found = sorted(p.name for p in folder.iterdir() if p.is_dir()) if folder.is_dir() else []
        console.print(f"data in {folder}: {', '.join(found) or 'none'}", highlight=False)
    data = load("digits", split="by-class", clients=10)
    algorithm = Drfa(problem=Supervised(logistic_regression(64, 10)), sampled_clients=5)
    serial, vectorised = (run(algorithm, data, 5, engine=name) for name in ("serial", "vectorised"))
    difference = float((serial.model - vectorised.model).abs().max())
    agree = difference < TOLERANCE and bool(torch.isfinite(vectorised.model).all())
    console.print(f"serial and vectorised engines differ by {difference:.1e}: {'good' if agree else 'NOT GOOD'}")
    return 0 if agree else 1


def _workers() -> str:
    """Which engines with workers can run here."""
    try:
        return f"workers: processes, and Ray {version('ray')}"
    except PackageNotFoundError:
        return 'workers: processes; Ray is not installed (pip install "fedsaddle[ray]")'
