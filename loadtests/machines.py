"""Load from several machines: a master that plans and reports, and workers that send.

The master hands each worker its part of a run and has all begin at once. Durations are each
worker's own. Its moments count from the beginning of the run: the clocks of two machines are never
compared. Messages of both are structs as MessagePack, behind their length in four bytes. They hold
no secrets: headers and keys of requests are each worker's own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from platform import node
from socket import gaierror
from tempfile import TemporaryDirectory
from typing import Final, Generic, Self, TypeVar, assert_never

import msgspec

from contract.errors import CutoverError, visible
from contract.flows.declared import DeclaredFlow
from loadtests.arrivals import Shape
from loadtests.open_loop import OpenLoopPlan
from loadtests.plan import LoadPlan, PlannedRun
from loadtests.processes import module_command
from loadtests.requests import MESSAGES_VARIABLE, ROWS_VARIABLE, Target
from loadtests.rows import (
    GeneratorLoad,
    LoadRow,
    RowWriter,
    cpu_times,
    read_rows,
    write_busy,
    write_load,
)
from loadtests.runner import (
    ENDS_WITHIN,
    LEAD,
    Child,
    GeneratorFailed,
    finish,
    locust_child,
    locust_environment,
    locustfiles,
    open_loop_child,
    open_loop_plan,
    split,
    warm_up_plan,
)

LONGEST: Final = 1 << 26
LONGEST_NAME: Final = 64
ROWS_AT_ONCE: Final = 2_000
BEAT: Final = 1.0
SILENT: Final = 15.0
"""Seconds without a word after which a worker, or its master, is lost."""
HELLO: Final = 10.0
"""Seconds in which the other end must say who it is."""
REACH: Final = 10.0
"""Seconds in which a worker's master must listen."""
BETWEEN: Final = 0.2
"""Seconds between two attempts."""
NEXT_PORT: Final = 1
"""Locust's own master listens on the port behind the command's."""
_HIGHEST_PORT: Final = 65_535


class AddressRefused(CutoverError):
    """An address is no HOST:PORT."""

    def __init__(self, option: str, text: str) -> None:
        super().__init__(f"{option} {text!r}: write HOST:PORT, the port from 1 to 65534")


class AddressTaken(CutoverError):
    """The master cannot listen at its address."""

    def __init__(self, at: Address, why: str) -> None:
        super().__init__(f"cannot wait for workers at {at}: {why}")


class MasterUnreachable(CutoverError):
    """No master is there, or it has gone."""

    def __init__(self, at: Address, why: str) -> None:
        super().__init__(f"no master of a load at {at}: {why}")


class WorkerRefused(CutoverError):
    """The master does not take this worker."""

    def __init__(self, at: Address, why: str) -> None:
        super().__init__(f"the master at {at} refuses this worker: {why}")


@dataclass(frozen=True, slots=True)
class Address:
    """Where a master listens; the port behind it is Locust's."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str, option: str) -> Self:
        """Read HOST:PORT, an IPv6 host in brackets; raises `AddressRefused`."""
        host, _, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
        if not host or not (port.isascii() and port.isdigit()):
            raise AddressRefused(option, text)
        if not 0 < int(port) < _HIGHEST_PORT or (":" in host and not text.startswith("[")):
            raise AddressRefused(option, text)
        return cls(host, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Secrets:
    """What a worker sends to a stack with each request: its own headers, and a QA key."""

    headers: tuple[tuple[str, str], ...] = ()
    qa_key: str = ""


class Hello(msgspec.Struct, frozen=True, tag=True):
    """A worker says who it is, and what it runs."""

    name: str
    versions: dict[str, str]


class Ready(msgspec.Struct, frozen=True, tag=True):
    """A worker can begin."""


class Beat(msgspec.Struct, frozen=True, tag=True):
    """It is there."""


class Rows(msgspec.Struct, frozen=True, tag=True):
    """Some rows of one generator, which has the moments of its own machine."""

    rows: list[LoadRow]
    load: GeneratorLoad


class Finished(msgspec.Struct, frozen=True, tag=True):
    """A worker's part has ended: how busy its machine was, and what its generator failed with."""

    busy: float | None
    status: int = 0
    output: str = ""


