"""Which exchange a task works for, for those who write it into the log."""

from __future__ import annotations

from contextvars import Context, ContextVar

EXCHANGE: ContextVar[str] = ContextVar("exchange", default="")
"""The id of the exchange; empty where a task works for none."""


def belonging(exchange: str) -> Context:
    """Make a context that is empty but for the exchange."""
    context = Context()
    context.run(EXCHANGE.set, exchange)
    return context
