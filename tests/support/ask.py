"""A small flow for programs that are not ours: a question, text in pieces, notes, one pause."""

from typing import Any

import msgspec

from cutover import FlowSpec, Paused, effect
from cutover.flow import Pausing
from cutover.flow_spec import Grammar, Text, many, one


class Ask(msgspec.Struct, frozen=True):
    """A question; `thread` is the conversation it belongs to."""

    text: str
    thread: str = "t"


class Reply(msgspec.Struct, frozen=True):
    """The answer to a question that the flow asked."""

    question: str
    answer: Any


class Options(msgspec.Struct, frozen=True):
    """The flow has no options."""


class _Event(msgspec.Struct, frozen=True, tag_field="type"):
    """An event; its tag is its `type`."""


class Said(_Event, frozen=True, tag="said"):
    """The next piece of the text."""

    text: str


class Noted(_Event, frozen=True, tag="noted"):
    """What a step of the flow reports."""

    note: Any


class Asked(_Event, frozen=True, tag="asked"):
    """A question to a human."""

    question: str


class Suspended(_Event, frozen=True, tag="suspended"):
    """The stream ends until the question is answered."""


class Done(_Event, frozen=True, tag="done"):
    """The answer is whole."""


class Broke(_Event, frozen=True, tag="broke"):
    """There is no whole answer."""

    code: str


ASK = FlowSpec(
    name="ask",
    requests={"/ask": Ask},
    options=Options,
    events=Said | Noted | Asked | Suspended | Done | Broke,
    grammar=Grammar((many("said", "noted", "asked"), one("done", "broke"))),
    texts={"said": {"text": Text()}},
    pieces=frozenset({"said"}),
    failing=lambda _options, code: (Broke(code),),
    route_keys={"thread": "thread"},
    pausing=Pausing(
        questions=frozenset({"asked"}),
        suspended=lambda _options: (Suspended(),),
        resume="/ask/continue",
        resume_request=Reply,
        question_of=lambda reply: str(reply.question),
        answer_of=lambda reply: reply.answer,
    ),
)
"""The flow as the router sees it."""

ANSWERS: dict[str, Any] = {}
"""What humans have answered, by question."""


@effect("human.answer")
async def human_answer(question: str) -> Any:
    """Return a human's answer; raises `Paused` while there is none."""
    if question not in ANSWERS:
        raise Paused(question)
    return ANSWERS[question]
