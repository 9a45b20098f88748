"""Answers of services to one request, and why one of them is no stream that a flow could have."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from contract.wire import NO_JSON
from router.remote import media_type
from router.stack import Headers, header_of

End = Literal["complete", "lost", "unended"]
"""How a body ended: as it should, with its connection, or not within the limits of the probe."""

_MOST_SHOWN = 400
_OK, _REDIRECTION, _REFUSAL, _FAILURE = 200, 300, 400, 500
_NO_CONTENT = 204
_PLAIN = (b"", b"identity")
_HTML = re.compile(rb"\s*(?:<!doctype html|<html|<head|<body)", re.IGNORECASE)
_MESSAGES = ("detail", "message", "error", "errors", "title", "reason")
"""Where services keep the sentence of a refusal."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a service answered: its head, and its body in the pieces in which it came.

    Times are microseconds since the request; `ended` is when the body did, or the limit came.
    """

    status: int
    headers: Headers
    pieces: tuple[tuple[int, bytes], ...]
    end: End = "complete"
    ended: int = 0

    @property
    def body(self) -> bytes:
        """The whole body."""
        return b"".join(piece for _, piece in self.pieces)

    @property
    def media_type(self) -> str:
        """Its media type without parameters, in lower case; "" where it names none."""
        return media_type(self.headers)

    def header(self, name: str) -> str:
        """Return the first value of a header, "" where there is none."""
        return header_of(self.headers, name.encode()).decode("latin-1").strip()


@dataclass(frozen=True, slots=True)
class NoStream:
    """An answer that no flow can be made of: what it is, and what to do.

    `shown` is what the service itself says, "" where it says nothing.
    """

    code: str
    what: str
    advice: str
    shown: str = ""


def refusal_of(answer: Answer) -> NoStream | None:
    """Return why the head of an answer alone, or its first bytes, rule out a stream; or None."""
    if answer.status != _OK:
        return _by_status(answer)
    coding = header_of(answer.headers, b"content-encoding").strip().lower()
    if coding not in _PLAIN:
        return NoStream(
            "compressed",
            f"a compressed body ({coding.decode('latin-1')}), which the request does not accept",
            "switch compression off for this path: a compressed stream cannot be split into events",
        )
    if answer.media_type == "text/html" or _HTML.match(answer.body):
        return NoStream(
            "html",
            "a page in HTML",
            "is this the address of the service, or that of its web page or of a proxy's log-in?",
            _title(answer.body),
        )
    if not answer.body.strip():
        why = " within the limit" if answer.end == "unended" else ""
        return NoStream("empty", f"no byte of a body{why}", "see the log of the service")
    return None


def _by_status(answer: Answer) -> NoStream:
    status, said = answer.status, sentence(answer.body)
    match status:
        case 401 | 403 | 407:
            asked = answer.header("www-authenticate").partition(" ")[0]
            by = f" ({asked})" if asked else ""
            return NoStream(
                "credentials",
                f"{status}: it wants credentials{by}, or other ones",
                'give them: --header "authorization: Bearer $TOKEN"; they are sent, and neither '
                "shown nor written",
                said,
            )
        case 404:
            return NoStream(
                "path",
                "404: it has nothing at this path",
                "give the address with its own path, http://HOST:PORT/its/path, where it differs "
                "from --path",
                said,
            )
        case 405:
            allowed = answer.header("allow")
            return NoStream(
                "method",
                f"405: it takes no POST there{f', only {allowed}' if allowed else ''}",
                "give the path that takes a JSON body by POST: the router sends nothing else",
                said,
            )
        case 400 | 415 | 422:
            return NoStream(
                "body",
                f"{status}: it does not take this body",
                "give the body that its clients send: --body FILE or JSON",
                said,
            )
        case _ if _REDIRECTION <= status < _REFUSAL:
            target = answer.header("location").partition("?")[0]
            return NoStream(
                "redirect",
                f"{status}: it redirects{f' to {target}' if target else ''}",
                "give that address: the router follows no redirect",
            )
        case _ if status >= _FAILURE:
            return NoStream(
                "failed", f"{status}: it failed", "see the log of the service, and ask again", said
            )
        case 429:
            return NoStream("refused", "429: too many requests", "wait, and ask again", said)
        case _ if status == _NO_CONTENT:
            return NoStream("empty", "204: it sends no body", "see the log of the service")
        case _:
            return NoStream(
                "refused", f"{status}: it refuses the request", "what it says is below", said
            )


def sentence(body: bytes) -> str:
    """Return what a refusal says: of JSON its message, and the fields that it names."""
    try:
        value = msgspec.json.decode(body)
    except NO_JSON:
        return _shortened(body.decode("utf-8", "replace"))
    return _shortened(_message(value) or body.decode("utf-8", "replace"))


def _message(value: Any) -> str:
    """Find the message in the shapes of FastAPI, RFC 9457, the OpenAI API and the like."""
    match value:
        case str():
            return value
        case list():
            return "; ".join(filter(None, map(_message, value)))
        case {"loc": [*place], "msg": str(why)}:  # FastAPI: which field, and what is wrong with it
            steps = [str(step) for step in place]
            return f"{'.'.join(steps)}: {why}"
        case Mapping():
            found = [_message(value[key]) for key in _MESSAGES if key in value]
            return next(filter(None, found), "")
        case _:
            return ""


def _title(body: bytes) -> str:
    found = re.search(rb"<title[^>]*>(.*?)</title", body, re.IGNORECASE | re.DOTALL)
    return _shortened(found[1].decode("utf-8", "replace")) if found else ""


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MOST_SHOWN else line[: _MOST_SHOWN - 1] + "…"
