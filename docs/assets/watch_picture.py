"""Photograph the page of `fedsaddle watch` for the documentation: watch.png.

python docs/assets/watch_picture.py [FOLDER]

Needs Chromium and `pip install ".[browser]"`. Two runs in processes of their own: FedAvg goes on, DRFA is killed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import threading
import time
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

from fedsaddle.files import read_object
from fedsaddle.watching.server import Watch, WatchServer

HERE = Path(__file__).parent
NAME, WIDTH, HEIGHT, COLOURS = "watch.png", 1200, 1500, 64
CONFIG = """
[data]
name = "scanned-digits"
[split]
name = "natural"
column = "site"
[model]
name = "logistic"
[algorithm]
name = "{}"
[run]
rounds = 3000
evaluate_every = 5
"""


def begin(folder: Path, name: str) -> subprocess.Popen[bytes]:
    """A run in a process of its own."""
    config = folder / f"{name}.toml"
    config.write_text(CONFIG.format(name))
    code = "from fedsaddle.cli import main; main()"
    words = [sys.executable, "-c", code, "run", str(config), "--out", str(folder / "runs" / name.lower())]
    return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def wait_for(folder: Path, rounds: int) -> None:
    """Until so many rounds are done."""
    for _ in range(6000):
        try:
            if read_object(folder / "progress.json")["round"] >= rounds:
                return
        except ValueError:
            pass
        time.sleep(0.1)
    raise TimeoutError(folder)


def photograph(folder: Path) -> bytes:
    """The page of the runs in a folder, as it is now."""
    with WatchServer(Watch([folder])) as server, sync_playwright() as play:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.goto(server.address)
        page.wait_for_timeout(2000)
        picture = page.screenshot()
        browser.close()
        server.shutdown()
    return picture


def main(folder: Path = HERE) -> None:
    """Take the picture."""
    with tempfile.TemporaryDirectory() as work:
        place = Path(work)
        begun = [begin(place, name) for name in ("DRFA", "FedAvg")]
        try:
            wait_for(place / "runs" / "drfa", 400)
            begun[0].kill()
            wait_for(place / "runs" / "fedavg", 600)
            picture = photograph(place / "runs")
        finally:
            for process in begun:
                process.kill()
                process.wait()
    few = Image.open(BytesIO(picture)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    few.save(folder / NAME, optimize=True)
    print(f"{NAME}: {(folder / NAME).stat().st_size:,} bytes")


if __name__ == "__main__":
    main(*(Path(path) for path in sys.argv[1:2]))
