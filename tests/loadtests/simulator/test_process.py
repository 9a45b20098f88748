"""The simulator as a process of its own."""

import subprocess
import sys

import aiohttp
import pytest

from loadtests.processes import ServerDidNotStart
from loadtests.simulator import Profile, spawn
from loadtests.simulator.__main__ import main

pytestmark = [pytest.mark.sockets, pytest.mark.slow]


async def test_a_spawned_simulator_answers_and_ends() -> None:
    """It says where it listens, and has the profile it was given."""
    with spawn(Profile(tokens=3)) as url:
        body = b'{"model":"gpt-4.1","messages":[{"role":"user","content":"Hello"}]}'
        async with (
            aiohttp.ClientSession(url) as client,
            client.post("/v1/chat/completions", data=body) as response,
        ):
            answered = await response.json()
    assert answered["usage"]["completion_tokens"] == 3
    async with aiohttp.ClientSession(url) as client:
        with pytest.raises(aiohttp.ClientConnectionError):
            await client.get("/v1/models")


def test_a_simulator_that_does_not_start_says_so() -> None:
    """An option that means nothing ends it before it listens."""
    with pytest.raises(ServerDidNotStart, match="did not start"), spawn(None, "--rate=fast"):
        pass


def test_the_command_explains_itself() -> None:
    """Every key of a profile is an option."""
    command = [sys.executable, "-m", "loadtests.simulator", "--help"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "--ttft-ms" in ran.stdout
    assert "--retry-after" in ran.stdout


def test_bad_options_are_refused() -> None:
    """With the key and the value."""
    with pytest.raises(SystemExit, match="rate"):
        main(["--rate", "fast"])
