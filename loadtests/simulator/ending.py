"""How an answer ends: whole, or with one of the faults real providers show.

`after` counts deltas that carry something (reasoning, text, a tool call's part); the role-only
first chunk is not counted. A fault later than the last delta strikes before the finish chunk.
A body that is not streamed is cut, or stalls, at half its length.
"""

from typing import Annotated

import msgspec

Count = Annotated[int, msgspec.Meta(ge=0)]
Status = Annotated[int, msgspec.Meta(ge=400, le=599)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]


class Fault(msgspec.Struct, frozen=True, tag_field="ending", forbid_unknown_fields=True):
    """What all endings share: the tag that names them in a profile."""


class Complete(Fault, frozen=True, tag="complete"):
    """Finish chunk, usage if asked for, `[DONE]`."""


class NoDone(Fault, frozen=True, tag="no_done"):
    """Everything but `[DONE]`."""


class Cut(Fault, frozen=True, tag="cut"):
    """The connection is closed mid-answer, without a terminal chunk."""

    after: Count = 10


class Stall(Fault, frozen=True, tag="stall"):
    """Nothing more is sent and the connection stays open until the client leaves."""

    after: Count = 10


class ErrorEvent(Fault, frozen=True, tag="error_event"):
    """An error object in the stream after status 200, then the end, without `[DONE]`."""

    after: Count = 10
    code: str = "server_error"


class HttpError(Fault, frozen=True, tag="http_error"):
    """An error status instead of an answer; `retry_after` in seconds, sent as a header."""

    status: Status = 500
    retry_after: Seconds | None = None


class SilentBeforeFirst(Fault, frozen=True, tag="silent"):
    """The request is accepted and never answered; `headers` says whether headers are sent."""

    headers: bool = False


class Reset(Fault, frozen=True, tag="reset"):
    """The connection is reset before the headers."""


Ending = Complete | NoDone | Cut | Stall | ErrorEvent | HttpError | SilentBeforeFirst | Reset

ENDING_KEYS = frozenset({"ending", "after", "code", "status", "retry_after", "headers"})
