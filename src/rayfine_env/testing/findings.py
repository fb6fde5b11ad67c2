"""One line of a report on an environment or a machine."""

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Finding:
    """What was looked at, how it stands, and what to do about it."""

    check: str
    status: Status
    found: str
    remedy: str = ""
