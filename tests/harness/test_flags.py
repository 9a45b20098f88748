"""Switches and shares from an OpenFeature provider."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from openfeature import api
from openfeature.provider.in_memory_provider import InMemoryFlag, InMemoryProvider

from harness.config import ConfigRefused, parse
from harness.live import LiveSettings
from harness.server.flags import Flags

pytestmark = pytest.mark.virtual

SET: dict[str, Any] = {}
"""What the provider of a test knows."""


class Provider(InMemoryProvider):
    """A provider whose flags a test may change."""

    def __init__(self) -> None:
        super().__init__({})
        self._flags = SET


def flag(value: Any) -> InMemoryFlag[Any]:
    """Return a flag with one value."""
    return InMemoryFlag("on", {"on": value})


@pytest.fixture
async def live() -> AsyncIterator[LiveSettings]:
    """Settings that follow a provider, over 10 % in the file."""
    SET.clear()
    settings = LiveSettings(parse({"flows": {"chat": {"langgraph_percent": 10.0}}}))
    following = asyncio.create_task(Flags(f"{__name__}:Provider").follow(settings))
    await asyncio.sleep(1.5)
    yield settings
    following.cancel()
    await asyncio.wait({following})
    api.shutdown()


async def test_what_a_provider_says_is_in_force_within_a_second(live: LiveSettings) -> None:
    """What it does not know, the file says."""
    assert live.flows["chat"].shares.percent == 10.0
    SET["chat.langgraph_percent"] = flag(25.0)
    SET["chat.enable_langgraph"] = flag(True)  # noqa: FBT003 - the value of a flag
    await asyncio.sleep(1.5)
    shares = live.flows["chat"].shares
    assert (shares.enabled, shares.percent) == (True, 25.0)
    SET["chat.langgraph_percent"] = flag(30)
    await asyncio.sleep(1.5)
    assert live.flows["chat"].shares.percent == 30.0
    SET.clear()
    await asyncio.sleep(1.5)
    assert live.flows["chat"].shares.percent == 10.0


@pytest.mark.parametrize("bad", [101.0, "many", float("nan"), True])
async def test_a_refused_value_keeps_the_last_good_ones(live: LiveSettings, bad: Any) -> None:
    """It is said until it is good again."""
    SET["chat.langgraph_percent"] = flag(25.0)
    await asyncio.sleep(1.5)
    SET["chat.langgraph_percent"] = flag(bad)
    SET["chat.shadow_percent"] = flag(5.0)
    await asyncio.sleep(1.5)
    assert live.flows["chat"].shares.percent == 25.0
    assert live.flows["chat"].shadow_percent == 0.0
    assert "flags.chat.langgraph_percent: " in live.refused
    SET["chat.langgraph_percent"] = flag(50.0)
    await asyncio.sleep(1.5)
    assert live.flows["chat"].shares.percent == 50.0
    assert live.flows["chat"].shadow_percent == 5.0
    assert not live.refused


def test_a_factory_that_is_not_there_is_refused() -> None:
    """With its name, at the start."""
    with pytest.raises(ConfigRefused, match=r"flags\.provider: 'nowhere:Provider'"):
        Flags("nowhere:Provider")
