"""The ops flow, told by both stacks: instructions, approvals, the audit log, errors."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cutover.errors import Failed, Pause, Refused
from harness.builtin import OPERATIONS
from loadtests.simulator import Answer
from rules.flows.ops import OpsSession
from tests.support.databases import audit_lines
from tests.support.stage import STACKS, Stage, Told, staged

pytestmark = pytest.mark.virtual

FILES = ("a.log", "b.log", "c.tmp")


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    """A stage whose workers may delete three files."""
    for name in FILES:
        (tmp_path / name).write_text("x")
    async with staged(workers={"temporary_root": str(tmp_path)}) as opened:
        yield opened


async def tell(stage: Stage, name: str, words: str, **body: Any) -> Told:
    """Serve a request and check that shadows of both stacks are equal to what was served."""
    request = stage.request("ops", {"input": words, "session_id": "s"} | body)
    return await stage.checked(await stage.tell("ops", request, [name]))


async def decide(stage: Stage, name: str, *, approved: bool = True) -> Told:
    """Answer the session's open question."""
    body = {"session_id": "s", "approved": approved, "by": "ann"}
    return await stage.resume("ops", body, [name])


def plain(told: Told) -> list[tuple[Any, ...]]:
    """Return the events: name and the fields that tests expect, by value."""
    kept = ("iteration", "action", "risk", "ok", "message", "code", "status")
    return [(name, *(data[one] for one in kept if one in data)) for name, data in told.events]


def names(told: Told) -> list[str]:
    """Return the calls on the tape, in order."""
    return [one.call.name for one in told.exchange.tape.entries]


def left(folder: Path) -> set[str]:
    """Return the files that are left."""
    return {one.name for one in folder.iterdir()}


@pytest.mark.parametrize("name", STACKS)
async def test_a_certain_request_needs_no_model(stage: Stage, name: str) -> None:
    """Confidence 0.9 and more skips the model, and the result is the reply."""
    told = await tell(stage, name, "检查内存")
    [step, result, final, done] = plain(told)
    assert step == ("step", 1, "memory", "low")
    assert result[:3] == ("result", "memory", True)
    assert final == ("final", result[3])
    assert done == ("done", "completed")
    assert stage.model_calls == 0
    [line] = await audit_lines("s")
    assert (line.who, line.what, line.action, line.ok) == ("assistant", "executed", "memory", True)
    assert re.match(r"\d{4}-\d\d-\d\dT", line.at)


@pytest.mark.parametrize("name", STACKS)
async def test_a_risky_instruction_waits_for_its_approval(
    stage: Stage, name: str, tmp_path: Path
) -> None:
    """It is executed after the approval, and the audit log says who approved it and when."""
    asked = await tell(stage, name, "delete temporary *.log")
    assert [one[0] for one in plain(asked)] == ["step", "approval_required", "done"]
    assert plain(asked)[1:] == [
        ("approval_required", "delete_temporary", "high"),
        ("done", "approval_required"),
    ]
    assert isinstance(asked.outcome, Pause)
    assert left(tmp_path) == set(FILES)
    told = await decide(stage, name)
    assert plain(told) == [
        ("progress", "2 deleted, the last b.log"),
        ("result", "delete_temporary", True, "2 files deleted, 2 B"),
        ("final", "2 files deleted, 2 B"),
        ("done", "completed"),
    ]
    assert left(tmp_path) == {"c.tmp"}
    lines = await audit_lines("s")
    assert [(one.who, one.what, one.ok) for one in lines] == [
        ("ann", "approved", None),
        ("ann", "executed", True),
    ]
    assert all(one.at and one.args == {"pattern": "*.log"} for one in lines)
    assert names(told)[-5:] == [
        "audit.write",
        "worker.system.delete_temporary",
        "audit.write",
        "model.chat",
        "conversations.add",
    ]


@pytest.mark.parametrize("name", STACKS)
@pytest.mark.parametrize(
    ("instruction", "code"),
    [
        ('{"worker":"weather","action":"ask"}', "unknown_worker"),
        ('{"worker":"system","action":"format","args":{}}', "unknown_action"),
        ('{"worker":"system","action":"disk","args":{"force":true}}', "bad_arguments"),
    ],
)
async def test_what_no_worker_can_do_is_a_result(
    stage: Stage, name: str, instruction: str, code: str
) -> None:
    """No approval is asked for, nothing is executed, and the model reads why."""
    stage.sim.script([Answer(text=instruction), Answer(text='```json\n{"final":"没有。"}\n```')])
    told = await tell(stage, name, "do something")
    [step, result, final, done] = plain(told)
    assert (step[0], result[2], result[3][-len(code) :]) == ("step", False, code)
    assert (final, done) == (("final", "没有。"), ("done", "completed"))
    assert await audit_lines("s") == []


