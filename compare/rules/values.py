"""Rules on values: JSON with what stands at a path changed, and numbers that are near enough."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from compare.input.damage import ILLEGIBLE
from compare.rules.table import Tolerance, for_call, for_event
from contract.calls import EffectCall
from contract.equality import EventStream, StreamEvent
from contract.wire.paths import ANY, ANY_DEPTH, Path, path_of

Number = int | float


class _Removed:
    pass


REMOVED: Final = _Removed()
"""What a change returns to take a value out."""


def changed(value: Any, steps: Path, change: Callable[[Any], Any]) -> Any:
    """Return a value with everything at the steps changed; `REMOVED` takes it out.

    `*` is any one key or index, `**` any number of them. Text that holds a JSON object or list,
    as arguments of tools do, is entered. Where nothing changes, the value itself is returned; so
    is one that is nested deeper than can be followed.
    """
    try:
        return _changed(value, steps, change)
    except RecursionError:
        return value


def _changed(value: Any, steps: Path, change: Callable[[Any], Any]) -> Any:
    if not steps:
        return change(value)
    if steps[0] == ANY_DEPTH:
        value = _changed(value, steps[1:], change)
        if value is REMOVED or (len(steps) == 1 and isinstance(value, str)):
            return value
    if isinstance(value, dict):
        made = dict(_members(value.items(), steps, change))
        same = len(value) == len(made) and all(made[key] is value[key] for key in value)
        return value if same else made
    if isinstance(value, list):
        kept = [put for _, put in _members(enumerate(value), steps, change)]
        same = len(value) == len(kept) and all(a is b for a, b in zip(value, kept, strict=True))
        return value if same else kept
    if isinstance(value, str) and value[:1] in {"{", "["}:
        return _changed_text(value, steps, change)
    return value


def _changed_text(value: str, steps: Path, change: Callable[[Any], Any]) -> str:
    try:
        held = msgspec.json.decode(value)
    except ILLEGIBLE:
        return value
    put = changed(held, steps, change)
    return value if put is held else msgspec.json.encode(put).decode()


def _members(
    members: Iterable[tuple[Any, Any]], steps: Path, change: Callable[[Any], Any]
) -> Iterable[tuple[Any, Any]]:
    """Change what stands below a key or index that is on the path."""
    for key, held in members:
        put = held
        if steps[0] == ANY_DEPTH:
            put = _changed(held, steps, change)
        elif steps[0] in {ANY, str(key)}:
            put = _changed(held, steps[1:], change)
        if put is not REMOVED:
            yield key, put


def changed_json(written: bytes, steps: Path, change: Callable[[Any], Any]) -> bytes:
    """Change a JSON document as `changed` does; what is no JSON is left as it is."""
    try:
        before = msgspec.json.decode(written)
    except ILLEGIBLE:
        return written
    after = changed(before, steps, change)
    return written if after is before else msgspec.json.encode(after)


class Tolerances:
    """Puts legacy's numbers in the place of graph's, where they are near enough.

    A number changes by no more than its tolerance, so what is equal afterwards was near; numbers
    of one place are taken in order, so a frame too many on one side pushes nothing along.
    `hits` holds the keys of the rules that changed one.
    """

    def __init__(self, rules: list[tuple[str, Tolerance]]) -> None:
        self._rules = [(key, rule, path_of(rule.path)) for key, rule in rules]
        self.hits: set[str] = set()

    def stream(self, legacy: EventStream, graph: EventStream) -> EventStream:
        """Return the graph stack's stream with near numbers made equal."""
        if not self._rules:
            return graph
        old, new = ([_Values.of_event(e) for e in side.events] for side in (legacy, graph))
        events = (
            event if shape is event.shape else msgspec.structs.replace(event, shape=shape)
            for event, shape in zip(graph.events, self._near(old, new), strict=True)
        )
        return msgspec.structs.replace(graph, events=tuple(events))

    def calls(self, legacy: list[EffectCall], graph: list[EffectCall]) -> list[EffectCall]:
        """Return the graph stack's calls with near numbers made equal."""
        if not self._rules:
            return graph
        old, new = ([_Values.of_call(call) for call in side] for side in (legacy, graph))
        return [
            call if args is call.args else msgspec.structs.replace(call, args=args)
            for call, args in zip(graph, self._near(old, new), strict=True)
        ]

    def _near(self, legacy: list[_Values], graph: list[_Values]) -> Iterator[bytes]:
        known: defaultdict[tuple[str, str], list[Number]] = defaultdict(list)
        for values in legacy:
            for key, rule, path in self._rules:
                if values.concerned(rule):
                    changed_json(values.written, path, _note(known[key, values.place]))
        for values in graph:
            written = values.written
            for key, rule, path in self._rules:
                if values.concerned(rule):
                    put = self._put(key, rule, known[key, values.place])
                    written = changed_json(written, path, put)
            yield written

    def _put(self, key: str, rule: Tolerance, known: list[Number]) -> Callable[[Any], Any]:
        def put(value: Any) -> Any:
            near = (number for number in known if within(rule, number, value))
            found = next(near, None) if _is_number(value) else None
            if found is None:
                return value
            known.remove(found)
            if found == value:
                return value
            self.hits.add(key)
            return found

        return put


class _Values(NamedTuple):
    """The JSON of one event or call, and which rules are for it."""

    place: str
    written: bytes
    concerned: Callable[[Tolerance], bool]

    @staticmethod
    def of_event(event: StreamEvent) -> _Values:
        return _Values(event.name, event.shape, lambda rule: for_event(rule, event.name))

    @staticmethod
    def of_call(call: EffectCall) -> _Values:
        place = f"{call.label}@{call.site}"
        return _Values(place, call.args, lambda rule: for_call(rule, call))


def _note(known: list[Number]) -> Callable[[Any], Any]:
    def note(value: Any) -> Any:
        if _is_number(value):
            known.append(value)
        return value

    return note


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def within(rule: Tolerance, legacy: Number, graph: Number) -> bool:
    """Whether two numbers are near: as `math.isclose`, with the relative part of the greater."""
    try:
        apart = abs(legacy - graph)
        return apart <= max(rule.absolute, rule.relative * max(abs(legacy), abs(graph)))
    except OverflowError:  # an integer beyond any float
        return legacy == graph
