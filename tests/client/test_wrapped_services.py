"""Two services of others in the router's process: served, shadowed, taken over and replayed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from contract.wire.sse import SseDecoder
from cutover.cli import app as command_line
from tests.client import wrapped_services as services
from tests.support.deployment import Deployment, Setup, deployed
from tests.support.loopback_provider import Answer, Loopback, Wire, delta, finish, serving

pytestmark = pytest.mark.sockets

FLOW = """
[stacks]
legacy = "tests.client.wrapped_services:{legacy}"
graph = "tests.client.wrapped_services:NEW"
[flows.support]
path = "/support"
enable_langgraph = true
langgraph_percent = {percent}
shadow_percent = {shadow}
route_keys = {{ session_id = "chat" }}
[flows.support.dialect]
name = "support"
event = {{ path = "type" }}
text = {{ text = "text" }}
terminal = ["done"]
"""
WORDS = ("One ", "two ", "three ", "four.")


async def speak(wire: Wire) -> None:
    """Answer as a model, word by word."""
    await wire.head()
    for word in WORDS:
        await wire.events(delta(content=word))
    await wire.events(finish(), b"[DONE]")
    await wire.end()


@pytest.fixture
def provider_url(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Let services find their provider; forget what they did."""
    services.done.clear()
    services.broken.clear()
    yield monkeypatch
    services.broken.clear()


@asynccontextmanager
async def house(
    folder: Path,
    patch: pytest.MonkeyPatch,
    answer: Answer = speak,
    *,
    percent: int = 0,
    shadow: int = 0,
    legacy: str = "OLD",
) -> AsyncIterator[tuple[Deployment, Loopback]]:
    """Deploy both before a provider."""
    more = FLOW.format(percent=percent, shadow=shadow, legacy=legacy)
    async with serving(answer) as provider:
        patch.setenv(services.PROVIDER, provider.base_url)
        async with deployed(folder, Setup(more=more, chat=False)) as place:
            yield place, provider


async def ask(place: Deployment, message: str = "Tea") -> list[Any]:
    """Be a client; return the events."""
    async with place.session.post(
        f"{place.url}/support", json={"chat": "c", "message": message}
    ) as response:
        assert response.status == 200
        body = await response.read()
    await place.settled()
    return [json.loads(event.data) for event in SseDecoder().feed(body)]


def texts(events: list[Any]) -> str:
    """Return the text of a stream."""
    return "".join(event.get("text", "") for event in events)


@pytest.mark.parametrize(("legacy", "percent"), [("OLD", 0), ("OLD", 100), ("PORTS", 100)])
async def test_the_model_is_asked_once_for_both(
    tmp_path: Path, provider_url: pytest.MonkeyPatch, legacy: str, percent: int
) -> None:
    """And an effect performed once: the shadow, with another SDK or by a port, is equal."""
    how: Any = {"shadow": 100, "legacy": legacy, "percent": percent}
    async with house(tmp_path, provider_url, **how) as (place, provider):
        events = await ask(place)
        assert [event["type"] for event in events] == ["order", *["text"] * 4, "done"]
        assert len(provider.requests) == 1
        assert services.done.count("Tea") == 1
        lines = await place.lines()
        assert place.books() == {"compared(equal)": 1}
        [shadow] = [line for line in lines if line.role == "shadow"]
        assert {play.how for play in shadow.plays} == {"exact"}
    assert services.done.count("closed") == services.done.count("opened") > 0


@pytest.mark.parametrize("legacy", ["OLD", "PORTS"])
@pytest.mark.parametrize("after", [1, 2, 3])
async def test_a_stream_that_breaks_goes_on_from_the_other_stack(
    tmp_path: Path, provider_url: pytest.MonkeyPatch, after: int, legacy: str
) -> None:
    """By text, from the tape: one stream, one call of the model, one order.

    The other one is wrapped, too, or asks the model through the router's port.
    """
    async with house(tmp_path, provider_url, percent=100, legacy=legacy) as (place, provider):
        services.broken.append(after)
        events = await ask(place)
        assert texts(events) == "One two three four."
        assert [event["type"] for event in events].count("order") == 1
        assert events[-1] == {"type": "done"}
        assert len(provider.requests) == 1
        assert services.done.count("Tea") == 1
        served, fallback = await place.lines()
        assert (served.outcome, fallback.outcome) == ("failed", "completed")
        assert (fallback.stack, fallback.reason) == ("legacy", "crash")


@pytest.mark.slow
async def test_a_replay_finds_what_later_code_says_to_the_model(
    tmp_path: Path, provider_url: pytest.MonkeyPatch
) -> None:
    """Today's code makes the same calls; later code, with another prompt, does not."""
    async with house(tmp_path, provider_url, percent=100) as (place, _):
        await ask(place)
        await place.services.captures.flush()
    config = tmp_path / "cutover.toml"
    services.done.clear()
    assert await asyncio.to_thread(replayed, tmp_path, config, "same") == 0
    provider_url.setenv(services.SAYS, services.PLANTED)
    assert await asyncio.to_thread(replayed, tmp_path, config, "later") == 1
    report = json.loads((tmp_path / "later" / "report" / "report.json").read_text("utf-8"))
    [cluster] = report["clusters"]
    assert cluster["kind"] == "prompt_changed"
    assert cluster["path"] == "model.stream@gateway[].messages[].system"
    assert "Tea" not in services.done


def replayed(folder: Path, config: Path, out: str) -> int:
    """Replay the captures on the graph's code of today; return the exit status."""
    options = ["--stack", "graph", "-o", str(folder / out), "--processes", "0"]
    captures = str(folder / "captures")
    command = ["replay", captures, *options, "--config", str(config)]
    return CliRunner().invoke(command_line, command).exit_code


@pytest.mark.parametrize("percent", [0, 100])
async def test_a_client_that_leaves_cancels_the_call_of_the_model(
    tmp_path: Path, provider_url: pytest.MonkeyPatch, percent: int
) -> None:
    """Of either service: the provider sees the connection end, and the record says who left."""
    left = asyncio.Event()

    async def endless(wire: Wire) -> None:
        await wire.head()
        await wire.events(delta(content="One "))
        await wire.gone()
        left.set()

    async with house(tmp_path, provider_url, endless, percent=percent) as (place, _):
        body = {"chat": "c", "message": "Tea"}
        async with place.session.post(f"{place.url}/support", json=body) as response:
            while b"One" not in await response.content.readline():
                pass
            response.close()
        await left.wait()
        record = await place.run()
        assert record.outcome == "cancelled"
        assert record.tape is not None
        assert [entry.end for entry in record.tape] == ["complete", "cut"]
