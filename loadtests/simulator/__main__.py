"""`python -m loadtests.simulator`: serve until a signal, after one line that says where."""

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Sequence

import uvloop

from loadtests.processes import ANNOUNCED
from loadtests.simulator.profile import ENDING_KEYS, KEYS, Profile, merged
from loadtests.simulator.server import HOST, running

KEY_VARIABLE = "SIMULATOR_API_KEY"


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line and serve."""
    options = vars(_parser().parse_args(arguments))
    host, port = options.pop("host"), options.pop("port")
    given = {key: value for key, value in options.items() if value is not None}
    try:
        profile = merged(Profile(), given)
    except ValueError as error:
        sys.exit(f"simulator: {error}")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(profile, host, port))


async def _serve(profile: Profile, host: str, port: int) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    async with running(profile, port, host=host, api_key=os.environ.get(KEY_VARIABLE)) as served:
        sys.stdout.write(f"{ANNOUNCED}{served.url}\n")
        sys.stdout.flush()
        await stopped.wait()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m loadtests.simulator",
        description="Serve a simulated OpenAI-compatible provider.",
        epilog=f"The other options are the keys of a profile (loadtests/simulator/profile.py). "
        f"With {KEY_VARIABLE} in the environment, that key is required of clients.",
    )
    parser.add_argument("--host", default=HOST, help="loopback by default; 0.0.0.0 in a container")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    for key in (*KEYS, *sorted(ENDING_KEYS)):
        parser.add_argument(f"--{key.replace('_', '-')}", metavar="VALUE")
    return parser


if __name__ == "__main__":
    main()
