"""A report as PDF, printed by a headless Chromium where one is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from fedsaddle.atomic import write_atomically
from fedsaddle.errors import FedSaddleError, MissingData
from fedsaddle.shown import shortened, visible

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
SECONDS = 120
OPTIONS = (
    "--headless",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-pdf-header-footer",
)


class NotPrinted(FedSaddleError):
    """The browser did not print the page."""

    exit_code = 3


def write_pdf(page: Path, path: Path) -> Path:
    """Print an HTML file to a PDF.

    Raises:
        MissingData: if no Chromium is installed.
        NotPrinted: if it fails.
    """
    browser = next((found for name in NAMES if (found := shutil.which(name))), None)
    if browser is None:
        raise MissingData(
            "--pdf: needs Chromium or Chrome, and none is on the PATH; install it (Debian: `apt install chromium`), "
            "or open report.html in a browser and print it"
        )
    with TemporaryDirectory() as scratch:
        made = Path(scratch) / "page.pdf"
        root = ("--no-sandbox",) if hasattr(os, "geteuid") and os.geteuid() == 0 else ()  # it refuses to start else
        command = [browser, *OPTIONS, *root, f"--user-data-dir={scratch}/profile", f"--print-to-pdf={made}"]
        try:
            done = subprocess.run(
                [*command, page.resolve().as_uri()], capture_output=True, timeout=SECONDS, check=False, text=True
            )
        except subprocess.TimeoutExpired:
            raise NotPrinted(f"--pdf: {browser} did not end within {SECONDS} s") from None
        if not made.exists():
            raise NotPrinted(f"--pdf: {browser} wrote nothing: {shortened(visible(done.stderr.strip()), 300)}")
        write_atomically(path, made.read_bytes())
    return path
