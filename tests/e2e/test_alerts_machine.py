"""Slow answers, refusals and a machine that is used up raise their alerts.

As in `test_alerts.py` the faults are made and the samples scraped of a real router; a minute passes
between two scrapes by their stamps alone.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest

from contract.flow import Event
from contract.ports import Effects
from cutover.wiring.stacks import load_stacks
from loadtests.simulator import running
from router.serving.stack import LocalStack
from tests.e2e.processes import ProcessLimits, RouterProcess, router_process
from tests.e2e.test_alerts import QUIET
from tests.e2e.test_alerts_dependencies import EACH, FAULTY, minutes
from tests.support.deployment import PLANTED_KEY, Deployment, Setup, deployed, first_turn, until
from tests.support.loopback_provider import Wire, delta, finish, serving
from tests.support.patience import PATIENCE_S
from tests.support.scrapes import METRICS, Scrapes, counted, firing, metrics_page

pytestmark = [pytest.mark.sockets, pytest.mark.slow, pytest.mark.untraced]

MIB = 1 << 20
CPU = "cutover_cpu_seconds_total"
LATE_MODEL = """
[providers.late]
base_url = "ADDRESS"
key_env = "CUTOVER_TEST_KEY"
first_token_seconds = 600.0
[models.late]
provider = "late"
"""


class LateProvider:
    """A provider that answers one request for each time it is let, in the order they came."""

    def __init__(self) -> None:
        self.waiting = 0
        self._turns = asyncio.Semaphore(0)

    async def answer(self, wire: Wire) -> None:
        """Answer one request."""
        self.waiting += 1
        await self._turns.acquire()
        self.waiting -= 1
        await wire.head()
        await wire.events(delta(content="Hello"), finish(), b"[DONE]")
        await wire.end()

    def let(self, answers: int) -> None:
        """Let it answer so many more."""
        for _ in range(answers):
            self._turns.release()


@asynccontextmanager
async def before_late_provider(folder: Path) -> AsyncIterator[tuple[Deployment, LateProvider]]:
    """Start a router whose model `late` is that of a provider that waits."""
    provider = LateProvider()
    async with serving(provider.answer) as served:
        more = METRICS + LATE_MODEL.replace("ADDRESS", served.base_url)
        async with deployed(folder, Setup(more=more)) as place:
            yield place, provider


async def late_minutes(
    scrapes: Scrapes, made: tuple[Deployment, LateProvider], requests: list[int], seconds: float
) -> None:
    """Let minutes pass, with so many `requests` each that wait at least so long for their text.

    All wait at the same time; they are answered and counted minute by minute.
    """
    place, provider = made
    names = (f"{scrapes.minute}-{number}" for number in range(sum(requests)))
    asking = [asyncio.create_task(place.ask(first_turn(name, "late"))) for name in names]
    await until(lambda: provider.waiting == len(asking))
    over = time.monotonic() + seconds
    await until(lambda: time.monotonic() >= over)

    def answered(due: int) -> bool:
        return sum(map(asyncio.Task.done, asking)) == due

    for count in requests:
        due = sum(map(asyncio.Task.done, asking)) + count
        provider.let(count)
        await until(partial(answered, due))
        await scrapes.take(place)
    assert {(await answer).steps[-1] for answer in asking} == {"END"}


async def test_a_provider_that_answers_late_is_alerted(tmp_path: Path) -> None:
    """After five minutes in which clients waited longer than five seconds."""
    scrapes = Scrapes()
    async with before_late_provider(tmp_path) as made:
        await late_minutes(scrapes, made, [EACH] * QUIET, 0.0)
        assert firing(scrapes, tmp_path) == set()
        await late_minutes(scrapes, made, [EACH] * FAULTY, 5.1)
    assert firing(scrapes, tmp_path) == {"CutoverLatencyHigh"}


async def test_a_provider_that_became_slower_is_alerted(tmp_path: Path) -> None:
    """Slower by half than an hour before, with too few requests for the other alert.

    That it became quicker is no alert.
    """
    scrapes = Scrapes()
    async with before_late_provider(tmp_path) as made:
        for _ in range(11):
            await late_minutes(scrapes, made, [EACH], 0.51)
        await minutes(scrapes, made[0], 42)
        for _ in range(16):
            await late_minutes(scrapes, made, [4], 0.0)
        assert firing(scrapes, tmp_path) == set()
        await late_minutes(scrapes, made, [4, 3] * 8, 2.6)
    assert firing(scrapes, tmp_path) == {"CutoverLatencyDegraded"}


STALLING = """
[limits]
streams = 1
loop_seconds = 0.0
[models.stalling]
provider = "simulated"
model = "sim-chat?ending=stall&after=3"
"""


async def test_refused_requests_are_alerted(tmp_path: Path) -> None:
    """A stream that does not end takes all places; that bad requests are refused is no alert."""
    scrapes = Scrapes()
    async with deployed(tmp_path, Setup(more=METRICS + STALLING)) as place:

        async def turn(name: str) -> None:
            assert (await place.ask(first_turn(name))).status == 200
            assert (await place.ask(b"no JSON")).status == 400

        async def refused(name: str) -> None:
            assert (await place.ask(first_turn(name))).status == 503

        await minutes(scrapes, place, QUIET + FAULTY, turn)
        assert firing(scrapes, tmp_path) == set()
        async with place.post(first_turn("stalling", "stalling")) as stalling:
            await stalling.content.readline()
            for _ in range(FAULTY):
                for each in range(EACH):
                    await refused(f"{scrapes.minute}-{each}")
                await scrapes.take(place)
            assert firing(scrapes, tmp_path) == {"CutoverRefusalsHigh"}
            stalling.close()


BLOCKED_S, LATE_S = 0.8, 0.5
"""A beat of the loop is due up to a quarter of a second after the block began."""


def block() -> None:
    """Block the thread, as a library does that knows no event loop."""
    time.sleep(BLOCKED_S)


async def test_a_stack_that_blocks_the_event_loop_is_alerted(tmp_path: Path) -> None:
    """After two minutes of such requests; a minute in which nothing blocks is no alert."""
    stacks = load_stacks()
    sound = stacks["legacy"].flows["chat"]

    async def blocking(request: Any, effects: Effects) -> AsyncIterator[Event]:
        if request.body.message_id.startswith("blocks"):
            block()
        async with aclosing(cast("Any", sound(request, effects))) as inner:
            async for event in inner:
                yield event

    stacks["legacy"] = LocalStack("legacy", {"chat": blocking}, "l")
    scrapes = Scrapes()
    async with deployed(tmp_path, Setup(stacks=stacks, more=METRICS)) as place:

        async def minute(name: str, *, late: bool) -> None:
            # A busy machine delays the loop, too: such a minute is no quiet one.
            await place.ask(first_turn(f"{name} {scrapes.minute}"))
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    page = await metrics_page(place.session, place.url)
                    (lag,) = re.findall(
                        r"^cutover_event_loop_lag_seconds (\S+)$", page, re.MULTILINE
                    )
                    if (float(lag) > 0.5) == late:
                        scrapes.add(page)
                        return
                    await asyncio.sleep(0.05)

        for _ in range(QUIET):
            await minute("quiet", late=False)
        assert scrapes.firing(tmp_path, scrapes.minute - 1) == set()
        for _ in range(4):
            await minute("blocks", late=True)
    assert scrapes.firing(tmp_path, scrapes.minute - 1) == {"CutoverEventLoopLate"}
    assert scrapes.firing(tmp_path, QUIET + 1) == set()


OWN_TOOL = """
import asyncio
from pathlib import Path

