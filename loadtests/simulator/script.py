"""From a request to the script of its answer: what is sent, when, and how it ends.

Pure: the same every time and everywhere. Moments are absolute, so that delays never add up.
"""

from itertools import groupby
from operator import attrgetter
from typing import assert_never

import msgspec

from loadtests.simulator import wire
from loadtests.simulator.answer import SimulatedAnswer, answer
from loadtests.simulator.profile import (
    Complete,
    Cut,
    Ending,
    ErrorEvent,
    HttpError,
    NoDone,
    Profile,
    Reset,
    SilentBeforeFirst,
    Stall,
)
from loadtests.simulator.request import (
    ChatCompletionRequest,
    Refusal,
    TokenUsage,
    digest_of,
    prompt_tokens,
)
from loadtests.simulator.texts.prose import stream

EVENT_STREAM = b"text/event-stream; charset=utf-8"
JSON = b"application/json"


MICROSECONDS = 1_000_000
PER_MILLISECOND = 1_000
DRAWN = 1 << 16


class TimedChunk(msgspec.Struct, frozen=True, gc=False):
    """Bytes due `due_us` microseconds after the request; `count` events are in them."""

    due_us: int
    wire: bytes
    count: int = 1


class AnswerScript(msgspec.Struct, frozen=True):
    """An answer as a value: equal requests have equal scripts.

    Headers go out at once; the chunks when they are due.
    """

    chunks: tuple[TimedChunk, ...]
    ending: Ending = Complete()
    status: int = 200
    content_type: bytes = EVENT_STREAM
    headers: tuple[tuple[bytes, bytes], ...] = ()
    stamped: bool = False

    @property
    def immediate(self) -> bool:
        """Whether everything is due at once, in one piece, and then the answer is whole."""
        whole = not isinstance(self.ending, Cut | Stall)
        return whole and len(self.chunks) == 1 and not self.chunks[0].due_us

    @property
    def headers_first(self) -> bool:
        """Whether headers are sent at all."""
        match self.ending:
            case SilentBeforeFirst(headers=headers):
                return headers
            case Reset():
                return False
            case _:
                return True


def merged_chunks(chunks: list[TimedChunk]) -> tuple[TimedChunk, ...]:
    """Join neighbours that are due at the same moment, so that they go out as one."""
    return tuple(_joined(list(send)) for _, send in groupby(chunks, attrgetter("due_us")))


def stamped(wire: bytes, now_ns: int) -> bytes:
    """Add `sent_ns` to every event that holds an object (`[DONE]` holds none)."""
    # JSON escapes line ends, so this sequence is the end of an event and nothing else.
    return wire.replace(b"}\n\n", b',"sent_ns":%d}\n\n' % now_ns)


def _joined(chunks: list[TimedChunk]) -> TimedChunk:
    wire = b"".join(chunk.wire for chunk in chunks)
    return TimedChunk(chunks[0].due_us, wire, sum(chunk.count for chunk in chunks))


def due_times(profile: Profile, digest: bytes, count: int) -> list[int]:
    """Microseconds after the request at which each of `count` deltas is due.

    Delta k is due at ttft + k · chunk / rate + jitter_k, and never before the delta ahead of it.
    There is always one entry, so that an answer without deltas has its moment too.
    """
    first = profile.ttft_ms * PER_MILLISECOND
    gap = profile.chunk * MICROSECONDS / profile.rate if profile.rate else 0.0
    if not profile.jitter_ms and not gap:
        return [round(first)] * max(count, 1)
    if not profile.jitter_ms:
        return [round(first + k * gap) for k in range(max(count, 1))]
    spread = profile.jitter_ms * PER_MILLISECOND / DRAWN
    latest = 0
    due = []
    for k, drawn in enumerate(stream(digest, "jitter", max(count, 1))):
        latest = max(latest, round(first + k * gap + drawn * spread))
        due.append(latest)
    return due


def script_for(request: ChatCompletionRequest, profile: Profile) -> AnswerScript:
    """Plan the answer to a request; `profile` already holds what the model's name overrides."""
    match profile.ending:
        case HttpError(status=status, retry_after=retry_after):
            message = f"The simulated provider answers with status {status}."
            return refused(Refusal(status, message, code="simulated", retry_after=retry_after))
        case SilentBeforeFirst() | Reset():
            return AnswerScript((), profile.ending)
        case Complete() | NoDone() | Cut() | Stall() | ErrorEvent():
            return _answered(request, profile)
        case _:
            assert_never(profile.ending)


def refused(refusal: Refusal) -> AnswerScript:
    """Plan an error answer."""
    chunk = TimedChunk(0, refusal.body, 0)
    return AnswerScript((chunk,), status=refusal.status, content_type=JSON, headers=refusal.headers)


def _answered(request: ChatCompletionRequest, profile: Profile) -> AnswerScript:
    digest = digest_of(request)
    answered = answer(request, digest, profile)
    usage = TokenUsage(prompt_tokens(request), answered.tokens, len(answered.reasoning))
    if request.stream:
        return _streamed(request, digest, profile, answered, usage)
    return _whole(request, digest, profile, answered, usage)


def _streamed(
    request: ChatCompletionRequest,
    digest: bytes,
    profile: Profile,
    answered: SimulatedAnswer,
    usage: TokenUsage,
) -> AnswerScript:
    envelope = wire.envelope(request, digest)
    events = envelope.deltas([wire.first_delta(answered), *wire.deltas(answered, profile)])
    due = due_times(profile, digest, len(events) - 1)
    # The role goes out with the first delta.
    chunks = [TimedChunk(at, event) for at, event in zip([due[0], *due], events, strict=False)]
    end = [TimedChunk(due[-1], envelope.finish(answered.finish))]
    if request.include_usage:
        end.append(TimedChunk(due[-1], envelope.usage(usage)))
    sent = _ended(chunks, end, profile)
    timed = tuple(sent) if profile.split else merged_chunks(sent)
    return AnswerScript(timed, profile.ending, stamped=profile.stamp)


def _ended(chunks: list[TimedChunk], end: list[TimedChunk], profile: Profile) -> list[TimedChunk]:
    """Apply the ending; the first chunk is the role's and is never counted."""
    last = end[-1].due_us
    match profile.ending:
        case Complete():
            return [*chunks, *end, TimedChunk(last, wire.DONE)]
        case NoDone():
            return chunks + end
        case Cut(after=after) | Stall(after=after):
            return chunks[: after + 1]
        case ErrorEvent(after=after, code=code):
            begun = chunks[: after + 1]
            return [*begun, TimedChunk(begun[-1].due_us, wire.error_event(code))]
        case HttpError() | SilentBeforeFirst() | Reset():
            return []
        case _:
            assert_never(profile.ending)


def _whole(
    request: ChatCompletionRequest,
    digest: bytes,
    profile: Profile,
    answered: SimulatedAnswer,
    usage: TokenUsage,
) -> AnswerScript:
    body = wire.body(request, digest, answered, usage, profile)
    last = due_times(profile, digest, len(wire.deltas(answered, profile)))[-1]
    match profile.ending:
        case Complete() | NoDone():
            return AnswerScript((TimedChunk(last, body),), content_type=JSON)
        case Cut() | Stall():
            half = body[: len(body) // 2]
            return AnswerScript((TimedChunk(last, half),), profile.ending, content_type=JSON)
        case ErrorEvent(code=code):
            return refused(Refusal(500, "The server had an error.", code=code))
        case HttpError() | SilentBeforeFirst() | Reset():
            return AnswerScript((), profile.ending)
        case _:
            assert_never(profile.ending)
