"""Requests by which services are tried, and how one answers them."""

from __future__ import annotations

import time
import tomllib
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx
import msgspec
from starlette.routing import compile_path

from cutover.errors import Completed, Failed, Outcome, Unusable
from cutover.flow import ClientRequest
from cutover.wire import BlockTooLong, Dialect, Piece, Reader, ServiceFraming
from router.gateway.runs import TRIAL, headers
from router.takeover import Due, PrefixMismatch, Sent

SECONDS = 60.0
"""How long an answer may take; what has come by then is read."""
MOST_BYTES = 4 << 20
SAYS = "Say hello in five words."
PLAIN = ["/chat", "/chat/stream", "/stream", "/ask", "/api/chat", "/"]
"""Where services that follow no API are asked."""
T = TypeVar("T")
CREDENTIALS = frozenset({"authorization", "cookie", "x-api-key", "api-key"})
"""Headers that are sent, and never written down."""


@dataclass(frozen=True, slots=True)
class Example:
    """A request: `target` is path and query, as a client sends it."""

    method: str
    target: str
    headers: Sequence[tuple[str, str]] = ()
    body: str = ""

    @classmethod
    def of(cls, text: str) -> Example:
        """Return the request in a text: its line, headers, a blank line, the body.

        Raises `Unusable`.
        """
        head, _, body = text.partition("\n\n")
        first, *lines = head.strip().splitlines() or [""]
        method, _, target = first.partition(" ")
        if not method.isalpha() or not target.startswith("/"):
            raise Unusable(where=repr(first), reason="is no request, which begins as `POST /chat`")
        parted = (line.partition(":") for line in lines)
        headers = [(name.strip(), value.strip()) for name, _, value in parted]
        return cls(method, target, headers, body.removesuffix("\n"))

    @property
    def text(self) -> str:
        """The request as `of` reads it, without credentials."""
        shown = [f"{k}: {v}" for k, v in self.headers if k.lower() not in CREDENTIALS]
        return "\n".join([f"{self.method} {self.target}", *shown, "", self.body])

    def received(self, path: str) -> ClientRequest:
        """Return the request as a router gets it that serves it on `path`, a template."""
        regex, _, _ = compile_path(path)
        match = regex.match(urlsplit(self.target).path)
        headers = [(name.lower(), value) for name, value in self.headers]
        params = match.groupdict() if match else {}
        return ClientRequest(self.method, path, self.target, headers, self.body.encode(), params)


@dataclass(frozen=True, slots=True)
class Shape:
    """An API: where it usually is, and a request's body; `conversation` is where its id stands."""

    name: str
    paths: Sequence[str]
    body: Mapping[str, Any]
    conversation: str = ""


def shapes_for(path: str) -> Iterator[tuple[str, Shape]]:
    """Yield paths and shapes to be tried; with a `path`, the shapes that are usual there first."""
    text = Template((Path(__file__).parent / "shapes.toml").read_text("utf-8"))
    filled = text.substitute(says=SAYS, thread=uuid.uuid4(), run=uuid.uuid4(), plain=PLAIN)
    shapes = [Shape(**one) for one in tomllib.loads(filled)["shapes"]]
    if path:
        shapes.sort(key=lambda one: path not in one.paths)
        yield from ((path, one) for one in shapes)
    else:
        yield from ((usual, one) for one in shapes for usual in one.paths)


@dataclass(slots=True)
class Trial:
    """What a service answered; `fault` is why there is none. Times are in seconds."""

    status: int = 0
    media: str = ""
    raw: bytes = b""
    fault: str = ""
    first: float = 0.0
    gap: float = 0.0
    """The longest silence, before the first byte or between two."""
    total: float = 0.0
    whole: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)
    """Its headers, by their names in lower case. No redirect is followed."""

    @property
    def accepted(self) -> bool:
        """Whether the request was accepted."""
        return httpx.codes.is_success(self.status)

    @property
    def streams(self) -> bool:
        """Whether the body is not one JSON document."""
        return self.media not in {"application/json", "text/html"}

    def decoded(self, kind: type[T]) -> T | None:
        """Return the body as JSON of a type; None where it is none, or not accepted."""
        try:
            return msgspec.json.decode(self.raw, type=kind) if self.accepted else None
        except msgspec.MsgspecError:
            return None

    def reading(self, dialect: Dialect) -> tuple[str, str, Outcome]:
        """Return how much a dialect reads, in words, the text, and how the stream ends."""
        reader = Reader(dialect)
        try:
            reader.feed(self.raw)
            reader.close(torn=not self.whole)
        except BlockTooLong:
            pass
        text = "".join(reader.texts.values())
        plain = text and not reader.events
        return (
            f"{len(text)} characters" if plain else f"{reader.events} events",
            text,
            reader.ending,
        )

    def read_whole(self, dialect: Dialect) -> bool:
        """Whether a dialect finds a text and an end; there is nothing to find in one document."""
        _, text, ending = self.reading(dialect)
        return not self.streams or (bool(text) and isinstance(ending, Completed))


def contradiction(first: Trial, second: Trial, dialect: Dialect) -> str:
    """Return what keeps the second answer from going on behind the first one's text, or "".

    The texts themselves may differ: at the gateway both services get the same model's.
    """
    framing, sent = ServiceFraming(dialect), Sent()
    try:
        for frame in framing.read(Piece(first.raw)):
            sent.add(frame)
            if frame.texts:
                break
        due = Due(sent, ServiceFraming(dialect, framing))
        for frame in due.framer.read(Piece(second.raw)):
            if not due.behind:
                break
            due.feed(frame)
    except PrefixMismatch as error:
        return "" if error.place in sent.texts and not error.before else str(error)
    return ""


def told(ending: Outcome) -> str:
    """Return how a stream ends, in words."""
    if isinstance(ending, Failed):
        return f"{ending.code}: {ending.detail}" if ending.detail else ending.code
    return str(ending)


def open_client() -> httpx.AsyncClient:
    """Return what services are asked by, to be closed by the caller.

    A service finds the headers that it passes on, as it does behind a router.
    """
    timeout = httpx.Timeout(SECONDS, connect=5.0)
    return httpx.AsyncClient(headers=headers(TRIAL, ""), timeout=timeout, trust_env=False)


async def ask(
    client: httpx.AsyncClient, url: str, example: Example, extra: Mapping[str, str] | None = None
) -> Trial:
    """Ask a service; `extra` headers go beside the example's."""
    trial = Trial()
    began = last = time.monotonic()
    try:
        async with client.stream(
            example.method,
            url.rstrip("/") + example.target,
            content=example.body.encode() or None,
            headers=[*example.headers, *(extra or {}).items()],
        ) as got:
            trial.status = got.status_code
            trial.media = got.headers.get("content-type", "").partition(";")[0].strip().lower()
            trial.headers = dict(got.headers)
            async for piece in got.aiter_bytes():
                now = time.monotonic()
                trial.first = trial.first or now - began
                trial.gap, last = max(trial.gap, now - last), now
                trial.raw += piece
                if now - began > SECONDS or len(trial.raw) > MOST_BYTES:
                    break
            else:
                trial.whole = True
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        trial.fault = f"{type(error).__name__}: {error}".rstrip(": ")
    trial.total = time.monotonic() - began
    return trial
