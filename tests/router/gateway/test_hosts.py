"""The gateways of other hosts: who is known, and what holds while Redis is away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import pytest

from contract.errors import EffectFailed, Fault
from effects.stores.gateway_hosts import RedisGatewayHosts
from router.config.addresses import check_advertised
from router.gateway.hosts import KnownHosts
from router.gateway.peers import WorkerPeers
from router.gateway.refusals import GatewayRefused
from tests.support.deployment import until

_AWAY = "gateways of other hosts cannot be found: effect failed with 'store_unavailable'"


@dataclass
class Directory:
    """Announcements in memory; out of reach while it is `away`."""

    addresses: dict[str, str] = field(default_factory=dict)
    away: bool = False

    async def announce(self, name: str, address: str, seconds: int) -> Mapping[str, str]:
        """Note where a name is."""
        assert seconds > 0
        if self.away:
            raise EffectFailed(Fault("store_unavailable"))
        self.addresses[name] = address
        return dict(self.addresses)

    async def withdraw(self, name: str, address: str) -> None:
        """Remove a name."""
        if self.away:
            raise EffectFailed(Fault("store_unavailable"))
        assert self.addresses.pop(name) == address


async def test_hosts_know_each_other_from_the_first_call_on() -> None:
    """One that has begun a moment ago is looked for; the workers of one host are no others."""
    directory = Directory()
    one = KnownHosts(directory, "aaaaaa", "10.0.0.1:8081")
    two = KnownHosts(directory, "bbbbbb", "10.0.0.2:8081")
    beside = KnownHosts(directory, "cccccc", "10.0.0.1:8081")
    async with one.announced(), two.announced(), beside.announced():
        assert await one.address_of("bbbbbb" + "0" * 34) == "10.0.0.2:8081"
        assert await one.address_of("cccccc" + "0" * 34) is None
        assert await one.address_of("dddddd" + "0" * 34) is None
        assert await one.others() == ["10.0.0.2:8081"]
        assert await two.others() == ["10.0.0.1:8081"]
    assert directory.addresses == {}


async def test_what_was_known_last_holds_while_nothing_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And it is a fault until it does."""
    monkeypatch.setattr("router.gateway.hosts.EVERY_SECONDS", 0.0)
    directory = Directory({"bbbbbb": "10.0.0.2:8081"})
    hosts = KnownHosts(directory, "aaaaaa", "10.0.0.1:8081")
    async with hosts.announced():
        directory.away = True
        assert await hosts.address_of("dddddd") is None
        fault = hosts.fault
        assert fault == _AWAY
        assert await hosts.address_of("bbbbbb") == "10.0.0.2:8081"
        directory.away = False
        await until(lambda: hosts.fault is None)
        directory.away = True


@pytest.fixture
async def announcing(redis_url: str) -> AsyncIterator[RedisGatewayHosts]:
    """Open a place of the test's own."""
    async with aclosing(RedisGatewayHosts(redis_url, prefix=f"test:{uuid4().hex}:")) as hosts:
        yield hosts


@pytest.mark.sockets
async def test_redis_forgets_who_is_silent(announcing: RedisGatewayHosts) -> None:
    """After the seconds it has said; one that leaves says so."""
    assert await announcing.announce("aaaaaa", "[::1]:8081", 60) == {"aaaaaa": "[::1]:8081"}
    both = await announcing.announce("bbbbbb", "10.0.0.2:8081", 60)
    assert both == {"aaaaaa": "[::1]:8081", "bbbbbb": "10.0.0.2:8081"}
    assert await announcing.announce("aaaaaa", "[::1]:8081", -1) == {"bbbbbb": "10.0.0.2:8081"}
    await announcing.withdraw("bbbbbb", "10.0.0.2:8081")
    assert await announcing.announce("cccccc", "h:1", -1) == {}


async def test_a_host_that_stands_still_is_left_once_it_counts_as_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It takes connections, and answers nothing: the call is refused, and names it."""
    monkeypatch.setattr("router.gateway.hosts.EVERY_SECONDS", 0.01)
    silent = asyncio.Event()

    async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        silent.set()
        await ended.wait()
        writer.close()

    ended = asyncio.Event()
    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        directory = Directory({"bbbbbb": address})
        with TemporaryDirectory() as folder, WorkerPeers.joined(Path(folder)) as peers:
            peers.hosts = KnownHosts(directory, peers.name, "10.0.0.1:8081")
            async with peers.hosts.announced():
                call = {
                    "headers": [],
                    "client": ("127.0.0.1", 1),
                    "path_params": {"exchange": "bbbbbb" + "0" * 34},
                    "path": "/exchanges/x/v1/chat/completions",
                }
                answering = asyncio.create_task(peers.answer(call, b"{}", unsent))
                await silent.wait()
                del directory.addresses["bbbbbb"]
                with pytest.raises(GatewayRefused, match=address):
                    await answering
        ended.set()


async def unsent(_: object) -> None:
    """Fail where anything is sent."""
    pytest.fail("no host has answered")


@pytest.mark.parametrize("value", ["http://10.0.0.5:8081", "10.0.0.5", "0.0.0.0:8081", "[::]:1"])
def test_an_address_that_reaches_nobody_is_refused(value: str) -> None:
    """In the file, or in the variable it names."""
    with pytest.raises(ValueError, match=r"allowed|names no host"):
        check_advertised(value)
