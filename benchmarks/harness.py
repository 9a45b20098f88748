"""Servers under measurement, each in its own process, and the load on them."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from itertools import count, islice
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp
import msgspec

from benchmarks.rows import SEED, BenchRow, IntervalEstimate, at_most, bootstrap, difference_of_p95
from contract.errors import CutoverError
from contract.flow import FlowSpec
from contract.flows.chat import CHAT
from contract.flows.companion import COMPANION
from contract.flows.ops import OPS
from contract.flows.pipeline import PIPELINE
from contract.flows.session import SESSION
from loadtests.arrivals import Arrivals, Poisson
from loadtests.metrics import METRICS
from loadtests.open_loop import OpenLoop, OpenLoopPlan
from loadtests.processes import server_process
from loadtests.requests import MessageCycle, Target
from loadtests.rows import LoadRow, cpu_times

# The kernel's number for "all processor time of that process", as clock_getcpuclockid(3) makes it.
_SCHEDULED = 2
_PID_SHIFT = 3


@dataclass(frozen=True, slots=True)
class BenchServer:
    """A running server."""

    name: str
    url: str
    pid: int

    def cpu(self) -> float:
        """Processor seconds used since its start: user and system, all its threads."""
        return process_cpu(self.pid)


def process_cpu(pid: int) -> float:
    """Return the processor seconds of another process, exact to the nanosecond."""
    return time.clock_gettime((~pid << _PID_SHIFT) | _SCHEDULED)


@contextmanager
def serving(name: str, module: str, *arguments: str, log: Path) -> Iterator[BenchServer]:
    """Start `python -m module …`, which prints `listening on URL`; end it on exit."""
    with server_process(module, *arguments, log=log) as process:
        yield BenchServer(name, process.url, process.pid)


MODEL = "gpt-4.1"
MEASURED = ("chat", "companion", "session", "pipeline", "ops")
"""The flows that a router under measurement serves."""


@dataclass(frozen=True, slots=True)
class Shares:
    """Shares of requests that graph serves and that are shadowed, in per cent; seconds of a pin.

    `broker` is where workers of shadows are reached, `queue` how many exchanges wait for them.
    """

    graph: float = 0.0
    shadow: float = 0.0
    pin_seconds: float = 2_592_000.0
    broker: str = ""
    queue: int = 256


def configuration(folder: Path, provider: str, rollout: Shares) -> str:
    """Write a `cutover.toml` that keeps everything it makes in `folder`."""
    flows = "".join(
        f"""
[flows.{flow}]
enable_langgraph = true
langgraph_percent = {rollout.graph}
shadow_percent = {rollout.shadow}
"""
        for flow in MEASURED
    )
    workers = ""
    if rollout.broker:
        workers = f'[shadow]\nbroker = "{rollout.broker}"\nqueue = {rollout.queue}\n'
    return f"""{flows}
[rollout]
pin_seconds = {rollout.pin_seconds}

[flows.session.options]
unknown_session = "create"

[captures]
path = "{folder}/captures"

[stores]
conversations = "sqlite:///{folder}/cutover.sqlite"
memory = "sqlite:///{folder}/cutover.sqlite"
history = ""
checkpoints = "sqlite:///{folder}/threads.sqlite"
pauses = "sqlite:///{folder}/cutover.sqlite"

[workers]
system = true

[providers.simulated]
base_url = "{provider}/v1"

