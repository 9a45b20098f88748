"""Templates: frames that differ in one text alone, told apart without reading them as JSON.

Streams repeat themselves: frame upon frame is the same but for a text that grows. A template is
what stands before and behind that text. It is learnt from one frame and proved by another: with a
word of ours in the text's place, the frame must read as the same event with that word as its text.
Whatever else stands there is then read alike, as long as it holds no quotation mark, no backslash
but in whole escapes, and no control character.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, AnyStr, Generic, get_args

import msgspec
from msgspec import inspect

from contract.wire.dialect import Wire
from contract.wire.reader import EventDecoder

if TYPE_CHECKING:
    from compare.streams.events import Event

TRIED_AT_MOST = 4
KEPT_AT_MOST = 6
LEARNT_FREELY = 64
PROBE = "probe-7f3a"

_encode = msgspec.json.encode


class Form(msgspec.Struct, Generic[AnyStr], frozen=True):
    """A way frames are written: how a text stands in it, and what in it needs no reading.

    `safe(frame, start, end)` matches where all from start to end belongs to the text.
    """

    written: Callable[[str], AnyStr]
    safe: Callable[[AnyStr, int, int], object]


def once(text: str) -> str:
    """Write a text as it stands in a frame: escaped for the event's JSON."""
    return _encode(text)[1:-1].decode()


def twice(text: str) -> bytes:
    """Write a text as it stands in a line: its frame is a text in the JSON of the run."""
    return _encode(once(text))[1:-1]


FRAME = Form(once, re.compile(r'(?:[^"\\\x00-\x1f]++|\\["\\/bfnrt])*+').fullmatch)
LINE = Form(twice, re.compile(rb'(?:[^"\\\x00-\x1f]++|\\\\(?:[/bfnrt]|\\"|\\\\))*+').fullmatch)


class Template(msgspec.Struct, Generic[AnyStr], frozen=True):
    """What stands around a text, and the event it was learnt from."""

    head: AnyStr
    tail: AnyStr
    event: Event

    def holds(self, frame: AnyStr) -> bool:
        """Whether a frame has this head and this tail."""
        return (
            frame.startswith(self.head)
            and frame.endswith(self.tail)
            and len(frame) >= len(self.head) + len(self.tail)
        )


@dataclass(slots=True)
class Thrift:
    """Whether learning pays: not where hardly a frame is like another."""

    learnt: int = 0
    used: int = 0

    @property
    def pays(self) -> bool:
        """Whether another template should be looked for."""
        return self.learnt < LEARNT_FREELY or self.used > self.learnt


def learn(
    form: Form[AnyStr], frame: AnyStr, event: Event, read: Callable[[AnyStr], Event | None]
) -> Template[AnyStr] | None:
    """Find the template of a frame that was read as an event with a text, if it has one.

    Not for events of `bound_texts`: that one text is allowed there does not say that another is.
    """
    if not event.text or event.fault is not None:
        return None
    text, probe = form.written(event.text), form.written(PROBE)
    at = frame.find(text)
    for _ in range(TRIED_AT_MOST):
        if at < 0:
            return None
        head, tail = frame[:at], frame[at + len(text) :]
        seen = read(head + probe + tail)
        if seen is not None and _same(seen, event):
            return Template(head, tail, event)
        at = frame.find(text, at + 1)
    return None


def bound_texts(wire: Wire) -> frozenset[str]:
    """Name the events whose texts their structs do not let be anything: these have no template."""
    structs = get_args(wire.events) or ((wire.events,) if wire.events is not None else ())
    bound: set[str] = set()
    decoder = EventDecoder(wire.dialect)
    for struct in structs:
        name = str(struct.__struct_config__.tag)
        paths, _ = decoder.text_paths("text", name)
        if not all(_free(inspect.type_info(struct), path) for path in paths):
            bound.add(name)
    return frozenset(bound)


def _free(kind: inspect.Type, path: tuple[str, ...]) -> bool:
    """Whether any text may stand at a path into values of a kind."""
    if isinstance(kind, inspect.UnionType):
        return any(_free(member, path) for member in kind.types)
    if not path:
        return kind == inspect.StrType()
    if not isinstance(kind, inspect.StructType):
        return False
    found = (field.type for field in kind.fields if field.encode_name == path[0])
    return any(_free(member, path[1:]) for member in found)


def _same(seen: Event, event: Event) -> bool:
    """Whether the probe reads as the same event with another text."""
    return msgspec.structs.replace(seen, text=event.text, data=event.data) == event and (
        seen.text == PROBE
    )
