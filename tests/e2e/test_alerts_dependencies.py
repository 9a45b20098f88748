"""Faults of tools, stores, providers, shadows, settings and the candidate raise their alerts.

As in `test_alerts.py` the faults are made and the samples scraped of a real router; a minute passes
between two scrapes by their stamps alone.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, closing
from pathlib import Path
from typing import Any, cast

import pytest

from contract.flow import Event, Flow
from contract.ports import Effects
from cutover.wiring.stacks import load_stacks
from router.serving.stack import LocalStack
from tests.e2e.redis_server import own_redis
from tests.e2e.test_alerts import QUIET
from tests.support.commands import run_command
from tests.support.deployment import Deployment, Setup, deployed, first_turn, until
from tests.support.faulty_stacks import Boom
from tests.support.patience import PATIENCE_S
from tests.support.scrapes import METRICS, Scrapes, counted, firing

pytestmark = [pytest.mark.sockets, pytest.mark.slow, pytest.mark.untraced]

FAULTY = 11
"""Minutes with a fault: a share of five or ten minutes must have been too high for five."""
EACH = 6
"""Requests a minute."""

Turn = Callable[[str], Awaitable[object]]


async def minutes(scrapes: Scrapes, place: Deployment, many: int, turn: Turn | None = None) -> None:
    """Let minutes pass, with some requests in each; scrape at the end of each."""
    for _ in range(many):
        if turn is not None:
            for each in range(EACH):
                await turn(f"{scrapes.minute}-{each}")
        await place.settled()
        await scrapes.take(place)


ORDERS = '''
from pathlib import Path

from effects.tools import function_tool

@function_tool
def no_such_tool() -> str:
    """Look the orders up."""
    return Path(__file__).with_name("orders.txt").read_text("utf-8")
'''


async def test_a_tool_that_fails_is_alerted(module_folder: Path) -> None:
    """By its name: beside it the model calls another one, which works."""
    (module_folder / "orders_tools.py").write_text(ORDERS, "utf-8")
    orders = module_folder / "orders.txt"
    orders.write_text("packed", "utf-8")
    more = METRICS + '[tools.python]\nmodules = ["orders_tools"]\n'
    scrapes = Scrapes()
    async with deployed(module_folder, Setup(more=more)) as place:

        async def turn(name: str) -> None:
            content = "what is 3 + 4? then use no such tool"
            await place.ask(first_turn(name) | {"content": content})

        await minutes(scrapes, place, QUIET, turn)
        assert firing(scrapes, module_folder) == set()
        orders.unlink()
        await minutes(scrapes, place, FAULTY, turn)
    assert firing(scrapes, module_folder) == {"CutoverToolsFailing"}
    for tool, failed in (("calculate", 0), ("no_such_tool", FAULTY * EACH)):
        assert counted(scrapes, "tool_failures", f'tool="{tool}"') == failed
        calls = counted(scrapes, "tool_calls", f'tool="{tool}"')
        assert calls == EACH * (QUIET + FAULTY)


async def test_servers_that_do_not_answer_are_alerted(tmp_path: Path) -> None:
    """Redis is killed, and back; then the history cannot be written."""
    scrapes = Scrapes()
    history = tmp_path / "history.sqlite"
    async with own_redis(tmp_path) as redis:
        setup = Setup(
            more=METRICS,
            route_key="session_id",
            locks=redis.url,
            pins=redis.url,
            lock_ttl=1.5,
            history=f"sqlite:///{history}",
        )
        async with deployed(tmp_path, setup) as place:
            await minutes(scrapes, place, QUIET)
            assert firing(scrapes, tmp_path) == set()
            await redis.kill()
            await until_faults(place, {"shared_state", "locks", "pins"})
            await minutes(scrapes, place, 2)
            assert firing(scrapes, tmp_path) == {"CutoverDependencyFailing"}
            for part in ("shared_state", "locks", "pins"):
                assert counted(scrapes, "faults", f'part="{part}"') == 1
            await redis.start()
            await until_faults(place, set())
            await minutes(scrapes, place, 1)
            assert firing(scrapes, tmp_path) == set()
            with closing(sqlite3.connect(history)) as store:
                store.execute("DROP TABLE changes")
            place.edit(place.watched.path.read_text("utf-8").replace("percent = 0", "percent = 1"))
            await until_faults(place, {"history"})
            await minutes(scrapes, place, 2)
            assert firing(scrapes, tmp_path) == {"CutoverDependencyFailing"}


async def until_faults(place: Deployment, parts: set[str]) -> None:
    """Ask until `/readyz` names these parts; a busy machine may hold the event loop up."""
    async with asyncio.timeout(PATIENCE_S):
        number = 0
        while set((await place.get("/readyz"))["faults"]) - {"event_loop"} != parts:
            number += 1
            await place.ask(first_turn(f"{sorted(parts)} {number}"))


MOODY = """
[rescue]
first_wait_seconds = 0.001
[models.moody]
provider = "simulated"
model = "sim-chat?ending=http_error&status=503&times=1"
"""
"""Refuses what it is asked for the first time."""


async def test_a_provider_that_fails_in_part_is_alerted(tmp_path: Path) -> None:
    """One in three is asked again: too few failures for its breaker; clients see nothing of it."""
    scrapes = Scrapes()
    async with deployed(tmp_path, Setup(more=METRICS + MOODY)) as place:
        refused_each = [0]

        async def turn(name: str) -> None:
            each = int(name.rpartition("-")[2])
            content = f"Hello {name}" if each < refused_each[0] else "Hello"
            answer = await place.ask(first_turn(name, "moody") | {"content": content})
            assert answer.steps[-2:] == ["SUCCESS", "END"]

        await turn("before-0")
        await minutes(scrapes, place, QUIET, turn)
        assert firing(scrapes, tmp_path) == set()
        refused_each[0] = EACH // 3
        await minutes(scrapes, place, FAULTY, turn)
        assert {one.state for one in place.services.model.breaker_states()} == {"closed"}
    assert firing(scrapes, tmp_path) == {"CutoverProviderFailing"}


class HeldFlow:
    """A flow that waits before its first event, for messages that begin with a word."""

    def __init__(self, flow: Flow, word: str = "") -> None:
        self.waiting = 0
        self.go_on = asyncio.Event()
        self.go_on.set()
        self._flow = flow
        self._word = word

    async def __call__(self, request: Any, effects: Effects) -> AsyncIterator[Event]:
        """Wait, then go on."""
        if request.body.message_id.startswith(self._word):
            self.waiting += 1
            try:
                await self.go_on.wait()
            finally:
                self.waiting -= 1
        async with aclosing(cast("Any", self._flow(request, effects))) as inner:
            async for event in inner:
                yield event


@pytest.mark.parametrize("mode", ["replay", "tail"])
async def test_shadows_that_are_lost_are_alerted(tmp_path: Path, mode: str) -> None:
    """The candidate hangs while one shadow runs and one waits: there is no place for a third.

    In mode `tail` that one had begun beside its exchange: it is not dropped but cancelled.
    """
    stacks = load_stacks()
    candidate = HeldFlow(stacks["graph"].flows["chat"])
    serving = HeldFlow(stacks["legacy"].flows["chat"], "late")
    stacks["graph"] = LocalStack("graph", {"chat": candidate}, "g")
    stacks["legacy"] = LocalStack("legacy", {"chat": serving}, "l")
    more = METRICS + f'[shadow]\nqueue = 1\nmode = "{mode}"\n'
    tails = int(mode == "tail")
    scrapes = Scrapes()
    async with deployed(tmp_path, Setup(shadow=100, stacks=stacks, more=more)) as place:

        async def turn(name: str) -> None:
            await place.ask(first_turn(name))
            await place.settled()

        async def hanging_minute() -> None:
            candidate.go_on.clear()
            serving.go_on.clear()
            late = asyncio.create_task(place.ask(first_turn(f"late {scrapes.minute}")))
            await until(lambda: (serving.waiting, candidate.waiting) == (1, tails))
            await place.ask(first_turn(f"runs {scrapes.minute}"))
            await until(lambda: candidate.waiting == 1 + tails)
            await place.ask(first_turn(f"waits {scrapes.minute}"))
            serving.go_on.set()
            await late
            candidate.go_on.set()
            await minutes(scrapes, place, 1)

        await minutes(scrapes, place, QUIET, turn)
        assert firing(scrapes, tmp_path) == set()
        for _ in range(FAULTY):
            await hanging_minute()
    assert firing(scrapes, tmp_path) == {"CutoverShadowsDropped"}
    state = "cancelled" if tails else "dropped"
    assert counted(scrapes, f'state="{state}"', 'reason="queue_full"') == FAULTY


async def test_a_shadow_that_fails_by_our_own_fault_is_alerted(tmp_path: Path) -> None:
    """At once, and once is enough: the judge of one pair raises."""
    scrapes = Scrapes()
    async with deployed(tmp_path, Setup(shadow=100, more=METRICS)) as place:
        shadows = place.services.router.shadows
        judge = shadows.judge

        async def turn(name: str) -> None:
            await place.ask(first_turn(name))
            await place.settled()

        def broken(_: object) -> str:
            raise Boom

        await minutes(scrapes, place, QUIET, turn)
        assert firing(scrapes, tmp_path) == set()
        shadows.judge = cast("Any", broken)
        await turn("broken")
        shadows.judge = judge
        await minutes(scrapes, place, 1, turn)
        assert firing(scrapes, tmp_path) == {"CutoverShadowsFailing"}
        assert counted(scrapes, "ledger_total", 'flow="chat"', 'state="failed"') == 1
        await minutes(scrapes, place, 16)
    assert firing(scrapes, tmp_path) == set()


async def test_settings_that_wait_for_a_restart_are_alerted(tmp_path: Path) -> None:
    """After a quarter of an hour, until they are taken back; other edits are in force at once."""
    scrapes = Scrapes()
    async with deployed(tmp_path, Setup(more=METRICS)) as place:
        text = place.watched.path.read_text("utf-8")
        place.edit(text.replace("langgraph_percent = 0", "langgraph_percent = 5"))
        await minutes(scrapes, place, 20)
        assert firing(scrapes, tmp_path) == set()
        place.edit(text + "\n[shadow]\nqueue = 7\n")
        await minutes(scrapes, place, 15)
        assert firing(scrapes, tmp_path) == set()
        await minutes(scrapes, place, 1)
        assert firing(scrapes, tmp_path) == {"CutoverRestartDue"}
        place.edit(text)
        await minutes(scrapes, place, 1)
    assert firing(scrapes, tmp_path) == set()


TIMES = ("ttfe_p50", "ttfe_p95", "ttft_p50", "ttft_p95", "e2e_p50", "e2e_p95", "gap_p95")
RAMP = f"""
[admin]
audit_path = "FOLDER/audit.jsonl"
[breaker]
least_requests = 100_000
[gate]
requests = 20
pairs = 10
selftest = false
critical = ["failures"]
margins = {{ failures = 0.4, {", ".join(f"{name} = 50.0" for name in TIMES)} }}
[ramp]
state = "FOLDER/ramp"
"""
"""How busy this machine is says nothing: only failures do."""


async def test_a_gate_that_rolls_back_is_alerted(tmp_path: Path) -> None:
    """`cutover ramp` looks at what the router captured: of a sound candidate, then of a broken one.

    Clients see nothing of it, for legacy takes over.
    """
    stacks = load_stacks()
    sound = stacks["graph"].flows["chat"]
    breaks = [False]

    async def candidate(request: Any, effects: Effects) -> AsyncIterator[Event]:
        if breaks[0]:
            raise Boom
        async with aclosing(cast("Any", sound(request, effects))) as inner:
            async for event in inner:
                yield event

    stacks["graph"] = LocalStack("graph", {"chat": candidate}, "g")
    more = METRICS + RAMP.replace("FOLDER", str(tmp_path))
    scrapes = Scrapes()
    async with deployed(tmp_path, Setup(percent=50, stacks=stacks, more=more)) as place:

        async def turn(name: str) -> None:
            assert (await place.ask(first_turn(name))).steps[-2:] == ["SUCCESS", "END"]

        async def look() -> int:
            """Be `cutover ramp` for one look, as cron is; returns its exit status."""
            await place.lines()
            config = place.watched.path
            arguments = ("ramp", "chat", "--config", config, "--steps", "50,100", "--once")
            status, _ = await asyncio.to_thread(run_command, *arguments)
            place.edit(config.read_text("utf-8"))
            return status

        assert await look() == 1
        await minutes(scrapes, place, 10, turn)
        assert await look() == 1
        await minutes(scrapes, place, 1)
        assert firing(scrapes, tmp_path) == set()
        breaks[0] = True
        await minutes(scrapes, place, 10, turn)
        assert await look() == 2
        await minutes(scrapes, place, 1)
    assert firing(scrapes, tmp_path) == {"CutoverGateRollback"}
