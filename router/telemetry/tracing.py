"""Traces for OpenTelemetry: spans built when an exchange is settled, from the stamps of its tape.

Spans hold names, codes, times and counts, never a prompt, an answer or an argument. Names are those
of OpenTelemetry's conventions for generative AI and HTTP where these have one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec
from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    Span,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    format_trace_id,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from contract import operations
from contract.records import PlayRecord, RunRecord
from router.telemetry.instruments import safe_name

if TYPE_CHECKING:
    from effects.tape import Entry
    from router.context import Account, Charge, ExchangeContext, LedgerLine

    Attributes = dict[str, str | int | float | bool | tuple[str, ...]]

EXCHANGE = "cutover.exchange"
_US = 1_000_000


class _ToolCall(msgspec.Struct):
    id: str = ""
    name: str = ""


class _ModelCall(msgspec.Struct):
    temperature: float | None = None
    max_tokens: int | None = None


_tool = msgspec.json.Decoder(_ToolCall)
_model = msgspec.json.Decoder(_ModelCall)


def _exchange_attributes(context: ExchangeContext, line: LedgerLine) -> Attributes:
    """Describe an exchange: its route, who was assigned and served, and where its shadow ended."""
    found: Attributes = {
        "http.request.method": "POST",
        "http.route": context.spec.path,
        EXCHANGE: context.exchange,
        "cutover.flow": context.spec.name,
        "cutover.assigned": context.assignment.stack,
        "cutover.served": context.served,
        "cutover.reason": safe_name(context.reason),
        "cutover.bucket": context.assignment.bucket,
        "cutover.configuration": context.config,
        "cutover.lost": context.lost_us / _US,
        "cutover.shadow.state": line.state,
        "cutover.shadow.reason": line.reason,
    }
    if context.committed:
        found["http.response.status_code"] = 200
    elif context.outcome and context.outcome.refusal:
        found["http.response.status_code"] = context.outcome.refusal.status
    return found


def _run_attributes(run: RunRecord) -> Attributes:
    """Describe a run: its role and stack, how it ended, what its nodes took and its calls cost."""
    found: Attributes = {
        EXCHANGE: run.exchange,
        "cutover.role": run.role,
        "cutover.stack": run.stack,
        "cutover.code": run.code,
        "cutover.outcome": run.outcome,
        "cutover.frames": len(run.frames),
        "cutover.sent": run.sent,
    }
    if run.error is not None:
        found["error.type"] = safe_name(run.error.code)
    if run.cost is not None:
        found["cutover.cost"] = run.cost
    for node, spent in run.nodes.items():
        found[f"cutover.node.{safe_name(node)}"] = spent / _US
    return found


def _call_attributes(entry: Entry, charge: Charge | None) -> tuple[str, Attributes]:
    """Name and describe a call that was made: of a model, a tool, a worker, or a store."""
    name = entry.operation.label
    found: Attributes = {
        "cutover.effect": name,
        "cutover.site": safe_name(entry.site),
        "cutover.end": entry.end,
    }
    if entry.fault is not None:
        found["error.type"] = safe_name(entry.fault.code)
    first = entry.items[0] if entry.items else None
    if charge is not None:
        name = f"chat {safe_name(charge.requested)}"
        found |= _model_attributes(entry, charge)
        if first is not None:
            found["gen_ai.response.time_to_first_chunk"] = (first.at - entry.at) / _US
    elif entry.operation is operations.TOOLS_RUN:
        call = _tool.decode(entry.args)
        tool = safe_name(call.name)
        name = f"execute_tool {tool}"
        found |= {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": tool,
            "gen_ai.tool.call.id": safe_name(call.id),
            "gen_ai.tool.type": "function",
        }
        if first is not None and first.error is not None:
            found["error.type"] = first.error
    elif entry.operation is operations.WORKERS_RUN:
        name = f"{name} {safe_name(entry.operation.subject(entry.args))}"
        last = entry.items[-1] if entry.items else None
        if last is not None and last.result is not None and not last.result.ok:
            found["error.type"] = safe_name(last.result.code)
    return name, found


def _model_attributes(entry: Entry, charge: Charge) -> Attributes:
    call, use = _model.decode(entry.args), charge.use
    usage = use.usage
    found: dict[str, str | int | float | bool | tuple[str, ...] | None] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": safe_name(charge.requested),
        "gen_ai.request.stream": True,
        "gen_ai.request.temperature": call.temperature,
        "gen_ai.request.max_tokens": call.max_tokens,
        "gen_ai.response.model": safe_name(use.model) if use.model else None,
        "gen_ai.response.finish_reasons": (safe_name(use.finish),) if use.finish else None,
        "gen_ai.usage.input_tokens": usage.prompt_tokens if usage else None,
        "gen_ai.usage.output_tokens": usage.completion_tokens if usage else None,
        "cutover.cost": charge.cost,
    }
    return {key: value for key, value in found.items() if value is not None}


_HEADERS = (b"traceparent", b"tracestate")
_FAILED = frozenset({"failed", "truncated", "timeout"})
_KINDS = {"model": SpanKind.CLIENT, "conversations": SpanKind.CLIENT, "memory": SpanKind.CLIENT}


class ExchangeSpans:
    """Observes exchanges for a tracer: one span each, its runs below it, their calls below these.

    A fallback is linked to the run it replaces, a shadow to the one it is compared with.
    """

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._incoming = TraceContextTextMapPropagator()
        self._begun: dict[str, Span] = {}

    def refused(self, flow: str, status: int, code: str) -> None:
        """A refused request has no span."""

    def finished(self, context: ExchangeContext) -> None:
        """Its shadow belongs to the trace: spans wait until that is settled."""

    def settled(self, context: ExchangeContext, line: LedgerLine) -> None:
        """Build the spans of an exchange."""
        span = self._begun.pop(context.exchange, None) or self._begin(context)
        if span.is_recording():  # most are not, where only a share is wanted
            span.set_attributes(_exchange_attributes(context, line))
            self._runs(context, span)
        span.end(_ns(context, context.ended))

    def trace_id(self, context: ExchangeContext) -> str:
        """Return the id of an exchange's trace, "" where it is not sampled; until it is settled."""
        span = self._begun[context.exchange] = self._begin(context)
        return format_trace_id(span.get_span_context().trace_id) if span.is_recording() else ""

    def _begin(self, context: ExchangeContext) -> Span:
        """Begin the span of an exchange, at the moment at which its request came."""
        return self._tracer.start_span(
            f"POST {context.spec.path}",
            self._parent(context),
            SpanKind.SERVER,
            start_time=_ns(context, context.start),
        )

    def _parent(self, context: ExchangeContext) -> Context:
        incoming = context.incoming
        headers = incoming.headers if incoming is not None else ()
        carrier = {
            key.decode(): value.decode("latin-1") for key, value in headers if key in _HEADERS
        }
        # Never the context this is called in.
        return self._incoming.extract(carrier, Context()) if carrier else Context()

    def _runs(self, context: ExchangeContext, exchange: Span) -> None:
        below = set_span_in_context(exchange, Context())
        before: Span | None = None
        for run, account in zip(context.records, context.accounts, strict=True):
            span = self._tracer.start_span(
                f"{run.role} {run.flow} {run.stack}",
                below,
                attributes=_run_attributes(run),
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
        for play, entry, charge in _calls_of(context, run, account):
            if entry is None:
                label = f"{play.port}.{play.op}"
                how = {"cutover.site": safe_name(play.site), "cutover.how": play.how}
                span.add_event(label, how, _ns(context, play.at))
                continue
            name, attributes = _call_attributes(entry, charge)
            kind = _KINDS.get(play.port, SpanKind.INTERNAL)
            call = self._tracer.start_span(
                name, below, kind, attributes, start_time=_ns(context, entry.at)
            )
            if "error.type" in attributes:
                call.set_status(Status(StatusCode.ERROR))
            call.end(_ns(context, max(entry.ended, entry.at)))


def _calls_of(
    context: ExchangeContext, run: RunRecord, account: Account
) -> Iterator[tuple[PlayRecord, Entry | None, Charge | None]]:
    """Yield a run's calls, with the entries of those it made itself and that took time."""
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
    """Return a stamp, microseconds since the exchange began, as nanoseconds since the epoch.

    The stamps of one that goes on after a pause follow those before it.
    """
    return (context.began + stamp - context.start) * 1_000
