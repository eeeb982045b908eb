"""The page is for those who know its address, on this machine; it follows runs and writes nothing."""

from __future__ import annotations

import html
import json
import re
import socket
from html.parser import HTMLParser
from itertools import islice

import pytest
from watched_runs import ask, events, progress, record, served, store, summary

from fedsaddle import __version__
from fedsaddle.errors import BadInput
from fedsaddle.runs.folder import only_writer
from fedsaddle.watching import server as server_module
from fedsaddle.watching.server import Watch, WatchServer

HOSTILE = (
    "</script><script>alert(1)</script>",
    "</style></svg></table><img src=x onerror=alert(1)>",
    "\" onmouseover='alert(1)' x=\"",
    "{{ 7 * 7 }}{% raw %}",
    "nul\x00 bell\x07 escape\x1b[2J",
    "right-to-left \u202e override",
    "x" * 300,
    "",
)


def test_only_those_who_know_the_secret(tmp_path):
    with served(store(tmp_path)) as server:
        assert server.address == f"http://127.0.0.1:{server.port}/{server.token}/"
        assert server.server_address[0] == "127.0.0.1"
        assert len(server.token) >= 32
        answer, text = ask(server)
        assert answer.status == 200
        assert "DRFA on digits" in text
        for path in ("/", "/x/", f"/{server.token[:-1]}/", f"/{server.token}x/", "/%00/", "//", f"/{server.token}"):
            answer, text = ask(server, path)
            assert answer.status == (200 if path == f"/{server.token}" else 404)
            assert answer.status == 200 or "DRFA" not in text
        for rest in ("metrics.jsonl", "../etc/passwd", "..%2f..%2fetc/passwd", "events/x", "config.json"):
            assert ask(server, f"/{server.token}/{rest}")[0].status == 404


def test_names_of_strangers_are_refused(tmp_path):
    """A page elsewhere that names itself as this machine (DNS rebinding) gets nothing."""
    with served(store(tmp_path)) as server:
        for host in ("evil.example", f"evil.example:{server.port}", "127.0.0.1", f"127.0.0.1:{server.port + 1}", ""):
            answer, text = ask(server, Host=host)
            assert answer.status == 421
            assert "DRFA" not in text
        assert ask(server, Host=f"localhost:{server.port}")[0].status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT", "TRACE", "X"])
def test_nothing_but_reading(tmp_path, method):
    with served(store(tmp_path)) as server:
        answer, text = ask(server, method=method)
        assert answer.status == 405
        assert answer.headers["Allow"] == "GET, HEAD"
        assert "DRFA" not in text


def test_headers(tmp_path):
    with served(store(tmp_path)) as server:
        answer, text = ask(server, method="HEAD")
        assert (answer.status, text) == (200, "")
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe-inline" not in policy.split("script-src")[1].split(";")[0]
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert answer.headers["X-FedSaddle"] == "watch"
        assert answer.headers["Server"].strip() == f"fedsaddle/{__version__}"


def test_half_a_request_holds_nobody_up(tmp_path, monkeypatch):
    monkeypatch.setattr(server_module._Handler, "timeout", 0.2)
    with served(store(tmp_path)) as server, socket.create_connection(("127.0.0.1", server.port), 10) as half:
        half.sendall(b"GET / HTTP/1.1\r\nHost:")
        assert ask(server)[0].status == 200
        assert half.recv(100) == b""


def test_a_taken_port_is_named(tmp_path):
    with WatchServer(Watch([tmp_path])) as first, pytest.raises(BadInput, match="--port"):
        WatchServer(Watch([tmp_path]), first.port)


def test_news_of_a_run_as_it_goes(tmp_path):
    store(tmp_path, 2, progress=progress(2))
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with only_writer(tmp_path), served(tmp_path) as server, events(server) as stream:
        first = {content["key"]: content["html"] for _, content in islice(stream, 7)}
        key = next(k for k in first if k.endswith("-head")).removesuffix("-head")
        assert "running" in first[f"{key}-head"]
        assert 'max="10" value="2"' in first[f"{key}-head"]
        assert 'data-kind="lines"' in first[f"{key}-curves"]
        with (tmp_path / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(record(3)) + "\n" + json.dumps(record(4))[:-5])
        changed = {content["key"] for _, content in islice(stream, 4)}
        assert {f"{key}-head", f"{key}-curves", f"{key}-weights", f"{key}-sites"} == changed
        (tmp_path / "log.txt").write_text("2026-11-17 INFO site B is back\n")
        _, content = next(stream)
        assert content["key"] == f"{key}-log"
        assert "site B is back" in content["html"]
        (tmp_path / "progress.json").write_text(json.dumps(progress(3, after=2, resumed=True)))
        _, content = next(stream)
        assert "resumed" in content["html"]
    (tmp_path / "log.txt").unlink()
    assert set(tmp_path.iterdir()) == set(before), "nothing was written"


