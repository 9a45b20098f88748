"""`python -m loadtests.simulator`: serve until a signal, after one line with the address."""

import argparse
import asyncio
import signal
import sys

from loadtests.simulator.server import Simulator


def main() -> None:
    """Read the command line and serve."""
    parser = argparse.ArgumentParser(
        prog="python -m loadtests.simulator",
        description="Serve a simulated model provider on loopback.",
    )
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--chunk-ms", type=float, default=2.0, help="pause between two chunks")
    options = parser.parse_args()
    asyncio.run(_serve(options.port, options.chunk_ms))


async def _serve(port: int, chunk_ms: float) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with Simulator(port, chunk_ms=chunk_ms, keep=False) as simulator:
        sys.stdout.write(f"listening on {simulator.base_url}\n")
        sys.stdout.flush()
        await stopped.wait()


if __name__ == "__main__":
    main()
