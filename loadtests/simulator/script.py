"""A planned answer: what is sent, when, and how it ends."""

from itertools import groupby
from operator import attrgetter

import msgspec

from loadtests.simulator.ending import Complete, Cut, Ending, Reset, SilentBeforeFirst, Stall

EVENT_STREAM = b"text/event-stream; charset=utf-8"
JSON = b"application/json"


class Chunk(msgspec.Struct, frozen=True, gc=False):
    """Bytes due `due_us` microseconds after the request; `count` events are in them."""

    due_us: int
    wire: bytes
    count: int = 1


class Script(msgspec.Struct, frozen=True):
    """An answer as a value: equal requests have equal scripts.

    Headers go out at once; the chunks when they are due.
    """

    chunks: tuple[Chunk, ...]
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


def merged(chunks: list[Chunk]) -> tuple[Chunk, ...]:
    """Join neighbours that are due at the same moment, so that they go out as one."""
    return tuple(_joined(list(send)) for _, send in groupby(chunks, attrgetter("due_us")))


def stamped(wire: bytes, now_ns: int) -> bytes:
    """Add `sent_ns` to every event that holds an object (`[DONE]` holds none)."""
    # JSON escapes line ends, so this sequence is the end of an event and nothing else.
    return wire.replace(b"}\n\n", b',"sent_ns":%d}\n\n' % now_ns)


def _joined(chunks: list[Chunk]) -> Chunk:
    wire = b"".join(chunk.wire for chunk in chunks)
    return Chunk(chunks[0].due_us, wire, sum(chunk.count for chunk in chunks))
