"""Independent instructions run side by side, and their events come in the order of the step."""

from __future__ import annotations

import msgspec
import pytest

from contract.errors import Fault
from contract.workers import WorkerCall
from effects.model import Fail, Wait
from effects.workers import WorkerStep
from tests.support.flow_runs import DIRECTIONS, play, same_on_both
from tests.support.ops_turns import (
    DISK,
    FINAL,
    MEMORY,
    RESTART,
    YES,
    FailingAudit,
    House,
    good,
    shift,
    steps,
)

pytestmark = pytest.mark.virtual

SECONDS = (3.0, 1.0, 8.0, 0.5, 10.0, 2.0, 9.0, 4.0)


def logs(count: int) -> tuple[str, ...]:
    """Return instructions that take differently long."""
    call = '{{"worker":"container","action":"logs","args":{{"name":"{}"}}}}'
    return tuple(call.format(f"c{number}") for number in range(count))


def slowly(call: WorkerCall) -> tuple[WorkerStep, ...]:
    """Take as long as the container's name says."""
    name = str(call.args["name"])
    seconds = SECONDS[int(name[1:])]
    return (f"{name} begins", Wait(seconds), f"{name} ends", good(name))


@pytest.mark.parametrize(("first", "second"), DIRECTIONS)
@pytest.mark.parametrize("count", [2, 8])
async def test_a_step_takes_as_long_as_its_slowest_instruction(
    count: int, first: str, second: str
) -> None:
    """The events are in the order of the instructions, whichever ends first."""
    turn = shift("hm", steps(*logs(count)), FINAL, workers=slowly)
    played = await same_on_both(turn, first, second)
    shown = [line for line in played.wire.splitlines() if line.startswith("data: ")]
    order = [f"c{number}" for number in range(count)]
    assert [line[-4:-2] for line in shown if '"ok":true' in line] == order
    begun = [line for line in shown if "begins" in line or "ends" in line]
    assert [line.split('"')[-2].split()[0] for line in begun] == sorted(order * 2)
    slowest = max(SECONDS[:count])
    assert slowest <= played.run.frames[-1].at / 1_000_000 <= 1.2 * slowest
    assert len(played.world.workers.calls) == count


async def test_an_event_is_sent_as_soon_as_those_before_it_have_ended(stack: str) -> None:
    """Progress of the first at once; what another one has done meanwhile, all at its turn."""
    turn = shift("hm", steps(*logs(3)), FINAL, workers=slowly)
    played = await play(stack, turn)
    at = {
        frame.data.split(b'"message":"')[1].split(b'"')[0].decode(): frame.at / 1_000_000
        for frame in played.run.frames
        if b'"message":"' in frame.data and b"event: progress" in frame.data
    }
    assert at == {
        "c0 begins": 0,
        "c0 ends": 3,
        "c1 begins": 3,
        "c1 ends": 3,
        "c2 begins": 3,
        "c2 ends": 8,
    }


async def test_a_step_with_a_risky_instruction_runs_one_by_one(stack: str) -> None:
    """Before and after it: the second begins when the first has ended."""
    turn = shift("hm", steps(DISK, RESTART, MEMORY), FINAL, human=(YES,))
    played = await play(stack, turn)
    assert [call.action for call in played.world.workers.ended] == ["disk", "restart", "memory"]
    assert played.run.frames[-1].at == 6_500_000
    assert [entry.action for entry in turn.house.audit.entries] == [
        *("disk", "disk"),
        *("restart", "restart", "restart"),
        *("memory", "memory"),
    ]


@pytest.mark.parametrize(("first", "second"), DIRECTIONS)
async def test_instructions_beyond_the_most_of_a_step_are_refused(first: str, second: str) -> None:
    """Events, log and model say so of each."""
    turn = shift("hm", steps(*[DISK] * 13), FINAL)
    played = await same_on_both(turn, first, second)
    assert len(played.world.workers.calls) == 10
    assert played.wire.count("没有执行 system.disk：too_many_instructions") == 3
    refused = [one.code for one in turn.house.audit.entries if one.event == "refused"]
    assert refused == ["too_many_instructions"] * 3
    assert str(played.asked[-1].messages[-1].content).count('"too_many_instructions"') == 3


async def test_what_follows_a_failure_in_a_risky_step_is_dropped(stack: str) -> None:
    """The model is told, and decides anew."""
    unwell = {"system.disk": (Fail(Fault("worker_unavailable")),)}
    turn = shift("hm", steps(DISK, RESTART), FINAL, workers=unwell, human=(YES,))
    played = await play(stack, turn)
    assert [call.action for call in played.world.workers.calls] == ["disk"]
    told = str(played.asked[-1].messages[-1].content).splitlines()
    assert "worker_unavailable" in told[0]
    assert [msgspec.json.decode(told[1])[key] for key in ("action", "code")] == [
        *("restart", "dropped"),
    ]
    assert played.wire.endswith('"completed"}\n\n')


@pytest.mark.parametrize(("first", "second"), DIRECTIONS)
async def test_a_log_that_fails_midway_ends_the_turn(first: str, second: str) -> None:
    """What runs beside is not shown any more, and nothing else begins."""
    turn = shift("hm", steps(*logs(3)), FINAL, workers=slowly, house=House(audit=FailingAudit(3)))
    played = await same_on_both(turn, first, second)
    assert played.wire.count("event: result") == 1
    assert played.wire.endswith(
        '{"code":"audit_unavailable"}\n\nevent: done\ndata: {"status":"failed"}\n\n'
    )
    assert played.world.count("model.stream") == 1


async def test_a_turn_ends_after_its_iterations(stack: str) -> None:
    """With a code; an answer that is unclear counts, too."""
    turn = shift("hm", steps(DISK), steps(), max_iterations=3)
    played = await play(stack, turn)
    assert played.world.count("model.stream") == 3
    assert '{"code":"too_many_iterations"}' in played.wire
    assert len(played.world.workers.calls) == 1
