"""The one error root, the errors of ports and flows, and the faults on the tape."""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec


class CutoverError(Exception):
    """Root of every error cutover raises on purpose; it comes whole out of another process."""

    def __reduce__(self) -> tuple[Any, ...]:
        # By default its class would be called with its sentence, in the place of the facts.
        return _unpickled, (type(self), self.args, self.__dict__)


def _unpickled(
    kind: type[CutoverError], args: tuple[object, ...], state: dict[str, object]
) -> CutoverError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class MissingExtra(CutoverError, ImportError):
    """The library of an adapter comes with an extra that is not installed."""

    def __init__(self, adapter: str, extra: str) -> None:
        super().__init__(f"{adapter!r} needs the extra {extra!r}: pip install 'cutover[{extra}]'")
        self.extra = extra


class Refused(CutoverError):
    """A flow refuses a request before its first event; an outcome, never a failure.

    `status` is the HTTP status (4xx), `code` a stable word for clients, `detail` one sentence
    that may be shown to them.
    """

    def __init__(self, status: int, code: str, detail: str = "") -> None:
        super().__init__(f"refused with {status} {code!r}: {detail or code}")
        self.status = status
        self.code = code
        self.detail = detail


class EffectFailed(CutoverError):
    """An effect ended with an error that is on the tape; a stack may handle it."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(f"effect failed with {fault.code!r}")
        self.fault = fault


class TapeCut(CutoverError):
    """What a reader follows was cut short: its exchange ended, or the tape outgrew its bounds."""

    def __init__(self, what: str) -> None:
        super().__init__(f"the tape was cut before the end of {what}")
        self.what = what


class TapeMiss(CutoverError):
    """A run made a call that is not on its tape; names the nearest recorded one."""

    def __init__(self, wanted: str, nearest: str | None, *, code: str = "tape_miss") -> None:
        hint = f"nearest on the tape: {nearest}" if nearest else "nothing recorded at that site"
        super().__init__(f"no recorded call for {wanted} ({hint})")
        self.code = code
        self.wanted = wanted
        self.nearest = nearest


class Fenced(CutoverError):
    """A run that was replaced called a port; its effects are no longer wanted."""

    def __init__(self, run: str) -> None:
        super().__init__(f"run {run!r} is fenced: another run has taken its place")


class Paused(CutoverError):
    """The flow waits for a human; the shell writes the suspended ending."""

    def __init__(self, hitl_id: str) -> None:
        super().__init__(f"waiting for a human to answer {hitl_id!r}")
        self.hitl_id = hitl_id


class GrammarViolated(CutoverError):
    """A flow produced an event its grammar does not allow there."""

    def __init__(self, got: str, expected: tuple[str, ...]) -> None:
        super().__init__(f"event {got!r} where {' or '.join(map(repr, expected))} was due")
        self.got = got
        self.expected = expected


FaultCode = Literal[
    # model
    "unknown_model",
    "model_auth",
    "model_rate_limited",
    "model_unavailable",
    "model_bad_request",
    "model_context_length",
    "model_content_policy",
    "model_error",
    "model_truncated",
    "model_timeout_first_byte",
    "model_timeout_first_token",
    "model_timeout_idle",
    "model_timeout_total",
    # stores, locks, humans, tools, workers
    "store_unavailable",
    "store_failed",
    "memory_unavailable",
    "memory_failed",
    "lock_unavailable",
    "tool_list_failed",
    "human_unavailable",
    "second_question",
    "pause_outdated",
    "pause_sealed",
    "outcome_unknown",
    "worker_unavailable",
    "audit_unavailable",
    "effect_in_doubt",
    # anything an adapter did not foresee; its text stays in the log
    "adapter_failed",
    "deadline",
]


class Fault(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why an effect failed: a stable code, whether asking again could help, and small facts.

    `data` holds facts for people who debug (status codes, limits in seconds): never an
    exception's text, a key or a header.
    """

    code: FaultCode
    retryable: bool = False
    data: dict[str, str | int | float | bool | None] = {}


# Controls and selectors do not show, spaces of other kinds look like a space, and direction marks
# turn what stands around them: all are spelt out.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\xa0\xad\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5"
    "\u180b-\u180f\u2000-\u200f\u2028-\u202f\u205f-\u206f\u2800\u3000\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffc\ufffe\uffff\ud800-\udfff\U000e0000-\U000e0fff]"
)


def visible(text: str) -> str:
    """Spell out characters that cannot be seen or distinguished, or that would turn the line."""
    return _UNSEEN.sub(lambda found: f"⟨U+{ord(found.group()):04X}⟩", text)
