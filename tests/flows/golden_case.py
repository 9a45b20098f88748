"""Cases of golden tapes: a request, the model's answers, and what a client must be told.

What is expected is written from the flows' description, one line an event: `text …` is joined text,
any other line the event's name and what counts of its data. Tapes are recorded after that, by
`python -m tests.flows.golden`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from effects.tools import tool
from harness.config import ModelTable
from loadtests.simulator import Answer, FunctionCall

Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """One exchange; `before` are bodies that are served first, with the answers they get."""

    name: str
    flow: str
    body: Body
    expected: tuple[str, ...]
    answers: tuple[Answer, ...] = ()
    path: str = ""
    options: Body = field(default_factory=dict)
    before: tuple[tuple[Body, tuple[Answer, ...]], ...] = ()
    decide: Body | None = None
    """How the exchange's question is answered; what is expected is then the whole stream."""


def answer(text: str, **more: Any) -> Answer:
    """Return an answer of the model; a long one comes in large pieces."""
    size, long = 500, len(text) > 1_000
    pieces = tuple(text[at : at + size] for at in range(0, len(text), size)) if long else None
    return Answer(text=text, pieces=pieces, **more)


ODD = {
    "emoji": "👩‍👩‍👧‍👦 and 🏳️‍🌈, é as e\u0301",
    "line separators": "one\u2028two\u2029three\x85four",
    "right to left": "שלום \u202eabc\u202c مرحبا",
    "carriage returns": "one\r\ntwo\rthree\n\nfour",
    "braces": "{x} {{ y }} %s {0} ${z}",
    "quotes": "\"a\" \\ 'b' \t tab </script> data: event: x",
    "long": "long words and 长句子。" * 600,
    "chinese": "你好，世界！今天天气怎么样？",
    "white space": "  leading and trailing  ",
    "markup": "<b>bold</b> & [DONE] **md** `code`",
}
"""Texts that have broken streams before."""


def call(name: str, arguments: str, number: int = 1) -> FunctionCall:
    """Return a tool call of the model."""
    return FunctionCall(name, arguments, f"call_{number}")


SUM = call("calculate", '{"expression": "12 * 7"}')


@tool(description="Wait for ever.", seconds=0.05)
async def wait() -> str:
    """Never return."""
    await asyncio.Event().wait()
    return ""


@tool(description="Break.")
async def smash(what: str) -> str:
    """Raise."""
    raise RuntimeError(what)


TOOLS = (wait, smash)
SETTINGS: dict[str, Any] = {
    "tools": ["tests.flows.golden_case:TOOLS"],
    "models": {"gpt-4.1": ModelTable()},
}
"""What golden tapes are recorded and played with: one model, and tools that fail."""
