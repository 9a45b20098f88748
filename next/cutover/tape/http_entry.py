"""An HTTP request on the tape: its call, and the head and the items of its answer."""

from __future__ import annotations

import codecs
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from email.utils import mktime_tz, parsedate_tz

import msgspec

from cutover.normal_form import read
from cutover.tape.entry import Call
from cutover.tape.run import Run
from cutover.wire.sse import SseSplitter

REQUEST_SECONDS = 600.0
"""What a request may take in all; silence is bounded by the client's own timeouts."""
MOST_WAIT_SECONDS = 120.0
"""The longest wait that a provider may ask for; OpenAI's SDK does not retry behind a longer one."""
_READS = frozenset({"GET", "HEAD", "OPTIONS"})
_KEPT = frozenset(
    {"content-type", "location", "request-id", "retry-after", "retry-after-ms"}
    | {"x-request-id", "x-should-retry"}
)
_FAILED = 400
_RETRIED = frozenset({408, 409, 429, *range(500, 600)})
"""Statuses behind which SDKs wait and ask again."""


class HttpHead(msgspec.Struct, frozen=True):
    """The first item of a request's entry: status and the headers that are kept."""

    status: int
    headers: list[tuple[str, str]]


def http_call(method: str, target: str, media: str, content: bytes, host: str = "") -> Call:
    """Return the call of a request; `target` is its path with the query, `media` its media type."""
    asked = read(method, target, media, content)
    writes = not asked.model and method not in _READS
    name, model = asked.name, asked.model
    return Call(name, asked.key, asked.canonical, writes, model, REQUEST_SECONDS, host)


def head_item(status: int, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the first item of a request's entry."""
    raw = ((name.decode("latin-1").lower(), value) for name, value in headers)
    kept = [(name, value.decode("latin-1")) for name, value in raw if name in _KEPT]
    return msgspec.json.encode(HttpHead(status, kept))


def read_head(run: Run, item: object, *, played: bool) -> HttpHead:
    """Return the head of an answer for the reader `run`; `played`: another run was waited for.

    A provider that tells a client to wait keeps its run from being called stalled. What is played
    says that no wait is due: the back-off was slept when it was live.
    """
    head = msgspec.json.decode(item if isinstance(item, bytes) else b"", type=HttpHead)
    if not played and head.status in _RETRIED:
        until = run.exchange.loop.time() + min(_wait(dict(head.headers)), MOST_WAIT_SECONDS)
        run.not_before = max(run.not_before, until)
    if not played or head.status < _FAILED:
        return head
    headers = [one for one in head.headers if not one[0].startswith("retry-after")]
    return HttpHead(head.status, [*headers, ("retry-after-ms", "1")])


class BodySplitter:
    """Cuts a body into items: events of an SSE stream, pieces of others, JSON as a whole."""

    def __init__(self, content_type: str) -> None:
        media = content_type.partition(";")[0].strip().lower()
        self._sse = SseSplitter() if media == "text/event-stream" else None
        self._whole: list[bytes] | None = [] if media.endswith(("/json", "+json")) else None
        self._first = True

    def feed(self, piece: bytes) -> list[bytes]:
        """Take the next bytes; return the items they complete."""
        if self._sse is not None:
            blocks = self._sse.feed(piece)
            if blocks and self._first:  # SDKs read a byte order mark as part of the field's name
                self._first = False
                blocks[0] = blocks[0].removeprefix(codecs.BOM_UTF8)
            return blocks
        if self._whole is not None:
            self._whole.append(piece)
            return []
        return [piece] if piece else []

    def flush(self) -> list[bytes]:
        """End the body; return the items that only its end completes."""
        if self._sse is not None:
            return self._sse.flush()
        return [b"".join(self._whole)] if self._whole else []


def status_of(item: bytes) -> int:
    """Return the status in the first item of a request's entry."""
    return msgspec.json.decode(item, type=HttpHead).status


def _wait(headers: Mapping[str, str]) -> float:
    """Return the seconds that an answer tells its client to wait, as SDKs read them."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        with suppress(KeyError, ValueError):
            return float(headers[name]) * unit
    with suppress(ValueError, OverflowError):
        if date := parsedate_tz(headers.get("retry-after", "")):
            return mktime_tz(date) - time.time()
    return 0.0