from effects.tools import function_tool

FOLDER = Path(__file__).parent
KEPT = []

@function_tool
async def no_such_tool() -> str:
    '''Look the orders up.'''
    {does}
    return "packed"
"""
"""A tool of the team's own, which the simulated model calls if it is told to."""
MORE_MINUTES = 30
"""On a busy machine the processor is not had for so many minutes in a row at once."""
SPINS = """while (FOLDER / "busy").exists(): await asyncio.sleep(0)"""
LEAKS = """KEPT.append(b"x" * int((FOLDER / "bytes").read_text()))"""


PATIENT_TOOLS = """
[tools.python]
modules = ["orders_tools"]
[limits]
loop_seconds = 0.0
tool_seconds = 600.0
write_seconds = 700.0
"""


@dataclass(frozen=True, slots=True)
class OwnRouter:
    """A router in a process of its own, with a tool of the team's own, and its scrapes."""

    process: RouterProcess
    session: aiohttp.ClientSession
    scrapes: Scrapes = field(default_factory=Scrapes)

    async def call_tool(self) -> None:
        """Have a request answered that calls the tool."""
        name = f"m{time.monotonic_ns()}"
        body = first_turn(name) | {"content": "use no such tool"}
        assert (await self.process.ask(self.session, body)).steps[-1] == "END"

    async def take(self) -> None:
        """Scrape once, a minute after the last."""
        self.scrapes.add(await metrics_page(self.session, self.process.url))


