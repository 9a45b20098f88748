"""The flag provider a configuration names: made, refused, and followed by a whole deployment."""

from __future__ import annotations

from contextlib import AsyncExitStack
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from openfeature.provider.in_memory_provider import InMemoryFlag, InMemoryProvider

from cutover.wiring.flags import ProviderNotLoaded, open_flags
from router.config.errors import ConfigRefused
from router.config.schema import FlagSettings, Settings
from router.routing import lookup
from tests.support.deployment import Deployment, Setup, deployed

MADE: list[dict[str, Any]] = []


def factory(**options: object) -> InMemoryProvider:
    """Make a provider of the flags in its options, and remember how it was made."""
    MADE.append(options)
    values: Any = options.get("flags", {})
    return InMemoryProvider({key: InMemoryFlag("on", {"on": one}) for key, one in values.items()})


def no_provider(**_: object) -> object:
    """Make something that is none."""
    return object()


def failing(**options: object) -> object:
    """Fail as a team's own code may: with what it was given in its words."""
    raise RuntimeError(options)


HERE = f"{__name__}:"


def opened(stack: AsyncExitStack, provider: str, **options: object) -> object:
    """Open the flags of a configuration."""
    settings = Settings(flags=FlagSettings(provider=provider, options=options))
    return open_flags(lambda: settings, {"FLAG_KEY": "hush"}, stack)


async def test_without_a_provider_there_is_nothing_to_ask() -> None:
    """The file alone decides."""
    async with AsyncExitStack() as stack:
        assert opened(stack, "") is None


async def test_a_factory_is_called_with_its_options() -> None:
    """Fractions as floats, what stands in variables looked up, however deep."""
    async with AsyncExitStack() as stack:
        options = {"wait": Decimal("0.5"), "keys": ["env:FLAG_KEY"], "tls": {"on": True}}
        assert opened(stack, f"{HERE}factory", **options) is not None
    assert MADE[-1] == {"wait": 0.5, "keys": ["hush"], "tls": {"on": True}}


@pytest.mark.parametrize(
    ("provider", "why"),
    [
        ("nowhere:factory", "No module named 'nowhere'"),
        (f"{HERE}missing", "no attribute 'missing'"),
        (f"{HERE}failing", "RuntimeError"),
        (":factory", "Empty module name"),
        (f"{HERE}no_provider", "'object' is no OpenFeature provider"),
    ],
)
async def test_what_cannot_be_made_is_refused(provider: str, why: str) -> None:
    """At the start, with its name and the reason."""
    async with AsyncExitStack() as stack:
        with pytest.raises(ProviderNotLoaded) as refused:
            opened(stack, provider, key="env:FLAG_KEY")
    assert "hush" not in str(refused.value)
    assert str(refused.value).startswith(f"flag provider {provider!r} cannot be loaded: ")
    assert why in str(refused.value)


async def test_a_variable_that_is_not_set_is_refused() -> None:
    """Before anything is made."""
    async with AsyncExitStack() as stack:
        with pytest.raises(ConfigRefused, match="NOT_SET"):
            opened(stack, f"{HERE}factory", key="env:NOT_SET")


async def ready(place: Deployment) -> Any:
    """Ask until the provider has got ready; returns `/readyz`."""
    while True:
        await place.ask({"message_id": "m", "content": "Hello"})
        told = await place.get("/readyz")
        if "PROVIDER_NOT_READY" not in told["faults"].get("flags", ""):
            return told


@pytest.mark.sockets
@pytest.mark.parametrize(
    ("percent", "assigned", "fault"),
    [(100, "graph", None), (101, "legacy", "chat.langgraph_percent = 101: allowed: 0 to 100")],
)
async def test_a_deployment_follows_its_provider(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    percent: int,
    assigned: str,
    fault: str | None,
) -> None:
    """The flag beats the file; one that cannot be used is told, and the file holds."""
    monkeypatch.setattr(lookup, "REST_SECONDS", 0.0)
    options = f'flags = {{ "chat.langgraph_percent" = {percent} }}'
    more = f'[flags]\nprovider = "{HERE}factory"\n[flags.options]\n{options}\n'
    async with deployed(tmp_path, Setup(more=more)) as place:
        told = await ready(place)
        answer = await place.ask({"message_id": "m", "content": "Hello"})
        assert answer.headers["x-cutover-assigned"] == assigned
        assert (fault or "") in told["faults"].get("flags", "")
        assert told["status"] == ("degraded" if fault else "ready")
