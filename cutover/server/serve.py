"""Serving: uvicorn on a socket of ours, in this process or in several workers, with a drain."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import uvicorn
import uvloop
from fastapi import FastAPI
from starlette.types import ASGIApp

from contract.errors import CutoverError
from cutover.application import application, in_force
from cutover.server.connections import ServerConnection
from cutover.server.sockets import Address, listen, shared_listeners
from cutover.server.workers import Supervisor, WorkerChannel
from cutover.wiring.addresses import WorkerGroup, resolve_stores
from router.config.schema import Settings
from router.config.watcher import SettingsWatcher
from router.gateway import WorkerPeers
from router.router import Router
from router.telemetry.instruments import FOLDER

log = logging.getLogger(__name__)

FAILURE_FRAME_SECONDS = 5
"""What a client gets to read the failure frames of a stream that was ended at the deadline."""
CLOSING_SECONDS = 10.0
"""What a worker may need beyond its streams: for captures, stores and connections."""
EXIT_SECONDS = 3.0
"""What tasks and threads get to end once everything else is closed."""
_KEEP_ALIVE_SECONDS = 75
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_RUN = "run"
"""The name of the tasks that run everything else."""
# A chat creates about a thousand objects, few of which live on: 700, the default, is met in each.
_GENERATIONS = (10_000, 20, 20)
_LARGE = 1_048_576
_M_MMAP_THRESHOLD = -3
_MALLOC_VARIABLES = ("MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def write_drain_seconds(settings: Settings) -> float:
    """Return the most seconds for which a router that stops waits for writes alone."""
    longest = settings.writes.longest
    return min(longest, settings.server.drain_write_seconds or longest)


def stop_seconds(settings: Settings) -> float:
    """Return the most seconds that a process may take to stop."""
    servers = 1 + (settings.gateway.address is not None)
    closing = servers * FAILURE_FRAME_SECONDS + CLOSING_SECONDS
    return 2 * settings.server.drain_seconds + write_drain_seconds(settings) + closing


class Server(uvicorn.Server):
    """uvicorn that ends streams at a deadline and leaves the end of the process to its caller."""

    def __init__(self, config: uvicorn.Config, router: Router, drain_seconds: float) -> None:
        super().__init__(config)
        self._router = router
        self._drain_seconds = drain_seconds

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on a signal without raising it again: captures are still to be written."""
        loop = asyncio.get_running_loop()
        for one in _SIGNALS:
            loop.add_signal_handler(one, self.handle_exit, one, None)
        try:
            yield
        finally:
            for one in _SIGNALS:
                loop.remove_signal_handler(one)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more requests; streams open at the deadline end in their failure frames."""
        self._router.draining = True
        most = self._drain_seconds + write_drain_seconds(self._router.settings())
        # A backstop: the task below ends what is left.
        self.config.timeout_graceful_shutdown = round(most) + 2 * FAILURE_FRAME_SECONDS
        ending = asyncio.create_task(self._end_streams(), name="end streams")
        try:
            await super().shutdown(sockets)
        finally:
            if self.force_exit and not ending.done():  # a second signal
                self._router.write_patience.end()
            ending.cancel()

    async def _end_streams(self) -> None:
        await asyncio.sleep(self._drain_seconds)
        await self._router.cut_after_writes()
        await asyncio.sleep(FAILURE_FRAME_SECONDS)
        for task in self.server_state.tasks:
            task.cancel()
        self.force_exit = True


class GatewayServer(uvicorn.Server):
    """uvicorn for the gateway's own address; its caller ends it, after what calls it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the server of the users."""
        yield

    @asynccontextmanager
    async def serving(self, sockets: list[socket.socket]) -> AsyncIterator[None]:
        """Serve for as long as the block lasts; what is open then gets a moment to end."""
        self.config.timeout_graceful_shutdown = FAILURE_FRAME_SECONDS
        work = asyncio.create_task(self.serve(sockets), name="gateway server")
        try:
            yield
        finally:
            self.should_exit = True
            await work