[models."{MODEL}"]
provider = "simulated"
{workers}"""


@contextmanager
def router_server(name: str, folder: Path, provider: str, rollout: Shares) -> Iterator[BenchServer]:
    """Serve a router with the simulated provider at `provider`."""
    own = folder / name
    own.mkdir()
    path = own / "cutover.toml"
    path.write_text(configuration(own, provider, rollout), encoding="utf-8")
    options = ("serve", "--config", str(path), "--port", "0")
    with serving(name, "cutover", *options, log=own / "log") as server:
        yield server


@contextmanager
def plain_server(folder: Path, provider: str) -> Iterator[BenchServer]:
    """Serve the baseline with the simulated provider at `provider`."""
    own = folder / "plain"
    own.mkdir()
    options = ("--provider", f"{provider}/v1", "--model", MODEL, "--store", f"{own}/turns.sqlite")
    with serving("plain", "benchmarks.plain", *options, log=own / "log") as server:
        yield server


TICKS_A_SECOND = 100
"""Of /proc/stat: USER_HZ, which Linux has kept at 100 for programs."""


class OtherLoad:
    """Filled in when the measuring block has ended: `share` of all CPUs, 0 to 1."""

    def __init__(self) -> None:
        self.share = 0.0


@contextmanager
def other_load() -> Iterator[OtherLoad]:
    """Watch the machine's account beside our own and our children's for as long as the block."""
    found, machine, own = OtherLoad(), cpu_times(), family_cpu()
    yield found
    later = cpu_times()
    total = later.total - machine.total
    if total > 0:
        ours = (family_cpu() - own) * TICKS_A_SECOND
        found.share = max(0.0, (later.busy - machine.busy - ours) / total)


def family_cpu() -> float:
    """Return the processor seconds of this process and of its living children."""
    return time.process_time() + sum(map(process_cpu, children()))


def children() -> list[int]:
    """Find the processes this one has started, by /proc; none where there is no such thing."""
    lists = Path("/proc/self/task").glob("*/children")
    return [int(pid) for listed in lists for pid in listed.read_text("ascii").split()]


@dataclass(frozen=True, slots=True)
class Effort:
    """Rounds and their size: `requests` a round in a closed loop, `seconds` in an open one.

    `advance` is called with the share of the bench that is done.
    """

    rounds: int = 9
    requests: int = 400
    pairs: int = 20
    seconds: float = 3.0
    advance: Callable[[float], None] = lambda _: None


FULL = Effort()
QUICK = Effort(rounds=3, requests=100, pairs=4, seconds=2.0)


PATH = "/chat/sse"
END = b'data: {"step":"END"}\n\n'
TOPICS = ("rivers", "bridges", "clocks", "bread", "sails", "maps", "kites", "glass")
QUESTIONS = tuple(f"Tell me about {topic}, in plain words." for topic in TOPICS)
# The last two make the model call tools.
PROBES = (*QUESTIONS[:4], "写一首关于河流的短诗。", "What is 12*7?", "请计算 36*41，再算 5+6")


class AnswerBroken(CutoverError):
    """A chat request was not answered completely: the figures would be worthless."""

    def __init__(self, server: str, status: int, answer: bytes) -> None:
        super().__init__(f"{server!r} answered {status} {answer[-200:]!r}")


def bodies(tag: str = "", questions: Sequence[str] = QUESTIONS) -> Iterator[dict[str, Any]]:
    """Yield request bodies with fresh ids; date and time are fixed, so that answers are too."""
    tag = tag or uuid4().hex[:12]
    for number in count():
        yield {
            "message_id": f"{tag}-{number}",
            "content": questions[number % len(questions)],
            "user_name": "Alice",
            "prompt_params": {"current_date": "2026-11-21", "current_time": "12:00:00"},
        }


@asynccontextmanager
async def client(in_flight: int) -> AsyncIterator[aiohttp.ClientSession]:
    """Open a client that keeps its connections, as balancers and gateways do."""
    connector = aiohttp.TCPConnector(limit=in_flight)
    async with aiohttp.ClientSession(connector=connector) as session:
        yield session


async def ask(session: aiohttp.ClientSession, server: BenchServer, body: dict[str, Any]) -> bytes:
    """Send one request; return its complete stream; raises `AnswerBroken`."""
    data = msgspec.json.encode(body)
    headers = {"content-type": "application/json"}
    async with session.post(server.url + PATH, data=data, headers=headers) as response:
        answer = await response.read()
    ended = answer.endswith(END) and b'"SUCCESS"' in answer
    if response.status != HTTPStatus.OK or not ended:
        raise AnswerBroken(server.name, response.status, answer)
    return answer


async def keep_asking(
    session: aiohttp.ClientSession, server: BenchServer, requests: int, in_flight: int
) -> None:
    """Send so many requests, with so many in flight."""
    left = iter(range(requests))
    requests_left = bodies()

    async def worker() -> None:
        for _ in left:
            await ask(session, server, next(requests_left))

    async with asyncio.TaskGroup() as workers:
        for _ in range(in_flight):
            workers.create_task(worker())


MILLISECONDS = 1_000


class LoadBroken(CutoverError):
    """Streams of a measured load did not complete: the figures would be worthless."""

    def __init__(self, server: str, endings: Sequence[str]) -> None:
        super().__init__(f"{server!r} had streams that ended {sorted(set(endings))!r}")


@dataclass(frozen=True, slots=True)
class LoadTrace:
    """Arrivals: `rate` requests a second for so many seconds, drawn with a seed."""

    rate: float
    seconds: float
    seed: int


@dataclass(frozen=True, slots=True)
class FlowLoad:
    """Requests to a flow; every request gets fresh ids."""

    spec: FlowSpec
    bodies: tuple[Mapping[str, Any], ...]


CHATS = FlowLoad(CHAT, tuple(islice(bodies(), len(QUESTIONS))))
SESSIONS = FlowLoad(
    SESSION,
    tuple({"session_id": f"s-{at}", "message": text} for at, text in enumerate(QUESTIONS)),
)
COMPANIONS = FlowLoad(
    COMPANION,
    tuple({"session_id": f"v-{at}", "message": text} for at, text in enumerate(QUESTIONS)),
)

PIPELINES = FlowLoad(
    PIPELINE,
    tuple(
        {"session_id": f"p-{at}", "user_id": f"u-{at}", "message": text}
        for at, text in enumerate(QUESTIONS)
    ),
)

INSTRUCTIONS = FlowLoad(
    OPS,
    tuple(
        {"session_id": f"o-{at}", "input": text}
        for at, text in enumerate(
            ("check the disks and memory", "is the disk full enough to worry?")
        )
    ),
)


async def load(server: BenchServer, trace: LoadTrace, flow: FlowLoad = CHATS) -> list[LoadRow]:
    """Send a trace and wait for the last answer; raises `LoadBroken` where one is not whole."""
    rows = await answered(server, Poisson(trace.rate, trace.seed), trace.seconds, flow)
    return unbroken(server, rows)


def unbroken(server: BenchServer, rows: list[LoadRow]) -> list[LoadRow]:
    """Return the rows of a load; raises `LoadBroken` where an answer is not whole."""
    broken = [row.ending for row in rows if row.ending != "complete"]
    if broken:
        raise LoadBroken(server.name, broken)
    return rows


async def answered(
    server: BenchServer, arrivals: Arrivals, seconds: float, flow: FlowLoad
) -> list[LoadRow]:
    """Send requests for so many seconds, and wait for the last answer, however each ends."""
    rows: list[LoadRow] = []
    plan = OpenLoopPlan(
        flow=flow.spec.name,
        run=0,
        target=Target(stack=server.name, url=server.url),
        messages="",
        rows="",
        arrivals=arrivals,
        seconds=seconds,
    )
    messages = MessageCycle(flow.spec, [(flow.spec.path, dict(body)) for body in flow.bodies])
    await OpenLoop(plan, flow.spec, rows.append).drive(messages)
    return rows


def moments(rows: Sequence[LoadRow], metric: str) -> list[float]:
    """Return a metric of all rows, in milliseconds since each request was sent."""
    own = [msgspec.structs.replace(row, scheduled=row.sent) for row in rows]
    return [seconds * MILLISECONDS for seconds in METRICS[metric].sample(own)]


BUSY = 0.25
"""Share of the machine that others may use."""


@dataclass(frozen=True, slots=True)
class LoadedPair:
    """The rows of one pair of runs, control first; `others`: their share of the machine."""

    control: Sequence[LoadRow]
    candidate: Sequence[LoadRow]
    others: float


async def load_in_turn(
    servers: tuple[BenchServer, BenchServer],
    rate: float,
    effort: Effort,
    flow: FlowLoad = CHATS,
) -> list[LoadedPair]:
    """Load control and candidate, `effort.pairs` times each."""
    chance, pairs = random.Random(SEED), []
    for number in range(effort.pairs):
        trace = LoadTrace(rate, effort.seconds, chance.getrandbits(32))
        found: dict[str, list[LoadRow]] = {}
        with other_load() as neighbours:
            for server in chance.sample(servers, len(servers)):
                found[server.name] = await load(server, trace, flow)
        control, candidate = (found[server.name] for server in servers)
        pairs.append(LoadedPair(control, candidate, neighbours.share))
        effort.advance((number + 1) / effort.pairs)
    return quieter(pairs)


def quieter(pairs: Sequence[LoadedPair]) -> list[LoadedPair]:
    """Return the half of the pairs, rounded up, during which other processes used least."""
    ordered = sorted(pairs, key=lambda pair: pair.others)
    return ordered[: (len(pairs) + 1) // 2]


def p95_rise(pairs: Sequence[LoadedPair], metric: str) -> IntervalEstimate:
    """Estimate P95 of the candidate less P95 of the control, milliseconds."""
    values = [(moments(pair.control, metric), moments(pair.candidate, metric)) for pair in pairs]
    return bootstrap(values, difference_of_p95)


def rise_row(
    name: str, pairs: Sequence[LoadedPair], metric: str, target: float, how: str
) -> BenchRow:
    """Compare a rise of P95, in milliseconds, with its target.

    Where other processes kept the machine busy and the interval holds the target, there is no
    verdict, which is not a pass.
    """
    rise, others = p95_rise(pairs, metric), max(pair.others for pair in pairs)
    row = at_most(name, rise.value, "ms", target, f"{how}; {method(pairs, rise)}")
    if others > BUSY and rise.low <= target < rise.high:
        row = msgspec.structs.replace(row, ok=None, how=f"cannot tell, busy machine; {row.how}")
    return row


def method(pairs: Sequence[LoadedPair], rise: IntervalEstimate) -> str:
    """Describe how a rise was measured."""
    requests = sum(len(pair.control) + len(pair.candidate) for pair in pairs)
    return (
        f"median difference of exact P95s of {len(pairs)} pairs of runs on the same arrivals, "
        f"order drawn, {requests} requests, 95 % [{rise.low:.2f}, {rise.high:.2f}] by bootstrap "
        "over pairs; the quieter half of all pairs, others used up to "
        f"{max(pair.others for pair in pairs):.0%} of the machine; the provider answers after "
        "200 ms without jitter"
    )
