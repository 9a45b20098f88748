"""Every error cutover raises on purpose, and how a run may end."""

from typing import ClassVar, Literal

import msgspec

Blame = Literal["stack", "world", "configuration"]
"""Whose fault a failure is; a provider's outage is the world's, a wrong request the stack's."""


class CutoverError(Exception):
    """Root of every error that cutover raises on purpose."""


class Unusable(CutoverError):
    """A file, a folder or an option cannot be used; `where` names it, or the place in it."""

    def __init__(self, *, where: object, reason: str) -> None:
        super().__init__(f"{where}: {reason}" if where else reason)
        self.where = where


class Refused(CutoverError):
    """A flow refuses a request before its first event: an outcome, not a failure.

    `status` is the HTTP status (4xx), `code` a stable word for clients, `detail` one sentence that
    clients may be shown.
    """

    def __init__(self, status: int, code: str, detail: str = "") -> None:
        super().__init__(f"refused with {status} {code!r}: {detail or code}")
        self.status, self.code, self.detail = status, code, detail


class StackFailed(CutoverError):
    """A stack cannot go on; `code` is what clients are told, in the flow's own failure events.

    Stacks raise it for what they find out themselves: an answer of the model that broke off
    (`blame="world"`), a model that is not configured (`blame="configuration"`).
    """

    def __init__(self, code: str, blame: Blame = "stack", detail: str = "") -> None:
        super().__init__(f"{code}: {detail}" if detail else code)
        self.code, self.blame, self.detail = code, blame, detail


class EffectFailed(CutoverError):
    """An effect ended with an error that `raises=` does not declare; `kind` is its class's name."""

    def __init__(self, effect: str, kind: str, message: str = "") -> None:
        detail = f": {message}" if message else ""
        super().__init__(f"effect {effect!r} failed with {kind}{detail}")
        self.effect, self.kind = effect, kind


class NotRecordable(CutoverError):
    """The arguments of an effect are no JSON; `effect` is its name, `argument` the place."""

    def __init__(self, effect: str, argument: str, reason: str) -> None:
        super().__init__(
            f"argument {argument!r} of effect {effect!r} is no JSON ({reason}): pass plain values, "
            "or leave it out of the key with ignore="
        )


class GrammarViolated(CutoverError):
    """A stack produced an event that the flow's grammar does not allow there."""

    def __init__(self, got: str, expected: tuple[str, ...]) -> None:
        super().__init__(f"event {got!r} where {' or '.join(map(repr, expected))} was due")
        self.got, self.expected = got, expected


class Control(CutoverError):
    """The tape stops a run. What the stack does with the exception does not matter: see `Run`.

    `subject` is what it is about: a run, a question or an effect.
    """

    code: ClassVar[str]
    sentence: ClassVar[str]

    def __init__(self, subject: str = "", hint: str = "") -> None:
        super().__init__(self.sentence.format(subject) + hint)
        self.subject = subject


class Fenced(Control):
    """A run whose place another one has taken made a call."""

    code = "fenced"
    sentence = "run {!r} is fenced: its calls are no longer performed"


class TapeMiss(Control):
    """A run that plays made a call that is not on the tape; names the nearest that are."""

    code = "tape_miss"
    sentence = "no call {!r} on the tape"

    def __init__(self, wanted: str, nearest: tuple[str, ...] = ()) -> None:
        hint = "; on the tape are " + ", ".join(map(repr, nearest)) if nearest else ""
        super().__init__(wanted, hint)


class TapeOverflowed(Control):
    """A run needs a tape that was not kept, since it outgrew its limit."""

    code = "tape_overflowed"
    sentence = "the tape outgrew its limit, and holds no longer what was on it"


class Paused(Control):
    """An effect has no answer yet: the exchange pauses until the question is answered."""

    code = "paused"
    sentence = "waiting for the answer to {!r}"


class WriteDiffers(Control):
    """A successor words a write otherwise than its predecessor, which may have performed it."""

    code = "write_differs"
    sentence = "{!r} is on the tape with other arguments: not performed again"


