"""An open loop: sends on an absolute schedule, whatever the service does.

python -m loadtests.open_loop        drives the plan on its standard input

The plan is its first line. Once it is ready to send it says so; the second line is the moment
(`time.monotonic_ns()`) its schedule begins, the same for all workers of a plan.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import cast
from uuid import uuid4

import msgspec
import uvloop

from contract.flow import FlowSpec
from contract.flows.declared import DeclaredFlow
from loadtests.arrivals import Arrivals, Cancellations, offsets
from loadtests.meter import (
    How,
    Planned,
    ResponseReader,
    StreamMeter,
    accepted,
    fault_code,
    resolved,
    tls_context,
)
from loadtests.requests import LoadMessage, MessageCycle, Target, flow_named, read_messages
from loadtests.rows import SECOND, STALL_SECONDS, GeneratorMeter, LoadRow, RowWriter, write_load

READY = b"ready\n"
"""Written once requests can be sent; the moment at which they begin is read then."""


class OpenLoopPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One run: `seconds` of arrivals; `patience` and `stall` in seconds; `rows` a folder.

    Of `workers`, worker `worker` (from 0) sends every request whose number leaves that remainder.
    """

    flow: str
    declared: DeclaredFlow | None = None
    route_key: str = ""
    run: int
    target: Target
    messages: str
    rows: str
    arrivals: Arrivals
    seconds: float
    patience: float = 120.0
    stall: float = STALL_SECONDS
    cancellations: Cancellations = Cancellations()
    seed: int = 0
    workers: int = 1
    worker: int = 0


class _Connection(asyncio.Protocol):
    """One request on one connection; `ended` resolves to how it did and a fault's name."""

    def __init__(self, payload: bytes, reader: ResponseReader) -> None:
        self._payload = payload
        self._reader = reader
        self._transport: asyncio.Transport | None = None
        self.ended: asyncio.Future[tuple[How, str]] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not an isinstance check: uvloop's transports only look like asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(self._payload)

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data, time.monotonic_ns())
        if self._reader.done:
            self._finish("done", "")
        elif self._reader.broken:
            self._finish("cut", "malformed_http")

    def connection_lost(self, exc: Exception | None) -> None:
        code = fault_code(exc) if isinstance(exc, OSError) else "closed"
        self._finish(self._reader.ended(), code)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _finish(self, how: How, code: str) -> None:
        if not self.ended.done():
            self.ended.set_result((how, code))


async def fetch(
    target: Target, payload: bytes, reader: ResponseReader, patience: tuple[float, How]
) -> tuple[How, str]:
    """Send a request and read its response to the end; cancelling it closes the connection.

    `patience` is after how many seconds the client closes it, and how it has ended then.
    """
    seconds, closed = patience
    connection = _Connection(payload, reader)
    loop = asyncio.get_running_loop()
    tls, name = (tls_context(), target.host) if target.tls else (None, None)
    try:
        async with asyncio.timeout(seconds):
            at = resolved(target.host, target.port)
            await loop.create_connection(
                lambda: connection, at.host, at.port, ssl=tls, server_hostname=name
            )
            return await connection.ended
    except TimeoutError:
        return closed, ""
    except OSError as error:
        return "cut", fault_code(error)
    finally:
        connection.close()


class OpenLoop:
    """Sends what is due; every row goes to `take` as soon as it is known."""

    def __init__(self, plan: OpenLoopPlan, spec: FlowSpec, take: Callable[[LoadRow], None]) -> None:
        self._plan = plan
        self._spec = spec
        self._accepted = accepted(spec.dialect)
        self._take = take

    async def drive(self, messages: MessageCycle, began: int | None = None) -> None:
        """Send everything on time from the moment `began`, or now; wait for the last answer."""
        plan = self._plan
        began = time.monotonic_ns() if began is None else began
        tag = uuid4().hex[:12]
        schedule = enumerate(offsets(plan.arrivals, plan.seconds))
        async with asyncio.TaskGroup() as requests:
            for number, offset in islice(schedule, plan.worker, None, plan.workers):
                due = began + int(offset * SECOND)
                await asyncio.sleep(max(0.0, (due - time.monotonic_ns()) / SECOND))
                message = messages.fresh(number, f"{tag}-{number}")
                leaves = plan.cancellations.after(plan.seed, number)
                planned = Planned(plan.run, plan.target.stack, message.message_id, due, leaves)
                requests.create_task(self._ask(message, planned))

    async def _ask(self, message: LoadMessage, planned: Planned) -> None:
        plan = self._plan
        payload = plan.target.request(message, self._accepted)
        sent = time.monotonic_ns()
        meter = StreamMeter(self._spec, planned, sent, stall=plan.stall)
        patience = planned.patience(plan.patience)
        try:
            how, code = await fetch(plan.target, payload, ResponseReader(meter), patience)
        except asyncio.CancelledError:
            self._take(meter.row("cancelled", time.monotonic_ns()))
            raise
        self._take(meter.row(how, time.monotonic_ns(), code=code))


async def run(plan: OpenLoopPlan, spec: FlowSpec, messages: MessageCycle, began: int) -> None:
    """Drive one plan; rows and the generator's account go into its folder."""
    folder = Path(plan.rows)
    name = f"{plan.target.stack}-{uuid4().hex[:12]}"
    with RowWriter(folder / f"rows-{name}.jsonl") as writer:
        generator = GeneratorMeter(began)
        try:
            loop = OpenLoop(plan, spec.sent_by(plan.target.stack), writer.write)
            await loop.drive(messages, began)
        finally:
            write_load(generator.load(), folder, name)


def main() -> None:
    """Read a plan from standard input and drive it."""
    plan = msgspec.json.decode(sys.stdin.buffer.readline(), type=OpenLoopPlan)
    spec = flow_named(plan.flow, plan.declared)
    messages = read_messages(spec, Path(plan.messages), plan.route_key)
    with suppress(OSError):  # each request reports it
        resolved(plan.target.host, plan.target.port)
    sys.stdout.buffer.write(READY)
    sys.stdout.buffer.flush()
    began = sys.stdin.buffer.readline()
    if not began:
        return
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            runner.run(_until_terminated(run(plan, spec, messages, int(began))))
        except asyncio.CancelledError:
            sys.exit(128 + signal.SIGTERM)


async def _until_terminated(work: Coroutine[None, None, None]) -> None:
    """Do the work; SIGTERM cancels the open requests, and their rows are written."""
    driving = asyncio.ensure_future(work)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, driving.cancel)
    await driving


if __name__ == "__main__":
    main()
