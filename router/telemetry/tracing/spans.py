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
    from router.context import Account, Charge, ExchangeContext, LedgerLine

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

    def refused(self, flow: str, status: int, code: str) -> None:
        """Nothing was done that took time."""

    def finished(self, context: ExchangeContext) -> None:
        """Its shadow belongs to the trace: it is told when that is settled."""

    def settled(self, context: ExchangeContext, line: LedgerLine) -> None:
        """Build the spans of an exchange."""
        span = self._tracer.start_span(
            f"POST {context.spec.path}",
            self._parent(context),
            SpanKind.SERVER,
            start_time=_ns(context, 0),
        )
        if span.is_recording():  # most are not, where only a share is wanted
            span.set_attributes(of_exchange(context, line))
            self._runs(context, span)
        span.end(_ns(context, context.ended))

    def _parent(self, context: ExchangeContext) -> Context:
        incoming = context.incoming
        headers = incoming.headers if incoming is not None else ()
        carrier = {
            key.decode(): value.decode("latin-1") for key, value in headers if key in _HEADERS
        }
        # Not of whatever context this happens to be told in.
        return self._incoming.extract(carrier, Context()) if carrier else Context()

    def _runs(self, context: ExchangeContext, exchange: Span) -> None:
        below = set_span_in_context(exchange, Context())
        before: Span | None = None
        for run, account in zip(context.records, context.accounts, strict=True):
            span = self._tracer.start_span(
                f"{run.role} {run.flow} {run.stack}",
                below,
                attributes=of_run(run),
                links=_links(run, before),
                start_time=_ns(context, account.began),
            )
            self._calls(context, run, account, span)
            if run.outcome in _FAILED:
                span.set_status(Status(StatusCode.ERROR))
                if run is context.last_served:
                    exchange.set_status(Status(StatusCode.ERROR))
            span.end(_ns(context, account.ended))
            before = span

    def _calls(
        self, context: ExchangeContext, run: RunRecord, account: Account, span: Span
    ) -> None:
        below = set_span_in_context(span, Context())
        for play, entry, charge in _made(context, run, account):
            if entry is None:
                label = f"{play.port}.{play.op}"
                span.add_event(label, of_play(play.site, play.how), _ns(context, play.at))
                continue
            name, attributes = of_effect(entry, charge)
            kind = _KINDS.get(play.port, SpanKind.INTERNAL)
            call = self._tracer.start_span(
                name, below, kind, attributes, start_time=_ns(context, entry.at)
            )
            if "error.type" in attributes:
                call.set_status(Status(StatusCode.ERROR))
            call.end(_ns(context, max(entry.ended, entry.at)))


def _made(
    context: ExchangeContext, run: RunRecord, account: Account
) -> Iterator[tuple[PlayRecord, Entry | None, Charge | None]]:
    """Give a run's calls, with the entries of those it made itself and that took time."""
    entries = context.tape.entries
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


def _ns(context: ExchangeContext, stamp: int) -> int:
    """Nanoseconds since the epoch of a stamp: microseconds since the exchange began."""
    return (context.began + stamp) * 1_000
