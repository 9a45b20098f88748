"""What the faults of a store are called: nobody answers, and what was asked of it failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from contract.errors import EffectFailed, Fault

if TYPE_CHECKING:
    from contract.errors import FaultCode


@dataclass(frozen=True, slots=True)
class Codes:
    """What faults are called: no server or file answers, and a call failed."""

    unavailable: FaultCode
    failed: FaultCode


STORE_CODES = Codes(unavailable="store_unavailable", failed="store_failed")
MEMORY_CODES = Codes(unavailable="memory_unavailable", failed="memory_failed")
LOCK_CODES = Codes(unavailable="lock_unavailable", failed="lock_unavailable")


def storable(text: str) -> bool:
    """Whether every store can keep the text and give it back unchanged."""
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
    """Raise `EffectFailed` with `code` where a text could not be kept."""
    for text in texts:
        if text is not None and not storable(text):
            raise EffectFailed(Fault(code, data={"reason": "text"}))


Kind = Literal["user", "chat", "message"]


class DataSubject(NamedTuple):
    """All of a user, of a chat, or of a message and its replies."""

    kind: Kind
    value: str
