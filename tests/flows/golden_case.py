"""Cases of golden tapes: a request, the model's answers, and what a client must be told.

What is expected is written from the flows' description, one line an event: `text …` is joined text,
any other line the event's name and what counts of its data. Tapes are recorded after that, by
`python -m tests.flows.golden`.
"""

import asyncio
import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from effects.tools import tool
from harness.config import ModelTable
from loadtests import simulator
from loadtests.simulator import Answer, FunctionCall
from tests.flows.samples import SAMPLES

Body = Mapping[str, Any]
quoted = partial(json.dumps, ensure_ascii=False)
"""Returns a text as the lines of what is expected quote it."""


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


_PICTURE = SAMPLES["companion, a picture"]
_REQUESTS: Mapping[str, tuple[str, Body]] = {
    "chat": ("chat", {"message_id": "m1", "content": "Hello", "chat_id": "c"}),
    "session": ("session", {"message": "Hello", "user_id": "u"}),
    "pipeline": ("pipeline", {"user_id": "u", "session_id": "s", "message": "Hello"}),
    "companion": ("companion", {"session_id": "s", "message": "I am happy", "user_id": "u"}),
    "picture": ("companion", _PICTURE.body),
    "ops": ("ops", {"session_id": "s", "input": "please help"}),
}
"""The flow of each kind of case, and what its body has that the case does not change."""


def case(kind: str, name: str, answers: Sequence[Answer], **row: Any) -> Case:
    """Return a case; its body is what it changes, and `without` what it lacks, of the kind's."""
    flow, common = _REQUESTS[kind]
    lacks = row.pop("without", ())
    body = {key: one for key, one in common.items() if key not in lacks} | row.pop("body", {})
    path = _PICTURE.path if kind == "picture" else ""
    expected = tuple(row.pop("expected", ()))
    return Case(f"{flow}, {name}", flow, body, expected, tuple(answers), path, **row)


def cases_of(path: Path) -> Iterator[Case]:
    """Yield the cases of a file: tables by kind and name.

    An answer's `calls` are names with arguments, `fault` is a name and its argument, `whole` a text
    in one piece, and an empty `finish` none.
    """
    for kind, rows in tomllib.loads(path.read_text("utf-8")).items():
        for name, row in rows.items():
            ids = count(1)
            before = [
                (one["body"], tuple(_answer(said, ids) for said in one["answers"]))
                for one in row.pop("before", ())
            ]
            answers = [_answer(one, ids) for one in row.pop("answers", ())]
            yield case(kind, name, answers, before=tuple(before), **row)


def _answer(row: str | dict[str, Any], ids: Iterator[int]) -> Answer:
    if isinstance(row, str):
        return answer(row)
    if "whole" in row:
        row["text"] = row.pop("whole")
        row["pieces"] = (row["text"],)
    if "calls" in row:
        calls = [one.partition(" ") for one in row.pop("calls")]
        row["tool_calls"] = tuple(
            FunctionCall(name, arguments, f"call_{next(ids)}") for name, _, arguments in calls
        )
    if "fault" in row:
        name, argument = row["fault"]
        row["fault"] = getattr(simulator, name)(argument)
    if row.get("finish") == "":
        row["finish"] = None
    return Answer(**row)


def odd_cases() -> Iterator[Case]:
    """Yield cases in which the model, or a user of chat, says one of the odd texts."""
    begun = ["ACCEPT", "START_REPLY"]
    for name, text in ODD.items():
        said, line, title = answer(text), f"text {quoted(text)}", f"odd text: {name}"
        yield case("chat", title, [said], expected=[*begun, f"SUCCESS {quoted(text)}", "END"])
        yield case(
            "chat",
            f"odd question: {name}",
            [answer("Yes.")],
            body={"content": f"Is it {text}?"},
            expected=[*begun, 'SUCCESS "Yes."', "END"],
        )
        told = ["session_created", "thinking", line, f"done {quoted(text)}"]
        yield case("session", title, [said], expected=told)
        told = [line, f"message continue {quoted(text)} []"]
        yield case("pipeline", title, [answer("不需要检索"), said], expected=told)
        yield case("companion", title, [said], expected=["emotion joy", line, "done completed"])
        told = [f"final {quoted(text)}", "done completed"]
        yield case("ops", title, [answer(quoted({"final": text}))], expected=told)


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