async def test_fifty_steps_are_possible(stage: Stage) -> None:
    """The hard limit of `max_iterations` is within what a graph may run; legacy plays it alike."""
    stage.sim.script([Answer(text='{"worker":"weather","action":"ask"}')] * 50)
    told = await tell(stage, "graph", "do something", max_iterations=50)
    assert [one[0] for one in plain(told)] == ["step", "result"] * 50 + ["error", "done"]


@pytest.mark.parametrize("name", STACKS)
@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (Answer(text="All is well."), "bad_instruction"),
        (Answer(text='{"worker":1,"action":"disk"}'), "bad_instruction"),
        (Answer(text='{"final":"half'), "bad_instruction"),
        (Answer(text='{"final":"x"}', finish=None), "model_truncated"),
    ],
)
async def test_an_answer_that_cannot_be_used_ends_the_turn(
    stage: Stage, name: str, answer: Answer, code: str
) -> None:
    """With the flow's failure frames after what was sent, and no text of an exception."""
    first = Answer(text='{"worker":"system","action":"memory"}')
    stage.sim.script([first, answer])
    told = await tell(stage, name, "do something")
    assert [one[0] for one in plain(told)] == ["step", "result", "error", "done"]
    assert plain(told)[-2:] == [("error", code), ("done", "failed")]
    assert isinstance(told.outcome, Failed)


@pytest.mark.parametrize("name", STACKS)
@pytest.mark.parametrize("odd", ["\u2028\u0085 x", "é👨‍👩‍👧\u0301", '"}\\n{%raw%}{{x}}', "\ufeff…"])
async def test_odd_text_arrives_as_it_was(stage: Stage, name: str, odd: str) -> None:
    """In the model's reply, in the request and in arguments."""
    step = {"worker": "network", "action": "reach", "args": {"host": odd}}
    script = [Answer(text=msgspec.json.encode(one).decode()) for one in (step, {"final": odd})]
    stage.sim.script(script)
    told = await tell(stage, name, f"what is {odd}?")
    assert told.events[0][1]["args"] == {"host": odd}
    assert plain(told)[-2:] == [("final", odd), ("done", "completed")]
    assert [one.content for one in (await session()).messages] == [f"what is {odd}?", odd]


@pytest.mark.parametrize("name", STACKS)
async def test_references_mean_the_items_of_the_last_result(stage: Stage, name: str) -> None:
    """A session keeps its context across turns, whichever stack has served them."""
    other = STACKS[1 - STACKS.index(name)]
    await tell(stage, name, "delete temporary files")
    await decide(stage, other)
    for words, meant in {"the second one": "b.log", "最后一个": "c.tmp"}.items():
        stage.sim.script([Answer(text='{"final":"An odd file."}')])
        await tell(stage, other, f"what is {words}?")
        assert stage.sim.requests[-1].body["messages"][-1]["content"] == f"what is {meant}?"


async def session(name: str = "s") -> OpsSession:
    """Return a session as `GET` does."""
    found: OpsSession = await OPERATIONS["ops.session"]({"session_id": name}, None)
    return found


@pytest.mark.parametrize("name", STACKS)
async def test_a_session_shows_what_it_waits_for(stage: Stage, name: str) -> None:
    """Iteration, messages, and the approval, for as long as it is open."""
    with pytest.raises(Refused, match="404"):
        await session()
    asked = await tell(stage, name, "show the memory then delete temporary *.log")
    shown = await session()
    assert (shown.session_id, shown.iteration) == ("s", 2)
    assert [one.role for one in shown.messages] == ["user"]
    assert shown.pending
    assert shown.pending.approval_id == asked.events[-2][1]["approval_id"]
    await decide(stage, name)
    shown = await session()
    assert (shown.iteration, bool(shown.pending)) == (2, False)
    assert [one.role for one in shown.messages] == ["user", "assistant"]
