"""Spans of exchanges, built when these are settled: the stamps of the tape say when it all was."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry.context import Context
from opentelemetry.trace import Link, SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from router.telemetry.tracing.attributes import of_effect, of_exchange, of_play, of_run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opentelemetry.trace import Span, Tracer

    from contract.records import PlayRecord, RunRecord
    from effects.tape import Entry
    from router.capture.records import Account, Charge
    from router.context import ExchangeContext
    from router.shadow.ledger import Line

_HEADERS = (b"traceparent", b"tracestate")
_FAILED = frozenset({"failed", "truncated", "timeout"})
_KINDS = {"model": SpanKind.CLIENT, "conversations": SpanKind.CLIENT, "memory": SpanKind.CLIENT}


class Spans:
    """Observes exchanges for a tracer: one span each, its runs below it, their calls below these.

    A fallback is linked to the run it replaces, a shadow to the one it is compared with.
    """

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._incoming = TraceContextTextMapPropagator()

    def turned_away(self, flow: str, status: int, code: str) -> None:
        """Nothing was done that took time."""

    def concluded(self, ticket: ExchangeContext) -> None:
        """Its shadow belongs to the trace: it is told when that is settled."""

    def settled(self, ticket: ExchangeContext, line: Line) -> None:
        """Build the spans of an exchange."""
        span = self._tracer.start_span(
            f"POST {ticket.spec.path}",
            self._parent(ticket),
            SpanKind.SERVER,
            start_time=_ns(ticket, 0),
        )
        if span.is_recording():  # most are not, where only a share is wanted
            span.set_attributes(of_exchange(ticket, line))
            self._runs(ticket, span)
        span.end(_ns(ticket, ticket.ended))

    def _parent(self, ticket: ExchangeContext) -> Context:
        incoming = ticket.serving.plan.incoming
        headers = incoming.headers if incoming is not None else ()
        carrier = {
            key.decode(): value.decode("latin-1") for key, value in headers if key in _HEADERS
        }
        # Not of whatever context this happens to be told in.
        return self._incoming.extract(carrier, Context()) if carrier else Context()

    def _runs(self, ticket: ExchangeContext, exchange: Span) -> None:
        below = set_span_in_context(exchange, Context())
        before: Span | None = None
        for run, account in zip(ticket.runs, ticket.accounts, strict=True):
            span = self._tracer.start_span(
                f"{run.role} {run.flow} {run.stack}",
                below,
                attributes=of_run(run),
                links=_links(run, before),
                start_time=_ns(ticket, account.began),
            )
            self._calls(ticket, run, account, span)
            if run.outcome in _FAILED:
                span.set_status(Status(StatusCode.ERROR))
                if run is ticket.last_served:
                    exchange.set_status(Status(StatusCode.ERROR))
            span.end(_ns(ticket, account.ended))
            before = span

    def _calls(self, ticket: ExchangeContext, run: RunRecord, account: Account, span: Span) -> None:
        below = set_span_in_context(span, Context())
        for play, entry, charge in _made(ticket, run, account):
            if entry is None:
                label = f"{play.port}.{play.op}"
                span.add_event(label, of_play(play.site, play.how), _ns(ticket, play.at))
                continue
            name, attributes = of_effect(entry, charge)
            kind = _KINDS.get(play.port, SpanKind.INTERNAL)
            call = self._tracer.start_span(
                name, below, kind, attributes, start_time=_ns(ticket, entry.at)
            )
            if "error.type" in attributes:
                call.set_status(Status(StatusCode.ERROR))
            call.end(_ns(ticket, max(entry.ended, entry.at)))


def _made(
    ticket: ExchangeContext, run: RunRecord, account: Account
) -> Iterator[tuple[PlayRecord, Entry | None, Charge | None]]:
    """Give a run's calls, with the entries of those it made itself and that took time."""
    entries = ticket.serving.exchange.tape.entries
    charges = iter(account.charges)
    for play in run.plays:
        entry = None if play.entry is None else entries[play.entry]
        charge = None
        if entry is not None and (play.port, play.op) == ("model", "stream"):
            charge = next(charges)
        if play.how != "live" or entry is None or entry.operation.kind == "instant":
            entry = None
        yield play, entry, charge


def _links(run: RunRecord, before: Span | None) -> list[Link]:
    if before is None:
        return []
    how = "shadows" if run.role == "shadow" else "replaces"
    return [Link(before.get_span_context(), {"cutover.link": how})]


def _ns(ticket: ExchangeContext, stamp: int) -> int:
    """Nanoseconds since the epoch of a stamp: microseconds since the exchange began."""
    return (ticket.began + stamp) * 1_000
