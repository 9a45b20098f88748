"""Scope: which values of a run a rule is for."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import regex

from compare.input.calls import Call
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
from compare.rules.texts import Rewritten, Texts, expression_of, rewritten_stream
from compare.rules.values import GONE, Nearness, changed
from compare.streams.events import Event, EventStream
from contract.wire.dialect import Wire
from contract.wire.paths import ANY_DEPTH, path_of

_decode = msgspec.json.decode
_encode = msgspec.json.encode
EMPTY = b"{}"


class Ruled(NamedTuple):
    """Two runs under the rules; `hits` are the keys of rules that took different things."""

    legacy: EventStream
    graph: EventStream
    calls: tuple[list[Call], list[Call]]
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
        self, legacy: EventStream, graph: EventStream, calls: tuple[list[Call], list[Call]]
    ) -> Ruled:
        """Give two runs as the rules have them read, and count which rules hit."""
        ruled = self.read(legacy, graph, calls)
        self.hits.update(ruled.hits)
        self.pairs += bool(ruled.hits)
        return ruled

    def read(
        self, legacy: EventStream, graph: EventStream, calls: tuple[list[Call], list[Call]]
    ) -> Ruled:
        """Give two runs as the rules have them read; counts nothing."""
        sides = _Side(self._on_values), _Side(self._on_values)
        legacy, graph = self._stream(sides[0], legacy), self._stream(sides[1], graph)
        old, new = (
            [side.call(call) for call in made] for side, made in zip(sides, calls, strict=True)
        )
        near = Nearness(self._near)
        graph, new = near.stream(legacy, graph), near.calls(old, new)
        keys = sides[0].taken.keys() | sides[1].taken.keys()
        hits = {key for key in keys if sides[0].taken[key] != sides[1].taken[key]} | near.hits
        return Ruled(self._bared(legacy), self._bared(graph), (old, new), frozenset(hits))

    def _stream(self, side: _Side, stream: EventStream) -> EventStream:
        texts = Texts(Rewritten(stream.text), Rewritten(stream.reasoning))
        for key, pattern, replacement in self._on_text:
            for text in texts:
                side.taken[key] += text.replace(pattern, replacement)
        if not all(text.untouched for text in texts):
            stream = rewritten_stream(stream, texts, self._terminal, self._again)
        events = tuple(side.event(event) for event in stream.events)
        return msgspec.structs.replace(stream, events=events)

    def _again(self, text: str) -> str:
        """Rewrite a text that is no beginning of the final one."""
        rewritten = Rewritten(text)
        for _, pattern, replacement in self._on_text:
            rewritten.replace(pattern, replacement)
        return rewritten.text

    def _bared(self, stream: EventStream) -> EventStream:
        """See which events carry nothing but text, now that the rest is taken out."""
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

    def event(self, event: Event) -> Event:
        """Apply the rules to what an event carries beside its texts."""
        if event.shape == EMPTY:
            return event
        shape = self.value(event.shape, event=event.name)
        return event if shape is event.shape else msgspec.structs.replace(event, shape=shape)

    def value(self, written: bytes, *, event: str = "", call: Call | None = None) -> bytes:
        """Apply the rules to one JSON value; what is no JSON is left as it is."""
        held = [
            (key, rule)
            for key, rule in self._rules
            if (for_event(rule, event) if call is None else for_call(rule, call))
        ]
        if not held:
            return written
        try:
            value = before = _decode(written)
        except ILLEGIBLE:
            return written
        for key, rule in held:
            value = changed(value, _steps(rule), _change(rule, self.taken[key]))
        if value is before:
            return written
        return EMPTY if value is GONE else _encode(value)

    def call(self, call: Call) -> Call:
        """Apply the rules to one call's arguments."""
        args = self.value(call.args, call=call)
        return call if args is call.args else msgspec.structs.replace(call, args=args)


def _steps(rule: Rule) -> tuple[str, ...]:
    """Give a rule's path; replacing goes for every text at it and below."""
    steps = path_of(rule.path)
    return (*steps, ANY_DEPTH) if isinstance(rule, Replace) else steps


def _change(rule: Rule, taken: list[str]) -> Callable[[Any], Any]:
    """Give what a rule does to one value, noting what it took."""
    match rule:
        case Ignore():
            return lambda value: _ignored(value, taken)
        case Replace():
            pattern = expression_of(rule.pattern)
            return lambda value: _replaced(value, pattern, rule.replacement, taken)
        case Unordered():
            return lambda value: _sorted(value, taken)
        case Tolerance():
            # Needs both sides: see `snapped`.
            return lambda value: value


def _ignored(value: Any, taken: list[str]) -> Any:
    taken.append(_said(value))
    return GONE


def _replaced(value: Any, pattern: regex.Pattern[str], put: str, taken: list[str]) -> Any:
    if not isinstance(value, str):
        return value
    rewritten = Rewritten(value)
    taken += rewritten.replace(pattern, put)
    return value if rewritten.untouched else rewritten.text


def _sorted(value: Any, taken: list[str]) -> Any:
    if not isinstance(value, list):
        return value
    taken.append(_said(value))
    return sorted(value, key=_said)


def _said(value: Any) -> str:
    return _encode(value, order="sorted").decode()
