"""Faults of the model's provider: what clients get, whose fault it is, and both stacks alike."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

import pytest

from cutover import Event, Request, Stack
from cutover.errors import Completed, Failed
from loadtests.simulator import Answer, FunctionCall, ModelRequest
from rules.flows.pipeline import NodeFailure, PipelineMessage, TokenInfo
from rules.prompts import TEXTS
from tests.flows.faults import (
    DONE,
    FLOWS,
    ROWS,
    TEXT,
    Ended,
    chunk,
    early_finish,
    finish_each,
    pieces,
    raw,
)
from tests.support.stage import STACKS, Stage, Told, outcome_facts, staged

pytestmark = pytest.mark.virtual


def _checks_memory(request: ModelRequest) -> bool:
    return "不需要检索" in request.system + request.question


def answer(stage: Stage, *answers: Answer, check: Answer | None = None) -> None:
    """Let the provider give answers in order, the last one ever again, and one to memory checks."""
    following = itertools.chain(answers, itertools.repeat(answers[-1]))
    stage.sim.on(_checks_memory, check or Answer(text="不需要检索"))
    stage.sim.on(lambda _: True, lambda _: next(following))


async def tell(stage: Stage, flow: str, name: str) -> Told:
    """Serve the flow's request by one stack; each stack must play its tape alike."""
    asked = FLOWS[flow]
    request = stage.request(flow, dict(asked.body), **asked.options)
    return await stage.checked(await stage.tell(flow, request, [name]))


def by_turns(rows: Iterable[str], flows: Sequence[str]) -> list[Any]:
    """Return flows with rows: each row in one flow by day, in all of them at night."""
    found = []
    for number, name in enumerate(rows):
        for flow in flows:
            slow = name in ROWS and ROWS[name].code == "model_timeout"
            marks = [pytest.mark.slow] if slow else []
            if flow != flows[number % len(flows)]:
                marks.append(pytest.mark.nightly)
            found.append(pytest.param(flow, name, marks=marks))
    return found


INTERNALS = ("Error", "SECRET", "simulated", "server had", "Expect", "object", "codec", "litellm")
"""Words of exceptions, and of the provider's own sentences."""


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning")
@pytest.mark.parametrize("name", STACKS)
@pytest.mark.parametrize(("flow", "row"), by_turns(ROWS, list(FLOWS)))
async def test_a_fault_is_told_as_what_it_is(stage: Stage, flow: str, name: str, row: str) -> None:
    """All of the text, or a failure with its code: nothing is cut off and called whole."""
    asked, chosen = FLOWS[flow], ROWS[row]
    answers = chosen.answers(asked.answer)
    answer(stage, *(answers if isinstance(answers, tuple) else (answers,)))
    told = await tell(stage, flow, name)
    checks = sum(
        "不需要检索" in json.dumps(one.body, ensure_ascii=False) for one in stage.sim.requests
    )
    assert stage.model_calls - checks == chosen.asked
    assert not [one for one in INTERNALS if one.encode() in b"".join(told.frames)]
    if chosen.code is None:
        assert told.outcome == Completed()
        assert asked.ended(told.events) == Ended(TEXT, None)
        return
    assert outcome_facts(told.outcome) == (Failed, chosen.code, chosen.blame)
    assert told.calls["conversations.add"] <= 1  # a reply that is not whole is not stored
    if not told.frames:
        assert not asked.opens
        return
    ended = asked.ended(told.events)
    assert ended.code == chosen.code
    assert TEXT.startswith(ended.text)
    assert bool(ended.text) == (chosen.said and asked.streams)


WORST = ("429", "cut in the middle", "garbage first", "400", "401")


@pytest.mark.parametrize("row", WORST)
@pytest.mark.parametrize("name", STACKS)
@pytest.mark.parametrize("flow", FLOWS)
async def test_the_other_stack_asks_no_provider_that_failed(
    stage: Stage, flow: str, name: str, row: str
) -> None:
    """What the world did is not tried again; what the stack did is, and found on the tape."""
    asked, chosen = FLOWS[flow], ROWS[row]
    given = chosen.answers(asked.answer)
    answer(stage, *(given if isinstance(given, tuple) else (given,)))
    request = stage.request(flow, dict(asked.body), **asked.options)
    alone = await stage.tell(flow, request, [name])
    attempts = len(stage.sim.requests)
    stage.sim.requests.clear()

    body = json.loads(json.dumps(asked.body).replace('"s"', '"t"').replace('"m"', '"n"'))
    other = next(one for one in STACKS if one != name)
    both = await stage.tell(flow, stage.request(flow, body, **asked.options), [name, other])
    assert outcome_facts(both.outcome) == outcome_facts(alone.outcome)
    assert len(both.events) == len(alone.events)
    if both.events:
        assert asked.ended(both.events) == asked.ended(alone.events)
    assert len(stage.sim.requests) == attempts
    assert len(both.exchange.runs) == (1 if chosen.blame == "world" else 2)


CHECKS = (
    *("429", "400", "never answers", "cut in the middle", "garbage first", "an error first"),
    *("no finish reason", "[DONE] alone", "an empty answer", "message instead of delta"),
)


