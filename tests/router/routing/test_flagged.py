"""Flags from outside: in force where they are good, never waited for long."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest

from contract.flows.chat import CHAT, ChatRequest
from router.config.schema import FlagSettings, FlowSettings, Settings
from router.routing.assignment import attribute, targeting_of
from router.routing.flags import (
    REPORTED_SECONDS,
    Changed,
    FixedFlags,
    FlagEvaluator,
    FlagSource,
    Targeting,
)
from router.routing.lookup import REST_SECONDS, WAIT_SECONDS, LookupFailed
from router.stack import IncomingRequest
from tests.support.clocks import now
from tests.support.router_world import House, Rules
from tests.support.tool_replies import CASE

pytestmark = pytest.mark.virtual

FILE = FlowSettings(enable_langgraph=True, langgraph_percent=Decimal(10))
NAMES = ("enable_langgraph", "langgraph_percent", "shadow_percent")
WHO = Targeting("chat", "m1")


@dataclass
class Unwell:
    """A source that hangs or fails."""

    seconds: float = 0.0
    failure: Exception | None = None
    asked: int = 0
    name: str = "unwell"

    def on_change(self, changed: Changed) -> None:
        """Never change."""

    async def values(
        self, targeting: Targeting, defaults: Mapping[str, Any]
    ) -> Mapping[str, object]:
        """Answer late, or not."""
        assert (targeting.flow, set(defaults)) == ("chat", set(NAMES))
        self.asked += 1
        await asyncio.sleep(self.seconds)
        if self.failure is not None:
            raise self.failure
        return {"langgraph_percent": 77}


def flagged(source: FlagSource) -> FlagEvaluator:
    """Ask a source for three flags."""
    return FlagEvaluator(source, NAMES, now)


async def test_flags_take_the_place_of_the_file_s_values() -> None:
    """Only those asked for and known there; the version says that they did."""
    source = FixedFlags({"chat.langgraph_percent": 25, "chat.langgraph_fallback": False})
    flags = flagged(source)
    found, version = await flags.settle(WHO, FILE, "v1")
    assert (found.langgraph_percent, found.langgraph_fallback) == (Decimal(25), True)
    assert version.startswith("v1+")
    assert (await flags.settle(WHO, FILE, "v2"))[1] == version.replace("v1", "v2")
    source.flags["chat.langgraph_percent"] = 10.0
    assert await flags.settle(WHO, FILE, "v1") == (FILE, "v1")
    source.flags.clear()
    assert await flags.settle(WHO, FILE, "v1") == (FILE, "v1")
    assert source.calls[0] == (WHO, NAMES)
    assert flags.fault is None


async def test_switched_off_in_the_file_is_off() -> None:
    """A rollback by the file holds; the source is not even asked."""
    source = FixedFlags({"chat.enable_langgraph": True, "chat.langgraph_percent": 100})
    off = FlowSettings(enable_langgraph=False)
    assert await flagged(source).settle(WHO, off, "v") == (off, "v")
    assert source.calls == []


@pytest.mark.parametrize(
    ("failure", "told"),
    [(LookupFailed("PROVIDER_FATAL"), "PROVIDER_FATAL"), (KeyError("k"), "KeyError")],
)
async def test_a_source_that_fails_leaves_the_file_in_force(failure: Exception, told: str) -> None:
    """It is told, rests, and is asked again."""
    source = Unwell(failure=failure)
    flags = flagged(source)
    for _ in range(5):
        assert await flags.settle(WHO, FILE, "v") == (FILE, "v")
    assert source.asked == 1
    assert flags.fault == f"{told}; the file's values are in force"
    source.failure = None
    await asyncio.sleep(REST_SECONDS)
    found, _ = await flags.settle(WHO, FILE, "v")
    assert found.langgraph_percent == 77
    assert flags.fault is None


async def test_a_source_that_hangs_is_waited_for_a_moment() -> None:
    """Then the file counts, and for a while no request waits."""
    flags = flagged(Unwell(seconds=1e6))
    assert await flags.settle(WHO, FILE, "v") == (FILE, "v")
    assert now() == pytest.approx(WAIT_SECONDS)
    assert await flags.settle(WHO, FILE, "v") == (FILE, "v")
    assert now() == pytest.approx(WAIT_SECONDS)
    assert flags.fault == "no answer within 0.05 s; the file's values are in force"
    await flags.aclose()


async def test_a_value_that_cannot_be_used_is_told_for_a_while(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """In `/readyz` and once in the log; the good ones beside it count."""
    source = FixedFlags({"chat.langgraph_percent": 101, "chat.shadow_percent": 5})
    flags = flagged(source)
    for _ in range(3):
        found, _ = await flags.settle(WHO, FILE, "v")
        assert (found.langgraph_percent, found.shadow_percent) == (Decimal(10), Decimal(5))
    told = "flags: chat.langgraph_percent = 101: allowed: 0 to 100; the file's values are in force"
    assert flags.fault == told
    assert [record.getMessage() for record in caplog.records] == [told]
    source.flags["chat.langgraph_percent"] = 20
    await asyncio.sleep(REPORTED_SECONDS + 1)
    await flags.settle(WHO, FILE, "v")
    assert flags.fault is None


async def test_what_any_source_may_say_is_survived() -> None:
    """Values of no known kind are refused like others."""
    flags = flagged(
        FixedFlags({"chat.enable_langgraph": object(), "chat.shadow_percent": {(1,): "\ud800"}})
    )
    assert await flags.settle(WHO, FILE, "v") == (FILE, "v")
    assert flags.fault is not None


async def test_a_router_follows_the_flags() -> None:
    """Who is assigned, whether it is mirrored, and which version is on record."""
    source = FixedFlags({"chat.langgraph_percent": 100})
    async with House(CASE, Rules(flags=flagged(source))) as made:
        served = await made.ask()
        assert served.stream.context.assignment.stack == "graph"
        assert made.runs[-1].config == made.contexts[served.exchange].config
        assert made.runs[-1].config.startswith("v-1+")
        source.flags = {"chat.langgraph_percent": 100, "chat.enable_langgraph": False}
        served = await made.ask()
        assert served.stream.context.assignment.why == "disabled"
        source.flags = {"chat.shadow_percent": 100}
        await made.ask()
        source.flags = {}
        await made.ask()
        assert made.runs[-1].config == "v-1"
        await asyncio.sleep(100.0)
    assert made.states == {"not_sampled": 3, "compared(equal)": 1}


async def test_whom_flags_are_asked_for() -> None:
    """Route key and flow always; user and tenant from where the configuration says."""
    body = ChatRequest(message_id="m1", content="hi", user_id="u1")
    incoming = IncomingRequest(b"", ((b"x-tenant", b"acme"), (b"x-other", b"o")))

    def who(user: str = "body:user_id", tenant: str = "") -> Targeting:
        settings = Settings(flags=FlagSettings(user=user, tenant=tenant))
        return targeting_of(settings, CHAT, body, "m1", incoming)

    assert who() == Targeting("chat", "m1", "u1", "")
    assert who(tenant="header:x-tenant") == Targeting("chat", "m1", "u1", "acme")
    assert who(user="", tenant="body:chat_id") == Targeting("chat", "m1", "", "")
    assert attribute("header:x-tenant", body, None) == ""
    assert attribute("body:nothing_like_it", body, None) == ""
