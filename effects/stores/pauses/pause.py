"""A pause: an exchange that waits for a human, from its question to its end.

    open ── respond ──> answered ── claim ──> claimed ── finish ──> finished
      └── time, a new turn ──> expired <──┘      └── release, lease over ──> answered

The remains of a finished or expired pause hold no tape, question or answer: only what late callers
are answered with, until they are swept away.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol

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


class PauseStore(Protocol):
    """Where pauses wait. Every operation may raise `EffectFailed`.

    Operations that need an owner take one that is unique to the exchange which continues: two
    owners of one name would share a claim.
    """

    async def open(self, pause: Pause) -> bool:
        """Store a pause before its question is shown; False when the id is taken."""
        ...

    async def replace_tape(self, hitl_id: str, tape: bytes) -> bool:
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

    async def release(self, hitl_id: str, owner: str, tape: bytes | None = None) -> bool:
        """Let another owner continue, after a disconnect or a failure; False if not its owner.

        The tape (`effects.tape.interrupted_tape`) holds what was done: it is not done again.
        """
        ...

    async def finish(self, hitl_id: str, owner: str) -> bool:
        """End a pause that was continued to its end; False when it is not its owner's."""
        ...

    async def expire(self, hitl_id: str) -> ExpireReply:
        """Expire a pause; `taken` while it is being continued."""
        ...

    async def expire_session(self, flow: str, session_id: str, but: str = "") -> int:
        """Expire a flow's pauses of a session; returns how many.

        One that is being continued expires when it is released. Those the exchange `but` has
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
