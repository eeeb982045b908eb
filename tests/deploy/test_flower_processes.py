"""Flower with a SuperLink and SuperNodes on loopback, TLS and node authentication: the model of the simulation.

Slow: run with `-m slow` where Flower is installed.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch
from real import Federation, free_ports, wait
from safetensors.torch import load_file

from fedsaddle.deploy.flower_files import write_flower
from fedsaddle.deploy.project import read_project

pytest.importorskip("flwr")
pytestmark = pytest.mark.slow
BIN = Path(sys.executable).parent
DRFA = 'name = "DRFA"\nlocal_steps = 3\nbatch_size = 4'


def certificates(folder: Path) -> None:
    """A root, and a server's certificate for 127.0.0.1."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    def name(text):
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    now = datetime.datetime.now(datetime.UTC)
    root_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    for who, own, subject in (("ca", root_key, "root"), ("server", key, "127.0.0.1")):
        made = (
            x509.CertificateBuilder().subject_name(name(subject)).issuer_name(name("root")).public_key(own.public_key())
            .serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=2))
            .add_extension(x509.BasicConstraints(ca=who == "ca", path_length=None), critical=True)
        )  # fmt: skip
        if who == "server":
            names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
            made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
        signed = made.sign(root_key, hashes.SHA256())
        (folder / f"{who}.crt").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    (folder / "server.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    )


def node_keys(folder: Path, name: str) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP384R1())
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    (folder / f"{name}.key").write_bytes(key.private_bytes(pem, serialization.PrivateFormat.OpenSSH, plain))
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    (folder / f"{name}.pub").write_bytes(public)


def test_a_run_over_flower_gives_the_model_of_the_simulation(tmp_path):
    federation = Federation(tmp_path / "trial")
    federation.prepare(DRFA, 1, timeout=300.0)  # a message takes seconds: Flower starts a process for each
    app = write_flower(read_project(federation.folder), federation.folder)
    certificates(tmp_path)
    link, *ports = free_ports(4)
    home = tmp_path / "home"
    home.mkdir()
    here = f'address = "127.0.0.1:{link}"\nroot-certificates = "{tmp_path}/ca.crt"\n'
    (home / "config.toml").write_text(f'[superlink]\ndefault = "here"\n[superlink.here]\n{here}')
    environment = {**os.environ, "FLWR_HOME": str(home), "FLWR_TELEMETRY_ENABLED": "0", "OMP_NUM_THREADS": "1",
                   "PATH": f"{BIN}:{os.environ['PATH']}"}  # fmt: skip

    def flwr(*arguments: str) -> str:
        done = subprocess.run([BIN / "flwr", *arguments], env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    with ExitStack() as stack:

        def start(name: str, *line: str) -> None:
            log = stack.enter_context(open(tmp_path / f"{name}.log", "wb"))
            process = subprocess.Popen([BIN / line[0], *line[1:]], env=environment, stdout=log, stderr=log)
            stack.callback(process.wait)
            stack.callback(process.terminate)

        tls = ("--ssl-ca-certfile", f"{tmp_path}/ca.crt", "--ssl-certfile", f"{tmp_path}/server.crt",
               "--ssl-keyfile", f"{tmp_path}/server.key")  # fmt: skip
        start("link", "flower-superlink", *tls, "--enable-supernode-auth", "--host", "127.0.0.1", "--port", str(link),
              "--disable-runtime-dependency-installation")  # fmt: skip
        wait(lambda: (tmp_path / "link.log").stat().st_size > 0, 60)
        for i, port in enumerate(ports, start=1):
            node_keys(tmp_path, f"site-{i}")
            wait(lambda i=i: _registered(flwr, tmp_path / f"site-{i}.pub"), 60)
            kit = federation.folder / "flower" / f"site-{i}"
            start(f"site-{i}", "flower-supernode", "--root-certificates", f"{tmp_path}/ca.crt", "--superlink",
                  f"127.0.0.1:{link}", "--auth-supernode-private-key", f"{tmp_path}/site-{i}.key", "--port", str(port),
                  "--node-config", f'kit="{kit}"')  # fmt: skip
        flwr("run", str(app), "here")
        out = federation.folder / "runs" / "run-1"
        wait(lambda: (out / "summary.json").exists(), 900)
    found = load_file(out / "model.safetensors")
    for name, value in federation.simulated().state_dict().items():
        assert torch.equal(found[name], value)


def _registered(flwr, key: Path) -> bool:
    try:
        flwr("supernode", "register", str(key), "here")
    except AssertionError:
        return False
    return True
