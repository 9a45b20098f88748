"""The audit: who changed what, and when; one line in the log, one in a file."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

log = logging.getLogger(__name__)


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """Something a person did to the routers; `at` in microseconds since the Unix epoch."""

    at: int
    who: str
    what: str
    flow: str
    before: Mapping[str, Any]
    after: Mapping[str, Any]


Audit = Callable[[Change], None]
"""Where changes are told; it never raises: what was done stays done."""

_encoder = msgspec.json.Encoder(decimal_format="number", order="deterministic")


@dataclass(frozen=True, slots=True)
class AuditLog:
    """Tells changes to the log, and to a file of JSON lines."""

    path: Path

    def __call__(self, change: Change) -> None:
        """Write one change down."""
        line = _encoder.encode(change)
        log.warning("changed: %s", line.decode())
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as file:
                file.write(line + b"\n")
        except OSError as error:
            log.error("the audit file %s cannot be written: %s", self.path, error)  # noqa: TRY400 - the reason says it


def now() -> int:
    """Tell the time of a change."""
    return time.time_ns() // 1_000
