"""Tool calls as providers really stream them: both stacks run the same calls, or none."""

from collections.abc import Mapping
from typing import Any

import pytest

from cutover.errors import Completed, Failed
from tests.flows.faults import DONE, FLOWS, TEXT, Ended, chunk, plain, raw
from tests.flows.test_faults import answer, by_turns, tell
from tests.support.stage import STACKS, Stage, breaking

pytestmark = pytest.mark.virtual

WITH_TOOLS = [name for name, asked in FLOWS.items() if asked.tools]

Sum = tuple[str, str, str]
FIRST: Sum = ("a", '{"expression": "1000*2"}', "2000")
SECOND: Sum = ("b", '{"expression": "3+4"}', "7")


def piece(
    arguments: str = "", *, call_id: str | None = None, index: int | None = None, **extra: Any
) -> dict[str, Any]:
    """Return a piece of a call; one with an id has the name, too."""
    made: dict[str, Any] = {"function": {"arguments": arguments}, **extra}
    if index is not None:
        made["index"] = index
    if call_id is not None:
        made |= {"id": call_id, "type": "function"}
        made["function"]["name"] = "calculate"
    return made


def calls(*deltas: dict[str, Any] | list[dict[str, Any]], finish: str = "tool_calls") -> list[str]:
    """Return the events of tool calls, one for each delta."""
    pieces = [one if isinstance(one, list) else [one] for one in deltas]
    return [*(chunk({"tool_calls": one}) for one in pieces), chunk({}, finish), DONE]


def halves(of: Sum) -> tuple[str, str]:
    """Return the arguments of a call in two pieces, neither of which is JSON."""
    return of[1][:18], of[1][18:]


def in_turn(*indices: int | None, opened: bool = True) -> list[str]:
    """Return two calls, one behind the other, with these indices."""
    made = []
    for one, index in zip((FIRST, SECOND), indices, strict=True):
        first, second = halves(one)
        begun = [piece(call_id=one[0], index=index), piece(first, index=index)]
        made += begun if opened else [piece(first, call_id=one[0], index=index)]
        made.append(piece(second, index=index))
    return calls(*made)


def interleaved(*, ids: bool) -> list[str]:
    """Return two calls whose arguments take turns, told apart by index, or by ids all along."""
    indices = (None, None) if ids else (0, 1)
    opened = [piece(call_id=n[0], index=i) for n, i in zip((FIRST, SECOND), indices, strict=True)]
    rest = []
    for turn in (0, 1):
        for one, index in zip((FIRST, SECOND), indices, strict=True):
            more = piece(halves(one)[turn], index=index)
            rest.append(more | {"id": one[0]} if ids else more)
    return calls(*opened, *rest)


WHOLE = [piece(FIRST[1], call_id="a", index=0), piece(SECOND[1], call_id="b", index=1)]
BOTH = (FIRST, SECOND)

CALLS: Mapping[str, tuple[list[str], tuple[Sum, ...]]] = {
    "index 0 and 1": (in_turn(0, 1), BOTH),
    "both index 0": (in_turn(0, 0), BOTH),
    "both index 0, arguments at once": (in_turn(0, 0, opened=False), BOTH),
    "no index": (in_turn(None, None), BOTH),
    "index from 1": (in_turn(1, 2), BOTH),
    "index 1 before 0": (in_turn(1, 0), BOTH),
    "ids at the start alone": (interleaved(ids=False), BOTH),
    "ids on each piece, no index": (interleaved(ids=True), BOTH),
    "both in one delta": (calls(WHOLE), BOTH),
    "both in one delta, both index 0": (calls([one | {"index": 0} for one in WHOLE]), BOTH),
    "a reason early, then the call": (
        [chunk({"content": ""}, "stop"), *calls(piece(FIRST[1], call_id="a", index=0))],
        (FIRST,),
    ),
    "arguments that are cut": (
        calls(piece(FIRST[1][:-1], call_id="a", index=0)),
        (("a", FIRST[1][:-1], "Error: bad_arguments"),),
    ),
    "arguments that are no object": (
        calls(piece("[1]", call_id="a", index=0)),
        (("a", "[1]", "Error: bad_arguments"),),
    ),
}
"""Events, and the calls that they make: id, arguments, result."""


