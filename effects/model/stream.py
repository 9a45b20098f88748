"""One answer of a provider: bytes in, chunks out, limits on silence, and a verdict at the end."""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import aiohttp
import httpx2
import msgspec

from contract.errors import EffectFailed, Fault, FaultCode
from contract.model import Chunk, RawChunk, Usage
from contract.wire.sse import SseDecoder, SseEvent
from effects.loop_time import limit_at, loop_now
from effects.model.chunks import (
    CallIndexes,
    Halves,
    OtherSpeech,
    SplitChunk,
    chunk_of,
    decode_event,
    encodable,
    read_other,
)
from effects.model.errors import error_in, in_band_fault, is_error, status_fault, unreachable
from effects.model.registry import (
    FIRST_TOKEN_ALONE,
    Limits,
    ModelClient,
    ModelEntry,
    ModelRegistry,
)
from effects.model.shapes import INTERRUPTED

DRAIN_SECONDS: Final = 0.05
"""How long the connection may take to end after `[DONE]`; ended in time, it is used again."""
MAX_BYTES: Final = 64 << 20
"""More than any model writes in one answer; a stream without end must not fill the memory."""
MAX_EVENT_BYTES: Final = 4 << 20
"""More than any one event holds: a line without end would be held until it ended."""
# The transport lets aiohttp's errors through where it has no name for them, as for bad HTTP.
BROKEN: Final = (httpx2.RequestError, aiohttp.ClientError)
_DONE: Final = b"[DONE]"
_JSON_STARTS: Final = frozenset({b"{", b"["})

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CallDeadline:
    """When waiting ends, and the fault if it does; in seconds."""

    when: float
    code: FaultCode
    seconds: float

    @property
    def fault(self) -> Fault:
        """The fault of having waited in vain."""
        return Fault(self.code, retryable=True, data={"seconds": self.seconds})


def total_deadline(limits: Limits, now: float) -> CallDeadline:
    """Return the end of a whole call that begins now."""
    return CallDeadline(now + limits.total, "model_timeout_total", limits.total)


@dataclass(slots=True, eq=False)
class StreamDeadlines:
    """Which limit holds at each stage of a stream, decided without a clock.

    The call was made at `start` and must have ended by `ends`. `answered` is set when the
    response's headers have come, `heard` when the model said something: bytes and comments keep
    a connection open and say nothing of the model. `spoke` is set with the first of it.
    """

    limits: Limits
    start: float
    ends: CallDeadline
    answered: bool = False
    heard: float = 0.0
    spoke: bool = False
    _over: float | None = None

    def finished(self, now: float, *, done: bool) -> None:
        """Note that the answer is complete, and whether the stream said that it has ended."""
        wait = min(DRAIN_SECONDS, self.limits.tail) if done else self.limits.tail
        until = now + wait
        self._over = until if self._over is None else min(self._over, until)

    def next(self) -> CallDeadline:
        """Return the deadline of the wait that begins now."""
        limits = self.limits
        first_token = limits.first_token or FIRST_TOKEN_ALONE
        first_byte = limits.first_byte or math.inf
        if self._over is not None:
            stage = CallDeadline(self._over, "model_timeout_idle", limits.tail)
        elif self.spoke:
            stage = CallDeadline(self.heard + limits.idle, "model_timeout_idle", limits.idle)
        elif self.answered or first_token < first_byte:
            when = self.start + first_token
            stage = CallDeadline(when, "model_timeout_first_token", first_token)
        else:
            when = self.start + first_byte
            stage = CallDeadline(when, "model_timeout_first_byte", first_byte)
        return stage if stage.when < self.ends.when else self.ends