def server(app: FastAPI, router: Router, drain_seconds: float) -> Server:
    """Return a configured server; open streams have `drain_seconds` to finish."""
    return Server(server_configuration(app), router, drain_seconds)


def server_configuration(app: ASGIApp) -> uvicorn.Config:
    """Return how uvicorn serves an application of the router."""
    return uvicorn.Config(
        app,
        loop="uvloop",
        http=ServerConnection,
        ws="none",
        lifespan="off",
        # The client's address is passed to stacks behind a URL by the router itself.
        proxy_headers=False,
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
    )


@dataclass(frozen=True, slots=True)
class ServePlan:
    """What is served, and where; `gateways` is the folder in which workers' gateways meet.

    `debugged` are ids of exchanges, messages or sessions whose steps are logged.
    """

    watched: SettingsWatcher | None
    settings: Settings
    host: str
    port: int
    workers: int
    announce: Callable[[Sequence[socket.socket]], None]
    report: Callable[[CutoverError], None]
    gateways: Path | None = None
    debugged: frozenset[str] = frozenset()

    @property
    def addresses(self) -> list[Address]:
        """The addresses to listen on: the users', and the gateway's where it has its own."""
        own = self.settings.gateway.address
        return [(self.host, self.port), *([own] if own else [])]


def run_server(plan: ServePlan) -> int:
    """Serve until a signal comes and return the exit status; raises `CutoverError` at the start."""
    if plan.workers > 1:
        return _serve_with_workers(plan)
    with ExitStack() as opened:
        listening = [opened.enter_context(listen(*address)) for address in plan.addresses]
        _run(plan, listening, lambda _: plan.announce(listening))
    return 0


def _serve_with_workers(plan: ServePlan) -> int:
    # Refused before anything is created.
    resolve_stores(plan.settings.stores, os.environ, plan.workers)
    freeze_garbage_collector()
    listeners = shared_listeners(plan.addresses, plan.workers)
    watched = plan.watched
    with _common_metrics(plan.settings), TemporaryDirectory(prefix="cutover-workers-") as folder:
        return Supervisor(
            listeners,
            partial(_work, replace(plan, gateways=Path(folder))),
            stop_seconds=stop_seconds(plan.settings),
            announce=lambda: plan.announce(listeners[0].open()),
            # A restarted worker begins with the last good configuration, as the others have it.
            tick=(lambda: None) if watched is None else watched.poll_once,
        ).run()


@contextmanager
def _common_metrics(settings: Settings) -> Iterator[None]:
    """Set the folder in which the workers' metrics are merged, unless one is set."""
    if not settings.metrics.enabled or FOLDER in os.environ:
        yield
        return
    with TemporaryDirectory(prefix="cutover-metrics-") as folder:
        os.environ[FOLDER] = folder
        try:
            yield
        finally:
            del os.environ[FOLDER]


def _work(plan: ServePlan, listening: Sequence[socket.socket], channel: WorkerChannel) -> int:
    """Be one of several workers; returns the status of its process."""

    def ready(serving: Server) -> None:
        stop = partial(serving.handle_exit, signal.SIGTERM, None)
        channel.on_close(asyncio.get_running_loop(), stop)
        channel.report_ready()

    try:
        _run(plan, listening, ready)
    except CutoverError as error:
        plan.report(error)
        return 2
    return 0


def _run(
    plan: ServePlan, listening: Sequence[socket.socket], ready: Callable[[Server], None]
) -> None:
    run_until_closed(_serve(plan, listening, ready))


