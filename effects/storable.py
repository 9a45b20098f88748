"""Text that no store can keep: NUL and lone surrogates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contract.errors import EffectFailed, Fault

if TYPE_CHECKING:
    from contract.errors import FaultCode


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
