"""The values in the events of one stream: what stands where, in events of which name."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from contract.wire import Dialect, EventDecoder, EventNames, Framing, WireEvent
from contract.wire.paths import path_fault

Leaf = str | int | float | bool | None
"""A value that holds no others."""

_MOST_DEEP, _MOST_LEAVES = 10, 4_000
_WORD = re.compile(r"[A-Za-z][\w.:/-]{0,47}")
_FEW, _MANY = 8, 24

KINDS: Final = (
    *("type", "event", "kind", "step", "op", "action", "phase", "stage", "status", "state"),
    *("event_type", "eventType", "message_type", "messageType", "object"),
)
"""Keys under which payloads commonly name themselves."""
FLAGS: Final = (
    *("done", "finished", "complete", "completed", "final", "is_final", "isFinal", "is_done"),
    *("is_last", "isLast", "last", "end", "is_end", "isEnd", "stop", "stopped"),
)
"""Keys that commonly are true, or there at all, in the last event alone."""
DONE: Final = "done"
"""The name that the event with such a flag is given."""


@dataclass(slots=True)
class LeafGroup:
    """The events of one name: how many, and the values at each path with the event's number."""

    count: int = 0
    leaves: defaultdict[str, list[tuple[int, Leaf]]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def texts(self, path: str) -> list[str]:
        """Return the text at a path of each event that has one."""
        found = defaultdict[int, str](str)
        for number, value in self.leaves[path]:
            if isinstance(value, str):
                found[number] += value
        return [text for text in found.values() if text]


@dataclass(frozen=True, slots=True)
class NamedEvents:
    """The events of a stream by name; `order` has the name of each."""

    names: EventNames
    order: tuple[str, ...]
    groups: dict[str, LeafGroup]


def name_events(events: Sequence[WireEvent], framing: Framing) -> NamedEvents:
    """Find what names the events of a stream, and sort their values by those names."""
    names = _names_of(events)
    decoder = EventDecoder(Dialect(framing=framing, event=names))
    order = tuple(decoder.name(event.sse_name, event.value) for event in events)
    groups = defaultdict[str, LeafGroup](LeafGroup)
    for number, (name, event) in enumerate(zip(order, events, strict=True)):
        group = groups[name]
        group.count += 1
        for path, value in leaves_of(event.value):
            group.leaves[path].append((number, value))
    return NamedEvents(names, order, dict(groups))


def leaves_of(value: Any) -> Iterator[tuple[str, Leaf]]:
    """Yield the values in JSON with their paths; those of a list inside share one, `a[*].b`."""
    for count, leaf in enumerate(_walk(value, "", 0)):
        if count == _MOST_LEAVES:
            return
        yield leaf


def key_of(path: str) -> str:
    """Return the last key of a path."""
    return re.sub(r"\[(?:\d+|\*)\]", "", path).rpartition(".")[2]


def _walk(value: Any, path: str, depth: int) -> Iterator[tuple[str, Leaf]]:
    if depth > _MOST_DEEP:
        return
    if isinstance(value, dict):
        for key, held in value.items():
            below = f"{path}.{key}" if path else key
            if path_fault(key) is None and not set(key) & set(".[]*"):
                yield from _walk(held, below, depth + 1)
    elif isinstance(value, list):
        for index, held in enumerate(value):
            # In a payload that is a list each place means something else: [message, metadata].
            yield from _walk(held, f"{path}[*]" if path else f"[{index}]", depth + 1)
    elif path:
        yield path, value


def _names_of(events: Sequence[WireEvent]) -> EventNames:
    """Choose what names events: a key of theirs, or the `event:` lines alone."""
    payloads = [event.value for event in events if isinstance(event.value, dict)]
    lines = [event.sse_name for event in events if isinstance(event.value, dict)]
    found = [key for key in _discriminators(payloads) if _says_more(key, payloads, lines)]
    if found:
        return EventNames(path=found[0])
    if len(set(lines)) > 1:
        return EventNames()
    return _flag(payloads)


def _discriminators(payloads: Sequence[dict[str, Any]]) -> list[str]:
    """Return the keys whose values sort the events, the best first."""
    ranked = []
    for key in dict.fromkeys(key for payload in payloads for key in payload):
        if path_fault(key) or set(key) & set(".[]*"):
            continue
        held = [payload[key] for payload in payloads if isinstance(payload.get(key), str)]
        values = set(held)
        if len(values) <= 1 or not all(map(_WORD.fullmatch, values)):
            continue
        known = key in KINDS and len(values) <= _MANY and 2 * len(held) >= len(payloads)
        sorting = len(values) <= _FEW and len(held) == len(payloads) >= 2 * len(values)
        if known or (sorting and _shapes_differ(key, payloads)):
            ranked.append((not known, -len(values) if known else 0, key))
    return [key for *_, key in sorted(ranked, key=lambda it: it[:2])]


def _shapes_differ(key: str, payloads: Sequence[dict[str, Any]]) -> bool:
    """Whether payloads with other values of a key have other keys."""
    shapes = defaultdict[str, set[frozenset[str]]](set)
    for payload in payloads:
        shapes[payload[key]].add(frozenset(payload))
    alike = list(shapes.values())
    return all(len(shape) == 1 for shape in alike) and len({min(it) for it in alike}) > 1


def _says_more(key: str, payloads: Sequence[dict[str, Any]], lines: Sequence[str]) -> bool:
    """Whether a key tells events apart that have one `event:` line."""
    by_line = defaultdict[str, set[str]](set)
    for payload, line in zip(payloads, lines, strict=True):
        if isinstance(payload.get(key), str):
            by_line[line].add(payload[key])
    return any(len(values) > 1 for values in by_line.values())


def _flag(payloads: Sequence[dict[str, Any]]) -> EventNames:
    """Name the last event by a flag that is true there alone, if there is one."""
    for key in FLAGS:
        values = [payload.get(key) for payload in payloads]
        if values and values[-1] is True and not any(values[:-1]):
            return EventNames(path=key, names={"true": DONE, "false": "message"})
    return EventNames()
