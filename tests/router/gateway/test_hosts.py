"""The gateways of other hosts: who is known, and what holds while Redis is away."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from uuid import uuid4

import pytest

from contract.errors import EffectFailed, Fault
from effects.stores.gateway_hosts import RedisGatewayHosts
from router.gateway.hosts import KnownHosts

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


async def test_what_was_known_last_holds_while_nothing_answers() -> None:
    """And it is a fault until it does."""
    directory = Directory({"bbbbbb": "10.0.0.2:8081"})
    hosts = KnownHosts(directory, "aaaaaa", "10.0.0.1:8081")
    async with hosts.announced():
        directory.away = True
        assert await hosts.address_of("dddddd") is None
        fault = hosts.fault
        assert fault == _AWAY
        assert await hosts.address_of("bbbbbb") == "10.0.0.2:8081"
        directory.away = False
        await hosts.others()
        assert hosts.fault is None
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