@pytest.mark.parametrize("name", STACKS)
@pytest.mark.parametrize(("flow", "row"), by_turns(CALLS, WITH_TOOLS))
async def test_calls_are_told_apart(stage: Stage, flow: str, name: str, row: str) -> None:
    """By id, then index, then order; arguments go back as the model wrote them, never repaired."""
    events, expected = CALLS[row]
    answer(stage, raw(*events), plain()(TEXT))
    told = await tell(stage, flow, name)
    assert told.outcome == Completed()
    assert FLOWS[flow].ended(told.events) == Ended(TEXT, None)
    _, again = (one.body["messages"] for one in stage.sim.requests)
    called, *results = again[-1 - len(expected) :]
    assert [
        (one["id"], one["function"]["arguments"], result["content"])
        for one, result in zip(called["tool_calls"], results, strict=True)
    ] == list(expected)
    assert [one["tool_call_id"] for one in results] == [one[0] for one in expected]
    assert {one["name"] for one in results} == {"calculate"}


@pytest.mark.parametrize("name", STACKS)
@pytest.mark.parametrize("flow", WITH_TOOLS)
async def test_a_garbled_piece_of_arguments_runs_nothing(
    stage: Stage, flow: str, name: str
) -> None:
    """`1000*2` must not become `10*2`: a piece that cannot be read is a failure, never a gap."""
    pieces = [piece(call_id="a", index=0), piece('{"expression": "10', index=0)]
    begun = [chunk({"tool_calls": [one]}) for one in pieces]
    rest = calls(piece('*2"}', index=0))
    answer(stage, raw(*begun, 'data: {"choices": [{"delta": {"tool_ca\n\n', *rest))
    told = await tell(stage, flow, name)
    assert told.outcome == Failed("model_error", "world", told.outcome.detail)  # type: ignore[union-attr]
    assert FLOWS[flow].ended(told.events).code == "model_error"
    assert len(stage.sim.requests) == 1


OPAQUE: Mapping[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "Gemini": ({}, {"extra_content": {"google": {"thought_signature": "c2ln"}}}),
    "Gemini, beside the text": ({"extra_content": {"google": {"thought_signature": "c2"}}}, {}),
    "Copilot": ({"reasoning_opaque": "c2ln"}, {}),
    "Anthropic behind LiteLLM": ({"thinking_blocks": [{"thinking": "hm", "signature": "c2"}]}, {}),
    "DeepSeek": ({"reasoning_content": "let me think"}, {}),
    "OpenRouter": ({"reasoning_details": [{"type": "reasoning.text", "text": "hm"}]}, {}),
    "Anthropic": ({"thinking_blocks": [{"type": "thinking", "signature": "c2ln"}]}, {}),
}
"""Fields of the message, and of the call, that providers want back."""


LATE = {"chat": 5, "companion": 3, "session": 3}
"""Events behind which the answer to the tool's result is under way."""


@pytest.mark.parametrize("name", STACKS)
@pytest.mark.parametrize(("flow", "provider"), by_turns(OPAQUE, WITH_TOOLS))
async def test_opaque_fields_come_back_and_survive_a_takeover(
    stage: Stage, flow: str, name: str, provider: str
) -> None:
    """Some providers answer 400 where their own fields do not come back within the round.

    A stack that takes over behind the tool sends them as well, and so finds the second call:
    nothing is asked anew.
    """
    of_message, of_call = OPAQUE[provider]
    events = calls(piece(FIRST[1], call_id="a", index=0, **of_call))
    request = stage.request(flow, dict(FLOWS[flow].body), **FLOWS[flow].options)
    answer(stage, raw(*([chunk(of_message)] if of_message else []), *events), plain()(TEXT))
    other = next(one for one in STACKS if one != name)
    broken = stage.candidate(flow, name, breaking(LATE[flow], "exception"))
    told = await stage.tell(flow, request, [broken, other])
    assert told.outcome == Completed()
    assert len(told.exchange.runs) == 2
    assert FLOWS[flow].ended(told.events) == Ended(TEXT, None)
    _, again = (one.body["messages"] for one in stage.sim.requests)
    message = again[-2]
    assert {key: message.get(key) for key in of_message} == of_message
    assert {key: message["tool_calls"][0].get(key) for key in of_call} == of_call


@pytest.mark.parametrize("name", STACKS)
@pytest.mark.parametrize("flow", WITH_TOOLS)
async def test_calls_under_another_reason_are_not_run(
    stage: Stage, caplog: pytest.LogCaptureFixture, flow: str, name: str
) -> None:
    """Tools run where the finish reason is `tool_calls`; of others the log says that none ran."""
    answer(stage, raw(*calls(piece(FIRST[1], call_id="a", index=0), finish="stop")), plain()(TEXT))
    told = await tell(stage, flow, name)
    assert told.events
    assert len(stage.sim.requests) == 1
    assert "calls=1 not run finish=stop" in caplog.messages
