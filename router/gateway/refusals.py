"""Refusals of the gateway, in the form of the API that the caller speaks."""

import re
from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from cutover.errors import Control, CutoverError, Paused, outcome_of
from cutover.tape.run import CallFailed
from router.edge import CONTENT_TYPE, problem

Form = Literal["openai", "anthropic", "problem"]

_ANTHROPIC: Final = re.compile(r"/v1/(messages|complete)(/|$)")
_OPENAI: Final = re.compile(r"/(completions|embeddings|responses|models)(/|$)")
_TYPES: Final[Mapping[int, str]] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    502: "api_error",
    504: "api_error",
}
_CONTROLS: Final[Mapping[str, str]] = {
    "fenced": "the run of this call is over, or another run has taken its place",
    "tape_miss": "this run plays a tape, and the tape has no such call",
    "tape_overflowed": "the tape outgrew its limit",
    "paused": "the exchange waits for a human's answer",
    "write_differs": "an earlier run made this write with other arguments; it is not made again",
    "resume_mismatch": "the paused run made no such call; its stored tape does not fit",
}


class CallRefused(CutoverError):
    """The gateway does not answer a call: `detail` is what its caller may read.

    Clients try again after 502 and 504 alone: `again_ms` is when, where that is known.
    """

    def __init__(self, status: int, code: str, detail: str, again_ms: int | None = None) -> None:
        super().__init__(f"{status} {code}: {detail}")
        self.status, self.code, self.detail, self.again_ms = status, code, detail, again_ms

    def headers(self, form: Form) -> list[tuple[str, str]]:
        """Return the headers of the answer."""
        found = [("content-type", CONTENT_TYPE if form == "problem" else "application/json")]
        if self.again_ms is not None:
            found.append(("retry-after-ms", str(self.again_ms)))
        return found if self.status in {502, 504} else [*found, ("x-should-retry", "false")]

    def body(self, form: Form) -> bytes:
        """Return the body of the answer."""
        kind = _TYPES.get(self.status, "invalid_request_error")
        match form:
            case "anthropic":
                error = {"type": kind, "message": f"{self.detail} ({self.code})"}
                return msgspec.json.encode({"type": "error", "error": error})
            case "openai":
                said = {"message": self.detail, "type": kind, "code": self.code, "param": None}
                return msgspec.json.encode({"error": said})
            case "problem":
                return msgspec.json.encode(problem(self.status, self.code, self.detail))


def form_of(path: str, headers: Mapping[str, str]) -> Form:
    """Return the form of errors that the caller of a path reads."""
    if "anthropic-version" in headers or _ANTHROPIC.search(path):
        return "anthropic"
    return "openai" if _OPENAI.search(path) else "problem"


def for_model(path: str) -> bool:
    """Whether a path is one of an API of models, whose bodies are JSON."""
    return bool(_ANTHROPIC.search(path) or _OPENAI.search(path))


def refusal_of(error: Exception, *, played: bool = False) -> CallRefused:
    """Return how a call is refused whose run was stopped, or whose provider did not answer.

    No client tries 410 again. What is played was waited for when it was live, so that it may be
    tried again at once.
    """
    if isinstance(error, Control):
        paused = isinstance(error, Paused)
        code = "paused" if paused else getattr(outcome_of(error), "code", "")
        return CallRefused(410, code, _CONTROLS.get(code, "the run of this call was stopped"))
    kind = error.fault.kind if isinstance(error, CallFailed) else type(error).__name__
    again = 1 if played else None
    if kind.endswith(("Timeout", "TimeoutError")):
        return CallRefused(504, "provider_timeout", "the provider did not answer in time", again)
    detail = "the provider cannot be reached, or broke its answer off"
    return CallRefused(502, "provider_unreachable", detail, again)