def test_a_new_run_changes_the_layout(tmp_path):
    store(tmp_path / "a")
    with served(tmp_path) as server, events(server) as stream:
        list(islice(stream, 7))
        store(tmp_path / "b")
        names = {name for name, _ in islice(stream, 2)}
        assert "layout" in names


def test_many_followers_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(server_module, "MOST_FOLLOWERS", 1)
    with served(store(tmp_path)) as server, events(server) as stream:
        next(stream)
        assert ask(server, f"/{server.token}/events")[0].status == 503


def test_several_runs_side_by_side(tmp_path):
    for name in ("a", "b"):
        store(tmp_path / name, 5)
    with served(tmp_path / "a", tmp_path / "b") as server:
        text = ask(server)[1]
        assert text.count('class="run"') == 2
        assert "In the last evaluation: a " in text
        assert text.count("checked") >= 2
    for k in range(30):
        store(tmp_path / "sweep" / f"{k:02}", 3)
    with served(tmp_path / "sweep") as server:
        text = ask(server)[1]
        assert text.count('class="run"') == 1
        keys = re.findall(r'name="show" value="(\w+)"', text)
        assert len(set(keys)) == 30
        text = ask(server, f"/{server.token}/?show={keys[3]}&show={keys[7]}&show=none&show=%3Cb%3E")[1]
        assert re.findall(r'<article class="run" id="(\w+)"', text) == [keys[3], keys[7]]
        assert f"events?show={keys[3]}&amp;show={keys[7]}&amp;show=none" in text
        assert "<b>" not in text


class Elements(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found, self.attributes = [], []

    def handle_starttag(self, tag, attrs):
        self.found.append(tag)
        self.attributes += [name for name, _ in attrs]


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_texts_are_shown_and_do_nothing(tmp_path, name):
    states = {name: "up", f"{name}2": "lost", "C": name}
    measured = record(6, pooled={name: 0.5}, test={"loss": record(6)["test"]["loss"], name: record(6)["test"]["loss"]})
    store(
        tmp_path, 5, (name, f"{name}2", "C"), progress=progress(6, sites=states, waiting={name: 3.0}),
        config={"algorithm": {"name": name}, "data": {"name": name}},
        split={"data": name, "clients": 3, "names": [name] * 3, "train_sizes": [1] * 3},
        summary=summary(algorithm=name, sites={name: {"answered": 1, "left_out": {}}}),
    )  # fmt: skip
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({**measured, "round": 6}) + "\n" + json.dumps({**measured, "round": 7}) + "\n")
    (tmp_path / "log.txt").write_bytes(name.encode("utf-8", "surrogatepass") + b"\n")
    with only_writer(tmp_path), served(tmp_path) as server:
        text = ask(server)[1]
        with events(server) as stream:
            parts = [content["html"] for _, content in islice(stream, 7)]
    for content in (text, *parts):
        parser = Elements()
        parser.feed(content)
        assert parser.found.count("script") == (content is text)
        assert "img" not in parser.found
        assert not [one for one in parser.attributes if one.startswith("on")]
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e]", content)
    if name and name.isprintable() and len(name) < 100:
        assert html.escape(name, quote=False)[:12] in html.escape(html.unescape(parts[-1]), quote=False)


@pytest.mark.parametrize(
    "odd",
    [
        {"test": {"loss": 3}},
        {"test": None},
        {"clients": [1]},
        {"mixture": "no"},
        {"mixture": [None, "x", float("nan")]},
        {"pooled": {"auroc": None}},
        {"bytes_up": "x", "seconds": {}},
        {"test": {"loss": {"mean": float("nan"), "worst": float("inf"), "best": -1e308}}},
        {"exchanges": "<b>"},
    ],
    ids=str,
)
def test_odd_records_leave_a_page(tmp_path, odd):
    store(tmp_path, 2, progress={"round": "x", "rounds": -3, "began": None, "sites": [1]}, summary={"sites": 3})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        for k in (3, 4):
            file.write(json.dumps({**record(k), **odd}) + "\n")
    with served(tmp_path) as server:
        answer, text = ask(server)
        assert answer.status == 200
        assert "killed" in text
        assert "<b>" not in text
        assert "Progress.json is damaged (round: input should be a valid integer" in text
        assert "another version of fedsaddle wrote it" in text
