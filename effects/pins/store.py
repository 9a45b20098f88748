"""The port pins are kept behind: which stack a conversation stays on."""

from __future__ import annotations

from hashlib import blake2b
from typing import Literal, Protocol

import msgspec

_DIGEST_BYTES = 16


class Pin(msgspec.Struct, frozen=True):
    """The stack a conversation stays on, the configuration that chose it, and since when.

    `since` in microseconds since the Unix epoch.
    """

    stack: Literal["legacy", "graph"]
    version: str
    since: int


class PinStore(Protocol):
    """Keeps pins; several routers may share one."""

    async def hold(self, flow: str, conversation: str, pin: Pin, seconds: float) -> Pin:
        """Give the pin of a conversation: its own, or `pin` where it has none.

        Either way it is kept for so many seconds from now. Of many at once one wins, and all are
        given its pin. Raises `EffectFailed`.
        """
        ...

    async def aclose(self) -> None:
        """Let go of connections and files; idempotent."""
        ...


def pin_key(flow: str, conversation: str) -> str:
    """Name a conversation in a store: never by its own id, which may say who somebody is."""
    digest = blake2b(conversation.encode(), digest_size=_DIGEST_BYTES).hexdigest()
    return f"{flow}:{digest}"
