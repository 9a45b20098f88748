"""`python -m loadtests.simulator`: serve until a signal, after one line with the address."""

import asyncio
import signal

import typer

from loadtests.simulator.server import Simulator


def main(port: int = 0, chunk_ms: float = 2.0) -> None:
    """Serve a simulated model provider on loopback; port 0 is a free one."""
    asyncio.run(_serve(port, chunk_ms))


async def _serve(port: int, chunk_ms: float) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with Simulator(port, chunk_ms=chunk_ms, keep=False) as simulator:
        typer.echo(f"listening on {simulator.base_url}")
        await stopped.wait()


if __name__ == "__main__":
    typer.run(main)
