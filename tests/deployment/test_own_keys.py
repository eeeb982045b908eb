"""Sites make their own keys; the organiser signs, and has no private key of a site in the whole tree."""

from __future__ import annotations

import json
import shutil
import ssl
import stat
from pathlib import Path

import pytest
from real import DRFA, Federation

from fedsaddle.deployment.nvflare.own_keys import install_keys, make_request, sign_requests
from fedsaddle.deployment.nvflare.provision import KITS, provision, renew, update_site_keys
from fedsaddle.deployment.project import read_project
from fedsaddle.deployment.secure_site import SIGNING_KEY, read_identity
from fedsaddle.errors import BadInput, MissingData

cryptography = pytest.importorskip("cryptography")
nvflare = pytest.importorskip("nvflare")

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key  # noqa: E402
from cryptography.x509 import load_pem_x509_certificate  # noqa: E402


def public(key) -> bytes:
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def private_keys(folder: Path) -> dict[bytes, Path]:
    """Every private key in a tree, in files of their own or in JSON, by its public key."""
    found = {}
    for path in folder.rglob("*"):
        if not path.is_file():
            continue
        text = path.read_bytes().replace(b"\\n", b"\n")
        for kind in (b"RSA PRIVATE KEY", b"PRIVATE KEY", b"EC PRIVATE KEY"):
            begin, end = b"-----BEGIN " + kind + b"-----", b"-----END " + kind + b"-----"
            for part in text.split(begin)[1:]:
                pem = begin + part.split(end)[0] + end + b"\n"
                found[public(load_pem_private_key(pem, password=None).public_key())] = path
    return found


@pytest.fixture
def signed(tmp_path):
    """An organiser's folder with three sites of whom two made their own keys, and the folders of these two."""
    made = Federation(tmp_path / "organiser")
    made.prepare(DRFA, 3)
    config = made.folder / "fedsaddle.toml"
    config.write_text(config.read_text() + "\n[privacy]\nsecure_aggregation = true\n")
    project = read_project(made.folder)
    provision(project, made.folder)
    homes = {name: tmp_path / name for name in project.names[:2]}
    requests = [make_request(name, home) for name, home in homes.items()]
    changed = sign_requests(project, made.folder, made.folder / KITS, requests)
    update_site_keys(project, made.folder)
    assert [kit.name for kit in changed] == list(homes)
    return project, made.folder, homes


def check_tree(folder: Path, homes: dict[str, Path]) -> None:
    keys = private_keys(folder)
    for name, home in homes.items():
        certificate = load_pem_x509_certificate((folder / KITS / name / "startup" / "client.crt").read_bytes())
        assert public(certificate.public_key()) not in keys
        own = load_pem_private_key((home / "client.key").read_bytes(), password=None)
        assert public(own.public_key()) == public(certificate.public_key())
        assert not (folder / KITS / name / SIGNING_KEY).exists()
        assert not any(name in path.parts for path in keys.values())
        signing = (home / "signing.key").read_bytes()
        assert not any(signing in path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_the_organisers_tree_has_no_private_key_of_a_site(signed):
    project, folder, homes = signed
    check_tree(folder, homes)
    provision(project, folder)
    check_tree(folder, homes)
    renew(project, folder)
    check_tree(folder, homes)
    assert project.names[2] in {path.parts[-3] for path in private_keys(folder).values()}, "the third made none"


def test_a_site_completes_its_kit(signed, tmp_path):
    project, folder, homes = signed
    for name, home in homes.items():
        kit = tmp_path / "delivered" / name
        shutil.copytree(folder / KITS / name, kit)
        install_keys(kit, home)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(kit / "startup" / "rootCA.pem")
        context.load_cert_chain(kit / "startup" / "client.crt", kit / "startup" / "client.key")
        for path in (kit / "startup" / "client.key", kit / SIGNING_KEY):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
        root = load_pem_x509_certificate((kit / "startup" / "rootCA.pem").read_bytes())
        certificate = load_pem_x509_certificate((kit / "startup" / "client.crt").read_bytes())
        certificate.verify_directly_issued_by(root)
        identity = read_identity(kit, name)
        assert identity is not None
        assert list(identity.known) == list(project.names)
    with pytest.raises(BadInput, match="its certificate is of another key"):
        install_keys(folder / KITS / project.names[0], homes[project.names[1]])
    with pytest.raises(MissingData, match="does not exist"):
        install_keys(folder / KITS / project.names[0], tmp_path / "nowhere")


def test_a_request_that_is_not_its_own_is_not_signed(signed, tmp_path):
    project, folder, homes = signed
    first, second = (home / f"{name}.request.json" for name, home in homes.items())
    stolen = json.loads(first.read_text()) | {"name": project.names[1]}
    path = tmp_path / "stolen.json"
    path.write_text(json.dumps(stolen))
    with pytest.raises(BadInput, match="is not signed by its own key"):
        sign_requests(project, folder, folder / KITS, [path])
    path.write_text("{}")
    with pytest.raises(BadInput, match="is no request"):
        sign_requests(project, folder, folder / KITS, [path])
    with pytest.raises(BadInput, match=r"is no site of deployment\.toml"):
        sign_requests(project, folder, folder / KITS, [make_request("stranger", tmp_path / "stranger")])
    assert make_request(project.names[1], homes[project.names[1]]) == second