@asynccontextmanager
async def own_router(
    folder: Path, does: str, limits: ProcessLimits | None = None
) -> AsyncIterator[OwnRouter]:
    """Start a router in a process of its own whose tool does something."""
    (folder / "orders_tools.py").write_text(OWN_TOOL.format(does=does), "utf-8")
    setup = Setup(more=METRICS + PATIENT_TOOLS)
    async with (
        running(api_key=PLANTED_KEY) as provider,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session,
        router_process(folder, provider.base_url, setup, limits=limits) as process,
    ):
        yield OwnRouter(process, session)


class ProcessorMinutes:
    """Minutes of a process that pass in half a second of its time.

    Its processor time grows as much faster. While a thread waits for a core no time passes: how
    many other processes want one is the machine's affair. Where two waited at once, that is too
    much to leave out; but its time is never shorter than its processor time.
    """

    def __init__(self, router: OwnRouter) -> None:
        self._router = router
        pid = router.process.child.process.pid
        assert pid is not None
        self._threads = Path(f"/proc/{pid}/task")
        # What a virtual machine's host takes is no wait: the sooner it gets a core, the less.
        with suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, pid, -10)
        self._began = self._now()
        self._used: float | None = None
        self._shown = 0.0

    async def one(self) -> None:
        """Let a minute pass, and scrape."""
        over = time.monotonic() + 0.5
        await until(lambda: time.monotonic() >= over)
        scrapes = self._router.scrapes
        await self._router.take()
        now, used = self._now(), counted(scrapes, CPU)
        if self._used is not None:
            grown = used - self._used
            self._shown += 60 * grown / max(now - self._began, grown)
        self._began, self._used = now, used
        (series,) = (one for one in scrapes.series if one.startswith(CPU))
        scrapes.series[series][scrapes.minute - 1] = self._shown

    def _now(self) -> float:
        """Return the time in seconds, without that in which its threads waited, as Linux has it."""
        waits = (path.read_text("ascii").split()[1] for path in self._threads.glob("*/schedstat"))
        return time.monotonic() - sum(map(int, waits)) / 1e9


async def test_a_busy_processor_is_alerted(tmp_path: Path) -> None:
    """A tool that computes without end keeps a core busy; an idle router is no alert."""
    busy = tmp_path / "busy"
    async with own_router(tmp_path, SPINS) as router:
        await router.call_tool()
        passing = ProcessorMinutes(router)
        for _ in range(QUIET + FAULTY):
            await passing.one()
        assert firing(router.scrapes, tmp_path) == set()
        busy.touch()
        calling = asyncio.create_task(router.call_tool())
        for _ in range(FAULTY + 5):
            await passing.one()
        for _ in range(MORE_MINUTES):
            if firing(router.scrapes, tmp_path):
                break
            await passing.one()
        busy.unlink()
        await calling
    assert firing(router.scrapes, tmp_path) == {"CutoverProcessorHigh"}


async def test_memory_that_leaks_is_alerted_before_it_is_used_up(tmp_path: Path) -> None:
    """A tool keeps what it reads: little at first, and then more than there is to be."""
    leaked = tmp_path / "bytes"
    limits = ProcessLimits(memory=512 * MIB)
    async with own_router(tmp_path, LEAKS, limits) as router:
        scrapes = router.scrapes

        async def leaking(many: int, size: int) -> None:
            leaked.write_text(str(size))
            for _ in range(many):
                await router.call_tool()
                await router.take()

        await leaking(5, 0)
        scrapes.forget()
        await leaking(32, 0)
        assert firing(scrapes, tmp_path) == set()
        await leaking(55, 3 * MIB)
        assert firing(scrapes, tmp_path) == {"CutoverMemoryGrowing"}
        while counted(scrapes, "resident_memory") < 0.9 * limits.memory:
            await leaking(1, 32 * MIB)
        await leaking(6, 0)
    assert firing(scrapes, tmp_path) == {"CutoverMemoryGrowing", "CutoverMemoryHigh"}


async def test_open_descriptors_near_their_limit_are_alerted(tmp_path: Path) -> None:
    """Clients connect, and send nothing; when they have left, the alert ends."""
    limits = ProcessLimits(descriptors=256)
    async with AsyncExitStack() as clients, own_router(tmp_path, "pass", limits) as router:
        scrapes = router.scrapes
        for _ in range(QUIET):
            await router.take()
        assert firing(scrapes, tmp_path) == set()
        host, port = router.process.url.removeprefix("http://").split(":")
        for _ in range(200):
            _, writer = await asyncio.open_connection(host, int(port))
            clients.callback(writer.close)
        for _ in range(4):
            await router.take()
        assert firing(scrapes, tmp_path) == {"CutoverDescriptorsHigh"}
        await clients.aclose()
        async with asyncio.timeout(PATIENCE_S):
            while counted(scrapes, "open_descriptors") > limits.descriptors / 2:
                await router.take()
        assert firing(scrapes, tmp_path) == set()
