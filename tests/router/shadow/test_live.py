"""Shadows that ask the model themselves: all else is played, and nothing reaches the world."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from contract.errors import Fault
from contract.model import Chunk, ModelCall, Usage
from contract.records import RunRecord
from effects.model import Fail, Hang, ScriptedModel, Step, in_turn
from router.stack import StackName
from tests.support.router_world import House, Rules
from tests.support.tool_replies import ASSIGNED, CASE, called, pieces, undisturbed

pytestmark = pytest.mark.virtual

TOKENS = Usage(10, 20, 30)
END: tuple[Step, ...] = (Chunk(finish="stop"), Chunk(usage=TOKENS))
OTHERWISE: tuple[tuple[Step, ...], ...] = (
    (*pieces("Hm, ", "hm"), called("dice", "calc"), Chunk(finish="tool_calls")),
    (*pieces(" so", " five."), *END),
)


def model(*rounds: tuple[Step, ...]) -> ScriptedModel:
    """Make a model that answers in rounds, alike in every exchange."""

    def script(call: ModelCall) -> tuple[Step, ...]:
        return rounds[sum(message.__struct_config__.tag == "tool" for message in call.messages) > 0]

    return ScriptedModel(script)


def live(asked: ScriptedModel | None, assigned: StackName = "legacy", **rules: Any) -> House:
    """Build a house whose shadows may ask a model."""
    return House(
        CASE,
        Rules(assigned=assigned, shadow=100, mode="live", asks=asked, **rules),
    )


def calls(run: RunRecord) -> dict[str, set[str]]:
    """Return how a run's calls were answered: its model's, and all others."""
    plays = [("model" if play.op == "stream" else "others", play.how) for play in run.plays]
    return {kind: {how for one, how in plays if one == kind} for kind in ("model", "others")}


@pytest.mark.parametrize("assigned", ASSIGNED)
async def test_the_model_is_asked_anew_and_the_world_is_not(assigned: StackName) -> None:
    """The client's bytes, and what was done, are as without a shadow; the record says who asked."""
    async with House(CASE, Rules(assigned=assigned)) as quiet:
        await quiet.ask()
    asked = model(*OTHERWISE)
    async with live(asked, assigned) as made:
        served = await made.ask()
        assert served.wire == await undisturbed(assigned)
        assert made.states == {"compared(own_answers)": 1}
        assert made.world.made == quiet.world.made
        assert made.router.shadows.budget.tokens == 30
        serving, shadow = made.runs
    assert len(asked.calls) == 2
    assert asked.open == 0
    assert calls(serving)["model"] == {"live"}
    assert calls(shadow)["model"] == {"live"}
    assert calls(shadow)["others"] <= {"exact", "nearest"}
    assert (shadow.outcome, shadow.tape) == ("completed", None)
    assert "Hm, hm so five." in shadow.frames[-2][1]
    assert [use.usage for use in shadow.models] == [None, TOKENS]
    for play in shadow.plays:
        if play.op == "stream":
            assert play.entry is None
            assert msgspec.json.decode(bytes(play.args or b""))["messages"]


async def test_a_tool_nobody_ran_is_not_run_for_a_shadow() -> None:
    """What is not on the tape is not to be had: the shadow ends there, the world is not asked."""
    once = (called("dice"), Chunk(finish="tool_calls"))
    async with live(model(once, once)) as made:
        await made.ask()
        _, shadow = made.runs
        assert sorted(made.world.tools.called) == ["calc", "dice"]
        assert made.world.count("conversations.put") == 2
    assert shadow.error is not None
    assert shadow.error.code == "tape_miss"


@pytest.mark.parametrize("assigned", ASSIGNED)
async def test_behind_an_answer_that_failed_nothing_is_asked(assigned: StackName) -> None:
    """Another answer would lead where the tape has nothing: it would not be the shadow's fault."""
    asked = model(*OTHERWISE)
    failing = replace(CASE, answers=((Chunk(text="Hm"), Fail(Fault("model_unavailable"))),))
    async with House(
        failing, Rules(assigned=assigned, shadow=100, mode="live", asks=asked)
    ) as made:
        await made.ask()
        assert made.states == {"cancelled(world_failed)": 1}
    assert asked.calls == []


async def test_past_the_budget_shadows_are_dropped() -> None:
    """And nothing is asked any more."""
    asked = model(*OTHERWISE)
    async with live(asked, tokens=30) as made:
        for number in range(3):
            await made.ask(msgspec.structs.replace(CASE.body, message_id=f"m{number}"))
        assert made.states == {"compared(own_answers)": 1, "dropped(budget)": 2}
    assert len(asked.calls) == 2


async def test_a_model_that_hangs_is_dropped_with_its_shadow() -> None:
    """The client has long been served; the call does not outlive the run."""
    asked = ScriptedModel([Hang()])
    async with live(asked, shadow_seconds=5.0) as made:
        await made.ask()
        _, shadow = made.runs
        assert shadow.error is not None
        assert shadow.error.code == "shadow_timeout"
        await asyncio.sleep(0)
        assert asked.open == 0


async def test_several_wait_for_the_model_side_by_side() -> None:
    """As many as may ask it; one that hangs holds up no other."""
    asked = ScriptedModel(in_turn([Hang()], *(OTHERWISE[1] for _ in range(2))))
    async with live(asked, shadow_seconds=50.0) as made:
        tickets = [
            asyncio.create_task(made.ask(msgspec.structs.replace(CASE.body, message_id=f"m{at}")))
            for at in range(3)
        ]
        await asyncio.sleep(20.0)
        assert made.router.ledger.total("compared") == 2
        await asyncio.gather(*tickets)
        assert made.router.ledger.total("compared") == 3


async def test_a_router_that_stops_drops_what_shadows_asked() -> None:
    """Nothing is left behind."""
    asked = ScriptedModel([Hang()])
    async with live(asked) as made:
        await made.client(CASE.body)
        await asyncio.sleep(5.0)
        assert asked.open == 1
        await made.router.aclose(1.0)
        await asyncio.sleep(1.0)
        assert (asked.open, made.states) == (0, {"dropped(stopping)": 1})


async def test_without_a_model_of_their_own_they_play() -> None:
    """As in any other mode."""
    async with live(None) as made:
        await made.ask()
        assert made.states == {"compared(equal)": 1}
