"""Flags through the OpenFeature SDK: providers that wait, block, fail, change and lie."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from decimal import Decimal
from typing import Any

import pytest
from openfeature.evaluation_context import EvaluationContext
from openfeature.event import ProviderEventDetails
from openfeature.exception import ErrorCode, ParseError
from openfeature.flag_evaluation import FlagResolutionDetails
from openfeature.provider import AbstractProvider, FeatureProvider
from openfeature.provider.in_memory_provider import InMemoryFlag, InMemoryProvider

from contract.flows.chat import CHAT
from router.config.loader import parse_settings
from router.config.schema import FLAG_KINDS, FlowSettings
from router.routing.flags import RefusedFlag, Targeting, apply, defaults
from router.routing.lookup import LookupFailed
from router.routing.open_feature import FileProvider, OpenFeatureFlags
from tests.support.deployment import until

FILE = FlowSettings(enable_langgraph=True, langgraph_percent=Decimal(10))
ASKED = defaults(FILE, ("enable_langgraph", "langgraph_percent", "force_graph"))
WHO = Targeting("chat", "m1", user="u1", tenant="acme")

Open = Callable[["FeatureProvider"], OpenFeatureFlags]


class Blocking(InMemoryProvider):
    """A provider as most are: nothing in it can be awaited."""

    thread = ""
    resolve_boolean_details_async = AbstractProvider.resolve_boolean_details_async

    def resolve_boolean_details(
        self,
        flag_key: str,
        default_value: bool,
        evaluation_context: EvaluationContext | None = None,
    ) -> FlagResolutionDetails[bool]:
        """Remember where it was asked."""
        self.thread = threading.current_thread().name
        return super().resolve_boolean_details(flag_key, default_value, evaluation_context)


def flag(value: Any, **targeted: Any) -> InMemoryFlag[Any]:
    """Make a flag, with other values for some targeting keys, users or tenants."""

    def choose(_: object, context: EvaluationContext) -> FlagResolutionDetails[Any]:
        known = [str(one) for one in (context.targeting_key, *context.attributes.values())]
        return FlagResolutionDetails(next((targeted[k] for k in known if k in targeted), value))

    return InMemoryFlag("on", {"on": value}, context_evaluator=choose)


@pytest.fixture
async def open_flags() -> AsyncIterator[Open]:
    """Open providers, and close them afterwards."""
    opened: list[OpenFeatureFlags] = []

    def opening(provider: FeatureProvider) -> OpenFeatureFlags:
        opened.append(OpenFeatureFlags(provider))
        return opened[-1]

    yield opening
    for one in opened:
        one.close()
        one.close()


async def values(source: OpenFeatureFlags, who: Targeting = WHO) -> dict[str, object]:
    """Evaluate, once the provider has got ready in its background."""
    while True:
        try:
            return dict(await source.values(who, ASKED))
        except LookupFailed as failure:
            if failure.code != "PROVIDER_NOT_READY":
                raise
            await asyncio.sleep(0)


@pytest.mark.parametrize("kind", [InMemoryProvider, Blocking])
async def test_values_come_by_flow_and_flag(open_flags: Open, kind: type[InMemoryProvider]) -> None:
    """A whole number is a percentage; what the provider does not know is left to the file."""
    provider = kind(
        {
            "chat.enable_langgraph": flag(value=False),
            "chat.langgraph_percent": flag(25),
            "ops.force_graph": flag(["x"]),
        }
    )
    found = await values(open_flags(provider))
    assert found == {"enable_langgraph": False, "langgraph_percent": 25}
    if isinstance(provider, Blocking):
        assert provider.thread.startswith("flags")


async def test_flags_are_targeted(open_flags: Open) -> None:
    """By route key, flow, user and tenant; what is unknown is not sent."""
    seen: list[EvaluationContext] = []

    def look(_: object, context: EvaluationContext) -> FlagResolutionDetails[Any]:
        seen.append(context)
        return FlagResolutionDetails(value=False)

    switch = InMemoryFlag("on", {"on": True}, context_evaluator=look)
    share = flag(10.0, acme=100.0, u2=50.0, m3=1.5)
    provider = InMemoryProvider({"chat.enable_langgraph": switch, "chat.langgraph_percent": share})
    source = open_flags(provider)
    shares = {
        who: (await values(source, who))["langgraph_percent"]
        for who in (
            WHO,
            Targeting("chat", "m2", user="u2"),
            Targeting("chat", "m3"),
            Targeting("chat", "m4"),
        )
    }
    assert list(shares.values()) == [100.0, 50.0, 1.5, 10.0]
    assert seen[0].targeting_key == "m1"
    assert seen[0].attributes == {"flow": "chat", "user": "u1", "tenant": "acme"}
    assert seen[-1].attributes == {"flow": "chat"}


async def test_a_value_of_the_wrong_type_is_refused(open_flags: Open) -> None:
    """So is what the provider cannot read; the others count."""

    def unreadable(_: object, __: object) -> FlagResolutionDetails[Any]:
        raise ParseError("the words of a provider")

    provider = InMemoryProvider(
        {
            "chat.enable_langgraph": flag("yes"),
            "chat.langgraph_percent": InMemoryFlag("on", {"on": 1}, context_evaluator=unreadable),
            "chat.force_graph": flag(["x"]),
        }
    )
    found = await values(open_flags(provider))
    assert found["enable_langgraph"] == RefusedFlag("TYPE_MISMATCH")
    assert found["langgraph_percent"] == RefusedFlag("PARSE_ERROR")
    assert found["force_graph"] == ["x"]
    assert apply("chat", FILE, found).flow.force_graph == {"x"}


@pytest.mark.parametrize("kind", [InMemoryProvider, Blocking])
async def test_a_provider_that_breaks_answers_nothing(
    open_flags: Open, kind: type[InMemoryProvider], caplog: pytest.LogCaptureFixture
) -> None:
    """It is not asked for its other flags; its words are not the router's."""

    def broken(_: object, __: object) -> FlagResolutionDetails[Any]:
        raise OSError

    switch = InMemoryFlag("on", {"on": True}, context_evaluator=broken)
    with pytest.raises(LookupFailed) as failed:
        await values(open_flags(kind({"chat.enable_langgraph": switch})))
    assert failed.value.code == "GENERAL"
    assert caplog.records


