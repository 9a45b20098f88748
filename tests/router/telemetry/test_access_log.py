"""The access log, and the exchange that a line of any logger belongs to."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec
import pytest

from contract.flows.chat import ChatRequest
from effects.tasks import EXCHANGE
from router.capture.pseudonyms import digest
from router.capture.redaction import Redactor
from router.config.patterns import compile_patterns
from router.exchange_ids import ExchangeIds
from router.stack import StackName
from router.telemetry.access_log import AccessLog
from tests.support.faulty_stacks import after, crash
from tests.support.log_records import listening
from tests.support.router_world import House, Rules
from tests.support.tool_replies import ASSIGNED, CASE, FLOWS, both, priced

SAID = "no word of this"

pytestmark = pytest.mark.virtual


@pytest.mark.parametrize("assigned", ASSIGNED)
async def test_an_exchange_is_one_line_when_it_is_settled(assigned: StackName) -> None:
    """Its times in milliseconds, what it used, and where its shadow ended."""
    rules = Rules(assigned=assigned, shadow=100, observers=[AccessLog()])
    with listening() as lines:
        async with House(CASE, rules, price=priced) as made:
            served = await made.ask()
            run = made.runs[0]
    fields = lines.fields()
    nodes = fields.pop("nodes_ms")
    assert nodes == {node: spent / 1_000 for node, spent in run.nodes.items()}
    assert "model_call" in nodes
    assert next(iter(nodes)) == "initialize"
    assert fields.pop("run_ms") == run.run_us / 1_000
    assert run.run_us >= sum(run.nodes.values())
    assert 0 < fields.pop("first_text_ms") < run.frames[-1][0] / 1_000
    assert fields.pop("bytes") == sum(len(text.encode()) for _, text in run.frames)
    assert fields.pop("tape_bytes") > 1_000
    assert fields == {
        "exchange": run.exchange,
        "flow": "chat",
        "message": CASE.body.message_id,
        "session": CASE.body.chat_id or None,
        "assigned": assigned,
        "served": assigned,
        "reason": "percent",
        "bucket": run.bucket,
        "configuration": "v-1",
        "first_frame_ms": run.frames[0][0] / 1_000,
        "duration_ms": made.contexts[served.exchange].ended / 1_000,
        "resumes": None,
        "paused_ms": None,
        "lost_ms": 0.0,
        "shadow_state": "compared",
        "shadow_reason": "equal",
        "input_tokens": 1,
        "output_tokens": 2,
        "cost": 0.5,
        "outcome": "completed",
        "error": None,
        "frames": len(run.frames),
        "tools": ["dice", "calc"],
        "calls": len(run.plays),
    }


async def test_ids_are_pseudonyms_where_captures_have_them_so() -> None:
    """Equal ids have equal ones, the same as in captures; what is no id is not logged."""
    redactor = Redactor(compile_patterns({}), ["request.body.message_id"], b"key")
    with listening() as lines:
        async with House(CASE, Rules(observers=[AccessLog(redactor.body_value)])) as made:
            await made.ask(ChatRequest(message_id="m-1", chat_id="I live at 4 Elm", content="hi"))
    fields = lines.fields()
    assert fields["message"] == f"<message_id:{digest(b'key', 'm-1')}>"
    assert fields["session"] == "other"


@pytest.mark.parametrize("named", ["exchange", "message", "session"])
async def test_the_steps_of_a_debugged_exchange_are_logged(named: str) -> None:
    """Calls and frames in order, nodes, the end; of no other exchange, and no text of a user."""
    ids = ExchangeIds(draw=iter(["2" * 32, "1" * 32, "2" * 32]).__next__)
    known = {"exchange": ids.new("chat", "legacy"), "message": "m-2", "session": "c-2"}[named]
    with listening() as lines:
        async with House(CASE, Rules(observers=[AccessLog()])) as made:
            made.router.exchange_ids, made.router.debugged = ids, frozenset({known})
            await made.ask(CASE.body)
            served = await made.ask(ChatRequest(message_id="m-2", chat_id="c-2", content=SAID))
    steps = [facts for event, _, facts in lines.said if event == "step"]
    assert {facts["exchange"] for facts in steps} == {served.exchange}
    frames = [facts["bytes"] for facts in steps if facts["step"] == "frame"]
    assert frames == [len(data) for data in served.wire]
    moments = [facts["at_ms"] for facts in steps if "at_ms" in facts]
    assert moments == sorted(moments)
    calls = {facts["call"] for facts in steps if facts["step"] == "call"}
    assert {"model.stream", "tools.run", "conversations.put"} <= calls
    assert "model_call" in {facts.get("node") for facts in steps}
    assert (steps[-1]["step"], steps[-1]["outcome"]) == ("end", "completed")
    assert SAID not in str(steps)


@pytest.mark.parametrize("assigned", ASSIGNED)
async def test_changes_of_a_graphs_state_are_steps_by_key(assigned: StackName) -> None:
    """Served or as the shadow: what each node returned, in bytes, between its calls; no value."""
    rules = Rules(assigned=assigned, shadow=100, observers=[AccessLog()])
    body = msgspec.structs.replace(CASE.body, content=SAID)
    with listening() as lines:
        async with House(CASE, rules) as made:
            first = await made.ask(body)
            made.router.debugged = frozenset({body.message_id})
            second = await made.ask(body)
            accounts = [made.contexts[one.exchange].accounts for one in (first, second)]
    assert [any(one.changes for one in of) for of in accounts] == [False, True]
    steps = [facts for event, _, facts in lines.said if event == "step"]
    states = [facts for facts in steps if facts["step"] == "state"]
    served = "serving" if assigned == "graph" else "shadow"
    assert {(facts["stack"], facts["role"]) for facts in states} == {("graph", served)}
    assert [facts["node"] for facts in states] == [
        *("initialize", "prompt_generation", "model_call", "tool_execution", "model_call"),
        "output_processing",
    ]
    assert states[1]["bytes"].keys() == {"messages", "tools"}
    assert states[1]["bytes"]["messages"] > len(SAID)
    assert states[4]["bytes"].keys() == {"draft", "finish"}
    assert states[4]["bytes"]["finish"] == len('"stop"')
    graph = [facts for facts in steps if facts["stack"] == "graph" and "at_ms" in facts]
    assert [facts["at_ms"] for facts in graph] == sorted(facts["at_ms"] for facts in graph)
    assert SAID not in str(steps)


async def test_a_takeover_says_who_served_why_and_what_it_cost_the_client() -> None:
    """The outcome is what the client saw."""
    crashing = after(FLOWS["graph"], 5, crash)
    with listening() as lines:
        async with both("graph", crashing, FLOWS["legacy"], observers=[AccessLog()]) as made:
            await made.ask()
    fields = lines.fields()
    assert (fields["assigned"], fields["served"]) == ("graph", "legacy")
    assert (fields["reason"], fields["outcome"], fields["error"]) == ("crash", "completed", None)


async def test_a_refusal_is_told_with_its_code() -> None:
    """A flow's in the line of its exchange, the router's in one of its own."""
    observer = AccessLog()
    with listening() as lines:
        async with House(CASE, Rules(observers=[observer])) as made:
            await made.ask(ChatRequest(message_id="unknown"))
        observer.refused("chat", 422, "a code of ann@example.org, quoted")
    fields = lines.fields()
    assert (fields["outcome"], fields["error"]) == ("refused", "unknown_message")
    assert (fields["first_frame_ms"], fields["cost"]) == (None, None)
    assert lines.fields("turned away") == {"flow": "chat", "status": 422, "code": "other"}


class Broken:
    """A store that fails in a way of its own."""

    def __getattr__(self, _: str) -> Any:
        raise ZeroDivisionError


@pytest.mark.parametrize("assigned", ["graph", "legacy"], ids=["serving", "shadow"])
async def test_what_a_stack_says_is_of_its_exchange(assigned: StackName) -> None:
    """Its task inherits no context; of two at a time each has its own."""
    crashing = after(FLOWS["graph"], 3, crash)
    rules = Rules(assigned=assigned, shadow=100, stand_in=False)
    with listening() as lines:
        async with House(CASE, rules, graph=crashing) as made:
            served = await asyncio.gather(
                made.client(CASE.body), made.client(ChatRequest(message_id="n", content="hi"))
            )
    assert sorted(lines.exchanges("run failed")) == sorted(one.exchange for one in served)


async def test_what_a_call_says_is_of_its_exchange() -> None:
    """And so is what the router says when the exchange has ended."""
    with listening() as lines:
        async with House(CASE, Rules(shadow=100)) as made:
            made.world.conversations = cast("Any", Broken())
            served = await made.ask()
    exchange = served.exchange
    assert set(lines.exchanges("adapter of conversations.")) == {exchange}
    assert lines.exchanges("run failed") == [exchange] * 2
    assert [(one["role"], one["blame"]) for one in lines.failures] == [
        ("serving", "world"),
        ("shadow", "world"),
    ]


async def test_what_nobody_is_served_by_is_of_no_exchange() -> None:
    """The task of the shadows begins anew with each; what is said elsewhere has none."""
    with listening() as lines:
        async with House(CASE, Rules(shadow=100)) as made:
            for _ in range(2):
                await made.ask(qa="nonsense")
    assert lines.exchanges("QA header ignored") == ["", ""]
    assert EXCHANGE.get() == ""
