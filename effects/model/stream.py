"""A provider's stream, sans I/O: bytes in, chunks out, and a verdict at the end."""

from __future__ import annotations

from typing import Final

import msgspec

from contract.errors import Fault
from contract.model import Chunk, RawChunk, Usage
from contract.wire.sse import SseDecoder, SseEvent
from effects.model.failures import in_band_fault
from effects.model.halves import Halves
from effects.model.wire import CallIndexes, Halved, WireChunk, chunk_of, decode

_DONE: Final = b"[DONE]"
MOST_BYTES: Final = 64 << 20
"""More than any model says in one answer; a stream without end must not fill the memory."""
MOST_PENDING: Final = 4 << 20
"""More than any one event holds: a line without end would be kept until it ended."""


class StreamAssembler:
    """Turns the bytes of one response, cut anywhere, into chunks.

    What repeats what was said before (model, finish reason, usage) is left out, and a chunk that
    would carry nothing is not made. `fault` is set by an error inside the stream; what comes
    after it, or after `[DONE]`, is ignored. `malformed` counts events that were passed over.
    """

    __slots__ = (
        "_calls",
        "_finish",
        "_halves",
        "_model",
        "_pending",
        "_sse",
        "_taken",
        "_usage",
        "done",
        "fault",
        "malformed",
        "spoke",
    )

    def __init__(self) -> None:
        self._sse = SseDecoder()
        self._taken = self._pending = 0
        self._calls = CallIndexes()
        self._halves = Halves()
        self._model = self._finish = ""
        self._usage: Usage | None = None
        self.done = self.spoke = False
        self.fault: Fault | None = None
        self.malformed = 0

    @property
    def complete(self) -> bool:
        """Whether the answer is whole: a finish reason or `[DONE]` has come, and no error."""
        return self.fault is None and (self.done or bool(self._finish))

    def feed(self, piece: bytes) -> list[Chunk]:
        """Take the next bytes; return the chunks they complete."""
        chunks: list[Chunk] = []
        self._taken += len(piece)
        self._pending += len(piece)
        endless = self._taken > MOST_BYTES or self._pending > MOST_PENDING
        if endless and not self.done and self.fault is None:
            self.fault = Fault("model_error", data={"type": "endless"})
            return chunks
        for event in self._sse.feed(piece):
            self._pending = 0
            if self.done or self.fault is not None:
                break
            chunk = self._read(event)
            if chunk is not None:
                chunks.append(chunk)
        return chunks

    def end(self) -> Fault | None:
        """Take the end of the connection; return what is wrong with the stream, if anything."""
        if self.fault is not None or self.complete:
            return self.fault
        return Fault("model_truncated", retryable=True, data={"malformed": self.malformed})

    def _read(self, event: SseEvent) -> Chunk | None:
        if event.data.startswith(_DONE):
            self.done = True
            return self._news(self._halves.join(Chunk(), last=True)) if self._halves.held else None
        wire = decode(event.data)
        if wire is None:
            self.malformed += 1
            return None
        self.fault = _fault_in(wire, event)
        if self.fault is not None:
            return None
        try:
            chunk = chunk_of(wire, self._calls, self._model)
        except RecursionError:  # nested just not too deep to be decoded
            self.malformed += 1
            return None
        if self._halves.held or isinstance(wire, Halved):
            chunk = self._halves.join(chunk)
        return self._news(chunk)

    def _news(self, chunk: Chunk) -> Chunk | None:
        """Return what the chunk says that was not said before; None if that is nothing."""
        if chunk.finish or chunk.usage is not None:
            chunk = self._without_repeats(chunk)
        if chunk.text or chunk.reasoning or chunk.tool_calls:
            self.spoke = True
        elif not chunk.finish and chunk.usage is None:
            return None
        self._model = chunk.model or self._model
        return chunk

    def _without_repeats(self, chunk: Chunk) -> Chunk:
        finish = "" if chunk.finish == self._finish else chunk.finish
        usage = None if chunk.usage == self._usage else chunk.usage
        self._finish = finish or self._finish
        self._usage = usage or self._usage
        return msgspec.structs.replace(chunk, finish=finish, usage=usage)


class RawAssembler(StreamAssembler):
    """Keeps with each chunk the data of the events it came in."""

    __slots__ = ("_raw",)

    def __init__(self) -> None:
        super().__init__()
        self._raw: list[bytes] = []

    def _read(self, event: SseEvent) -> Chunk | None:
        malformed = self.malformed
        chunk = super()._read(event)
        if self.done:
            said = {} if chunk is None else msgspec.structs.asdict(chunk)
            return RawChunk(**said, raw=self._taken_raw()) if said or self._raw else None
        if self.fault is not None or self.malformed > malformed:
            return None
        self._raw.append(event.data)
        if chunk is None:
            return None
        return RawChunk(**msgspec.structs.asdict(chunk), raw=self._taken_raw())

    def _taken_raw(self) -> tuple[bytes, ...]:
        raw, self._raw = tuple(self._raw), []
        return raw


def _fault_in(wire: WireChunk, event: SseEvent) -> Fault | None:
    choice = wire.choice
    error = wire.error or (choice.error if choice is not None else None)
    if error or event.event == "error":
        return in_band_fault(error)
    if choice is not None and choice.finish_reason == "error":
        return Fault("model_error", data={"type": "finish_reason"})
    return None
