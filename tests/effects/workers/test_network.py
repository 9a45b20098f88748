"""The worker `network`, on loopback."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from functools import partial
from ipaddress import ip_address
from typing import Any

import pytest

from effects.workers import WorkerRegistry
from effects.workers.action import ActionFailed
from effects.workers.network import NetworkWorker
from effects.workers.threads import WorkerThreads
from tests.support.worker_calls import instruct

pytestmark = [pytest.mark.sockets, pytest.mark.virtual]


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """Return the port of a server that takes connections."""

    async def take(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@pytest.fixture
def threads() -> Iterator[WorkerThreads]:
    """Return threads to resolve names in."""
    threads = WorkerThreads()
    yield threads
    threads.close()


Network = Callable[..., WorkerRegistry]


@pytest.fixture
def network(threads: WorkerThreads) -> Network:
    """Return a function that makes the worker, allowed some hosts."""
    return lambda *hosts: WorkerRegistry(NetworkWorker(threads, hosts).actions())


@pytest.mark.parametrize("hosts", [("*",), ("LOCAL*",), ("10.0.0.0/8", "127.0.0.1"), ("::/0", "*")])
async def test_a_port_that_takes_connections_is_reached(
    network: Network, port: int, hosts: tuple[str, ...]
) -> None:
    """By name or network; the address and the time are told."""
    lines, result = await instruct(network(*hosts), "network.reach", host="localhost", port=port)
    assert result.ok
    assert result.data["address"] == "127.0.0.1"
    assert lines[-1] == "connecting to 127.0.0.1"
    assert result.message.startswith(f"localhost port {port} is reached in ")


async def test_what_failed_is_told(network: Network, unused_port: int) -> None:
    """To resolve, or to connect."""
    workers = network("*")
    _, result = await instruct(workers, "network.reach", host="127.0.0.1", port=unused_port)
    assert (result.ok, result.code) == (False, "not_connected")
    assert result.message == f"127.0.0.1 resolves, but port {unused_port} takes no connections"
    _, result = await instruct(workers, "network.reach", host="no.such.host.invalid", port=80)
    assert (result.ok, result.code) == (False, "not_resolved")
    for host in ("a..b", "x" * 70 + ".example"):
        _, result = await instruct(workers, "network.reach", host=host, port=80)
        assert result.code in {"bad_arguments", "not_resolved"}


async def test_a_host_that_does_not_answer_takes_no_longer_than_its_limit(network: Network) -> None:
    """As one whose queue is full, which drops what comes."""
    with ExitStack() as sockets:
        full, *callers = (sockets.enter_context(socket.socket()) for _ in range(4))
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for caller in callers:
            caller.settimeout(0.0)
            caller.connect_ex(full.getsockname())
        _, result = await instruct(
            network("*"),
            "network.reach",
            host="127.0.0.1",
            port=full.getsockname()[1],
            timeout=0.1,
        )
    assert (result.ok, result.code) == (False, "timed_out")
    assert result.message.endswith("took longer than 0.1 s")


@pytest.mark.parametrize(
    ("hosts", "host"),
    [
        (("db.internal", "*.example"), "localhost"),
        (("10.0.0.0/8",), "127.0.0.1"),
        (("*",), "169.254.169.254"),
        (("*",), "2852039166"),  # the same as a number
        (("*",), "0xa9fea9fe"),
        (("*",), "::ffff:169.254.169.254"),
        (("*",), "64:ff9b::a9fe:a9fe"),
        (("*",), "2002:a9fe:a9fe::1"),
        (("*",), "fd00:ec2::254"),
        (("*",), "100.100.100.200"),
        (("*",), "fd20:ce::254"),
        (("*",), "64:ff9b:1::a9fe:a9fe"),  # NAT64 of a network's own
        (("*",), "::169.254.169.254"),
        (("*",), "::ffff:0:a9fe:a9fe"),
        (("*",), "2001:0:4136:e378:8000:63bf:5601:5601"),  # Teredo
        (("::/0",), "169.254.169.254"),
        (("*.internal",), "127.0.0.1%.internal"),
        (("*.internal",), "127.0.0.1 .internal"),
    ],
)
async def test_other_hosts_are_refused(network: Network, hosts: tuple[str, ...], host: str) -> None:
    """Those that are not configured, and the metadata of clouds however its address is written."""
    _, result = await instruct(network(*hosts), "network.reach", host=host, port=80, timeout=1)
    assert not result.ok
    assert result.code in {"host_not_allowed", "not_resolved"}


@pytest.mark.parametrize("port", [0, -1, 65_536, 80.5, float("nan"), float("inf"), "80", True])
async def test_a_port_out_of_range_is_refused(network: Network, port: float | str) -> None:
    """Before anything is resolved."""
    _, result = await instruct(network("*"), "network.reach", host="127.0.0.1", port=port)
    assert (result.ok, result.code) == (False, "bad_arguments")


async def test_names_that_take_long_keep_no_other_waiting(
    network: Network, monkeypatch: pytest.MonkeyPatch, unused_port: int
) -> None:
    """Of this process, that is: a provider's is resolved meanwhile."""
    loop, resolve = asyncio.get_running_loop(), socket.getaddrinfo
    asked, over = asyncio.Event(), threading.Event()

    def slow(host: str, *given: Any, **more: Any) -> Any:
        if host == "slow.example":
            loop.call_soon_threadsafe(asked.set)
            over.wait()
            host = "127.0.0.1"
        return resolve(host, *given, **more)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    reach = partial(instruct, network("*"), "network.reach", host="slow.example", port=unused_port)
    async with asyncio.TaskGroup() as group:
        found = [group.create_task(reach()) for _ in range(40)]
        await asked.wait()
        try:
            await loop.getaddrinfo("localhost", 80)
        finally:
            over.set()
    assert {one.result()[1].code for one in found} == {"not_connected"}


def test_metadata_may_be_configured(threads: WorkerThreads) -> None:
    """By its address or network: `*` does not name it."""
    worker = NetworkWorker(threads, ["*", "169.254.169.254"])
    address = ip_address("169.254.169.254")
    assert worker.allowed("metadata", [address]) == [address]
    with pytest.raises(ActionFailed, match="'metadata' is no host that is configured"):
        worker.allowed("metadata", [ip_address("169.254.170.2")])


async def test_no_host_is_allowed_unless_configured(network: Network) -> None:
    """Then there is no such action."""
    _, result = await instruct(network(), "network.reach", host="localhost", port=80)
    assert result.code == "not_configured"
