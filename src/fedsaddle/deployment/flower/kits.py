"""Start-up kits for Flower: an app without code, a folder for each site, certificates and keys."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedsaddle.config.schema import read_config
from fedsaddle.config.toml_files import toml_string
from fedsaddle.deployment.project import Project, only_for_owner, write_site_kit
from fedsaddle.deployment.secure_site import write_site_keys
from fedsaddle.files import write_atomically

KEYS = "keys"


def write_keys(folder: Path, server: str, sites: Sequence[str], days: int) -> list[Path]:
    """Write the missing certificates and keys; return the new files (none without `cryptography`, part of Flower)."""
    try:
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError:
        return []
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    made = []
    if not (folder / "ca.crt").exists():
        made += _certificates(folder, server, days)
    for name in sites:
        if not (folder / f"{name}.key").exists():
            key = ec.generate_private_key(ec.SECP384R1())
            made += [_private(folder / f"{name}.key", key, "OpenSSH"), _public(folder / f"{name}.pub", key)]
    return made


def _certificates(folder: Path, server: str, days: int) -> list[Path]:
    """Write a root certificate, whose key is discarded, and the server's certificate and key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    def common_name(text: str) -> Any:
        return x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, text)])

    now = datetime.datetime.now(datetime.UTC)
    root_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    paths = []
    for who, own, subject in (("ca", root_key, "fedsaddle root"), ("server", key, server)):
        builder = (
            x509.CertificateBuilder()
            .subject_name(common_name(subject))
            .issuer_name(common_name("fedsaddle root"))
            .public_key(own.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=who == "ca", path_length=None), critical=True)
        )
        if who == "server":
            builder = builder.add_extension(x509.SubjectAlternativeName(_names(server)), critical=False)
        paths.append(folder / f"{who}.crt")
        signed = builder.sign(root_key, hashes.SHA256())
        write_atomically(paths[-1], signed.public_bytes(serialization.Encoding.PEM))
    return [*paths, _private(folder / "server.key", key, "PKCS8")]


def _names(server: str) -> list[Any]:
    from cryptography import x509

    try:
        return [x509.IPAddress(ipaddress.ip_address(server))]
    except ValueError:
        loopback = [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))] if server == "localhost" else []
        return [x509.DNSName(server), *loopback]


def _private(path: Path, key: Any, form: str) -> Path:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    content = key.private_bytes(Encoding.PEM, getattr(PrivateFormat, form), NoEncryption())
    write_atomically(path, content, mode=0o600)  # readable by the owner only
    return path


def _public(path: Path, key: Any) -> Path:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    write_atomically(path, key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH))
    return path


APP = """\
[project]
name = "fedsaddle-run"
version = "1.0.0"
description = "Names the apps of the installed library; contains no code."
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "fedsaddle"

[tool.flwr.app.components]
serverapp = "fedsaddle.deployment.flower.app:server"
clientapp = "fedsaddle.deployment.flower.app:client"

[tool.flwr.app.config]
project = {project}
run = "run-1"                    # a new name starts a new run; the same name resumes
out = {out}
"""


def write_flower(project: Project, folder: Path) -> Path:
    """Write the app and the sites' folders; return the app's folder."""
    flower = folder / "flower"
    for name in project.names:
        write_site_kit(project, name, folder, flower / name)
    if read_config(folder / project.deployment.config).privacy.secure_aggregation:
        with only_for_owner():
            write_site_keys({name: flower / name for name in project.names}, project.names)
    app = flower / "app"
    app.mkdir(exist_ok=True)
    here = folder.resolve()
    text = APP.format(project=toml_string(str(here)), out=toml_string(str(here / "runs" / "run-1")))
    write_atomically(app / "pyproject.toml", text.encode())
    return app
