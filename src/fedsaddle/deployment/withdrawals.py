"""Sites that have left a deployment: recorded with date and reason, and no part of any later run."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedsaddle.errors import BadInput
from fedsaddle.files import read_object, write_json

FILE = "withdrawals.json"  # in the folder of deployment.toml


class Withdrawal(BaseModel):
    """A site that has left.

    Args:
        site: its name.
        time: when it was recorded, UTC.
        reason: in words.
    """

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    site: Annotated[str, Field(max_length=100)]
    time: Annotated[str, Field(max_length=40)]
    reason: Annotated[str, Field(max_length=1000)] = ""


def read_withdrawals(folder: Path) -> list[Withdrawal]:
    """Those of a deployment, in the order in which they were recorded."""
    path = folder / FILE
    if not path.exists():
        return []
    try:
        stored = read_object(path)["withdrawals"]
        return [Withdrawal.model_validate(each) for each in stored]
    except (ValueError, KeyError, TypeError, ValidationError):
        raise BadInput(FILE, str(path), "is damaged; restore it, so that no site that has left takes part") from None


def record_withdrawal(folder: Path, site: str, reason: str = "") -> Withdrawal:
    """Record that a site leaves; once is enough.

    Args:
        folder: of deployment.toml.
        site: its name.
        reason: in words.
    """
    known = read_withdrawals(folder)
    found = next((each for each in known if each.site == site), None)
    if found is None:
        found = Withdrawal(site=site, time=datetime.now(UTC).isoformat(timespec="seconds"), reason=reason[:1000])
        stored = [each.model_dump() for each in (*known, found)]
        write_json(folder / FILE, {"withdrawals": stored}, 0o600)
    return found
