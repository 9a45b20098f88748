"""An answer of the simulated model, and what may go wrong while it is sent."""

import re
from typing import Literal

import msgspec

from loadtests.simulator.request import FunctionCall

_PIECE = re.compile(r" ?[A-Za-z\u00c0-\u024f']+| ?\d{1,3}|[\u3400-\u9fff]{1,2}|\s+|\S")


class Cut(msgspec.Struct, frozen=True):
    """Close the connection after `after` chunks, without the end of the body."""

    after: int = 0


class ErrorEvent(msgspec.Struct, frozen=True):
    """Send an error event after `after` chunks, then end the body; a whole answer gets a 500."""

    after: int = 0
    code: str = "server_error"
    message: str = "The server had an error while processing your request."


class Silence(msgspec.Struct, frozen=True):
    """Send nothing more after `after` chunks and keep the connection open."""

    after: int = 0


class NeverAnswers(msgspec.Struct, frozen=True):
    """Read the request and send no headers; keep the connection open."""


class Reset(msgspec.Struct, frozen=True):
    """Reset the connection before the headers."""


class Garbage(msgspec.Struct, frozen=True):
    """Send an event that is no JSON before chunk `at` (0 for the first), then go on."""

    at: int = 0


class SlowFirst(msgspec.Struct, frozen=True):
    """Wait `seconds` before the first chunk; with `headers`, these go out before the wait."""

    seconds: float
    headers: bool = True


Fault = Cut | ErrorEvent | Silence | NeverAnswers | Reset | Garbage | SlowFirst
"""Chunks are counted where they carry text, reasoning or a part of a call: a role is no chunk."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What the simulated model answers to one request.

    `pieces` say how `text` is cut and replace it; without them it is cut at words. `finish` is in
    OpenAI's words: `auto` means `stop` or `tool_calls`, None sends no finish reason. `usage` comes
    at the end where the client asks for it, `late` some pauses after the finish reason, or not at
    all. Without `done`, `[DONE]` is left out. `raw` is the exact body, of events or of JSON, and
    replaces all of these. A `status` other than 200 answers with an error whose sentence is `text`.
    """

    text: str = ""
    pieces: tuple[str, ...] | None = None
    tool_calls: tuple[FunctionCall, ...] = ()
    reasoning: str = ""
    reasoning_field: Literal["reasoning_content", "reasoning"] = "reasoning_content"
    finish: str | None = "auto"
    usage: Literal["end", "late", "none"] = "end"
    done: bool = True
    raw: str | None = None
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    fault: Fault | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        """The text as it is streamed."""
        return split_text(self.text) if self.pieces is None else self.pieces

    @property
    def finish_reason(self) -> str | None:
        """The finish reason in OpenAI's words."""
        return (
            ("tool_calls" if self.tool_calls else "stop") if self.finish == "auto" else self.finish
        )

    @property
    def tokens(self) -> int:
        """Pieces of everything the model writes."""
        calls = sum(len(split_text(call.name + call.arguments)) for call in self.tool_calls)
        return len(self.texts) + len(split_text(self.reasoning)) + calls


def split_text(text: str) -> tuple[str, ...]:
    """Return a text in pieces of about a token: a word, up to three digits, two ideographs."""
    return tuple(_PIECE.findall(text))


def limit_answer(answer: Answer, most: int | None) -> Answer:
    """Return an answer of at most `most` pieces; a shortened one finishes with `length`."""
    if most is None or answer.tool_calls or len(answer.texts) <= most:
        return answer
    return msgspec.structs.replace(answer, pieces=answer.texts[:most], finish="length")
