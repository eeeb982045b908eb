"""The server of the page: this machine only, GET only, and only for those who know the secret in the address."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from fedsaddle import __version__
from fedsaddle.errors import BadInput
from fedsaddle.watching.watch import Watch

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
    """Serves the page of some runs until it is closed."""

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
            raise BadInput("--port", port, f"cannot be listened to ({said}); leave it out for a free one") from None

    @property
    def port(self) -> int:
        """The port that it listens to."""
        return int(self.server_address[1])

    @property
    def address(self) -> str:
        """Where the page is, with its secret."""
        return f"http://{HOST}:{self.port}/{self.token}/"

    def hosts(self) -> tuple[str, ...]:
        """What a browser on this machine calls the server; any other name is that of a stranger's page."""
        return (f"{HOST}:{self.port}", f"localhost:{self.port}")

    def server_close(self) -> None:
        """End all followers, and stop listening."""
        self.closing.set()
        super().server_close()

    def handle_error(self, request: object, client_address: object) -> None:
        """A browser that went away is no error to tell of."""


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
        """Nothing: the address holds the secret."""

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
        """Send each part when it changes, until the browser goes away or the server ends."""
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
        layout, told = None, time.monotonic()
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
                    sent[key], told = digest, time.monotonic()
                    self._event("part", {"key": key, "html": html})
            if time.monotonic() - told > HEARTBEAT:
                told = time.monotonic()
                self.wfile.write(b": still here\n\n")
            self.wfile.flush()
            self.server.closing.wait(self.server.watch.pause)

    def _event(self, name: str, content: dict[str, str]) -> None:
        self.wfile.write(f"event: {name}\ndata: {json.dumps(content)}\n\n".encode())
