"""A server and three sites at addresses of their own, in network namespaces: one is cut off in mid-run and comes back.

Slow, and for root only: run with `-m slow` where NVFlare is installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from real import Federation, wait

pytest.importorskip("nvflare")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("ip") is None, reason="needs root and the command `ip`"),
]
BRIDGE, SERVER = "fsbr0", "fl-server"
HOSTS = {SERVER: "10.77.0.10", "site-1": "10.77.0.11", "site-2": "10.77.0.12", "site-3": "10.77.0.13"}
SPACES = {name: f"fs{n}" for n, name in enumerate(HOSTS)}


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def inside(name: str) -> tuple[str, ...]:
    """The words that run a command at that host."""
    return ("ip", "netns", "exec", SPACES[name])


@pytest.fixture
def network() -> Iterator[None]:
    """A namespace for each host with a cable to one bridge, and a file of names."""
    try:
        ip("link", "add", BRIDGE, "type", "bridge")
    except subprocess.CalledProcessError as reason:
        pytest.skip(f"no network namespaces here: {reason.stderr.decode().strip()}")
    ip("link", "set", BRIDGE, "up")
    names = "127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for name, address in HOSTS.items())
    for name, space in SPACES.items():
        ip("netns", "add", space)
        ip("link", "add", f"v{space}", "type", "veth", "peer", "name", "eth0", "netns", space)
        ip("link", "set", f"v{space}", "master", BRIDGE, "up")
        ip("-n", space, "addr", "add", f"{HOSTS[name]}/24", "dev", "eth0")
        ip("-n", space, "link", "set", "eth0", "up")
        ip("-n", space, "link", "set", "lo", "up")
        Path("/etc/netns", space).mkdir(parents=True)
        Path("/etc/netns", space, "hosts").write_text(names)
    yield
    for space in SPACES.values():
        ip("netns", "del", space)
        shutil.rmtree(Path("/etc/netns", space))
    ip("link", "del", BRIDGE)


@pytest.fixture
def federation(network: None, tmp_path: Path) -> Iterator[Federation]:
    made = Federation(tmp_path / "trial")
    yield made
    made.stop()


def test_a_site_that_is_cut_off_and_reconnected(federation):
    drfa = 'name = "DRFA"\nlocal_steps = 3\nbatch_size = 4'
    federation.make(drfa, 60, timeout=20.0, grace=20.0, server=f'"{SERVER}"')
    for name in HOSTS:
        federation.start(name, before=inside(name))
    run = federation.submit(before=inside(SERVER))
    wait(lambda: federation.rounds() >= 4, 600, run)
    ip("link", "set", f"v{SPACES['site-2']}", "down")
    wait(lambda: "site-2 left out" in federation.log(SERVER), 300, run)
    ip("link", "set", f"v{SPACES['site-2']}", "up")
    said, _ = run.communicate(timeout=1200)
    assert run.returncode == 0, said
    summary = federation.summary()
    assert summary["rounds"] == 60
    assert sum(summary["sites"]["site-2"]["left_out"].values()) >= 1
    assert summary["sites"]["site-2"]["answered"] > 4, "it came back"
    assert summary["sites"]["site-1"]["left_out"] == {}
