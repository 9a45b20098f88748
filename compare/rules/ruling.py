"""Ruling: the rules of one flow applied to two runs, before they are compared."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec

from compare.input.damage import ILLEGIBLE
from compare.rules.table import (
    Ignore,
    Replace,
    Rule,
    Rules,
    Tolerance,
    Unordered,
    for_call,
    for_event,
    for_text,
)
from compare.rules.texts import Rewritten, expression_of, rewritten_stream
from compare.rules.values import REMOVED, Tolerances, changed
from contract.calls import EffectCall
from contract.equality import EventStream, StreamEvent
from contract.wire import Wire
from contract.wire.paths import ANY_DEPTH, path_of

EMPTY = b"{}"


class Ruled(NamedTuple):
    """Two runs under the rules; `hits` are the keys of rules that took different things."""

    legacy: EventStream
    graph: EventStream
    calls: tuple[list[EffectCall], list[EffectCall]]
    hits: frozenset[str]


class Ruling:
    """Applies rules, and counts the pairs in which each of them took different things.

    `hits` counts by the rule's key, `pairs` the pairs in which at least one rule hit.
    """

    def __init__(self, rules: Rules, flow: str, wire: Wire) -> None:
        held = [(key, rule) for key, rule in rules.numbered() if rule.flow in {"", flow}]
        self._on_values = [
            (key, rule)
            for key, rule in held
            if rule.layer != "text" and not isinstance(rule, Tolerance)
        ]
        self._near = [(key, rule) for key, rule in held if isinstance(rule, Tolerance)]
        self._on_text = [
            (key, expression_of(rule.pattern), rule.replacement)
            for key, rule in held
            if isinstance(rule, Replace) and for_text(rule)
        ]
        self._terminal = frozenset(wire.dialect.terminal)
        self._repeatable = frozenset(
            name for step in wire.grammar.steps if step.most != 1 for name in step.names
        )
        self.hits: Counter[str] = Counter()
        self.pairs = 0

    def apply(
        self,
        legacy: EventStream,
        graph: EventStream,
        calls: tuple[list[EffectCall], list[EffectCall]],
    ) -> Ruled:
        """Return two runs as the rules read them, and count which rules hit."""
        ruled = self.read(legacy, graph, calls)
        self.hits.update(ruled.hits)
        self.pairs += bool(ruled.hits)
        return ruled

    def read(
        self,
        legacy: EventStream,
        graph: EventStream,
        calls: tuple[list[EffectCall], list[EffectCall]],
    ) -> Ruled:
        """Return two runs as the rules read them; counts nothing."""
        sides = _Side(self._on_values), _Side(self._on_values)
        legacy, graph = self._stream(sides[0], legacy), self._stream(sides[1], graph)
        old, new = (
            [side.call(call) for call in made] for side, made in zip(sides, calls, strict=True)
        )
        near = Tolerances(self._near)
        graph, new = near.stream(legacy, graph), near.calls(old, new)
        keys = sides[0].taken.keys() | sides[1].taken.keys()
        hits = {key for key in keys if sides[0].taken[key] != sides[1].taken[key]} | near.hits
        return Ruled(
            self._with_bare_events(legacy),
            self._with_bare_events(graph),
            (old, new),
            frozenset(hits),
        )

    def _stream(self, side: _Side, stream: EventStream) -> EventStream:
        texts = Rewritten(stream.text), Rewritten(stream.reasoning)
        for key, pattern, replacement in self._on_text:
            for text in texts:
                side.taken[key] += text.replace(pattern, replacement)
        if not all(text.untouched for text in texts):
            stream = rewritten_stream(stream, *texts, self._terminal, self._again)
        events = tuple(side.event(event) for event in stream.events)
        return msgspec.structs.replace(stream, events=events)

    def _again(self, text: str) -> str:
        """Rewrite a text that is no beginning of the final one."""
        rewritten = Rewritten(text)
        for _, pattern, replacement in self._on_text:
            rewritten.replace(pattern, replacement)
        return rewritten.text

    def _with_bare_events(self, stream: EventStream) -> EventStream:
        """Mark the events that carry nothing but text, now that the rest is taken out."""
        events = tuple(
            msgspec.structs.replace(event, bare=True)
            if not event.bare
            and event.shape == EMPTY
            and (event.text is not None or event.reasoning is not None)
            and event.name in self._repeatable
            else event
            for event in stream.events
        )
        return msgspec.structs.replace(stream, events=events)


class _Side:
    """One run's values under the rules, and what each rule took from them."""

    def __init__(self, rules: Sequence[tuple[str, Rule]]) -> None:
        self._rules = rules
        self.taken: defaultdict[str, list[str]] = defaultdict(list)

    def event(self, event: StreamEvent) -> StreamEvent:
        """Apply the rules to what an event carries beside its texts."""
        held = [(key, rule) for key, rule in self._rules if for_event(rule, event.name)]
        shape = event.shape if event.shape == EMPTY else self._ruled(event.shape, held)
        return event if shape is event.shape else msgspec.structs.replace(event, shape=shape)

    def call(self, call: EffectCall) -> EffectCall:
        """Apply the rules to one call's arguments."""
        held = [(key, rule) for key, rule in self._rules if for_call(rule, call)]
        args = self._ruled(call.args, held)
        return call if args is call.args else msgspec.structs.replace(call, args=args)

    def _ruled(self, written: bytes, rules: Sequence[tuple[str, Rule]]) -> bytes:
        """Apply rules to one JSON value; what is no JSON is left as it is."""
        if not rules:
            return written
        try:
            value = before = msgspec.json.decode(written)
        except ILLEGIBLE:
            return written
        for key, rule in rules:
            steps = path_of(rule.path)
            if isinstance(rule, Replace):
                steps = (*steps, ANY_DEPTH)  # every text at the path and below
            value = changed(value, steps, partial(_changed, rule, self.taken[key]))
        if value is before:
            return written
        return EMPTY if value is REMOVED else msgspec.json.encode(value)


def _changed(rule: Rule, taken: list[str], value: Any) -> Any:
    """Apply a rule to one value, noting what it took."""
    match rule:
        case Ignore():
            taken.append(_sorted_json(value))
            return REMOVED
        case Replace() if isinstance(value, str):
            rewritten = Rewritten(value)
            taken += rewritten.replace(expression_of(rule.pattern), rule.replacement)
            return value if rewritten.untouched else rewritten.text
        case Unordered() if isinstance(value, list):
            taken.append(_sorted_json(value))
            return sorted(value, key=_sorted_json)
        case _:
            return value  # tolerances need both sides: see `Tolerances`


def _sorted_json(value: Any) -> str:
    return msgspec.json.encode(value, order="sorted").decode()
