"""ExchangeSpans of exchanges: built when all is over, with the times of when it was."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import Any

import pytest
from opentelemetry.trace import SpanKind, StatusCode

from contract.flows.chat import CHAT, ChatRequest
from contract.model import Chunk, ToolCallDelta, Usage
from contract.operations import OPERATIONS
from router.stack import IncomingRequest, StackName
from router.telemetry.instruments import safe_name
from router.telemetry.tracing import EXCHANGE
from tests.support.faulty_stacks import after, crash
from tests.support.flow_runs import Case
from tests.support.recorded_spans import Traced, identity, said, times
from tests.support.router_world import House, Rules
from tests.support.tool_replies import ASSIGNED, CASE, FLOWS, both, other, priced

pytestmark = pytest.mark.virtual

ROOT = "POST /chat/sse"
CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-{}"


async def traced(rules: Rules, case: Case = CASE, **flows: Any) -> tuple[Traced, House]:
    """Serve one request and keep its spans."""
    kept = Traced()
    rules = Rules(**{**vars(rules), "observers": [kept.observer]})
    async with House(case, rules, price=priced, **flows) as made:
        await made.ask()
    return kept, made


@pytest.mark.parametrize("assigned", ASSIGNED)
async def test_an_exchange_is_a_trace(assigned: StackName) -> None:
    """The exchange, its runs below it, their calls below these; all in one trace."""
    kept, made = await traced(Rules(assigned=assigned, shadow=100))
    root = kept.named(ROOT)
    served, shadow = kept.below(root)
    assert served.name == f"serving chat {assigned}"
    assert shadow.name == f"shadow chat {other(assigned)}"
    assert (root.parent, root.kind) == (None, SpanKind.SERVER)
    assert len({span.context.trace_id for span in kept.spans if span.context}) == 1
    assert {said(span)[EXCHANGE] for span in (root, served, shadow)} == {made.runs[0].exchange}
    calls = Counter(span.name for span in kept.below(served))
    assert calls == {
        "chat gpt-4.1": 2,
        "conversations.history": 1,
        "conversations.put": 2,
        "execute_tool calc": 1,
        "execute_tool dice": 1,
        "locks.acquire": 1,
        "tools.list": 1,
    }
    assert {span.status.status_code for span in kept.spans} == {StatusCode.UNSET}


async def test_times_are_those_of_the_tape() -> None:
    """Not those at which the spans were built."""
    kept, made = await traced(Rules(shadow=100))
    run = made.runs[0]
    assert run.tape is not None
    root, served = kept.named(ROOT), kept.named("serving chat legacy")
    assert times(root, run.began)[0] == 0
    assert times(root, run.began)[1] >= run.frames[-1][0]
    assert times(served, run.began)[1] == run.frames[-1][0]
    calls = {times(span, run.began) for span in kept.below(served)}
    assert calls == {
        (entry.at, entry.ended)
        for entry in run.tape
        if OPERATIONS[entry.port, entry.op].kind != "instant"
    }
    slowest = max(ended - at for at, ended in calls)
    assert slowest >= 0.75e6


async def test_a_shadow_is_linked_and_its_calls_are_moments() -> None:
    """It made none: it was given what is on the tape."""
    kept, _ = await traced(Rules(shadow=100))
    served, shadow = kept.named("serving chat legacy"), kept.named("shadow chat graph")
    (link,) = shadow.links
    assert link.context.span_id == identity(served)
    assert dict(link.attributes or {}) == {"cutover.link": "shadows"}
    assert kept.below(shadow) == []
    events = [(event.name, dict(event.attributes or {})) for event in shadow.events]
    assert {how["cutover.how"] for _, how in events} == {"exact"}
    assert [label for label, _ in events].count("model.stream") == 2
    assert "clock.now" in {event.name for event in served.events}


@pytest.mark.parametrize("assigned", ASSIGNED)
async def test_a_fallback_is_linked_to_what_it_replaces(assigned: StackName) -> None:
    """The failed run is an error, the exchange is not."""
    kept = Traced()
    crashing = after(FLOWS[assigned], 5, crash)
    async with both(assigned, crashing, FLOWS[other(assigned)], observers=[kept.observer]) as made:
        await made.ask()
        began = made.runs[0].began
    failed = kept.named(f"serving chat {assigned}")
    fallback = kept.named(f"fallback chat {other(assigned)}")
    (link,) = fallback.links
    assert link.context.span_id == identity(failed)
    assert dict(link.attributes or {}) == {"cutover.link": "replaces"}
    assert failed.status.status_code is StatusCode.ERROR
    assert said(failed)["error.type"] == "crash"
    assert kept.named(ROOT).status.status_code is StatusCode.UNSET
    assert times(failed, began)[1] <= times(fallback, began)[0]
    assert said(kept.named(ROOT))["cutover.served"] == other(assigned)
    assert "execute_tool dice" in {span.name for span in kept.below(fallback)} | {
        span.name for span in kept.below(failed)
    }


async def test_a_failure_nobody_stands_in_for_is_the_exchanges() -> None:
    """Its span is an error, too."""
    kept, _ = await traced(Rules(stand_in=False), legacy=after(FLOWS["legacy"], 2, crash))
    assert kept.named(ROOT).status.status_code is StatusCode.ERROR


async def test_a_refusal_is_no_error_and_has_its_status() -> None:
    """Nothing was sent; the exchange is told of all the same."""
    kept = Traced()
    async with House(CASE, Rules(observers=[kept.observer])) as made:
        await made.ask(ChatRequest(message_id="unknown"))
    root = kept.named(ROOT)
    assert said(root)["http.response.status_code"] == 404
    assert root.status.status_code is StatusCode.UNSET
    (run,) = kept.below(root)
    assert (said(run)["cutover.outcome"], said(run)["error.type"]) == ("refused", "unknown_message")


async def test_a_tool_that_fails_is_an_error() -> None:
    """Of its own span: the run goes on."""
    kept, _ = await traced(
        Rules(), Case(CASE.body, CASE.options, CASE.answers, tools={"calc": "42"})
    )
    failed = kept.named("execute_tool dice")
    assert failed.status.status_code is StatusCode.ERROR
    assert said(failed)["error.type"] == "unknown_tool"
    assert kept.named("serving chat legacy").status.status_code is StatusCode.UNSET


async def test_calls_follow_the_conventions_for_generative_ai() -> None:
    """Model, tokens, finish reason, tool; cost and the time to the first chunk."""
    kept, _ = await traced(Rules())
    first, second = (span for span in kept.spans if span.name == "chat gpt-4.1")
    assert first.kind is second.kind is SpanKind.CLIENT
    assert said(second) == {
        "cutover.effect": "model.stream",
        "cutover.site": said(second)["cutover.site"],
        "cutover.end": "complete",
        "cutover.cost": 0.5,
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-4.1",
        "gen_ai.request.stream": True,
        "gen_ai.request.temperature": 0.7,
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.response.time_to_first_chunk": 0.25,
        "gen_ai.usage.input_tokens": 1,
        "gen_ai.usage.output_tokens": 2,
    }
    assert said(first)["gen_ai.response.finish_reasons"] == ("tool_calls",)
    tool = said(kept.named("execute_tool dice"))
    assert tool["gen_ai.operation.name"] == "execute_tool"
    assert (tool["gen_ai.tool.name"], tool["gen_ai.tool.call.id"]) == ("dice", "c0")


async def test_a_callers_trace_goes_on() -> None:
    """Also its wish not to be traced; what is no trace begins a new one."""
    for flags, spans in (("01", True), ("00", False)):
        kept = Traced()
        await asked(kept, (b"traceparent", CALLER.format(flags).encode()))
        assert bool(kept.spans) is spans
        if spans:
            root = kept.named(ROOT)
            assert root.parent is not None
            assert f"{root.parent.span_id:016x}" == "b7ad6b7169203331"
            assert f"{root.parent.trace_id:032x}" == "0af7651916cd43dd8448eb211c80319c"
    for nonsense in (b"", b"00-zz-zz-01", b"\xff\xfe"):
        kept = Traced()
        await asked(kept, (b"traceparent", nonsense))
        assert kept.named(ROOT).parent is None


async def asked(kept: Traced, *headers: tuple[bytes, bytes]) -> None:
    """Serve one request that came with headers."""
    async with House(CASE, Rules(observers=[kept.observer])) as made:
        stream = await made.router.open(CHAT, CASE.body, None, IncomingRequest(b"", headers))
        await stream.open()
        async for _ in stream.pieces():
            pass
        made.router.close(stream)


async def test_only_a_share_is_traced_where_that_is_wanted() -> None:
    """A caller's own word goes before it."""
    kept = Traced(Decimal(0))
    await asked(kept)
    assert not kept.spans
    await asked(kept, (b"traceparent", CALLER.format("01").encode()))
    assert kept.spans


