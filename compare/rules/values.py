"""The value that results when what stands at a path into JSON changes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final

import msgspec

from compare.input.calls import Call
from compare.input.damage import ILLEGIBLE
from compare.rules.table import Tolerance, for_call, for_event
from compare.streams.events import EventStream
from contract.wire.paths import ANY, ANY_DEPTH, Path, path_of


class _Gone:
    """Stands for a value that is taken out."""


GONE: Final = _Gone()


def changed(value: Any, steps: Path, change: Callable[[Any], Any]) -> Any:
    """Give a value with everything at the steps changed; `GONE` takes it out.

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
        if value is GONE or (len(steps) == 1 and isinstance(value, str)):
            return value
    if isinstance(value, dict):
        return _of_dict(value, steps, change)
    if isinstance(value, list):
        return _of_list(value, steps, change)
    if isinstance(value, str) and value[:1] in {"{", "["}:
        return _of_text(value, steps, change)
    return value


def _below(key: str, steps: Path) -> Path | None:
    """Give the steps that are left below a key; None where it is not on the path."""
    if steps[0] == ANY_DEPTH:
        return steps
    return steps[1:] if steps[0] in {ANY, key} else None


def _of_dict(value: dict[str, Any], steps: Path, change: Callable[[Any], Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, held in value.items():
        rest = _below(key, steps)
        put = held if rest is None else _changed(held, rest, change)
        if put is not GONE:
            made[key] = put
    return value if _same(value, made) else made


def _same(value: dict[str, Any], made: dict[str, Any]) -> bool:
    return len(value) == len(made) and all(made[key] is value[key] for key in value)


def _of_list(value: list[Any], steps: Path, change: Callable[[Any], Any]) -> list[Any]:
    made: list[Any] = []
    for index, held in enumerate(value):
        rest = _below(str(index), steps)
        put = held if rest is None else _changed(held, rest, change)
        if put is not GONE:
            made.append(put)
    same = len(value) == len(made) and all(a is b for a, b in zip(value, made, strict=True))
    return value if same else made


def _of_text(value: str, steps: Path, change: Callable[[Any], Any]) -> str:
    try:
        held = msgspec.json.decode(value)
    except ILLEGIBLE:
        return value
    put = changed(held, steps, change)
    return value if put is held else msgspec.json.encode(put).decode()


Number = int | float
Places = defaultdict[tuple[str, str], list[Number]]
"""Numbers by rule and by the event or call they stand in."""


class Nearness:
    """Puts legacy's numbers in the place of graph's, where they are near enough.

    A number changes by no more than its tolerance, so what is equal afterwards was near; numbers
    of one place are taken in order, so a frame too many on one side pushes nothing along.
    `hits` holds the keys of the rules that changed one.
    """

    def __init__(self, rules: list[tuple[str, Tolerance]]) -> None:
        self._rules = rules
        self.hits: set[str] = set()

    def stream(self, legacy: EventStream, graph: EventStream) -> EventStream:
        """Give the graph stack's stream with near numbers made equal."""
        if not self._rules:
            return graph
        known: Places = defaultdict(list)
        for event in legacy.events:
            for key, rule in self._rules:
                if for_event(rule, event.name):
                    _collect(event.shape, rule, known[key, event.name])
        events = []
        for event in graph.events:
            shape = event.shape
            for key, rule in self._rules:
                if for_event(rule, event.name):
                    shape = self._snapped(shape, key, rule, known[key, event.name])
            same = shape is event.shape
            events.append(event if same else msgspec.structs.replace(event, shape=shape))
        return msgspec.structs.replace(graph, events=tuple(events))

    def calls(self, legacy: list[Call], graph: list[Call]) -> list[Call]:
        """Give the graph stack's calls with near numbers made equal."""
        if not self._rules:
            return graph
        known: Places = defaultdict(list)
        for call in legacy:
            for key, rule in self._rules:
                if for_call(rule, call):
                    _collect(call.args, rule, known[key, _place(call)])
        return [self._call(call, known) for call in graph]

    def _call(self, call: Call, known: Places) -> Call:
        args = call.args
        for key, rule in self._rules:
            if for_call(rule, call):
                args = self._snapped(args, key, rule, known[key, _place(call)])
        return call if args is call.args else msgspec.structs.replace(call, args=args)

    def _snapped(self, written: bytes, key: str, rule: Tolerance, known: list[Number]) -> bytes:
        def snap(value: Any) -> Any:
            if not _is_number(value):
                return value
            near = next((number for number in known if within(rule, number, value)), None)
            if near is None:
                return value
            known.remove(near)
            if near == value:
                return value
            self.hits.add(key)
            return near

        return _differs(written, rule, snap)


def _place(call: Call) -> str:
    return f"{call.label}@{call.site}"


def _collect(written: bytes, rule: Tolerance, known: list[Number]) -> None:
    def note(value: Any) -> Any:
        if _is_number(value):
            known.append(value)
        return value

    _differs(written, rule, note)


def _differs(written: bytes, rule: Tolerance, change: Callable[[Any], Any]) -> bytes:
    try:
        before = msgspec.json.decode(written)
    except ILLEGIBLE:
        return written
    after = changed(before, path_of(rule.path), change)
    return written if after is before else msgspec.json.encode(after)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def within(rule: Tolerance, legacy: Number, graph: Number) -> bool:
    """Whether two numbers are near: as `math.isclose`, with the relative part of the greater."""
    try:
        apart = abs(legacy - graph)
        return apart <= max(rule.absolute, rule.relative * max(abs(legacy), abs(graph)))
    except OverflowError:  # an integer beyond any float
        return legacy == graph
