"""Forks: golden tapes are played up to each request to a model, and live from there on."""

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cutover.errors import Completed, Failed, WriteFenced
from cutover.tape import Fork
from cutover.tape.transport import status_of
from effects.builtin_tools import BUILT_IN
from effects.tools import Tools
from effects.world import use
from harness.commands.replay import IN_MEMORY
from loadtests.simulator import Answer, FunctionCall
from tests.flows import golden
from tests.flows.golden import CASES
from tests.flows.golden_case import SETTINGS
from tests.flows.test_companion_pauses import book, booked
from tests.flows.test_golden import TAPES, played
from tests.support.stage import STACKS, Stage, staged

pytestmark = [pytest.mark.virtual, pytest.mark.slow]

ROWS: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_name("forks.toml").read_text())
MODELS = {
    name: [one for one in case.tape.entries if one.name == "model.chat"]
    for name, case in TAPES.items()
}


async def forked(stage: Stage, name: str, stack: str, fork: Fork, answers: list[Answer]) -> Any:
    """Play a case's tape to a stack, live from `fork` on; and what the tape did not answer."""
    stage.sim.requests.clear()
    stage.sim.script(answers)
    found, _ = await played(stage, CASES[name], stack, fork)
    live = [one.call.name for one in found.run.plays if one.how != "tape"]
    assert live.count("model.chat") == len(stage.sim.requests)
    return found, live


@pytest.mark.parametrize(
    ("name", "stack"),
    [
        pytest.param(name, stack, marks=pytest.mark.nightly if (number + turn) % 2 else ())
        for number, name in enumerate(name for name, asked in MODELS.items() if asked)
        for turn, stack in enumerate(STACKS)
    ],
)
async def test_a_fork_that_is_answered_alike_tells_the_same(name: str, stack: str) -> None:
    """At each request: earlier ones are played, the others made, and no tool and store is asked.

    By day each case is forked by one stack, in turn.
    """
    async with staged(**SETTINGS) as stage:
        for at in range(1, len(MODELS[name]) + 1):
            rest = MODELS[name][at - 1 :]
            items = [[item.data for item in one.items] for one in rest if one.end == "done"]
            if len(items) < len(rest) or any(status_of(one[0]) >= 400 for one in items):
                continue  # another failure than those that a simulated provider has
            answers = [Answer(raw=b"".join(one[1:]).decode()) for one in items]
            found, live = await forked(stage, name, stack, Fork(at, performs=IN_MEMORY), answers)
            assert golden.digest(found.sent) == TAPES[name].told, at
            assert [one for one in live if one != "human.answer"] == ["model.chat"] * len(answers)


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("name", ROWS)
async def test_what_follows_from_another_answer(name: str, stack: str) -> None:
    """What came before stays; what is on the tape is found there; writes are made if declared."""
    row = {"call": (), "performs": (), "fenced": ""} | ROWS[name]
    answers = [Answer(tool_calls=(FunctionCall(*row["call"]),))] if row["call"] else []
    performs = IN_MEMORY.union(row["performs"]) - {row["fenced"]}
    more = Fork(row["at"], performs=performs), [*answers, Answer(text="Otherwise.")]
    booked.clear()
    async with staged(**SETTINGS) as stage:
        tools = Tools([*BUILT_IN, book]) if "book" in row["call"] else stage.world.tools
        with use(replace(stage.world, tools=tools)):
            found, live = await forked(stage, "chat, a tool", stack, *more)
    assert golden.lines_of(found.frames) == ["ACCEPT", "START_REPLY", *row["told"], "END"]
    assert (live, booked) == (row["asked"], ["Friday"] * ("tool.book" in live))
    fenced = Failed("write_fenced", detail=str(WriteFenced(row["fenced"])))
    assert found.outcome == (fenced if row["fenced"] else Completed())
