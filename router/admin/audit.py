"""The audit: who changed what, in the log and in a file of JSON lines."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

log = logging.getLogger(__name__)


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A change a person made; `at` in microseconds since the Unix epoch."""

    at: int
    who: str
    what: str
    flow: str
    before: Mapping[str, Any]
    after: Mapping[str, Any]


Audit = Callable[[Change], None]
"""Records a change; it never raises: the change has been made."""

ENCODER = msgspec.json.Encoder(decimal_format="number", order="deterministic", enc_hook=repr)
"""Encodes values of a configuration: percentages as numbers, keys in one order."""


def write_audit(path: Path, change: Change) -> None:
    """Write a change to the log, and to a file of JSON lines; never raises."""
    line = ENCODER.encode(change)
    log.warning("changed: %s", line.decode())
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(line + b"\n")
    except OSError as error:
        log.error("the audit file %s cannot be written: %s", path, error)


def now() -> int:
    """Return the time in microseconds since the Unix epoch."""
    return time.time_ns() // 1_000
