"""When certificates end: told when a kit is made and started, and refused once they have ended."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from fedsaddle.errors import BadInput

SOON = timedelta(days=30)
NAMES = ("*.crt", "rootCA.pem")


class Ends(NamedTuple):
    """The end of the first certificate that ends."""

    path: Path
    at: datetime

    @property
    def day(self) -> str:
        """The day, as 2027-01-31."""
        return self.at.date().isoformat()


def first_to_end(folders: Sequence[Path]) -> Ends | None:
    """The certificate in these folders that ends first; None without any, or without the package `cryptography`."""
    try:
        from cryptography import x509
    except ImportError:
        return None
    found = []
    for path in sorted(path for folder in folders for name in NAMES for path in folder.glob(name)):
        try:
            found.append(Ends(path, x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc))
        except (ValueError, OSError):
            raise BadInput("certificate", str(path), "cannot be read; get the kit again") from None
    return min(found, key=lambda one: one.at, default=None)


def check_kit(kit: Path, now: datetime | None = None) -> str | None:
    """A warning if a certificate of the kit ends within 30 days; raise `BadInput` if it has ended."""
    found, now = first_to_end([kit / "startup"]), now or datetime.now(UTC)
    if found is None:
        return None
    if found.at <= now:
        remedy = "ask who made the kit for a new one: fedsaddle deploy renew makes them"
        raise BadInput("certificate", str(found.path), f"ended on {found.day}; {remedy}")
    if found.at <= now + SOON:
        days = (found.at - now).days
        remedy = "fedsaddle deploy renew makes new ones"
        return f"the certificate {found.path.name} ends on {found.day}, in {days} days; {remedy}"
    return None
