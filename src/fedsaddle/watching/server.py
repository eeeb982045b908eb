"""The server of the page: local, read-only, and protected by a secret in the address."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from fedsaddle import __version__
from fedsaddle.errors import BadInput
from fedsaddle.report.page.render import LivePage, render_live, render_runs
from fedsaddle.watching.content import head_part, names_of, parts_of, row_of, together_part
from fedsaddle.watching.state import MOST, Found, Watched

SIDE_BY_SIDE = 3  # runs that are shown unless others are asked for
MOST_SHOWN = 12
LISTED = 200  # runs in the list
PAUSE, LOOK = 0.5, 3.0  # seconds between two readings of files, and between two looks for new runs

Parts = dict[str, str]


@dataclass
class Watch:
    """The runs, and the parts of the page about them. It may be used by several threads.

    Args:
        folders: Where to look for runs.
        pause: Seconds between two readings of files.
        look: Seconds between two looks for new runs.
    """

    folders: Sequence[Path]
    pause: float = PAUSE
    look: float = LOOK
    _found: Found = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _followed: set[str] = field(default_factory=set)  # runs whose records are all read
    _read: float = float("-inf")
    _looked: float = float("-inf")
    _made: dict[str, tuple[object, list[tuple[str, str]]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._found = Found(self.folders)

    def page(self, asked: Sequence[str], events: str) -> tuple[str, str]:
        """The whole page with its policy.

        Args:
            asked: Keys of the runs to show; empty: a few that run or were written to last.
            events: The address of the updates.
        """
        with self._lock:
            self._update(asked)
            shown = self._shown(asked)
            parts = self._parts(shown)
            own = [
                (key, run.name, [(p, parts[p]) for p in parts if p.startswith(f"{key}-")]) for key, run in shown.items()
            ]
            frame = [(key, parts[key]) for key in ("runs", "together")]
            title = f"Watching {names_of([*self._found.runs.values()])}"
        return render_live(LivePage(title, frame, own, events))

    def news(self, asked: Sequence[str]) -> tuple[str, Parts]:
        """Which runs are shown, as one text, and all parts of the page.

        Args:
            asked: Keys of the runs to show.
        """
        with self._lock:
            self._update(asked)
            shown = self._shown(asked)
            return ",".join(shown), self._parts(shown)

    def states(self) -> dict[str, str]:
        """The name of each run and its state."""
        with self._lock:
            self._update(())
            return {run.name: run.state.word for run in self._found.runs.values()}

    def _update(self, asked: Sequence[str]) -> None:
        now = time.monotonic()
        if now - self._looked >= self.look:
            self._looked = now
            self._found.look()
        runs = self._found.runs
        if now - self._read >= self.pause:
            self._read = now
            for key, run in runs.items():
                run.read(key in self._followed)
        for key in self._shown(asked).keys() - self._followed:
            self._followed.add(key)
            runs[key].read()

    def _shown(self, asked: Sequence[str]) -> dict[str, Watched]:
        """The selected runs; else a few: live ones first, then those that were written to last."""
        runs = self._found.runs
        if chosen := {key: runs[key] for key in runs if key in asked}:
            return dict([*chosen.items()][:MOST_SHOWN])
        order = sorted(runs, key=lambda key: (not runs[key].state.live, -_touched(runs[key])))
        few = set(order if len(runs) <= SIDE_BY_SIDE else order[:1])
        return {key: run for key, run in runs.items() if key in few}

    def _parts(self, shown: dict[str, Watched]) -> Parts:
        """The parts of the page; those of a run are rendered again only if its files have changed."""
        parts: Parts = {"runs": self._list(shown)}
        stamp = tuple((key, run.records.version, run.state.live) for key, run in shown.items())
        parts |= dict(self._cached("together", stamp, lambda: [together_part(shown)]))
        for key, run in shown.items():
            parts |= dict([head_part(key, run)])
            sites = str(run.progress.sites if run.progress else "")
            own = (run.records.version, run.baseline.version, run.version, run.state.word, sites, tuple(run.log))
            parts |= dict(self._cached(key, own, partial(parts_of, key, run)))
        return parts

    def _cached(self, key: str, stamp: object, make: Callable[[], list[tuple[str, str]]]) -> list[tuple[str, str]]:
        before = self._made.get(key)
        if before is None or before[0] != stamp:
            self._made[key] = before = (stamp, make())
        return before[1]

    def _list(self, shown: dict[str, Watched]) -> str:
        runs = self._found.runs
        if len(runs) < 2:
            return ""
        rows = [row_of(key, run, key in shown) for key, run in [*runs.items()][:LISTED]]
        listed = f"{LISTED} of {len(runs):,} runs are listed" if len(runs) > LISTED else ""
        more = f"; there are more than the {MOST} that are followed" if self._found.more else ""
        return render_runs(rows, f"{listed}{more}.".lstrip("; ") if listed or more else "")


def _touched(run: Watched) -> float:
    try:
        return run.records.path.stat().st_mtime
    except OSError:
        return 0.0


HOST = "127.0.0.1"
MARK = "X-FedSaddle"  # in every answer, by which `fedsaddle watch URL` knows one
MOST_FOLLOWERS = 16  # pages that are open at the same time
HEARTBEAT = 10.0  # seconds after which a follower without news gets a sign of life
_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class WatchServer(ThreadingHTTPServer):
    """Serves the page of some runs until it is closed.

    Args:
        watch: The runs.
        port: To listen on; 0: a free one.
    """

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = False

    def __init__(self, watch: Watch, port: int = 0) -> None:
        self.watch = watch
        self.token = secrets.token_urlsafe(24)
        self.closing = threading.Event()
        self.followers = threading.BoundedSemaphore(MOST_FOLLOWERS)
        try:
            super().__init__((HOST, port), _Handler)
        except (OSError, OverflowError) as reason:
            said = getattr(reason, "strerror", None) or str(reason)
            raise BadInput("--port", port, f"is not available ({said}); leave it out for a free one") from None

    @property
    def port(self) -> int:
        """The port that it listens to."""
        return int(self.server_address[1])

    @property
    def address(self) -> str:
        """Where the page is, with its secret."""
        return f"http://{HOST}:{self.port}/{self.token}/"

    def hosts(self) -> tuple[str, ...]:
        """The host names by which a browser on this machine may address the server; others are refused."""
        return (f"{HOST}:{self.port}", f"localhost:{self.port}")

    def server_close(self) -> None:
        """End all followers, and stop listening."""
        self.closing.set()
        super().server_close()

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore errors of a browser that has disconnected.

        Args:
            request: Of the browser.
            client_address: Of the browser.
        """


