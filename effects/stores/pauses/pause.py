"""A pause: an exchange that waits for a human, from its question to its end.

    open ── respond ──> answered ── claim ──> claimed ── finish ──> finished
      └── time, a new turn ──> expired <──┘      └── give back, lease over ──> answered

What a finished or expired pause leaves behind holds no tape, question or answer: just enough to
tell late callers what became of it, until it is swept away.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol

import msgspec

from contract.human import HumanAnswer, OpenQuestion

State = Literal["open", "answered", "claimed", "finished", "expired"]
RespondReply = Literal["accepted", "same", "conflict", "expired", "unknown"]
ExpireReply = Literal["expired", "taken", "over", "unknown"]
ClaimReply = Literal["claimed", "taken", "unanswered", "expired", "finished", "unknown"]

GONE_KEPT = 86_400.0
"""Seconds after its expiry for which what became of a pause can be told."""


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """An exchange that waits.

    `tape` is the encoded record of everything before the question; `answer_site` and `answer_key`
    say which call of the flow waits. Times in seconds since the Unix epoch. `digest` identifies
    the answer, also when the answer itself is gone; `owner` holds the claim until `leased_until`.
    `continued` once the tape holds what was done after the answer; `user_id` is whose it is.
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
    """That an exchange waits, and nothing it holds; `size` is that of its tape, in bytes."""

    hitl_id: str
    flow: str
    stack: str
    session_id: str | None
    state: State
    created_at: float
    expires_at: float
    size: int


class Swept(NamedTuple):
    """What a sweep did: pauses that expired, remains that were removed."""

    expired: int
    removed: int


class PauseStore(Protocol):
    """Where pauses wait. Every operation may raise `EffectFailed`.

    Operations that need an owner take one that is unique to the exchange which continues: two
    owners of one name would share a claim.
    """

    async def open(self, pause: Pause) -> bool:
        """Store a pause before anybody is shown its question; False when the id is taken."""
        ...

    async def keep_tape(self, hitl_id: str, tape: bytes) -> bool:
        """Replace the tape; False when the pause is over, or its tape has gone on since."""
        ...

    async def get(self, hitl_id: str) -> Pause | None:
        """Read a pause as it stands now."""
        ...

    async def respond(self, hitl_id: str, answer: HumanAnswer) -> RespondReply:
        """Answer; an equal answer again is `same`, a different one a `conflict`."""
        ...

    async def claim(self, hitl_id: str, owner: str, lease_s: float) -> ClaimReply:
        """Take an answered pause to continue it; of several who try, one gets `claimed`."""
        ...

    async def renew(
        self, hitl_id: str, owner: str, lease_s: float, tape: bytes | None = None
    ) -> bool:
        """Extend a claim; False when it has been lost. A tape holds what was done so far."""
        ...

    async def give_back(self, hitl_id: str, owner: str, tape: bytes | None = None) -> bool:
        """Let somebody else continue, after a disconnect or a failure; False if not its owner.

        The tape (`effects.tape.interrupted_tape`) holds what was done: it is not done again.
        """
        ...

    async def finish(self, hitl_id: str, owner: str) -> bool:
        """End a pause that was continued to its end; False when it is not its owner's."""
        ...

    async def expire(self, hitl_id: str) -> ExpireReply:
        """Expire a pause; `taken` where somebody is continuing it."""
        ...

    async def expire_session(self, flow: str, session_id: str, but: str = "") -> int:
        """Expire a flow's pauses of a session; returns how many.

        One that somebody is continuing expires when it is given back. Those the exchange `but` has
        opened stay: a turn does not expire its own question.
        """
        ...

    async def pending(
        self, session_id: str | None = None, *, flow: str | None = None
    ) -> tuple[Pause, ...]:
        """List pauses that are not over, oldest first, without their tapes."""
        ...

    async def waiting(self) -> tuple[Waiting, ...]:
        """List what is not over, oldest first; needs no key."""
        ...

    async def sweep(self) -> Swept:
        """Expire what is due and remove what has been over for a day."""
        ...