async def test_nothing_anybody_said_is_in_a_span() -> None:
    """Not what was asked, answered, thought, called with or found; nor names made up of it."""
    secret = "Geheimnis"
    rounds = (
        (
            Chunk(text=f"{secret} 1", reasoning=f"{secret} 2"),
            Chunk(tool_calls=(ToolCallDelta(0, f"{secret} id", "dice", f'{{"q":"{secret}"}}'),)),
            Chunk(tool_calls=(ToolCallDelta(1, "c", f"{secret} tool", "{}"),)),
            Chunk(finish="tool_calls"),
        ),
        (
            Chunk(text=f"{secret} 3", finish=f"{secret} why", model=f"{secret} model"),
            Chunk(usage=Usage(1, 2, 3)),
        ),
    )
    body = ChatRequest(message_id="m", content=f"{secret} 4", chat_id=f"{secret} c", user_id=secret)
    case = Case(body, CASE.options, rounds, tools={"dice": f"{secret} 5"})
    for assigned in ASSIGNED:
        kept, made = await traced(Rules(assigned=assigned, shadow=100), case)
        assert any(secret in frame for run in made.runs for _, frame in run.frames)
        assert len(kept.spans) > 5
        assert secret not in "".join(span.to_json() for span in kept.spans)
        assert "execute_tool other" in {span.name for span in kept.spans}


@pytest.mark.parametrize(
    ("value", "given"),
    [
        ("gpt-4.1", "gpt-4.1"),
        ("org/model:free", "org/model:free"),
        ("Hello there", "other"),
        ("x" * 101, "other"),
        ("字", "other"),
        ("", "other"),
    ],
)
def test_names_are_let_through_where_they_look_like_names(value: str, given: str) -> None:
    """Users write the ids of models, and models those of tools."""
    assert safe_name(value) == given
