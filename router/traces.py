"""Trace ids of open exchanges: a traced stack sends them with every call to the gateway."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from router.stack import Headers

# W3C Trace Context: version, trace id, parent id, flags.
_TRACEPARENT: Final = re.compile(rb"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?")


class Traces:
    """Which exchange a trace belongs to, while it is open."""

    def __init__(self) -> None:
        self._exchanges: dict[bytes, list[str]] = {}
        self._traces: dict[str, bytes] = {}

    def note(self, exchange: str, headers: Headers) -> None:
        """Note the trace of an exchange's request."""
        trace = trace_of(headers)
        if trace is not None:
            self._traces[exchange] = trace
            self._exchanges.setdefault(trace, []).append(exchange)

    def forget(self, exchange: str) -> None:
        """Drop an exchange that is settled."""
        trace = self._traces.pop(exchange, None)
        if trace is None:
            return
        left = self._exchanges[trace]
        left.remove(exchange)
        if not left:
            del self._exchanges[trace]

    def exchange(self, headers: Headers) -> str | None:
        """Return the exchange a request belongs to; None unless there is exactly one."""
        trace = trace_of(headers)
        open_ones = [] if trace is None else self._exchanges.get(trace, [])
        return open_ones[0] if len(open_ones) == 1 else None


def trace_of(headers: Headers) -> bytes | None:
    """Return the trace id of `traceparent`; None where it is missing or malformed."""
    for name, value in headers:
        if name == b"traceparent":
            found = _TRACEPARENT.fullmatch(value.strip())
            return found[1] if found and found[1].strip(b"0") else None
    return None
