"""Keys that sites make at home: a request with the public keys goes to the organiser, who signs; private keys stay.

The organiser's folder then has no private key of the site: not in its kit, not in what NVFlare's provisioning keeps.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedsaddle.deployment.project import Project, only_for_owner
from fedsaddle.deployment.secure_site import SIGNING_KEY
from fedsaddle.errors import BadInput, MissingData
from fedsaddle.files import read_object, write_atomically, write_json
from fedsaddle.secure.keys import SEED, new_signing_key, require_cryptography, signing_public

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
    from cryptography.x509 import Certificate

REQUESTS = "requests"  # the organiser's folder of what sites have sent; public keys only
KEY, SIGNING = "client.key", "signing.key"  # what a site keeps
CERTIFICATE, KIT_KEY = "startup/client.crt", "startup/client.key"  # in a kit
STATE = "state/cert.json"  # where NVFlare's provisioning keeps all keys that it made
OWNER, BITS = 0o600, 2048


class KeyRequest(BaseModel):
    """What a site sends to the organiser.

    Args:
        name: the site, as in deployment.toml.
        certificate_request: a signing request with the public key of its connections, as PEM.
        signing_key: its public key for secure aggregation.
    """

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    name: Annotated[str, Field(max_length=100)]
    certificate_request: Annotated[str, Field(max_length=10_000)]
    signing_key: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


def make_request(name: str, folder: Path) -> Path:
    """Make the private keys of a site in a folder, unless they are there; return the request for the organiser.

    Args:
        name: the site, as in deployment.toml.
        folder: where the private keys stay.
    """
    require_cryptography()
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.x509 import CertificateSigningRequestBuilder, Name, NameAttribute
    from cryptography.x509.oid import NameOID

    with only_for_owner():
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / KEY).exists():
            made = rsa.generate_private_key(public_exponent=65537, key_size=BITS)
            form = (serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL)
            write_atomically(folder / KEY, made.private_bytes(*form, serialization.NoEncryption()), OWNER)
        if not (folder / SIGNING).exists():
            write_atomically(folder / SIGNING, new_signing_key(), OWNER)
    subject = Name([NameAttribute(NameOID.COMMON_NAME, name)])
    csr = CertificateSigningRequestBuilder().subject_name(subject).sign(_private(folder / KEY), SHA256())
    pem = csr.public_bytes(serialization.Encoding.PEM).decode()
    public = signing_public((folder / SIGNING).read_bytes()).hex()
    path = folder / f"{name}.request.json"
    write_json(path, KeyRequest(name=name, certificate_request=pem, signing_key=public).model_dump())
    return path


def read_request(path: Path) -> KeyRequest:
    """A request, whose sender has the private key of its certificate."""
    from cryptography.x509 import load_pem_x509_csr
    from cryptography.x509.oid import NameOID

    try:
        found = KeyRequest.model_validate(read_object(path))
        csr = load_pem_x509_csr(found.certificate_request.encode())
        named = [each.value for each in csr.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    except (ValueError, ValidationError):
        raise BadInput("request", str(path), "is no request; `fedsaddle deploy request` writes one") from None
    if named != [found.name] or not csr.is_signature_valid:
        raise BadInput("request", str(path), "is not signed by its own key; ask the site for another one")
    return found


def sign_requests(project: Project, folder: Path, kits: Path, paths: Iterable[Path]) -> list[Path]:
    """Put certificates for the sites' own keys into their kits, and remove all private keys made for these sites.

    Args:
        project: the deployment.
        folder: of deployment.toml.
        kits: the folder of the kits.
        paths: requests of sites.

    Returns:
        The kits that were changed.
    """
    require_cryptography()
    for request in [read_request(path) for path in paths]:
        if request.name not in project.names:
            raise BadInput("request", request.name, f"is no site of deployment.toml: {', '.join(project.names)}")
        if not (kits / request.name / CERTIFICATE).exists():
            raise MissingData(f"{kits / request.name}: the kit does not exist; run fedsaddle deploy provision first")
        (folder / REQUESTS).mkdir(exist_ok=True)
        write_json(folder / REQUESTS / f"{request.name}.json", request.model_dump())
    return apply_requests(folder, kits)


def known_requests(folder: Path) -> dict[str, KeyRequest]:
    """The requests that were signed, by site."""
    return {path.stem: read_request(path) for path in sorted((folder / REQUESTS).glob("*.json"))}


def apply_requests(folder: Path, kits: Path) -> list[Path]:
    """Sign the certificates of all known requests anew where a kit has another one, and remove private keys."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.x509 import load_pem_x509_csr

    changed = []
    for name, request in known_requests(folder).items():
        kit = kits / name
        if not (kit / CERTIFICATE).exists():
            continue
        wanted = cast("RSAPublicKey", load_pem_x509_csr(request.certificate_request.encode()).public_key())
        present = _certificate(kit / CERTIFICATE)
        if present.public_key() != wanted:
            signed = _signed(present, wanted, _root_key(folder))
            write_atomically(kit / CERTIFICATE, signed.public_bytes(serialization.Encoding.PEM), OWNER)
            changed.append(kit)
        for path in (kit / KIT_KEY, kit / SIGNING_KEY, *kit.glob(f"startup-until-*/{KEY}")):
            path.unlink(missing_ok=True)
        for work in folder.glob("provision*"):
            for path in work.rglob(f"{name}/{KIT_KEY}"):
                path.unlink()
            for path in work.rglob(STATE):
                state = read_object(path)
                if state.pop(name, None) is not None:
                    write_atomically(path, json.dumps(state).encode(), OWNER)
    return changed


