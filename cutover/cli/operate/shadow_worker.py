"""`cutover shadow-worker`: run shadows that routers hand over, until a signal stops it."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from pathlib import Path
from typing import Annotated, Any

import typer
import uvloop
from taskiq.receiver import Receiver
from yarl import URL

from contract.errors import CutoverError
from contract.flows import SPECS
from cutover.application import in_force
from cutover.cli.terminal import refusals
from cutover.flows import DEFAULT_CONFIG
from cutover.server.logging import FORMAT, LogRedaction
from cutover.shadow_worker.worker import IDLE_SECONDS, opened_worker
from effects.stores.shadow_broker import TASK, ShadowBroker
from effects.stores.shadow_stream import READ_AT_ONCE, WorkerStream
from router.config.addresses import resolve_address
from router.config.schema import Settings
from router.config.watcher import SettingsWatcher

REFUSED = 2


class NoBroker(CutoverError):
    """No broker is configured."""

    def __init__(self, config: Path) -> None:
        super().__init__(f"{str(config)!r}: [shadow] broker names no Redis to read from")


def shadow_worker(
    config: Annotated[
        Path, typer.Option(help="The configuration of the routers.")
    ] = DEFAULT_CONFIG,
) -> None:
    """Run shadows that routers hand over, and write the pairs into the captures.

    SIGTERM or SIGINT: what has begun is finished within [server] drain_seconds, the rest is
    another worker's. Exit 0: stopped, 1: ended by a candidate that blocked it, 2: refused.
    """
    handler = logging.StreamHandler()
    logging.basicConfig(level=logging.INFO, format=FORMAT, handlers=[handler])
    logging.getLogger("taskiq").setLevel(logging.WARNING)  # it has two lines an exchange
    with refusals(REFUSED):
        settings = in_force(SettingsWatcher(config, SPECS))()
        LogRedaction(handler, os.environ)(settings)
        if not settings.shadow.broker:
            raise NoBroker(config)
        uvloop.run(_work(settings))


async def _work(settings: Settings) -> None:
    """Work until a signal comes."""
    address = resolve_address(settings.shadow.broker, os.environ)
    stream = WorkerStream(address, settings.shadow.seconds + IDLE_SECONDS)
    broker = ShadowBroker(stream)
    loop = asyncio.get_running_loop()
    try:
        async with opened_worker(settings, os.environ, stream) as worker:
            stopped: list[float] = []

            def stop() -> None:
                stopped.append(loop.time())
                worker.stopping.set()

            for one in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(one, stop)

            async def take(delivery: Any) -> None:  # the library names it anew: no method can be
                await worker.take(delivery)

            broker.register_task(take, task_name=TASK)
            receiver = Receiver(
                broker,
                validate_params=False,
                max_async_tasks=1,  # they compute
                max_prefetch=READ_AT_ONCE,
                wait_tasks_timeout=settings.server.drain_seconds,
            )
            server = URL(address).with_user(None).with_query(None)
            typer.echo(f"cutover shadow-worker {stream.worker} listening on {server}")
            await receiver.listen(worker.stopping)
            drained = loop.time() - min(stopped, default=loop.time())
            await worker.aclose(max(settings.server.drain_seconds - drained, 0.0))
            ends = ", ".join(f"{count} {end}" for end, count in sorted(worker.counts.items()))
            typer.echo(f"cutover shadow-worker stopped: {ends or 'nothing was handed over'}")
    finally:
        await broker.shutdown()
        await stream.aclose()
