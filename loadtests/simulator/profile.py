"""How the simulated provider behaves, as a default and per request.

A request overrides the server's profile through its model name, in query-string form:
`sim-chat?ttft_ms=200&rate=50&tokens=64&ending=cut&after=10`. An unknown key or a bad value is
refused with status 400. The rest of the name decides nothing but the text.

    key          default       meaning
    ttft_ms      0             milliseconds to the first chunk
    rate         0             tokens per second after the first; 0 sends them at once
    jitter_ms    0             each delta comes up to this much later, drawn from the request
    tokens       0             tokens of a plain answer; 0 lets the request decide (about 40-60)
    limit        160           tokens after which a very long answer ends by `length`
    chunk        1             tokens per delta
    reasoning    0             tokens of reasoning before the answer
    reasoning_field  reasoning_content   name of the delta's field, or `reasoning`
    call_ids     unique        ids of tool calls: `unique`, `missing` or `duplicate`
    split        0             1 sends every chunk by itself even when several are due
    stamp        0             1 adds `sent_ns` (this machine's monotonic clock) to each chunk
    times        0             the ending strikes only the first n attempts of a conversation; 0 all
    ending       complete      `complete`, `no_done`, `cut`, `stall`, `error_event`, `http_error`,
                               `silent` or `reset`
    after        10            deltas before `cut`, `stall` and `error_event`
    code         server_error  of `error_event`
    status       500           of `http_error`
    retry_after  none          seconds, of `http_error`
    headers      0             1: `silent` sends headers first

`after` counts deltas that carry something (reasoning, text, a tool call's part); the role-only
first chunk is not counted. A fault later than the last delta strikes before the finish chunk.
A body that is not streamed is cut, or stalls, at half its length.
"""

from functools import lru_cache
from typing import Annotated, Literal
from urllib.parse import parse_qsl

import msgspec

from loadtests.simulator.request import Refusal

Count = Annotated[int, msgspec.Meta(ge=0)]
Status = Annotated[int, msgspec.Meta(ge=400, le=599)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]


ENDING_KEYS = frozenset({"ending", "after", "code", "status", "retry_after", "headers"})


class EndingBase(msgspec.Struct, frozen=True, tag_field="ending", forbid_unknown_fields=True):
    """What all endings share: the tag that names them in a profile."""


class Complete(EndingBase, frozen=True, tag="complete"):
    """Finish chunk, usage if asked for, `[DONE]`."""


class NoDone(EndingBase, frozen=True, tag="no_done"):
    """Everything but `[DONE]`."""


class Cut(EndingBase, frozen=True, tag="cut"):
    """The connection is closed mid-answer, without a terminal chunk."""

    after: Count = 10


class Stall(EndingBase, frozen=True, tag="stall"):
    """Nothing more is sent and the connection stays open until the client leaves."""

    after: Count = 10


class ErrorEvent(EndingBase, frozen=True, tag="error_event"):
    """An error object in the stream after status 200, then the end, without `[DONE]`."""

    after: Count = 10
    code: str = "server_error"


class HttpError(EndingBase, frozen=True, tag="http_error"):
    """An error status instead of an answer; `retry_after` in seconds, sent as a header."""

    status: Status = 500
    retry_after: Seconds | None = None


class SilentBeforeFirst(EndingBase, frozen=True, tag="silent"):
    """The request is accepted and never answered; `headers` says whether headers are sent."""

    headers: bool = False


class Reset(EndingBase, frozen=True, tag="reset"):
    """The connection is reset before the headers."""


Ending = Complete | NoDone | Cut | Stall | ErrorEvent | HttpError | SilentBeforeFirst | Reset


Milliseconds = Annotated[float, msgspec.Meta(ge=0, le=3_600_000)]
PerSecond = Annotated[float, msgspec.Meta(ge=0, le=1_000_000)]
Tokens = Annotated[int, msgspec.Meta(ge=0, le=100_000)]
AtLeastOne = Annotated[int, msgspec.Meta(ge=1, le=100_000)]


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Times, amounts and faults of answers; the module's table says what each means."""

    ttft_ms: Milliseconds = 0.0
    rate: PerSecond = 0.0
    jitter_ms: Milliseconds = 0.0
    tokens: Tokens = 0
    limit: AtLeastOne = 160
    chunk: AtLeastOne = 1
    reasoning: Tokens = 0
    reasoning_field: Literal["reasoning_content", "reasoning"] = "reasoning_content"
    call_ids: Literal["unique", "missing", "duplicate"] = "unique"
    split: bool = False
    stamp: bool = False
    times: Tokens = 0
    ending: Ending = Complete()


KEYS = tuple(field for field in Profile.__struct_fields__ if field != "ending")


@lru_cache(maxsize=1024)
def overridden(profile: Profile, model: str) -> Profile | Refusal:
    """Apply what the model's name says after `?`; 400 for a key or value that means nothing."""
    query = model.partition("?")[2]
    if not query:
        return profile
    try:
        overrides: dict[str, object] = dict(
            parse_qsl(query, keep_blank_values=True, strict_parsing=True)
        )
        return merged(profile, overrides)
    except ValueError as error:  # msgspec.ValidationError is one
        return Refusal(
            400,
            f"The model name {model!r} asks for what the simulator cannot do: {error}",
            param="model",
        )


def merged(profile: Profile, overrides: dict[str, object]) -> Profile:
    """Put keys, with texts as values, over a profile.

    Raises:
        ValueError: a key or value means nothing (msgspec.ValidationError).
    """
    overrides = dict(overrides)
    fault = {key: overrides.pop(key) for key in ENDING_KEYS & overrides.keys()}
    fields = msgspec.to_builtins(profile) | overrides
    fields["ending"] = fault if "ending" in fault else fields["ending"] | fault
    return msgspec.convert(fields, Profile, strict=False)


def to_arguments(profile: Profile) -> list[str]:
    """Write a profile as options of the command line; defaults are left out."""
    fields = msgspec.to_builtins(profile)
    fields |= fields.pop("ending")
    plain = msgspec.to_builtins(Profile())
    plain |= plain.pop("ending")
    return [
        f"--{key.replace('_', '-')}={_text(value)}"
        for key, value in fields.items()
        if value != plain.get(key)
    ]


def _text(value: object) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)
