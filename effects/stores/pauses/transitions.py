"""A pause, an exchange that waits for a human, and how it moves: decided without a store. Pure.

    open ── respond ──> answered ── claim ──> claimed ── finish ──> finished
      └── time, a new turn ──> expired <──┘      └── release, lease over ──> answered

The remains of a finished or expired pause hold no tape, question or answer: only what late callers
are answered with, until they are swept away.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final, Literal, NamedTuple, assert_never

import msgspec

from contract.errors import EffectFailed, Fault
from contract.human import HumanAnswer, OpenQuestion
from contract.stores import require_storable

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
    """That an exchange waits, without its contents; `size` is that of its tape, in bytes.

    `owner` is who claims it, or whose claim is over without a release.
    """

    hitl_id: str
    flow: str
    stack: str
    session_id: str | None
    state: State
    created_at: float
    expires_at: float
    size: int
    owner: str = ""


class PauseTotals(NamedTuple):
    """How many exchanges wait for a human, and the bytes of their tapes, questions and answers.

    These are as they are stored, encrypted where pauses are.
    """

    pauses: int
    size: int


class Swept(NamedTuple):
    """What a sweep did: how many pauses expired, how many remains it removed."""

    expired: int
    removed: int


REMAINDER: Final = "rest:"
"""Begins the id of what an exchange does after its end: nothing in it waits for a human."""

OVER: frozenset[State] = frozenset({"finished", "expired"})


def check_pause(pause: Pause) -> None:
    """Raise `EffectFailed(store_failed)` for a new pause with text that cannot be stored."""
    texts = (value for value in msgspec.structs.astuple(pause) if isinstance(value, str))
    require_storable("store_failed", *texts)
    encoded(pause.question)


def encoded(value: object) -> bytes:
    """Encode a part of a pause, keys sorted; raises `EffectFailed(store_failed)`."""
    try:
        return msgspec.json.encode(value, order="sorted")
    except (msgspec.MsgspecError, UnicodeError, OverflowError) as failure:
        raise EffectFailed(Fault("store_failed", data={"reason": "text"})) from failure


def digest_of(answer: HumanAnswer) -> str:
    """Identify what was answered, without who did."""
    return blake2b(encoded((answer.action, answer.data)), digest_size=16).hexdigest()


def standing(pause: Pause, now: float) -> State:
    """Return the state of a pause at a moment: time alone expires pauses and ends leases."""
    match pause.state:
        case "open" | "answered":
            return "expired" if pause.expires_at <= now else pause.state
        case "claimed":
            if now < pause.leased_until:
                return "claimed"
            return "expired" if pause.expires_at <= now else "answered"
        case "finished" | "expired":
            return pause.state
        case _:
            assert_never(pause.state)


def seen(pause: Pause, now: float) -> Pause:
    """Return a pause as it stands at a moment."""
    state = standing(pause, now)
    if state == pause.state:
        return pause
    if state == "expired":
        return over(pause, "expired")
    return _free(pause)


def over(pause: Pause, state: State) -> Pause:
    """End a pause: its contents go, its state remains."""
    return msgspec.structs.replace(
        pause, state=state, tape=b"", question=None, answer=None, owner="", leased_until=0.0
    )


def respond(pause: Pause, answer: HumanAnswer, now: float) -> tuple[RespondReply, Pause]:
    """Answer a pause."""
    pause = seen(pause, now)
    digest = digest_of(answer)
    match pause.state:
        case "open":
            return "accepted", msgspec.structs.replace(
                pause, state="answered", answer=answer, digest=digest
            )
        case "answered" | "claimed" | "finished":
            return ("same" if pause.digest == digest else "conflict"), pause
        case "expired":
            return "expired", pause
        case _:
            assert_never(pause.state)


def claim(pause: Pause, owner: str, lease_s: float, now: float) -> tuple[ClaimReply, Pause]:
    """Take an answered pause."""
    pause = seen(pause, now)
    match pause.state:
        case "answered":
            return "claimed", msgspec.structs.replace(
                pause, state="claimed", owner=owner, leased_until=now + lease_s
            )
        case "open":
            return "unanswered", pause
        case "claimed":
            return "taken", pause
        case "expired" | "finished":
            return pause.state, pause
        case _:
            assert_never(pause.state)


def replace_tape(pause: Pause, tape: bytes, now: float) -> Pause | None:
    """Replace the tape; one that has gone on since the answer holds more and stays."""
    if pause.continued or standing(pause, now) in OVER:
        return None
    return msgspec.structs.replace(pause, tape=tape)


def renew(
    pause: Pause, owner: str, lease_s: float, now: float, tape: bytes | None = None
) -> Pause | None:
    """Extend a claim, also after its lease unless another owner has claimed since."""
    if not _holds(pause, owner) or standing(pause, now) == "expired":
        return None
    return _continued(msgspec.structs.replace(pause, leased_until=now + lease_s), tape)


def release(pause: Pause, owner: str, tape: bytes | None = None) -> Pause | None:
    """End a claim, so that another owner can continue."""
    return _continued(_free(pause), tape) if _holds(pause, owner) else None


def finish(pause: Pause, owner: str) -> Pause | None:
    """End a pause whose owner has continued it to its end, however late."""
    return over(pause, "finished") if _holds(pause, owner) else None


def expire(pause: Pause, now: float) -> Pause | None:
    """Expire a pause that waits; None for one that is being continued, or over."""
    waits = standing(pause, now) in {"open", "answered"}
    return over(pause, "expired") if waits else None


def pass_by(pause: Pause, now: float) -> Pause | None:
    """Expire a pause whose session has gone on; one that is being continued once it is released.

    Its owner may not hold the session's lock yet, and will not get it.
    """
    if pause.hitl_id.startswith(REMAINDER):
        return None
    if standing(pause, now) == "claimed" and pause.expires_at > now:
        return msgspec.structs.replace(pause, expires_at=now)
    return expire(pause, now)


def expire_one(pause: Pause, now: float) -> tuple[ExpireReply, Pause]:
    """Expire a pause, or reply why not."""
    after = expire(pause, now)
    if after is not None:
        return "expired", after
    return ("taken" if standing(pause, now) == "claimed" else "over"), pause


def waiting(pause: Pause, size: int, owner: str) -> Waiting:
    """Describe a pause that waits, without its contents; `owner` as it is stored."""
    return Waiting(
        hitl_id=pause.hitl_id,
        flow=pause.flow,
        stack=pause.stack,
        session_id=pause.session_id,
        state=pause.state,
        created_at=pause.created_at,
        expires_at=pause.expires_at,
        size=size,
        owner=owner,
    )


def expire_due(pause: Pause, now: float) -> Pause | None:
    """Expire a pause whose time is over, if the store does not show it yet."""
    due = pause.state != "expired" and standing(pause, now) == "expired"
    return over(pause, "expired") if due else None


def _holds(pause: Pause, owner: str) -> bool:
    return pause.state == "claimed" and pause.owner == owner


def _continued(pause: Pause, tape: bytes | None) -> Pause:
    return pause if tape is None else msgspec.structs.replace(pause, tape=tape, continued=True)


def _free(pause: Pause) -> Pause:
    return msgspec.structs.replace(pause, state="answered", owner="", leased_until=0.0)