@dataclass(eq=False)
class StreamAssembler:
    """Turns the bytes of one response, cut anywhere, into chunks; sans I/O.

    Some providers answer a request for a stream with one JSON object, an answer or an error:
    `flush` reads that.

    What repeats earlier chunks (model, finish reason, usage) is left out, and a chunk that would
    carry nothing is not made. `fault` is set by an error inside the stream; what comes after it,
    or after `[DONE]`, is ignored. `spoken` counts events in which the model said something,
    `malformed` those that were passed over.
    """

    done: bool = False
    spoken: int = 0
    fault: Fault | None = None
    malformed: int = 0
    _sse: SseDecoder = field(default_factory=SseDecoder)
    _calls: CallIndexes = field(default_factory=CallIndexes)
    _halves: Halves = field(default_factory=Halves)
    _bytes: int = 0
    _event_bytes: int = 0
    _object: list[bytes] | None = None
    _other: Mapping[str, Any] = field(default_factory=dict)
    _model: str = ""
    _finish: str = ""
    _usage: Usage | None = None

    @property
    def complete(self) -> bool:
        """Whether the answer is whole: a finish reason has come, and no error.

        `[DONE]` proves nothing: servers send it, too, behind an answer that broke off.
        """
        return self.fault is None and bool(self._finish)

    def feed(self, piece: bytes) -> list[Chunk]:
        """Take the next bytes; return the chunks they complete."""
        chunks: list[Chunk] = []
        if not self._bytes and piece.lstrip()[:1] in _JSON_STARTS:
            self._object = []
        self._bytes += len(piece)
        self._event_bytes += len(piece)
        endless = self._bytes > MAX_BYTES or self._event_bytes > MAX_EVENT_BYTES
        if endless and not self.done and self.fault is None:
            self.fault = Fault("model_error", data={"type": "endless"})
            return chunks
        if self._object is not None:
            self._object.append(piece)
            return chunks
        for event in self._sse.feed(piece):
            self._event_bytes = 0
            if self.done or self.fault is not None:
                break
            chunk = self._read(event)
            if chunk is not None:
                chunks.append(chunk)
        return chunks

    def flush(self) -> list[Chunk]:
        """Return the chunk of an answer that was no stream; the response has ended."""
        data, self._object = b"".join(self._object or ()), None
        chunk = self._read(event_of_object(data)) if data and self.fault is None else None
        return [] if chunk is None else [chunk]

    def end(self) -> Fault | None:
        """Take the end of the connection; return what is wrong with the stream, if anything."""
        if self.fault is not None or self.complete:
            return self.fault
        return Fault("model_truncated", retryable=True, data={"malformed": self.malformed})

    def _read(self, event: SseEvent) -> Chunk | None:
        if event.data.startswith(_DONE):
            self.done = True
            return self._news(self._halves.join(Chunk(), last=True)) if self._halves.held else None
        wire = decode_event(event.data)
        if event.event and event.event == "error":
            self.fault = in_band_fault(error_in(event.data))
            return None
        if wire is None:
            self.malformed += 1
            return None
        choice = wire.choice
        error = wire.error or (choice.error if choice is not None else None)
        if error or (wire.choices is None and is_error(event.data)):
            self.fault = in_band_fault(error if isinstance(error, dict) else error_in(event.data))
            return None
        reason = None if choice is None else choice.finish_reason
        if isinstance(reason, str) and reason in INTERRUPTED:
            self.fault = Fault(
                "model_error",
                retryable=True,
                data={"type": "finish_reason", "finish_reason": reason},
            )
            return None
        try:
            chunk = chunk_of(wire, choice, self._calls, self._model)
            other = None
            if not (chunk.text or chunk.reasoning or chunk.tool_calls or choice is None):
                other = read_other(event.data)
        except RecursionError:  # nested just not too deep to be decoded
            self.malformed += 1
            return None
        if other is not None:
            chunk = self._with_other(chunk, other)
        elif choice is not None and choice.delta and choice.delta.content.__class__ is list:
            self._other = {"content": choice.delta.content}
        if self._halves.held or isinstance(wire, SplitChunk):
            chunk = self._halves.join(chunk)
        return self._news(chunk)

    def _with_other(self, chunk: Chunk, other: OtherSpeech) -> Chunk:
        if not (other.text or other.reasoning):
            self.spoken += 1
        self._other = other.other
        return msgspec.structs.replace(
            chunk, text=other.text, reasoning=other.reasoning, field=other.field
        )

    def _news(self, chunk: Chunk) -> Chunk | None:
        """Return what the chunk adds to earlier ones; None if that is nothing."""
        if chunk.finish or chunk.usage is not None:
            finish = "" if chunk.finish == self._finish else chunk.finish
            usage = None if chunk.usage == self._usage else chunk.usage
            self._finish = finish or self._finish
            self._usage = usage or self._usage
            chunk = msgspec.structs.replace(chunk, finish=finish, usage=usage)
        if chunk.text or chunk.reasoning or chunk.tool_calls:
            self.spoken += 1
        elif not chunk.finish and chunk.usage is None:
            return None
        self._model = chunk.model or self._model
        return chunk


