"""A prompt as it is proved: what it was made of, what it became, and how the proof ended."""

from __future__ import annotations

import msgspec

DRAWN = 40
"""How many values are drawn for a prompt, beside those at the edges."""


class Case(msgspec.Struct, frozen=True):
    """A prompt to be proved: its templates in order, and what it became, as it is read again."""

    name: str
    templates: tuple[str, ...]
    variables: tuple[str, ...]
    text: str
    chat: bool = False
    placeholders: tuple[str, ...] = ()


class Counterexample(msgspec.Struct, frozen=True):
    """Values for which both ways differ, as Python writes them, and what each gave."""

    template: str
    values: dict[str, str]
    legacy: str
    graph: str


class Proof(msgspec.Struct, frozen=True):
    """How many drawings of values gave the same bytes, or one that did not."""

    values: int
    counterexample: Counterexample | None = None
    failed: str = ""

    @property
    def holds(self) -> bool:
        """Whether both ways were equal wherever they were tried."""
        return self.counterexample is None and not self.failed
