"""Folders as runs leave them, written by hand, and a client that asks a server of the page."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from fedsaddle.watching.server import Watch, WatchServer
from summaries import run_summary


def record(done: int, clients: int = 3, **more: Any) -> dict[str, Any]:
    """An evaluation, as the loop writes it."""
    loss = [1 / (done + i + 1) for i in range(clients)]
    spread = {"global": loss[0], "mean": sum(loss) / clients, "worst": max(loss), "best": min(loss), "std": 0.1}
    spread["bottom10"] = max(loss)
    return {
        "round": done,
        "exchanges": done,
        "bytes_down": 1000 * done,
        "bytes_up": 900 * done,
        "samples": 10 * done,
        "local_steps": done,
        "seconds": 0.5 * done,
        "test": {"loss": spread},
        "mixture": [1 / clients] * clients,
        "clients": {"test": {"loss": loss}},
        **more,
    }


def store(folder: Path, records: int = 5, names: tuple[str, ...] = ("A", "B", "C"), **files: Any) -> Path:
    """The folder of a run with so many evaluations; `files` are JSON files by name."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(record(k + 1, len(names))) for k in range(records)]
    (folder / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))
    split = {"data": "digits", "clients": len(names), "names": list(names), "train_sizes": [1] * len(names)}
    config = {
        "algorithm": {"name": "DRFA"},
        "run": {"rounds": 10},
        "data": {"name": "digits"},
        "problem": {"name": "supervised"},
    }
    for name, content in {"split": split, "config": config, **files}.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def summary(stopped: str = "finished", **more: Any) -> dict[str, Any]:
    """summary.json, with what every summary has."""
    if stopped == "diverged":
        return {"schema_version": 1, "algorithm": "DRFA", "stopped": stopped, "round": 3, "client": None}
    return run_summary(stopped=stopped, **more).to_dict()


def progress(done: int, **more: Any) -> dict[str, Any]:
    """progress.json of a run that took two seconds a round."""
    now = time.time()
    plain = {"round": done, "rounds": 10, "seconds": 1.5, "began": now - 2 * done, "after": 0, "resumed": False}
    return {**plain, "updated": now, **more}


@contextmanager
def served(*folders: Path, pause: float = 0.02) -> Iterator[WatchServer]:
    """A server in a thread."""
    with WatchServer(Watch(folders, pause=pause, look=pause)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join(10)


def ask(
    server: WatchServer, path: str | None = None, method: str = "GET", **headers: str
) -> tuple[http.client.HTTPResponse, str]:
    """An answer and its content; the path of the page by default."""
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)) as connection:
        connection.request(method, f"/{server.token}/" if path is None else path, headers=headers)
        answer = connection.getresponse()
        return answer, answer.read().decode()


@contextmanager
def events(server: WatchServer, query: str = "") -> Iterator[Iterator[tuple[str, dict[str, str]]]]:
    """The events as they come: names and contents."""
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)) as connection:
        connection.request("GET", f"/{server.token}/events{query}")
        with connection.getresponse() as answer:
            assert answer.status == 200
            assert answer.headers["Content-Type"].startswith("text/event-stream")
            yield _events(answer)


def _events(answer: http.client.HTTPResponse) -> Iterator[tuple[str, dict[str, str]]]:
    name = ""
    while line := answer.readline().decode():
        if line.startswith("event: "):
            name = line.removeprefix("event: ").strip()
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))