async def _serve(
    plan: ServePlan, listening: Sequence[socket.socket], ready: Callable[[Server], None]
) -> None:
    watched, settings = plan.watched, in_force(plan.watched)()
    map_large_allocations()
    async with AsyncExitStack() as stack:
        if watched is not None:
            await stack.enter_async_context(watched.watching())
        (users, *sockets), neighbours = listening, None
        gateways = plan.gateways
        if gateways is None and settings.gateway.advertise:
            made = TemporaryDirectory(prefix="cutover-gateway-")
            gateways = Path(stack.enter_context(made))  # a worker alone has other hosts
        if gateways is not None and settings.gateway.enabled:
            neighbours = stack.enter_context(WorkerPeers.joined(gateways))
            sockets.append(neighbours.listening)
        built = await stack.enter_async_context(
            application(
                watched,
                os.environ,
                host=plan.host,
                workers=WorkerGroup(plan.workers, neighbours),
                debugged=plan.debugged,
            )
        )
        serving = server(built.app, built.services.router, settings.server.drain_seconds)
        if built.gateway is not None:
            beside = GatewayServer(server_configuration(built.gateway))
            await stack.enter_async_context(beside.serving(sockets))
            sockets = []
        ready(serving)
        freeze_garbage_collector()
        # From here on: a slow start blocks nothing that is served.
        stack.enter_context(built.watchdog.watching())
        await serving.serve(sockets=[users, *sockets])


def freeze_garbage_collector() -> None:
    """Exempt what lives as long as the process, code and what was opened, from collection.

    Walking it took a fifth of a chat's processor time, in pauses its client waits through.
    """
    gc.collect()
    gc.freeze()
    # A full collection waits for a quarter as many new objects as the last one left: now for none.
    gc.collect()
    gc.set_threshold(*_GENERATIONS)


def map_large_allocations() -> bool:
    """Let glibc return allocations of a MiB and more to the system; False where it cannot.

    By default it keeps blocks of up to 32 MiB once it has seen one: bodies with pictures took five
    times the memory they were allowed, and kept it. A variable that sets this otherwise wins.
    """
    if any(name in os.environ for name in _MALLOC_VARIABLES):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc only
    return mallopt is not None and bool(mallopt(_M_MMAP_THRESHOLD, _LARGE))


def run_until_closed(
    main: Coroutine[Any, Any, None],
    seconds: float = EXIT_SECONDS,
    end: Callable[[int], object] = os._exit,
) -> None:
    """Run a coroutine on uvloop and raise what it raises; then end the process if need be.

    A task that ignores its cancellation would keep the loop running, a tool's blocked thread the
    interpreter: after `seconds` `end` is called instead.
    """
    before = set(threading.enumerate())
    timers: list[threading.Timer] = []

    def remaining_threads() -> list[threading.Thread]:
        return [one for one in threading.enumerate() if one not in before and not one.daemon]

    def abandon(what: str) -> None:
        log.error("the process ends while these are still running: %s", what)
        logging.shutdown()
        end(0)

    def abandon_tasks(loop: asyncio.AbstractEventLoop) -> None:
        names = [task.get_name() for task in asyncio.all_tasks(loop)]
        abandon(f"tasks: {', '.join(sorted(name for name in names if name != _RUN))}")

    async def closing() -> None:
        try:
            await main
        finally:
            timer = threading.Timer(seconds, abandon_tasks, (asyncio.get_running_loop(),))
            timer.daemon = True
            timer.start()
            timers.append(timer)

    try:
        run_through_system_exits(closing())
    finally:
        for timer in timers:
            timer.cancel()
        deadline = time.monotonic() + seconds
        for thread in remaining_threads():
            thread.join(max(deadline - time.monotonic(), 0.0))
        if blocked := remaining_threads():
            abandon(f"threads: {', '.join(thread.name for thread in blocked)}")


def run_through_system_exits(main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end although callbacks on the loop raise `SystemExit`.

    Tasks are contained where they are created (`effects/tasks.py`); what a stack schedules by
    `call_soon` is not, and asyncio lets its `SystemExit` out. Only that callback is lost.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        task = runner.get_loop().create_task(main, name=_RUN)

        async def wait() -> None:
            if (waiting := asyncio.current_task()) is not None:
                waiting.set_name(_RUN)
            await task

        while not task.done():
            try:
                runner.run(wait())
            except SystemExit:
                if task.done():
                    raise
                log.exception("a callback asked for the end of the process")
