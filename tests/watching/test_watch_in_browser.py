"""The page in a real browser: a run that goes on, one that is killed and one that is resumed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_server import HOSTILE
from watched_runs import progress, served, store

from fedsaddle.runs.folder import only_writer

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")]
CONTRAST = (Path(__file__).parents[1] / "report" / "contrast.js").read_text(encoding="utf-8")

RUN = """
import sys, time
import fedsaddle as fs
data = fs.load("iris", split="iid", clients=4)
algorithm = fs.Drfa(problem=fs.Supervised(fs.models.logistic_regression(4, 3)), sampled_clients=2, local_steps=2)
fs.run(algorithm, data, int(sys.argv[2]), out=sys.argv[1], resume=sys.argv[3] == "resume", evaluate_every=4,
       checkpoint_every=5, watch=lambda done, record: time.sleep(float(sys.argv[4])))
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    options = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=options)
        yield opened
        opened.close()


@pytest.fixture
def show(browser: Any) -> Iterator[Any]:
    """Open a page of a server; what it logs, asks or loads from elsewhere is an error."""
    contexts, faults = [], []

    def opened(server: Any, *, width: int = 1400, dark: bool = False, script: bool = True) -> Any:
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if dark else "light",
            java_script_enabled=script,
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: faults.append(message.text))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("dialog", lambda dialog: (faults.append(dialog.message), dialog.dismiss()))
        page.on(
            "request", lambda request: None if request.url.startswith(server.address) else faults.append(request.url)
        )
        page.goto(server.address)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert [fault for fault in faults if "ERR_" not in fault] == []


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Any]:
    """Start a run in a process of its own; all are ended at the end."""
    begun = []

    def started(folder: Path, rounds: int, how: str = "new", pause: float = 0.1) -> subprocess.Popen[bytes]:
        begun.append(subprocess.Popen([sys.executable, "-c", RUN, str(folder), str(rounds), how, str(pause)]))
        return begun[-1]

    yield started
    for process in begun:
        process.kill()
        process.wait()


def state(page: Any) -> str:
    return str(page.locator(".run .state").first.inner_text())


def until(page: Any, check: Any, seconds: float = 240.0) -> None:
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end, page.locator("main").inner_text()[:500]
        page.wait_for_timeout(100)


def test_a_run_goes_on_is_killed_and_resumed(show, begin, tmp_path):
    folder = tmp_path / "run"
    with served(folder, pause=0.2) as server:
        page = show(server)
        assert state(page) == "waiting"
        process = begin(folder, 400)
        until(page, lambda: state(page) == "running" and page.locator("progress").count() == 1)
        done = lambda: page.locator("progress").evaluate("bar => bar.value")  # noqa: E731
        until(page, lambda: done() > 12)
        until(page, lambda: page.locator('[data-key="clients-accuracy"]').count() == 1)
        until(page, lambda: page.locator('[data-key="mixture"]').count() == 1)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        until(page, lambda: state(page) == "killed")
        at = done()
        begin(folder, int(at) + 20, "resume", 0.15)
        until(page, lambda: state(page) == "resumed")
        until(page, lambda: state(page) == "finished")
        assert done() == int(at) + 20
        assert page.locator("#link").inner_text() == "This page follows the files of the runs."
    until(page, lambda: page.locator("#link").inner_text().startswith("No connection"))


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [400, 1400])
def test_the_page_fits_and_can_be_read(show, tmp_path, width, dark):
    store(tmp_path / "a", 30, progress=progress(6, sites={"A": "up", "B": "lost", "C": "up"}))
    store(tmp_path / "b", 20, summary={"stopped": "finished", "rounds": 20, "algorithm": "DRFA"})
    (tmp_path / "a" / "log.txt").write_text("2026-11-17 10:00:00,000 INFO a line\n" * 40)
    with only_writer(tmp_path / "a"), served(tmp_path) as server:
        page = show(server, width=width, dark=dark)
        until(page, lambda: page.locator(".run").count() == 2)
        page.locator("summary").evaluate_all("all => all.forEach(one => one.parentElement.open = true)")
        assert page.evaluate("document.documentElement.scrollWidth") == width
        measured = page.evaluate(CONTRAST)
        assert [found for found in measured["texts"] if found["ratio"] < 4.5] == []
        assert [found for found in measured["lines"] if found["ratio"] < 3] == []
        assert "lost: B" in page.locator(".run").first.inner_text()


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_do_nothing(show, tmp_path, name):
    names = (name, f"{name}2", "C")
    store(
        tmp_path, 5, names, progress=progress(6, sites=dict.fromkeys(names, "up")), config={"algorithm": {"name": name}}
    )
    (tmp_path / "log.txt").write_text(name)
    with only_writer(tmp_path), served(tmp_path) as server:
        page = show(server, width=400)
        (tmp_path / "progress.json").write_text((tmp_path / "progress.json").read_text().replace('"up"', '"lost"'))
        until(page, lambda: "lost" in page.locator(".run").inner_text())
        assert page.evaluate("document.documentElement.scrollWidth") == 400
        assert page.locator("script").count() == 1
        for one in page.locator(".drawing").all():
            one.focus()
            page.keyboard.press("ArrowRight")


def test_news_do_not_disturb(show, tmp_path):
    """What is unfolded stays so, and what has the focus is not taken away."""
    store(tmp_path, 5, progress=progress(6))
    with only_writer(tmp_path), served(tmp_path) as server:
        page = show(server)
        page.wait_for_timeout(300)
        page.locator("summary").first.click()
        page.evaluate("document.activeElement.blur()")
        page.mouse.move(2, 2)
        drawing = page.locator(".drawing").nth(1)
        drawing.focus()
        page.keyboard.press("ArrowRight")
        said = page.locator(".tip").inner_text()
        store(tmp_path, 9, progress=progress(9))
        until(page, lambda: page.locator("progress").evaluate("bar => bar.value") == 9)
        assert page.locator("details").first.evaluate("one => one.open")
        assert page.locator(".tip").inner_text() == said
        assert drawing.evaluate("one => one === document.activeElement")
        page.evaluate("document.activeElement.blur()")
        until(page, lambda: "round 9" in page.locator(".run").inner_text())


def test_choosing_runs_and_without_scripts(show, tmp_path):
    for k in range(6):
        store(tmp_path / f"r{k}", 4)
    with served(tmp_path) as server:
        page = show(server, script=False)
        assert page.locator(".run").count() == 1
        page.locator("#runs input").nth(1).check()
        page.locator("#runs input").nth(4).check()
        page.get_by_role("button", name="side by side").click()
        assert page.locator(".run").count() >= 2
        assert page.locator(".run .drawing").count() >= 2
        page.get_by_role("link", name="r2").click()
        assert page.locator(".run h2").all_inner_texts() == [f"{tmp_path.name}/r2"]
