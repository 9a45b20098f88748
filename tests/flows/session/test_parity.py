"""Both stacks hold drawn conversations alike: same bytes, same effects, same threads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Literal

import pytest

from contract.errors import Fault, FaultCode
from contract.flows.session import SessionOptions, SessionRequest
from contract.model import Chunk
from contract.stores import MemoryEntry
from cutover.selftest.cases import INFO, SLOW, TOOLS, Answer, answers, likely, rarely, text
from effects.memory import InMemoryMemory
from effects.model import Fail
from graph_impl import FLOWS as GRAPH
from graph_impl.session import session
from graph_impl.threads import MemoryThreads
from router.serving.stack import LocalStack
from tests.support.flow_runs import DIRECTIONS, STACKS, drawn_conversations, same_on_both
from tests.support.session_turns import House, Saying, said, stored

USERS = ("u-1", "u-1", "u-1", "u-2", None)
SESSION = "s-1"
OTHER = "s-0"
OPERATIONS = """{"operations": [
    {"op": "update", "id": "m1", "text": "hello there is a cat from here", "type": "preference"},
    {"op": "update", "id": "k-2", "text": "hello, hello"},
    {"op": "delete", "id": "m9"},
    {"op": "DELETE", "id": "m2"},
    {"op": "add", "text": "hello there", "type": "plan", "confidence": 0.9}
]}"""
LEARNT = (
    '{"facts": ["likes tea"]}',
    '{"facts": ["likes tea", "likes tea", " lives in 北京 "]}',
    '```json\n{"memories": [{"text": "has a cat", "confidence": 0.8}]}\n```',
    'Here you are: ["owns {braces}", {"content": "👩‍👩‍👧"}] – done',
    '{"facts": ["sure", {"text": "no", "confidence": 0.29}, {"text": "yes", "confidence": 0.3}]}',
    '{"facts": []}',
    '{"facts": [1, null, "", {"text": 5}, "\\u0000", "good"]}',
    '{"facts": {"a": 1}}',
    '{"facts": ["cut off',
    "没有",
    "",
    "[" * 300,
    OPERATIONS,
    '{"operations": [{"op": "update", "id": "m1", "text": "hello there are two cats"}]}',
    '{"operations": [{"op": "delete", "id": "m1"}, {"op": "add", "text": "hello from there"}]}',
)
KNOWN = (
    MemoryEntry(memory_id="k-1", user_id="u-1", text="hello there is a cat", session_id=OTHER),
    MemoryEntry(memory_id="k-2", user_id="u-1", text="there\nare two lines", session_id=OTHER),
    MemoryEntry(memory_id="k-3", user_id="u-1", text="hello from here", session_id=SESSION),
    MemoryEntry(memory_id="k-4", user_id="u-2", text="hello of another", session_id=OTHER),
)
STORE_SITES = ("history", "message", "reply", "learn")
MEMORY_SITES = ("recall", "known", "same", "learn")
MEMORY_FAULTS: tuple[FaultCode, ...] = ("memory_failed", "memory_unavailable")
Recalls = Literal["always", "new_session_only"]
RECALLS: tuple[Recalls, ...] = ("always", "always", "new_session_only")


def conversation(seed: int) -> Iterator[Saying]:
    """Draw the turns of one conversation, all in one house."""
    draw = Random(seed)
    house = House(memory=InMemoryMemory(KNOWN if likely(draw, 0.8) else ()))
    options, user = _options(draw), draw.choice(USERS)
    for number in range(draw.randint(1, 8)):
        yield _turn(draw, house, options, user, first=number == 0)


def _turn(
    draw: Random, house: House, options: SessionOptions, user: str | None, *, first: bool
) -> Saying:
    known = not first or likely(draw, 0.1)
    body = SessionRequest(
        message=text(draw, 1, 4) or "there",
        session_id=SESSION if known else None,
        user_id=user,
    )
    return Saying(
        body=body,
        begins="" if known else SESSION,
        house=house,
        options=options,
        answers=answers(draw),
        learnt=_learnt(draw),
        tools=TOOLS if likely(draw, 0.9) else {},
        slow=SLOW,
        models=(INFO,),
        tools_fail=rarely(draw, Fault("tool_list_failed", retryable=True)),
        lookup_fails=Fault("model_unavailable") if likely(draw, 0.01) else None,
        fails=_fails(draw),
        busy=likely(draw, 0.02),
    )


def _options(draw: Random) -> SessionOptions:
    return SessionOptions(
        system_prompt=draw.choice(("你是一个有用的助手。", "{x} {{y}} {% z %}\n", "")),
        model_id=draw.choice(("gpt-4.1",) * 20 + ("no-such-model",)),
        temperature=draw.choice((0.7, 0.0, 2)),
        max_tokens=draw.choice((0,) * 9 + (4_096, 4_097)),
        enable_tools=likely(draw, 0.9),
        max_tool_iterations=draw.choice((10, 10, 0, 1, 2)),
        history_limit=draw.choice((100, 100, 1, 3)),
        history_tokens=draw.choice((8_000, 8_000, 12, 0)),
        recall=draw.choice(RECALLS),
        recall_limit=draw.choice((5, 5, 1, 0)),
        extract_from=draw.choice((4, 4, 1, 0)),
        extraction=draw.choice(("changes", "changes", "changes", "facts")),
        least_confidence=draw.choice((0.3, 0.3, 0.0, 0.9)),
        unknown_session=draw.choice(("refuse", "create")),
    )


def _fails(draw: Random) -> dict[str, Fault]:
    found: dict[str, Fault] = {}
    if likely(draw, 0.05):
        found[draw.choice(STORE_SITES)] = Fault("store_failed")
    if likely(draw, 0.1):
        found[draw.choice(MEMORY_SITES)] = Fault(draw.choice(MEMORY_FAULTS))
    return found


def _learnt(draw: Random) -> Answer:
    said = draw.choice(LEARNT)
    half = draw.randrange(len(said) + 1)
    pieces = (Chunk(text=said[:half]), Chunk(text=said[half:], reasoning="hm"))
    if likely(draw, 0.1):
        return (pieces[0], Fail(Fault("model_truncated", retryable=True)))
    return (*pieces, Chunk(finish="stop"))


pytestmark = pytest.mark.virtual


@pytest.mark.slow
@drawn_conversations(64, per_test=8, traced=(0, 8, 40))
async def test_drawn_conversations_are_held_alike(seeds: range) -> None:
    """Each turn recorded by one stack, tailed and replayed by the other, taking turns.

    Whenever the graph served to the end, its thread is what the store holds; no other run of it
    has touched the thread.
    """
    ended = Counter[object]()
    for seed in seeds:
        threads = MemoryThreads()
        flows = {**GRAPH, "session": session(threads=threads)}
        stacks = {**STACKS, "graph": LocalStack("graph", flows, "g1")}
        for number, turn in enumerate(conversation(seed)):
            first, second = DIRECTIONS[(seed + number) % 2]
            before = await said(threads, turn.session)
            played = await same_on_both(turn, first, second, stacks)
            after = await said(threads, turn.session)
            if first == "legacy":
                assert after == before
            elif played.ended[0] == "completed":
                assert after == await stored(turn)
            ended[played.ended[0]] += 1
    assert len(ended) > 1  # the draw is not all sunshine
    assert ended["completed"] > sum(ended.values()) / 3
