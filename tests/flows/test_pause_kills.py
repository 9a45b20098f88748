"""Processes that are killed while they continue a pause: no write twice, and it is said."""

import asyncio
import random
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from cutover.errors import Completed, Pause, Refused
from loadtests.simulator import Simulator
from tests.support.continuing import Ended, Order, decide, opened
from tests.support.databases import audit_lines

ROOT = Path(__file__).parents[2]
STACKS = ("legacy", "graph")
LEASE_OVER = 60.0
"""Seconds after which the claim of a killed process has lapsed."""
SAID = "不知道 deploy.run 是否已经完成，没有重做，请自行确认。"


@asynccontextmanager
async def continuing() -> AsyncIterator[Process]:
    """Start the process that continues pauses, and end it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.support.continuing", stdin=PIPE, stdout=PIPE, cwd=ROOT
    )
    try:
        yield process
    finally:
        assert process.stdin
        process.stdin.close()
        await process.wait()


async def carry_out(process: Process, order: Order) -> Ended:
    """Have a pause continued, and its process killed."""
    assert process.stdin
    assert process.stdout
    process.stdin.write(msgspec.json.encode(order) + b"\n")
    return msgspec.json.decode(await process.stdout.readline(), type=Ended)


def ran(log: str) -> int:
    """Return how often the worker has run."""
    path = Path(log)
    return len(path.read_text().splitlines()) if path.exists() else 0


async def kill(folder: Path, monkeypatch: pytest.MonkeyPatch, kills: int) -> Counter[str]:
    """Kill at random moments, continue each pause in another process, and check both."""
    drawn, seen, logs = random.Random(7), Counter[str](), list[tuple[str, int, int]]()
    database, longest = f"sqlite+aiosqlite:///{folder}/kills.db", 0.0
    async with AsyncExitStack() as stack:
        sim = await stack.enter_async_context(Simulator())
        monkeypatch.setenv("OPENAI_BASE_URL", sim.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        process = await stack.enter_async_context(continuing())
        for number in range(-2, kills):  # the first are not killed: they show how long it takes
            first, second = STACKS[number % 2], STACKS[number // 2 % 2]
            session, log = f"s{number}", f"{folder}/{number}.log"
            async with opened(database, log, sim) as stage:
                body = {"session_id": session, "input": "please deploy the new version"}
                asked = await stage.tell("ops", stage.request("ops", body), [first])
                assert isinstance(asked.outcome, Pause)
                question = asked.outcome.question
            after = drawn.uniform(0, longest) if number >= 0 else None
            ended = await carry_out(process, Order(database, log, question, second, after))
            longest = max(longest, ended.seconds) if number < 0 else longest
            async with opened(database, log, sim, ahead=LEASE_OVER) as stage:
                told = await decide(stage, question, first)
                lines = await audit_lines(session)
            what = [one.what for one in lines]
            assert what[0] == "approved"
            assert {one.who for one in lines} == {"ann"}
            if isinstance(told.error, Refused):  # it was over before it was killed
                assert (told.error.status, what[1:]) == (409, ["executed"])
                state = "over"
            elif ("error", {"code": "outcome_unknown"}) in told.events:
                [result] = [data for name, data in told.events if name == "result"]
                assert (result["ok"], result["message"]) == (False, SAID)
                assert [one.message for one in lines[1:]] == [SAID]
                state = "unknown"
            else:
                assert told.events[-1] == ("done", {"status": "completed"})
                state = "executed"
            if state != "unknown":
                assert what[1:] == ["executed"]
                assert ran(log) == 1
            if not told.error:
                assert isinstance(told.outcome, Completed)
            assert what[1:] in (["executed"], ["outcome_unknown"])
            assert state == "over" or number >= 0
            seen[state] += 1
            logs.append((log, int(state != "unknown"), 1))
    for log, least, most in logs:  # also what a killed process had begun is over by now
        assert least <= ran(log) <= most
    return seen


@pytest.mark.slow
@pytest.mark.sockets
async def test_a_process_killed_at_continuing_writes_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At four random moments, by each pair of stacks; an unknown outcome is said and logged."""
    assert (await kill(tmp_path, monkeypatch, 4)).total() == 6


@pytest.mark.nightly
@pytest.mark.sockets
async def test_processes_killed_at_continuing_write_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 120 random moments: before the worker, within it, after it, and when all is over."""
    seen = await kill(tmp_path, monkeypatch, 120)
    assert min(seen["unknown"], seen["executed"], seen["over"] - 2) > 0, seen