def install_keys(kit: Path, keys: Path) -> None:
    """Put a site's own private keys into the kit that came from the organiser.

    Args:
        kit: the kit.
        keys: the folder of `make_request`.
    """
    require_cryptography()
    for path in (kit / CERTIFICATE, keys / KEY, keys / SIGNING):
        if not path.is_file():
            raise MissingData(f"{path}: the file does not exist; give the kit, and the folder of `deploy request`")
    if _certificate(kit / CERTIFICATE).public_key() != _private(keys / KEY).public_key():
        raise BadInput("kit", str(kit), "its certificate is of another key; send the request to the organiser again")
    if len((keys / SIGNING).read_bytes()) != SEED:
        raise BadInput(SIGNING, str(keys / SIGNING), "is damaged; remove it, and send a new request")
    with only_for_owner():
        (kit / SIGNING_KEY).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(kit / KIT_KEY, (keys / KEY).read_bytes(), OWNER)
        write_atomically(kit / SIGNING_KEY, (keys / SIGNING).read_bytes(), OWNER)


def signing_keys(folder: Path) -> Mapping[str, str]:
    """The public keys for secure aggregation of the sites that made their own."""
    return {name: request.signing_key for name, request in known_requests(folder).items()}


def _private(path: Path) -> RSAPrivateKey:
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    return cast("RSAPrivateKey", load_pem_private_key(path.read_bytes(), password=None))


def _certificate(path: Path) -> Certificate:
    from cryptography.x509 import load_pem_x509_certificate

    return load_pem_x509_certificate(path.read_bytes())


def _root_key(folder: Path) -> RSAPrivateKey:
    """The key that the newest provisioning signs with."""
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    paths = sorted((folder / "provision").rglob(STATE))
    if not paths:
        raise MissingData(f"{folder / 'provision'}: the root's key is not there; sign where the kits were made")
    stored = str(read_object(paths[0])["root_pri_key"])
    return cast("RSAPrivateKey", load_pem_private_key(stored.encode(), password=None))


def _signed(like: Certificate, public: RSAPublicKey, root: RSAPrivateKey) -> Certificate:
    """The same certificate for another key."""
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.x509 import CertificateBuilder, SubjectKeyIdentifier, random_serial_number

    made = (
        CertificateBuilder()
        .subject_name(like.subject)
        .issuer_name(like.issuer)
        .public_key(public)
        .serial_number(random_serial_number())
        .not_valid_before(like.not_valid_before_utc)
        .not_valid_after(like.not_valid_after_utc)
    )
    for each in like.extensions:
        value = each.value
        if isinstance(value, SubjectKeyIdentifier):
            value = SubjectKeyIdentifier.from_public_key(public)
        made = made.add_extension(value, each.critical)
    return made.sign(root, SHA256())
