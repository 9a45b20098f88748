"""What all stores agree on: text that can be stored, whose data is meant, faults, health."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from contract.errors import EffectFailed, Fault, FaultCode

CHECK_SECONDS = 2.0
"""How long checking a store may take."""


@dataclass(frozen=True, slots=True)
class FaultCodes:
    """The codes of a store's faults: it does not answer, and a call failed."""

    unavailable: FaultCode
    failed: FaultCode


STORE_CODES = FaultCodes(unavailable="store_unavailable", failed="store_failed")
MEMORY_CODES = FaultCodes(unavailable="memory_unavailable", failed="memory_failed")
LOCK_CODES = FaultCodes(unavailable="lock_unavailable", failed="lock_unavailable")


def storable(text: str) -> bool:
    """Whether every store returns the text unchanged: it has no NUL and no lone surrogate."""
    if "\0" in text:
        return False
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def require_storable(code: FaultCode, *texts: str | None) -> None:
    """Raise `EffectFailed` with `code` for a text that cannot be stored."""
    for text in texts:
        if text is not None and not storable(text):
            raise EffectFailed(Fault(code, data={"reason": "text"}))


SubjectKind = Literal["user", "chat", "message"]


class DataSubject(NamedTuple):
    """Whose data is to be erased: a user's, a chat's, or a message's with its replies."""

    kind: SubjectKind
    value: str


class HealthCheck(NamedTuple):
    """Whether a dependency can be used, and why; no address or server text: both hold secrets."""

    ok: bool
    detail: str


def version_health(version: int, known: int) -> HealthCheck:
    """Judge the version of a store's tables, 0 without any; `known` is the code's, 0 for none."""
    if not known:
        return HealthCheck(ok=True, detail="opened")
    if version > known:
        detail = f"its tables are version {version}, this code knows {known}"
        return HealthCheck(ok=False, detail=detail)
    if not version:
        return HealthCheck(ok=True, detail="opened, without tables yet")
    detail = f"opened, tables of version {version}"
    if version < known:
        detail += f": the router will bring them to {known}"
    return HealthCheck(ok=True, detail=detail)
