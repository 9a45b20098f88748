"""Grammars of event streams, as data, and the checker that walks along one."""

from __future__ import annotations

from dataclasses import dataclass, field

from cutover.errors import GrammarViolated


@dataclass(frozen=True, slots=True)
class Step:
    """One place in a stream: any of `names`, at least `least` times, at most `most` (None: any)."""

    names: frozenset[str]
    least: int = 1
    most: int | None = 1


def one(*names: str) -> Step:
    """Exactly one event, of one of these names."""
    return Step(frozenset(names))


def maybe(*names: str) -> Step:
    """At most one event of these names."""
    return Step(frozenset(names), 0)


def many(*names: str) -> Step:
    """Any number of events of these names, none included."""
    return Step(frozenset(names), 0, None)


@dataclass(frozen=True, slots=True)
class Grammar:
    """The allowed order of events."""

    steps: tuple[Step, ...]
    terminal: frozenset[str] = field(init=False, repr=False, compare=False)
    """Events that end a stream."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "terminal", self.steps[-1].names)


@dataclass(slots=True, eq=False)
class GrammarCheck:
    """Walks along a grammar, event by event."""

    _grammar: Grammar
    _position: int = 0
    _count: int = 0

    def event(self, name: str) -> None:
        """Accept one event; raises `GrammarViolated` when it may not stand here."""
        position, count = self._position, self._count
        steps = self._grammar.steps
        while position < len(steps):
            step = steps[position]
            if name in step.names and (step.most is None or count < step.most):
                self._position, self._count = position, count + 1
                return
            if count < step.least:
                break
            position, count = position + 1, 0
        raise GrammarViolated(name, self.expected)

    @property
    def expected(self) -> tuple[str, ...]:
        """What may come next; empty when the stream is complete."""
        names: list[str] = []
        count = self._count
        for step in self._grammar.steps[self._position :]:
            if step.most is None or count < step.most:
                names.extend(sorted(step.names))
            if count < step.least:
                break
            count = 0
        return tuple(names)

    @property
    def complete(self) -> bool:
        """Whether the stream may end here."""
        rest = self._grammar.steps[self._position :]
        return bool(rest) and all(
            (self._count if i == 0 else 0) >= step.least for i, step in enumerate(rest)
        )