@dataclass(eq=False)
class RawAssembler(StreamAssembler):
    """Stores with each chunk the data of the events it came in, and what no other field holds.

    `failed` is the data of the event that the fault came in.
    """

    failed: bytes = b""
    _raw: list[bytes] = field(default_factory=list)

    def _read(self, event: SseEvent) -> Chunk | None:
        malformed = self.malformed
        chunk = super()._read(event)
        if not self.done:
            if self.fault is not None or self.malformed > malformed:
                self.failed = event.data if self.fault is not None else b""
                return None
            self._raw.append(event.data)
        if chunk is None and not (self._other or (self.done and self._raw)):
            return None
        raw, self._raw = tuple(self._raw), []
        fields = {} if chunk is None else msgspec.structs.asdict(chunk)
        if self._other:
            fields["other"], self._other = encodable(self._other), {}
        return RawChunk(**fields, raw=raw)


def event_of_object(data: bytes) -> SseEvent:
    """Return a body that is one JSON object as the one event of a stream: messages are deltas."""
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return SseEvent(data)
    choices = value.get("choices") if isinstance(value, dict) else None
    if not isinstance(choices, list):
        return SseEvent(data, event="error")
    for choice in choices:
        if isinstance(choice, dict) and "delta" not in choice:
            choice["delta"] = choice.pop("message", None)
    return SseEvent(msgspec.json.encode({**value, "object": "chat.completion.chunk"}))


async def read_answer(
    registry: ModelRegistry,
    entry: ModelEntry,
    body: bytes,
    ends: CallDeadline,
    assembler: StreamAssembler,
    limits: Limits,
) -> AsyncGenerator[list[Chunk], None]:
    """Call one entry once; yield the chunks that come together, as they come.

    Closing the generator drops the connection, or keeps it for the next request. `ends` is when
    the whole must have ended. Raises `EffectFailed` where the answer is not whole, always after
    all that came of it.
    """
    now = loop_now
    deadlines = StreamDeadlines(limits, now(), ends)
    async with registry.clients.lease(entry.provider) as client:
        response = await _respond(client, body, deadlines)
        # Bytes as they come, decompressed where they were compressed all the same.
        plain = response.headers.get("content-encoding", "identity") == "identity"
        pieces: AsyncGenerator[bytes, None]
        pieces = response.aiter_raw() if plain else response.aiter_bytes()
        try:
            async with aclosing(pieces):
                while (piece := await _next_piece(pieces, deadlines, assembler)) is not None:
                    spoken = assembler.spoken
                    chunks = assembler.feed(piece)
                    if assembler.spoken > spoken:
                        deadlines.heard, deadlines.spoke = now(), True
                    if assembler.complete:
                        deadlines.finished(now(), done=assembler.done)
                    yield chunks
                if chunks := assembler.flush():
                    yield chunks
        finally:
            await response.aclose()
    if assembler.malformed:
        log.warning(
            "passed over %d malformed chunks of %r at %r",
            assembler.malformed,
            entry.model,
            entry.provider.name,
        )
    if (fault := assembler.end()) is not None:
        raise EffectFailed(fault)


async def _next_piece(
    pieces: AsyncGenerator[bytes, None], deadlines: StreamDeadlines, assembler: StreamAssembler
) -> bytes | None:
    """Wait for bytes; None when no more will come or, of this answer, matter."""
    if assembler.fault is not None or (assembler.done and not assembler.complete):
        return None
    deadline = deadlines.next()
    limit = limit_at(deadline.when)
    try:
        async with limit:
            return await anext(pieces, None)
    except TimeoutError:
        if limit.expired() and not assembler.complete:
            raise EffectFailed(deadline.fault) from None
    except BROKEN as error:
        # Whether anything is missing is the assembler's to say.
        log.debug("a model's connection broke: %s", type(error).__name__)
    return None


async def _respond(client: ModelClient, body: bytes, deadlines: StreamDeadlines) -> httpx2.Response:
    """Send the request; return the response when its headers have come, its body unread."""
    deadline = deadlines.next()
    limit = limit_at(deadline.when)
    try:
        async with limit:
            response = await client.ask(body)
    except TimeoutError as error:
        fault = deadline.fault if limit.expired() else unreachable(error)
        raise EffectFailed(fault) from error
    except BROKEN as error:
        raise EffectFailed(unreachable(error)) from error
    if not response.is_success:
        error_body = error_in(response.content)
        now = datetime.now(UTC)
        raise EffectFailed(status_fault(response.status_code, response.headers, error_body, now))
    deadlines.answered = True
    return response
