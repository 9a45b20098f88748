"""From a request to the script of its answer: pure, the same every time and everywhere."""

from typing import assert_never

from loadtests.simulator import wire
from loadtests.simulator.answer import Answer, answer
from loadtests.simulator.ending import (
    Complete,
    Cut,
    ErrorEvent,
    HttpError,
    NoDone,
    Reset,
    SilentBeforeFirst,
    Stall,
)
from loadtests.simulator.profile import Profile
from loadtests.simulator.refusal import Refusal
from loadtests.simulator.request import ChatCompletionRequest, digest_of
from loadtests.simulator.schedule import due_times
from loadtests.simulator.script import JSON, Chunk, Script, merged
from loadtests.simulator.tokens import Usage, prompt_tokens


def plan(request: ChatCompletionRequest, profile: Profile) -> Script:
    """Plan the answer to a request; `profile` already holds what the model's name overrides."""
    match profile.ending:
        case HttpError(status=status, retry_after=retry_after):
            message = f"The simulated provider answers with status {status}."
            return refused(Refusal(status, message, code="simulated", retry_after=retry_after))
        case SilentBeforeFirst() | Reset():
            return Script((), profile.ending)
        case Complete() | NoDone() | Cut() | Stall() | ErrorEvent():
            return _answered(request, profile)
        case _:
            assert_never(profile.ending)


def refused(refusal: Refusal) -> Script:
    """Plan an error answer."""
    chunk = Chunk(0, refusal.body, 0)
    return Script((chunk,), status=refusal.status, content_type=JSON, headers=refusal.headers)


def _answered(request: ChatCompletionRequest, profile: Profile) -> Script:
    digest = digest_of(request)
    said = answer(request, digest, profile)
    usage = Usage(prompt_tokens(request), said.tokens, len(said.reasoning))
    if request.stream:
        return _streamed(request, digest, profile, said, usage)
    return _whole(request, digest, profile, said, usage)


def _streamed(
    request: ChatCompletionRequest, digest: bytes, profile: Profile, said: Answer, usage: Usage
) -> Script:
    envelope = wire.envelope(request, digest)
    events = envelope.deltas([wire.first_delta(said), *wire.deltas(said, profile)])
    due = due_times(profile, digest, len(events) - 1)
    # The role goes out with the first delta.
    chunks = [Chunk(at, event) for at, event in zip([due[0], *due], events, strict=False)]
    end = [Chunk(due[-1], envelope.finish(said.finish))]
    if request.include_usage:
        end.append(Chunk(due[-1], envelope.usage(usage)))
    sent = _ended(chunks, end, profile)
    timed = tuple(sent) if profile.split else merged(sent)
    return Script(timed, profile.ending, stamped=profile.stamp)


def _ended(chunks: list[Chunk], end: list[Chunk], profile: Profile) -> list[Chunk]:
    """Apply the ending; the first chunk is the role's and is never counted."""
    last = end[-1].due_us
    match profile.ending:
        case Complete():
            return [*chunks, *end, Chunk(last, wire.DONE)]
        case NoDone():
            return chunks + end
        case Cut(after=after) | Stall(after=after):
            return chunks[: after + 1]
        case ErrorEvent(after=after, code=code):
            kept = chunks[: after + 1]
            return [*kept, Chunk(kept[-1].due_us, wire.error_event(code))]
        case HttpError() | SilentBeforeFirst() | Reset():
            return []
        case _:
            assert_never(profile.ending)


def _whole(
    request: ChatCompletionRequest, digest: bytes, profile: Profile, said: Answer, usage: Usage
) -> Script:
    body = wire.body(request, digest, said, usage, profile)
    last = due_times(profile, digest, len(wire.deltas(said, profile)))[-1]
    match profile.ending:
        case Complete() | NoDone():
            return Script((Chunk(last, body),), content_type=JSON)
        case Cut() | Stall():
            half = body[: len(body) // 2]
            return Script((Chunk(last, half),), profile.ending, content_type=JSON)
        case ErrorEvent(code=code):
            return refused(Refusal(500, "The server had an error.", code=code))
        case HttpError() | SilentBeforeFirst() | Reset():
            return Script((), profile.ending)
        case _:
            assert_never(profile.ending)
