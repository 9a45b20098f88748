"""Calls whose server asks back: which call a question belongs to, and what ends one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from mcp import MCPError
from mcp.shared.dispatcher import ProgressFnT
from mcp_types import (
    CallToolResult,
    ElicitRequestFormParams,
    ElicitResult,
    ErrorData,
    InputRequiredResult,
)

from effects.tools.mcp.questions import ANSWER_SECONDS, MAX_OPEN, Questions

ASKED = ElicitRequestFormParams(message="How many?", requested_schema={"type": "object"})
YES = ElicitResult(action="accept", content={"count": 2})


class Asking:
    """A call that asks so many times, whose server says nothing of which call it asks for."""

    def __init__(self, questions: Questions, times: int = 1) -> None:
        self.questions = questions
        self.times = times
        self.answers: list[Any] = []
        self.cancelled = False

    async def __call__(self, report: ProgressFnT) -> CallToolResult:
        """Ask, then report and end."""
        try:
            for _ in range(self.times):
                self.answers.append(await self.questions.elicit(_Context(), ASKED))
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        await report(1.0, None, None)
        return CallToolResult(content=[])


class _Context:
    request_id = 1


async def ignore(progress: float, total: float | None, message: str | None) -> None:
    """Ignore what is reported."""


def key_of(asked: object) -> tuple[str | None, str]:
    """Return the state and the one key of a question."""
    assert isinstance(asked, InputRequiredResult)
    [key] = asked.input_requests or {}
    return asked.request_state, key


async def test_each_question_is_a_round() -> None:
    """The next one brings the answer and gets the next question, the progress or the result."""
    questions = Questions(attributed=True)
    call, reported = Asking(questions, times=2), list[Any]()

    async def report(progress: float, total: float | None, message: str | None) -> None:
        reported.append((progress, total, message))

    asked = await questions.round(call, ignore, None, None)
    for _ in range(2):
        state, key = key_of(asked)
        asked = await questions.round(call, report, state, {key: YES})
    assert isinstance(asked, CallToolResult)
    assert call.answers == [YES, YES]
    assert reported == [(1.0, None, None)]


async def test_a_state_is_good_for_one_round() -> None:
    """Of one that is unknown, or over, the server no longer waits for anything."""
    questions = Questions(attributed=True)
    call = Asking(questions)
    state, key = key_of(await questions.round(call, ignore, None, None))
    await questions.round(call, ignore, state, {key: YES})
    for wrong in (state, "cutover-other"):
        with pytest.raises(MCPError, match="no longer waits"):
            await questions.round(call, ignore, wrong, {key: YES})


async def test_a_question_without_a_call_belongs_to_the_only_one() -> None:
    """Of a process: where there are several, or one of the router's own, it is refused."""
    questions = Questions(attributed=False)
    waiting = asyncio.Event()

    async def wait(_: ProgressFnT) -> CallToolResult:
        await waiting.wait()
        return CallToolResult(content=[])

    async def asked_beside() -> Any:
        return await questions.elicit(_Context(), ASKED)

    assert isinstance(await asked_beside(), ErrorData), "there is none"
    first = asyncio.create_task(questions.round(wait, ignore, None, None))
    await asyncio.sleep(0)
    questions.others = 1
    assert isinstance(await asked_beside(), ErrorData), "it may be the router's"
    questions.others = 0
    asking = asyncio.create_task(questions.elicit(_Context(), ASKED))
    state, key = key_of(await first)
    second = asyncio.create_task(questions.round(wait, ignore, None, None))
    await asyncio.sleep(0)
    assert isinstance(await asked_beside(), ErrorData), "there are two"
    waiting.set()
    await questions.round(wait, ignore, state, {key: YES})
    assert await asking == YES
    await second


@pytest.mark.virtual
@pytest.mark.parametrize("how", ["dropped", "late", "closed"])
async def test_a_call_that_is_not_answered_is_cancelled(how: str) -> None:
    """The server is told so, and waits no more."""
    questions = Questions(attributed=True)
    call = Asking(questions)
    state, key = key_of(await questions.round(call, ignore, None, None))
    if how == "dropped":
        questions.drop(state)
    elif how == "closed":
        questions.close()
    await asyncio.sleep(ANSWER_SECONDS + 1 if how == "late" else 0)
    await asyncio.sleep(0)
    assert call.cancelled
    with pytest.raises(MCPError, match="no longer waits"):
        await questions.round(call, ignore, state, {key: YES})


async def test_cancelling_a_round_cancels_its_call() -> None:
    """It is a call like any other."""
    questions = Questions(attributed=True)
    ended: list[str] = []

    async def wait(_: ProgressFnT) -> CallToolResult:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        return CallToolResult(content=[])

    task = asyncio.create_task(questions.round(wait, ignore, None, None))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    await asyncio.sleep(0)
    assert ended == ["cancelled"]


async def test_the_oldest_of_too_many_questions_is_cancelled() -> None:
    """What is never answered does not grow."""
    questions = Questions(attributed=True)
    calls = [Asking(questions) for _ in range(MAX_OPEN + 1)]
    for call in calls:
        await questions.round(call, ignore, None, None)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [call.cancelled for call in calls] == [True, *[False] * MAX_OPEN]
    questions.close()
    await asyncio.sleep(0)