@pytest.mark.parametrize("row", CHECKS)
@pytest.mark.parametrize("name", STACKS)
async def test_a_memory_check_that_fails_costs_the_memories_alone(
    stage: Stage, name: str, row: str
) -> None:
    """It is recorded, nothing is retrieved whatever it had said, and the answer comes."""
    [check] = [ROWS[row].answers("需要检索")]
    assert isinstance(check, Answer)
    answer(stage, Answer(text=TEXT), check=check)
    told = await tell(stage, "pipeline", name)
    last = told.events[-1][1]
    assert (last["success"], last["message"]) == (True, TEXT)
    assert last["errors"] == [{"node": "memory_check", "code": ROWS[row].code}]
    assert told.outcome == Completed()
    assert not [one for one in told.exchange.tape.entries if one.call.name == "store.search"]


UNSAID = {
    "filtered": Answer(text="", finish="content_filter"),
    "reasoning alone": Answer(text="", reasoning="let me think"),
    "tool calls alone": Answer(tool_calls=(FunctionCall("calculate", "{}"),)),
}


@pytest.mark.parametrize("row", UNSAID)
@pytest.mark.parametrize("name", STACKS)
async def test_a_pipeline_without_text_has_no_response(stage: Stage, name: str, row: str) -> None:
    """An empty message is no success."""
    answer(stage, UNSAID[row])
    told = await tell(stage, "pipeline", name)
    last = told.events[-1][1]
    assert (last["success"], last["message"]) == (False, None)
    assert last["errors"] == [{"node": "response_generator", "code": "model_empty"}]
    assert outcome_facts(told.outcome) == (Failed, "model_empty", "world")


@pytest.mark.parametrize(
    ("code", "served"),
    [
        ("model_bad_request", "graph"),
        ("model_auth", "graph"),
        ("model_unavailable", "legacy"),
    ],
)
async def test_a_stack_that_reports_a_failure_is_replaced_where_another_may_do_better(
    stage: Stage, code: str, served: str
) -> None:
    """Its report goes out only where it is the last word, and the exchange has failed then."""

    def reporting(_: Stack) -> Stack:
        async def reports(request: Request[Any, Any]) -> AsyncIterator[Event]:
            yield PipelineMessage(
                success=False,
                message=None,
                token_info=TokenInfo(1, request.options.token_limit, "continue"),
                end_intent=False,
                memories=(),
                errors=(NodeFailure("response_generator", code),),
            )

        return reports

    answer(stage, Answer(text=TEXT))
    asked = FLOWS["pipeline"]
    request = stage.request("pipeline", dict(asked.body))
    first = stage.candidate("pipeline", "legacy", reporting)
    told = await stage.tell("pipeline", request, [first, "graph"])
    assert told.exchange.served == served
    if served == "graph":
        assert told.outcome == Completed()
        assert asked.ended(told.events) == Ended(TEXT, None)
    else:
        assert outcome_facts(told.outcome) == (Failed, code, "world")
        assert asked.ended(told.events) == Ended("", code)
    assert outcome_facts(told.exchange.runs[0].run.ended)[:2] == (Failed, code)


@pytest.mark.parametrize("name", STACKS)
async def test_a_reason_that_comes_twice_is_one(stage: Stage, name: str) -> None:
    """The notice of a reply that was cut is appended, once."""
    answer(stage, raw(chunk({"content": TEXT}, "length"), chunk({}, "length"), DONE))
    told = await tell(stage, "chat", name)
    assert FLOWS["chat"].ended(told.events) == Ended(TEXT + TEXTS["chat"]["length"], None)


@pytest.mark.parametrize("seconds", [7, 70])
@pytest.mark.parametrize("name", STACKS)
async def test_the_time_to_wait_is_waited_once(stage: Stage, name: str, seconds: int) -> None:
    """A provider that names its seconds gets them: no stall, and no stack that plays waits."""
    limited = Answer(status=429, headers=(("retry-after", str(seconds)),))
    answer(stage, limited, Answer(text=TEXT))
    began = asyncio.get_running_loop().time()
    told = await tell(stage, "chat", name)
    assert told.outcome == Completed()
    assert seconds <= asyncio.get_running_loop().time() - began < seconds + 1


EARLY = {
    "then more": early_finish(TEXT),
    "with each word": finish_each(TEXT),
    "then the usage": Answer(pieces=tuple(pieces(TEXT)), usage="late"),
}


@pytest.mark.parametrize("row", EARLY)
@pytest.mark.parametrize("name", STACKS)
@pytest.mark.parametrize("flow", [flow for flow, asked in FLOWS.items() if asked.streams])
async def test_a_stream_ends_when_it_ends(flow: str, name: str, row: str) -> None:
    """What comes seconds behind a finish reason is part of the answer."""
    async with staged(chunk_ms=1_500) as stage:
        answer(stage, EARLY[row])
        told = await tell(stage, flow, name)
    assert FLOWS[flow].ended(told.events) == Ended(TEXT, None)
