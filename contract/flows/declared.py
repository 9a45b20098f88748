"""Flows declared in a configuration alone: their events are passed on, and only named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from contract.flow import ContinueEndpoint, Event, FlowSpec, PassedEvent, Pausing, value_in
from contract.grammar import Grammar, many, one
from contract.human import Form, FormField, HumanAnswer
from contract.wire import Dialect, FailureFrame, frame_of

_ANSWER: Final = "answer"
"""The field of the form of a question, with the JSON of its answer."""


class DeclaredPause(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a flow goes on that waits for a person: where the answer is posted, and what is in it.

    `id` and `answer` are dotted paths into the body; `frames` end a stream that waits.
    """

    path: str
    id: str = "id"
    answer: str = "answer"
    frames: tuple[str | FailureFrame, ...] = ()


class DeclaredFlow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A flow as configured: its path, its wire, what requests are routed by, and how it pauses.

    `dialect` is what clients get. `graph_dialect` is that of graph's service, None where it is the
    same. `example` is the JSON text of a request, "" where none is configured.
    """

    path: str
    dialect: Dialect
    graph_dialect: Dialect | None = None
    route_keys: dict[str, str] = {}
    example: str = ""
    pause: DeclaredPause | None = None


class NoOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of a declared flow: it has none."""


def declared_spec(name: str, declared: DeclaredFlow) -> FlowSpec:
    """Return a declared flow as router and compare see it."""
    dialect, other = declared.dialect, declared.graph_dialect
    terminal = frozenset(dialect.terminal)
    return FlowSpec(
        name=name,
        path=declared.path,
        request=dict[str, Any],
        options=NoOptions,
        events=None,
        grammar=Grammar((many(), one(*terminal)) if terminal else (many(),)),
        dialect=dialect,
        failure=DeclaredFailure(dialect),
        encode=_frame,
        route_keys=declared.route_keys,
        example=declared.example,
        pausing=_pausing(dialect, declared.pause) if declared.pause else None,
        other_format=declared_spec(name, replace(declared, dialect=other, graph_dialect=None))
        if other
        else None,
    )


def _pausing(dialect: Dialect, pause: DeclaredPause) -> Pausing:
    return Pausing(
        respond=None,
        resume=ContinueEndpoint(
            pause.path,
            dict[str, Any],
            hitl_id=partial(_id_in, pause.id),
            answer=partial(_answer_in, pause.answer),
        ),
        suspended=partial(_suspended, dialect, pause.frames),
        form=_form,
        value=_value,
    )


def _value_at(path: str, body: Any) -> Any:
    for step in path.split("."):
        body = value_in(body, step)
    return body


def _id_in(path: str, body: Any) -> str:
    found = _value_at(path, body)
    return found if isinstance(found, str) else ""


def _answer_in(path: str, body: Any) -> HumanAnswer:
    return HumanAnswer("approve", {_ANSWER: msgspec.json.encode(_value_at(path, body)).decode()})


def _form(question: Any) -> Form:
    """Return the form of a question that the client shows in its own way: its JSON, one field."""
    title = question if isinstance(question, str) else msgspec.json.encode(question).decode()
    return Form(title, (FormField(_ANSWER, "", "text", required=False),))


def _value(answer: HumanAnswer) -> Any:
    return msgspec.json.decode(str(answer.data[_ANSWER]))


def _suspended(
    dialect: Dialect,
    frames: Sequence[str | FailureFrame],
    _options: object,
    last: Event | None,
) -> Sequence[Event]:
    ended = isinstance(last, PassedEvent) and last.name in dialect.terminal
    return () if ended else tuple(_passed(dialect, frame) for frame in frames)


def _passed(dialect: Dialect, frame: str | FailureFrame, code: str = "") -> PassedEvent:
    event = frame.event if isinstance(frame, FailureFrame) else ""
    return PassedEvent("", frame_of(dialect.framing, _data(frame).replace("{code}", code), event))


def _frame(event: Event) -> bytes:
    return event.frame if isinstance(event, PassedEvent) else b""


@dataclass(frozen=True, slots=True)
class DeclaredFailure:
    """Ends a broken stream with the frames declared for that, or with none."""

    dialect: Dialect

    def __call__(self, _options: object, code: str, last: Event | None) -> Sequence[Event]:
        """Return the frames; a failure that the stack has reported is not reported again."""
        name = last.name if isinstance(last, PassedEvent) else ""
        terminal = self.dialect.terminal
        if name in terminal:
            return ()
        reported = name in self.dialect.errors.events
        frames = [it for it in self.dialect.failure if not reported or _data(it) in terminal]
        return tuple(_passed(self.dialect, frame, code) for frame in frames)


def _data(frame: str | FailureFrame) -> str:
    return frame if isinstance(frame, str) else frame.data
