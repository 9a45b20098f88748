"""Code of a run in threads of its own, and what reaches the network past the tape."""

import asyncio
import os
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context, ContextVar
from typing import Any
from urllib.request import urlopen

import httpx
import pytest
import requests

from cutover import Event, Request, TapeTransport, effect
from cutover.errors import Completed
from harness.containment import contexts_in_threads, watch_escapes
from harness.root import equal_shadow
from loadtests.simulator import Simulator
from tests.support.ask import ASK, Ask, Done, Noted
from tests.support.served import ask

Work = Callable[[], Any]


def in_thread(work: Work) -> Any:
    """Run work in a `threading.Thread`."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    thread.join()
    return results[0]


def in_pool(work: Work) -> Any:
    """Run work in a pool of its own."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


async def in_executor(work: Work) -> Any:
    """Run work in the loop's pool."""
    return await asyncio.get_running_loop().run_in_executor(None, work)


async def threads_in_thread(way: Callable[[Work], Any], work: Work) -> Any:
    """Run work in a thread that a thread starts: the loop is free meanwhile."""
    return await asyncio.to_thread(way, work)


WAYS: dict[str, Callable[[Work], Any]] = {
    "Thread": lambda work: threads_in_thread(in_thread, work),
    "submit": lambda work: threads_in_thread(in_pool, work),
    "run_in_executor": in_executor,
    "to_thread": asyncio.to_thread,
}
"""How code gets its work into a thread."""


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """Threads have their starter's context, and are as they were behind the test."""
    before = threading.Thread.start, ThreadPoolExecutor.submit
    with contexts_in_threads():
        yield
    assert (threading.Thread.start, ThreadPoolExecutor.submit) == before


@pytest.mark.sockets
@pytest.mark.parametrize("way", WAYS)
async def test_a_shadow_performs_nothing_in_threads(sim: Simulator, way: str) -> None:
    """Effects and blocking clients find their calls on the tape, however the thread was started."""
    performed: list[str] = []

    @effect("numbers.next", writes=True)
    def number() -> int:
        performed.append("number")
        return len(performed)

    with httpx.Client(transport=TapeTransport()) as client:

        def work() -> list[Any]:
            return [number(), client.get(f"{sim.base_url}/models").json()["object"], number()]

        async def stack(_: Request[Any, Any]) -> AsyncIterator[Event]:
            yield Noted(await WAYS[way](work))
            yield Done()

        heard = await ask(ASK, Ask("hello"), stack)
        assert isinstance(heard.outcome, Completed), heard.outcome
        assert heard.events[0]["note"] == [1, "list", 2]
        asked = len(sim.requests)
        played = await heard.shadow(stack)
        assert equal_shadow(heard.served, played), played.outcome
        assert (len(sim.requests), len(performed)) == (asked, 2)
        assert not played.run.escaped


def test_threads_of_a_pool_keep_no_context() -> None:
    """A pool's thread outlives the work that it was started for."""
    name = ContextVar("name", default="none")
    with ThreadPoolExecutor(1) as pool:
        name.set("first")
        assert pool.submit(name.get).result() == "first"
        assert Context().run(pool.submit, name.get).result() == "none"


def test_blocks_may_be_nested() -> None:
    """The patch is there until the last block ends."""
    patched = threading.Thread.start, ThreadPoolExecutor.submit
    with contexts_in_threads():
        pass
    assert (threading.Thread.start, ThreadPoolExecutor.submit) == patched


def with_requests(url: str) -> Any:
    """Ask with requests."""
    return requests.get(url, timeout=5).json()["object"]


def with_urllib(url: str) -> Any:
    """Ask with urllib."""
    with urlopen(url) as response:  # noqa: S310 - the test's own provider
        return response.read(2).decode()


def with_a_datagram(_: str) -> None:
    """Count something, as clients of StatsD do."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"orders:1|c", ("127.0.0.1", 9))


SENT = ("http.client.send {}", "socket.connect {}")


@pytest.mark.sockets
@pytest.mark.parametrize(
    ("client", "escaped"),
    [
        *((with_requests, SENT), (with_urllib, SENT)),
        (with_a_datagram, ["socket.sendto 127.0.0.1:9"]),
        (lambda _: os.system("true"), ["os.system true"]),  # noqa: S605, S607 - as others do
    ],
)
async def test_what_a_shadow_sends_past_the_tape_is_named(
    sim: Simulator, client: Callable[[str], Any], escaped: Sequence[str]
) -> None:
    """Other clients act on the world in shadows too: it cannot be hindered, but it is found."""
    watch_escapes()

    async def stack(_: Request[Any, Any]) -> AsyncIterator[Event]:
        yield Noted(await asyncio.to_thread(client, f"{sim.base_url}/models"))
        yield Done()

    heard = await ask(ASK, Ask("hello"), stack)
    assert not heard.served.runs[0].run.escaped
    played = await heard.shadow(stack)
    place = f"127.0.0.1:{sim.port}"
    assert played.run.escaped == {one.format(place): 1 for one in escaped}