class _Handler(BaseHTTPRequestHandler):
    server: WatchServer
    server_version, sys_version = f"fedsaddle/{__version__}", ""
    protocol_version = "HTTP/1.1"
    timeout = 10  # seconds for a request to arrive

    def do_GET(self) -> None:
        """The page, or news of it."""
        self._answer()

    def do_HEAD(self) -> None:
        """The same without content."""
        self._answer()

    def __getattr__(self, name: str) -> object:
        if name.startswith("do_"):  # every other method
            return lambda: self._refuse(HTTPStatus.METHOD_NOT_ALLOWED, {"Allow": "GET, HEAD"})
        raise AttributeError(name)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing, as the address contains the secret."""

    def _answer(self) -> None:
        if self.headers.get_all("Host") is None or self.headers.get("Host", "").lower() not in self.server.hosts():
            return self._refuse(HTTPStatus.MISDIRECTED_REQUEST)
        try:
            asked = urlsplit(self.path)
            shown = parse_qs(asked.query, max_num_fields=100).get("show", [])
        except ValueError:
            return self._refuse(HTTPStatus.BAD_REQUEST)
        first, _, rest = asked.path.removeprefix("/").partition("/")
        if not hmac.compare_digest(first.encode("utf-8", "replace"), self.server.token.encode()):
            return self._refuse(HTTPStatus.NOT_FOUND)
        keys = [key for key in shown if key.isalnum() and len(key) < 40]
        if rest == "":
            events = "events" + (f"?{'&'.join(f'show={key}' for key in keys)}" if keys else "")
            html, policy = self.server.watch.page(keys, f"/{self.server.token}/{events}")
            return self._send(html.encode("utf-8"), "text/html; charset=utf-8", {"Content-Security-Policy": policy})
        if rest == "events" and self.command == "GET":
            return self._follow(keys)
        return self._refuse(HTTPStatus.NOT_FOUND)

    def _send(self, content: bytes, kind: str, more: dict[str, str], status: HTTPStatus = HTTPStatus.OK) -> None:
        self.close_connection = True
        self.send_response(status)
        headers = {
            "Connection": "close",
            "Content-Type": kind,
            "Content-Length": str(len(content)),
            MARK: "watch",
            **_HEADERS,
            **more,
        }
        for key, value in headers.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _refuse(self, status: HTTPStatus, more: dict[str, str] | None = None) -> None:
        said = f"{status.phrase}\n".encode()
        self._send(said, "text/plain; charset=utf-8", more or {}, status)

    def _follow(self, keys: list[str]) -> None:
        """Send each part when it changes, until the browser disconnects or the server ends."""
        if not self.server.followers.acquire(blocking=False):
            return self._refuse(HTTPStatus.SERVICE_UNAVAILABLE)
        try:
            self.close_connection = True
            self.send_response(HTTPStatus.OK)
            headers = {"Content-Type": "text/event-stream; charset=utf-8", "Connection": "close", MARK: "watch"}
            for key, value in {**headers, **_HEADERS}.items():
                self.send_header(key, value)
            self.end_headers()
            self.connection.settimeout(30)  # for a browser that takes nothing
            self._news(keys)
        except (TimeoutError, OSError):
            return None
        finally:
            self.server.followers.release()

    def _news(self, keys: list[str]) -> None:
        sent: dict[str, bytes] = {}
        layout, last = None, time.monotonic()
        self.wfile.write(b"retry: 2000\n\n")
        while not self.server.closing.is_set():
            now, parts = self.server.watch.news(keys)
            if layout is not None and now != layout:
                self._event("layout", {})
                return
            layout = now
            for key, html in parts.items():
                digest = hashlib.sha256(html.encode("utf-8", "replace")).digest()
                if sent.get(key) != digest:
                    sent[key], last = digest, time.monotonic()
                    self._event("part", {"key": key, "html": html})
            if time.monotonic() - last > HEARTBEAT:
                last = time.monotonic()
                self.wfile.write(b": still here\n\n")
            self.wfile.flush()
            self.server.closing.wait(self.server.watch.pause)

    def _event(self, name: str, content: dict[str, str]) -> None:
        self.wfile.write(f"event: {name}\ndata: {json.dumps(content)}\n\n".encode())
