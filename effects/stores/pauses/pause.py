"""A pause: an exchange that waits for a human, from its question to its end.

    open ── respond ──> answered ── claim ──> claimed ── finish ──> finished
      └── time, a new turn ──> expired <──┘      └── release, lease over ──> answered

The remains of a finished or expired pause hold no tape, question or answer: only what late callers
are answered with, until they are swept away.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from contract.human import HumanAnswer, OpenQuestion

State = Literal["open", "answered", "claimed", "finished", "expired"]
RespondReply = Literal["accepted", "same", "conflict", "expired", "unknown"]
ExpireReply = Literal["expired", "taken", "over", "unknown"]
ClaimReply = Literal["claimed", "taken", "unanswered", "expired", "finished", "unknown"]

REMAINS_SECONDS = 86_400.0
"""How long after its expiry the remains of a pause are stored."""


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """An exchange that waits.

    `tape` is the encoded record of everything before the question; `answer_site` and `answer_key`
    name the call of the flow that waits. Times in seconds since the Unix epoch. `digest` identifies
    the answer, also once the answer itself is removed; `owner` holds the claim until
    `leased_until`. `continued` once the tape holds what was done after the answer.
    """

    hitl_id: str
    exchange: str
    flow: str
    stack: str
    created_at: float
    expires_at: float
    session_id: str | None = None
    user_id: str | None = None
    question: OpenQuestion | None = None
    tape: bytes = b""
    answer_site: str = ""
    answer_key: str = ""
    state: State = "open"
    answer: HumanAnswer | None = None
    digest: str = ""
    owner: str = ""
    leased_until: float = 0.0
    continued: bool = False


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """That an exchange waits, without its contents; `size` is that of its tape, in bytes."""

    hitl_id: str
    flow: str
    stack: str
    session_id: str | None
    state: State
    created_at: float
    expires_at: float
    size: int


class Swept(NamedTuple):
    """What a sweep did: how many pauses expired, how many remains it removed."""

    expired: int
    removed: int