class WriteFenced(Control):
    """A fork makes a write that is neither on the tape nor declared as one that it may perform."""

    code = "write_fenced"
    sentence = "{!r} is a write, and not on the tape: a fork makes it where --perform names it"


class ResumeMismatch(Control):
    """A resumed run asks, before the answer, for what the paused run did not ask."""

    code = "resume_mismatch"
    sentence = "the paused run made no call {!r}: the stored tape does not fit"


class PlayedOutside(CutoverError):
    """A write was attempted outside every run while this process plays a tape."""

    def __init__(self, effect: str) -> None:
        super().__init__(
            f"write {effect!r} refused: it belongs to no run, and this process plays a tape; "
            "start threads with the caller's context (contextvars.copy_context)"
        )


# How a run ends: a closed union, each with what a record needs to know.


class Completed(msgspec.Struct, frozen=True, tag="completed"):
    """The stream is whole."""


class Refusal(msgspec.Struct, frozen=True, tag="refused"):
    """The flow refused the request before its first event."""

    status: int
    code: str
    detail: str = ""


class Pause(msgspec.Struct, frozen=True, tag="paused"):
    """The run waits for a human's answer to `question`."""

    question: str


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The run ended without a whole stream; `code` is stable, `detail` for operators alone."""

    code: str
    blame: Blame = "stack"
    detail: str = ""


class Left(msgspec.Struct, frozen=True, tag="left"):
    """The client left before the end."""


Outcome = Completed | Refusal | Pause | Failed | Left

_BY_STATUS: dict[int, tuple[str, Blame]] = {
    **dict.fromkeys((400, 404, 409, 413, 422), ("model_bad_request", "stack")),
    **dict.fromkeys((401, 403), ("model_auth", "configuration")),
    429: ("model_rate_limited", "world"),
}
"""Code and blame of a provider's answer; what it answers otherwise is its own fault."""
_TIMEOUTS = ("APITimeoutError", "ReadTimeout", "ConnectTimeout", "PoolTimeout")
_UNREACHABLE = frozenset(
    {"APIConnectionError", "APIResponseValidationError", "ConnectError", "ReadError"}
    | {"RemoteProtocolError", "WriteError", "TransportError", "ConnectionError"}
)
_BY_NAME = {
    **dict.fromkeys(_UNREACHABLE, "model_unavailable"),
    **dict.fromkeys(_TIMEOUTS, "model_timeout"),
    "APIError": "model_error",  # an error event within a stream that began with 200
}


def outcome_of(error: BaseException) -> Outcome:
    """Return how a run ends that raised `error`, by the first cause in its chain that is known.

    The SDKs of model providers are known by what they have in common: an error with the HTTP status
    of the answer as `status_code`, and the names of errors of connections.
    """
    for cause in _chain(error):
        match cause:
            case Refused():
                return Refusal(cause.status, cause.code, cause.detail)
            case Paused():
                return Pause(cause.subject)
            case Control():
                return Failed(cause.code, detail=str(cause))
            case GrammarViolated():
                return Failed("grammar", detail=str(cause))
            case StackFailed():
                return Failed(cause.code, cause.blame, str(cause))
            case EffectFailed():
                return Failed("effect_failed", "world", str(cause))
            case _:
                if (known := _of_provider(cause)) is not None:
                    return known
    return Failed("stack_failed", detail=f"{type(error).__name__}: {error}")


def _of_provider(error: BaseException) -> Failed | None:
    name, status = type(error).__name__, getattr(error, "status_code", None)
    if isinstance(status, int):
        code, blame = _BY_STATUS.get(status, ("model_unavailable", "world"))
        return Failed(code, blame, f"{name}: {error}")
    return Failed(_BY_NAME[name], "world", f"{name}: {error}") if name in _BY_NAME else None


def _chain(error: BaseException) -> list[BaseException]:
    """Return an error with all that it was raised from, groups unfolded, the outermost first."""
    chain = [error]
    for one in chain:  # it grows meanwhile
        causes = [one.__cause__, None if one.__suppress_context__ else one.__context__]
        if isinstance(one, BaseExceptionGroup):
            causes = [*one.exceptions, *causes]
        chain += [new for new in causes if new and not any(new is known for known in chain)]
    return chain