class Welcome(msgspec.Struct, frozen=True, tag=True):
    """The master takes a worker."""


class Refusal(msgspec.Struct, frozen=True, tag=True):
    """The master does not."""

    why: str


class Order(msgspec.Struct, frozen=True, tag=True):
    """A worker's part of a run. `loop` is an open loop's; else Locust's master has the plan.

    `headers` are the names of those that it sends, `signed`: a QA header beside them.
    """

    stack: str
    url: str
    headers: tuple[str, ...]
    signed: bool
    messages: bytes
    declared: DeclaredFlow | None
    shape: Shape
    loop: OpenLoopPlan | None = None


class Begin(msgspec.Struct, frozen=True, tag=True):
    """All are ready."""


class Stop(msgspec.Struct, frozen=True, tag=True):
    """The run is broken off."""


class Bye(msgspec.Struct, frozen=True, tag=True):
    """There are no more runs."""


FromWorker = Hello | Ready | Beat | Rows | Finished
FromMaster = Welcome | Refusal | Beat | Order | Begin | Stop | Bye
_from_worker: Final = msgspec.msgpack.Decoder(FromWorker)
_from_master: Final = msgspec.msgpack.Decoder(FromMaster)
Received = TypeVar("Received")
_GONE: Final = (OSError, EOFError, TimeoutError, msgspec.DecodeError)
"""What a connection raises whose other end is gone, or is no master and no worker of ours."""


class _Link(Generic[Received]):
    """A connection, over which messages come whole."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        decoder: msgspec.msgpack.Decoder[Received],
    ) -> None:
        self._reader, self._writer, self._decoder = reader, writer, decoder
        self._beating = asyncio.create_task(self._beat(), name="beat")

    async def send(self, message: FromWorker | FromMaster) -> None:
        """Send a message; raises OSError."""
        data = msgspec.msgpack.encode(message)
        self._writer.write(len(data).to_bytes(4) + data)
        await self._writer.drain()

    async def receive(self, seconds: float | None = None) -> Received:
        """Wait for a message, `SILENT` seconds by default; raises one of `_GONE`."""
        async with asyncio.timeout(SILENT if seconds is None else seconds):
            size = int.from_bytes(await self._reader.readexactly(4))
            if size > LONGEST:
                raise EOFError
            return self._decoder.decode(await self._reader.readexactly(size))

    async def close(self) -> None:
        self._beating.cancel()
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()

    async def _beat(self) -> None:
        with suppress(OSError):
            while True:
                await asyncio.sleep(BEAT)
                await self.send(Beat())


def _why(gone: BaseException) -> str:
    """Say what has become of the other end."""
    match gone:
        case TimeoutError():
            return f"silent for {SILENT:g} s"
        case OSError():
            return gone.strerror or type(gone).__name__
        case _:
            return "its connection ended"


class _Member:
    """A worker as its master sees it."""

    def __init__(self, name: str, link: _Link[FromWorker]) -> None:
        self.name = name
        self.lost = ""
        self._link = link
        self._ready = asyncio.Event()
        self._ended = asyncio.Event()
        self._rows: list[Rows] = []
        self.finished: Finished | None = None

    async def listen(self) -> None:
        """Take what it says, until it is lost."""
        try:
            while True:
                match await self._link.receive():
                    case Ready():
                        self._ready.set()
                    case Rows() as rows:
                        self._rows.append(rows)
                    case Finished() as finished:
                        self.finished = finished
                        self._ready.set()
                        self._ended.set()
                    case Hello() | Beat():
                        pass
        except _GONE as gone:
            self.lost = f"the worker {self.name} was lost ({_why(gone)})"
        finally:
            self._ready.set()
            self._ended.set()

    async def prepare(self, order: Order) -> None:
        """Hand it its part, and wait until it can begin, or is lost."""
        self._ready.clear()
        self._ended.clear()
        self._rows, self.finished = [], None
        if not self.lost:
            await self.tell(order)
            await self._ready.wait()

    async def tell(self, message: FromMaster) -> None:
        """Send a message; that it is lost is heard of elsewhere."""
        with suppress(OSError):
            await self._link.send(message)

    async def ended(self) -> None:
        """Wait until its part has ended, or it is lost."""
        if not self.lost:
            await self._ended.wait()

    def write(self, folder: Path, number: int, began: int) -> None:
        """Write what it has measured, its moments put where this machine's clock began."""
        for count, part in enumerate(self._rows):
            name = f"{number}-{count}"
            shift = began - part.load.began
            with RowWriter(folder / f"rows-{name}.jsonl") as writer:
                for row in part.rows:
                    due, sent = row.scheduled + shift, row.sent + shift
                    writer.write(msgspec.structs.replace(row, scheduled=due, sent=sent))
            write_load(msgspec.structs.replace(part.load, began=began), folder, name)
        if self.finished is not None:
            write_busy(self.finished.busy, folder, str(number))


