"""Listening to the log: what is said, beside what, and for which exchange."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from effects.tasks import EXCHANGE
from router.stack import FIELDS


class Lines(logging.Handler):
    """Keeps what is said, with the exchange it is said for."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[tuple[str, str, dict[str, Any]]] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        fields = getattr(record, FIELDS, {})
        exchange = fields.get("exchange") or EXCHANGE.get()
        self.said.append((record.getMessage(), exchange, fields))

    def fields(self, event: str = "exchange") -> dict[str, Any]:
        """Return what stands beside the one line that says this."""
        (found,) = (fields for said, _, fields in self.said if said == event)
        return found

    @property
    def failures(self) -> list[dict[str, Any]]:
        """Return the facts of the lines about runs that failed or refused."""
        return [fields for said, _, fields in self.said if said in {"run failed", "run refused"}]

    def exchanges(self, words: str) -> list[str]:
        """Return the exchanges of the lines with these words."""
        return [exchange for said, exchange, _ in self.said if words in said]


@contextmanager
def listening() -> Iterator[Lines]:
    """Listen to everything, but for what the loop says of itself."""
    with attached(lines := Lines(), logging.INFO):
        yield lines


@contextmanager
def attached(handler: logging.Handler, level: int) -> Iterator[None]:
    """Hand a handler all lines from a level on."""
    root = logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(level)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(before)