async def test_a_provider_gets_ready_in_the_background(open_flags: Open) -> None:
    """Until then nothing is known; one that cannot is told."""
    gate = threading.Event()

    class Slow(InMemoryProvider):
        def initialize(self, _: EvaluationContext) -> None:
            gate.wait(10.0)

    source = open_flags(Slow({"chat.langgraph_percent": flag(25.0)}))
    with pytest.raises(LookupFailed, match="PROVIDER_NOT_READY"):
        await source.values(WHO, ASKED)
    gate.set()
    assert (await values(source))["langgraph_percent"] == 25.0


async def test_changes_are_told_on_the_loop(open_flags: Open) -> None:
    """Which ones, where the provider says."""
    told: list[Sequence[str] | None] = []
    provider = InMemoryProvider({})
    source = open_flags(provider)
    source.on_change(told.append)
    for changed in (["chat.langgraph_percent"], None):
        provider.emit_provider_configuration_changed(ProviderEventDetails(flags_changed=changed))
    await until(lambda: len(told) == 2)
    assert sorted(told, key=str) == [None, ["chat.langgraph_percent"]]


async def test_providers_of_two_routers_do_not_meet(open_flags: Open) -> None:
    """Each has a domain of its own."""
    one, two = (
        open_flags(InMemoryProvider({"chat.langgraph_percent": flag(share)}))
        for share in (1.0, 2.0)
    )
    assert (await values(one))["langgraph_percent"] == 1.0
    assert (await values(two))["langgraph_percent"] == 2.0


async def test_the_file_through_the_sdk_is_the_file(open_flags: Open) -> None:
    """Every flag of every flow, targeted or not; what is no flag of it is unknown."""
    text = """
        [flows.chat]
        enable_langgraph = true
        langgraph_percent = 10.125
        shadow_percent = 99.999
        langgraph_fallback = false
        fallback_to_graph = true
        force_graph = ["b", "a"]
        force_legacy = ["c"]
    """
    settings = parse_settings(text, "cutover.toml", {"chat": CHAT})
    source = open_flags(FileProvider(lambda: settings))
    bare = FlowSettings()
    asked = defaults(bare, tuple(FLAG_KINDS))
    await values(source)
    found = await source.values(WHO, asked)
    applied = apply("chat", bare, found)
    for name in FLAG_KINDS:
        assert getattr(applied.flow, name) == getattr(settings.flows["chat"], name)
    assert await source.values(Targeting("ops", "k"), asked) == {}
    unknown = FileProvider(lambda: settings).resolve("chat.route_key", "d")
    assert (unknown.value, unknown.error_code) == ("d", ErrorCode.FLAG_NOT_FOUND)