class Machines:
    """Workers on several machines, `count` of them, that send what runs ask for."""

    def __init__(
        self, at: Address, count: int, differing: Callable[[Mapping[str, str]], str]
    ) -> None:
        """`differing` says what a worker with these versions has other than is here; "" nothing."""
        self._at = at
        self._count = count
        self._differing = differing
        self._members: list[_Member] = []
        self._all = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self.lost: Sequence[str] = ()

    @classmethod
    @asynccontextmanager
    async def at(
        cls, at: Address, count: int, differing: Callable[[Mapping[str, str]], str]
    ) -> AsyncIterator[Self]:
        """Listen for workers, for as long as the block lasts; raises `AddressTaken`."""
        machines = cls(at, count, differing)
        try:
            server = await asyncio.start_server(machines._connected, at.host, at.port)
        except OSError as taken:
            raise AddressTaken(at, taken.strerror or str(taken)) from taken
        async with server:
            try:
                yield machines
            finally:
                await asyncio.gather(*(member.tell(Bye()) for member in machines._there))
                tasks = [*machines._tasks]
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def _there(self) -> list[_Member]:
        return [member for member in self._members if not member.lost]

    @property
    def gone(self) -> bool:
        """Whether all workers are lost."""
        return not self._there

    async def gathered(self) -> None:
        """Wait until as many workers as were asked for have come."""
        await self._all.wait()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._joined(reader, writer), name="worker")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _joined(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = _Link(reader, writer, _from_worker)
        try:
            hello = await link.receive(HELLO)
            if not isinstance(hello, Hello):
                return
            host, port = writer.get_extra_info("peername")[:2]
            why = self._refused(hello)
            await link.send(Refusal(why) if why else Welcome())
            if why:
                return
            name = visible(hello.name[:LONGEST_NAME])
            member = _Member(f"{name} at {Address(host, port)}", link)
            self._members.append(member)
            if len(self._members) == self._count:
                self._all.set()
            await member.listen()
        except _GONE:
            pass  # whoever it was; a member that is lost says so itself
        finally:
            await link.close()

    def _refused(self, hello: Hello) -> str:
        if self._all.is_set():
            return f"its {self._count} workers are there already"
        return self._differing(hello.versions)

    async def load(self, plan: LoadPlan, run: PlannedRun, folder: Path) -> None:
        """Have every worker send its part of a run; raises `GeneratorFailed`.

        A worker that is lost meanwhile is in `lost`, and the next run is shared by the others.
        """
        members = self._there
        whole = open_loop_plan(plan, run, folder) if plan.engine == "open" else None
        parts = [
            None if whole is None else split(whole, number, len(members))
            for number in range(len(members))
        ]
        more = {
            "--master-bind-host": self._at.host,
            "--master-bind-port": self._at.port + NEXT_PORT,
            "--expect-workers": len(members),
            "--expect-workers-max-wait": int(SILENT * 2),
        }
        master = None if whole else locust_child(plan, run, folder, more, "--master")
        await self._run(plan, run, folder, members, parts, master)

    async def warm_up(self, plan: LoadPlan, run: PlannedRun, folder: Path) -> None:
        """Have the first worker send a few requests."""
        first = self._there[:1]
        parts = [warm_up_plan(plan, run, folder)] * len(first)
        await self._run(plan, run, folder, first, parts, None)

    async def _run(
        self,
        plan: LoadPlan,
        run: PlannedRun,
        folder: Path,
        members: Sequence[_Member],
        parts: Sequence[OpenLoopPlan | None],
        master: Child | None,
    ) -> None:
        await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
        if not members:
            return  # all are lost by now
        began = time.monotonic_ns()
        leading = asyncio.create_task(_led(master, run.stack), name="locust")
        try:
            orders = [order_of(plan, run, part) for part in parts]
            prepared = (one.prepare(order) for one, order in zip(members, orders, strict=True))
            await asyncio.gather(*prepared)
            began = time.monotonic_ns() + LEAD
            await asyncio.gather(*(member.tell(Begin()) for member in members))
            running = {leading, asyncio.create_task(_all_ended(members), name="workers")}
            await asyncio.wait(running, return_when="FIRST_EXCEPTION")
            for task in running:
                if task.done():
                    task.result()
        finally:
            await asyncio.shield(_broken_off(members, leading))
            self.lost = [member.lost for member in members if member.lost]
            for number, member in enumerate(members):
                member.write(folder, number, began)
        for one in members:
            if one.finished is not None and one.finished.status:
                output = f"on {one.name}: {one.finished.output}"
                raise GeneratorFailed(run.stack, one.finished.status, output)


async def _led(master: Child | None, stack: str) -> None:
    """Run Locust's master, if there is one."""
    if master is not None:
        await finish([master], stack)


async def _all_ended(members: Sequence[_Member]) -> None:
    await asyncio.gather(*(member.ended() for member in members))


async def _broken_off(members: Sequence[_Member], leading: asyncio.Task[None]) -> None:
    """End what still runs, and give workers time to send what they have measured."""
    running = [one for one in members if one.finished is None and not one.lost]
    await asyncio.gather(*(member.tell(Stop()) for member in running))
    waiting = [asyncio.ensure_future(member.ended()) for member in running]
    if not leading.done():
        leading.cancel()
        waiting.append(leading)
    if waiting:
        _, late = await asyncio.wait(waiting, timeout=2 * ENDS_WITHIN)
        for task in late:
            task.cancel()


def order_of(plan: LoadPlan, run: PlannedRun, part: OpenLoopPlan | None) -> Order:
    """Write a worker's part, without secrets and without the paths of this machine."""
    target = plan.target(run.stack)
    bare = Target(stack=target.stack, url=target.url)
    if part is not None:
        part = msgspec.structs.replace(part, target=bare, messages="", rows="")
    return Order(
        run.stack,
        target.url,
        tuple(name for name, _ in target.headers),
        bool(target.qa_key),
        plan.messages.read_bytes(),
        plan.declared,
        plan.shape,
        part,
    )


@dataclass(slots=True)
class _Work:
    """What a worker does for its master."""

    at: Address
    link: _Link[FromMaster]
    secrets: Mapping[str, Secrets]
    begin: asyncio.Event = field(default_factory=asyncio.Event)
    running: asyncio.Task[None] | None = None
    stopped: bool = False
    """By the master, which waits for what was measured until then."""

    async def serve(self) -> None:
        """Carry out orders, until there are no more; raises `MasterUnreachable`."""
        try:
            while True:
                message = await self.link.receive()
                match message:
                    case Order() as order:
                        self.begin.clear()
                        self.stopped = False
                        self.running = asyncio.create_task(self._carry_out(order), name="part")
                    case Begin():
                        self.begin.set()
                    case Stop():
                        if self.running is not None:
                            self.stopped = True
                            self.running.cancel()
                    case Bye():
                        return
                    case Welcome() | Refusal() | Beat():
                        pass
                    case _:
                        assert_never(message)
        except _GONE as gone:
            raise MasterUnreachable(self.at, _why(gone)) from gone
        finally:
            if self.running is not None:
                self.stopped = False
                self.running.cancel()
                await asyncio.wait({self.running})

    async def _carry_out(self, order: Order) -> None:
        """Run a generator, and send what it has measured, even where it is stopped."""
        with TemporaryDirectory(prefix="cutover-load-") as name:
            folder, finished = Path(name), Finished(None)
            before = cpu_times()
            try:
                await finish([self._child(order, folder)], order.stack, self._all_ready)
            except asyncio.CancelledError:
                if not self.stopped:
                    raise  # this worker ends: half of a part must not look like all of it
            except GeneratorFailed as failed:
                finished = Finished(None, failed.status, failed.output)
            except CutoverError as refused:
                finished = Finished(None, 1, str(refused))
            busy = cpu_times().share_since(before)
            with suppress(OSError):
                for rows in _measured(folder):
                    await self.link.send(rows)
                await self.link.send(msgspec.structs.replace(finished, busy=busy))

    async def _all_ready(self) -> int:
        await self.link.send(Ready())
        await self.begin.wait()
        return time.monotonic_ns() + LEAD

    def _child(self, order: Order, folder: Path) -> Child:
        """Return the generator of a part; raises `SecretsDue`."""
        own = self.secrets.get(order.stack, Secrets())
        if tuple(name for name, _ in own.headers) != order.headers or (
            bool(own.qa_key) != order.signed
        ):
            raise SecretsDue(order)
        target = Target(stack=order.stack, url=order.url, headers=own.headers, qa_key=own.qa_key)
        messages = folder / "messages.jsonl"
        messages.write_bytes(order.messages)
        if order.loop is not None:
            paths = {"messages": str(messages), "rows": str(folder)}
            return open_loop_child(msgspec.structs.replace(order.loop, target=target, **paths))
        paths = {MESSAGES_VARIABLE: str(messages), ROWS_VARIABLE: str(folder)}
        words = (
            *("--worker", "--master-host", self.at.host),
            *("--master-port", str(self.at.port + NEXT_PORT)),
            *("--locustfile", locustfiles(order.shape)),
        )
        environment = locust_environment(target, order.declared, **paths)
        return Child(module_command("locust", *words), environment)


class SecretsDue(CutoverError):
    """A worker was not given what its master's requests bear."""

    def __init__(self, order: Order) -> None:
        headers = ", ".join(map(repr, order.headers)) or "no headers"
        key = "a QA key (--qa-key-env)" if order.signed else "no QA key"
        super().__init__(
            f"requests to {order.stack!r} bear {headers} and {key}: start the worker with the same "
            "options as the master"
        )


def _measured(folder: Path) -> Iterator[Rows]:
    """Yield the rows of all generators of a folder, some at a time."""
    for path in sorted(folder.glob("generator-*.json")):
        load = msgspec.json.decode(path.read_bytes(), type=GeneratorLoad)
        rows = folder / f"rows-{path.stem.removeprefix('generator-')}.jsonl"
        found = list(read_rows(rows, torn=True)) if rows.exists() else []
        for start in range(0, max(1, len(found)), ROWS_AT_ONCE):
            yield Rows(found[start : start + ROWS_AT_ONCE], load)


async def work(
    at: Address,
    versions: Mapping[str, str],
    secrets: Mapping[str, Secrets],
    on_welcome: Callable[[], None] = lambda: None,
) -> None:
    """Send what a master asks for, until it has no more runs.

    Raises `MasterUnreachable` and `WorkerRefused`. Cancelling it ends the generator.
    """
    link = _Link(*await _reached(at), _from_master)
    try:
        try:
            await link.send(Hello(node(), dict(versions)))
            answer = await link.receive(HELLO)
        except _GONE as gone:
            raise MasterUnreachable(at, _why(gone)) from gone
        match answer:
            case Refusal(why):
                raise WorkerRefused(at, why)
            case Welcome():
                on_welcome()
                await _Work(at, link, secrets).serve()
            case _:
                raise MasterUnreachable(at, "what answers there is none")
    finally:
        await link.close()


async def _reached(at: Address) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect, once the master listens: it may be starting; raises `MasterUnreachable`."""
    why = ""
    try:
        async with asyncio.timeout(REACH):
            while True:
                try:
                    return await asyncio.open_connection(at.host, at.port)
                except gaierror as unknown:
                    raise MasterUnreachable(at, _why(unknown)) from unknown
                except OSError as away:
                    why = _why(away)
                await asyncio.sleep(BETWEEN)
    except TimeoutError as away:
        raise MasterUnreachable(at, why or f"no answer in {REACH:g} s") from away
