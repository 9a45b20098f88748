"""Nearness: numbers that are apart by no more than a tolerance are read as equal."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import msgspec

from compare.damage import ILLEGIBLE
from compare.rules.paths import changed
from compare.rules.scope import for_call, for_event
from contract.wire.paths import path_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from compare.calls import Call
    from compare.events import Stream
    from compare.rules.table import Tolerance

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

    def stream(self, legacy: Stream, graph: Stream) -> Stream:
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

        return _changed(written, rule, snap)


def _place(call: Call) -> str:
    return f"{call.label}@{call.site}"


def _collect(written: bytes, rule: Tolerance, known: list[Number]) -> None:
    def note(value: Any) -> Any:
        if _is_number(value):
            known.append(value)
        return value

    _changed(written, rule, note)


def _changed(written: bytes, rule: Tolerance, change: Callable[[Any], Any]) -> bytes:
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
