"""A SuperLink and SuperNodes on loopback, with the certificates and keys that `fedsaddle deploy flower` made."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from fedsaddle.commands.deploy_try import OPEN_POLICY, free_ports

BIN = Path(sys.executable).parent


@dataclass
class FlowerNetwork:
    """`folder` is the one that the command wrote, `home` an empty one for Flower's own settings."""

    folder: Path
    home: Path
    path: str = ""  # more for PYTHONPATH
    stack: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        self.home.mkdir()
        (self.port,) = free_ports(1)
        keys = self.folder / "keys"
        here = f'address = "127.0.0.1:{self.port}"\nroot-certificates = "{keys}/ca.crt"\n'
        (self.home / "config.toml").write_text(f'[superlink]\ndefault = "here"\n[superlink.here]\n{here}')
        found = [self.path, os.environ.get("PYTHONPATH", "")]
        self.environment = {**os.environ, "FLWR_HOME": str(self.home), "FLWR_TELEMETRY_ENABLED": "0",
                            "OMP_NUM_THREADS": "1", "PYTHONPATH": ":".join(filter(None, found)),
                            "PATH": f"{BIN}:{os.environ['PATH']}"}  # fmt: skip
        tls = ("--ssl-ca-certfile", keys / "ca.crt", "--ssl-certfile", keys / "server.crt", "--ssl-keyfile",
               keys / "server.key")  # fmt: skip
        self._start("link", "flower-superlink", *tls, "--enable-supernode-auth", "--host", "127.0.0.1", "--port",
                    self.port, "--disable-runtime-dependency-installation")  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    def start(self, *names: str) -> None:
        """Register these sites and start them."""
        for name in names:
            self.start_node(name)

    def start_node(self, name: str, registered: bool = True) -> subprocess.Popen[bytes]:
        """One SuperNode."""
        keys, (port,) = self.folder / "keys", free_ports(1)
        (self.folder / name / "site-policy.toml").write_text(OPEN_POLICY + "most_rounds = 1000\n")
        until = time.monotonic() + 60
        while registered:
            try:
                self.flwr("supernode", "register", keys / f"{name}.pub", "here")
                break
            except AssertionError:  # the SuperLink is not up yet
                assert time.monotonic() < until, (self.home / "link.log").read_text()
                time.sleep(1.0)
        return self._start(name, "flower-supernode", "--root-certificates", keys / "ca.crt", "--superlink",
                           f"127.0.0.1:{self.port}", "--auth-supernode-private-key", keys / f"{name}.key", "--port",
                           port, "--node-config", f'kit="{self.folder / name}"')  # fmt: skip

    def flwr(self, *arguments: Any) -> str:
        """Flower's command."""
        line = [str(BIN / "flwr"), *map(str, arguments)]
        done = subprocess.run(line, env=self.environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def _start(self, name: str, program: str, *arguments: Any) -> subprocess.Popen[bytes]:
        line = [str(BIN / program), *map(str, arguments)]
        with open(self.home / f"{name}.log", "wb") as log:
            process = subprocess.Popen(line, env=self.environment, stdout=log, stderr=log)
        self.stack.callback(process.wait)
        self.stack.callback(process.terminate)
        return process
