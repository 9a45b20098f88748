"""Refusals of the gateway, in the form of the API that the caller speaks."""

import re
from collections.abc import Mapping
from typing import Final, Literal

from starlette.responses import JSONResponse, Response

from cutover.errors import Control, Paused, Refused, outcome_of
from cutover.tape.run import CallFailed
from router.edge import problem

Form = Literal["openai", "anthropic", "problem"]
JSON: Final = "application/json"

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


class CallRefused(Refused):
    """The answer to a call does not come; `again_ms` is when to try again, where that is known."""

    def __init__(self, status: int, code: str, detail: str, again_ms: int | None = None) -> None:
        super().__init__(status, code, detail)
        self.again_ms = again_ms


def answer_of(error: Refused, form: Form) -> Response:
    """Return the answer to a refused call; clients try again after 502 and 504 alone."""
    kind = _TYPES.get(error.status, "invalid_request_error")
    answer: Response
    match form:
        case "anthropic":
            said = {"type": kind, "message": f"{error.detail} ({error.code})"}
            answer = JSONResponse({"type": "error", "error": said}, error.status)
        case "openai":
            reason = {"message": error.detail, "type": kind, "code": error.code, "param": None}
            answer = JSONResponse({"error": reason}, error.status)
        case "problem":
            answer = problem(error.status, error.code, error.detail)
    if error.status not in {502, 504}:
        answer.headers["x-should-retry"] = "false"
    if isinstance(error, CallRefused) and error.again_ms is not None:
        answer.headers["retry-after-ms"] = str(error.again_ms)
    return answer


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
