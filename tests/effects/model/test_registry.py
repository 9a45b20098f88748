"""The registry: entries replaced at run time, clients that follow."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

import pytest
from msgspec import structs

from contract.errors import EffectFailed
from contract.model import Chunk, ModelInfo
from effects.model import (
    DuplicateModel,
    KeyUnusable,
    Limits,
    ModelEntry,
    ModelRegistry,
    Prices,
    Provider,
    Secret,
)
from effects.model.errors import Facts
from effects.model.stream import StreamAssembler, read_answer, total_deadline
from tests.support.loopback_provider import (
    CALL,
    Wire,
    delta,
    finish,
    once,
    registry_of,
    serving,
    whole,
)

HERE = Provider("here", "http://127.0.0.1:1/v1", Secret("sk-1"))
ENTRY = ModelEntry("gpt-4.1", HERE, "gpt-4.1-2025", 1000, 100, Prices(2.0, 8.0), ("other",))


def streaming(registry: ModelRegistry) -> AsyncGenerator[Chunk, None]:
    """Begin to ask model `m`."""
    return once(registry).stream("reply", CALL)


def answer_of(registry: ModelRegistry, entry: ModelEntry) -> AsyncGenerator[list[Chunk], None]:
    """Call an entry that need not be registered."""
    ends = total_deadline(entry.provider.limits, asyncio.get_running_loop().time())
    limits = entry.limits(fallback_ready=False)
    return read_answer(registry, entry, b"{}", ends, StreamAssembler(), limits)


async def held(wire: Wire) -> None:
    """Begin an answer and hold it."""
    await wire.head()
    await wire.events(delta(content="Hi"))
    await wire.gone()


def test_an_entry_tells_what_a_stack_may_know() -> None:
    """Names and limits; no provider, no price."""
    assert ENTRY.info == ModelInfo(
        model_id="gpt-4.1", model="gpt-4.1-2025", context_tokens=1000, max_output_tokens=100
    )


@pytest.mark.parametrize(
    ("known", "asked", "data"),
    [
        (["gpt-4.1"], "gpt-41", {"model_id": "gpt-41", "nearest": "gpt-4.1"}),
        ([], "gpt-41", {"model_id": "gpt-41"}),
        # One of megabytes takes seconds to compare: the beginning is looked at.
        (["m" * 100], "m" * 1_000, {"model_id": "m" * 100, "nearest": "m" * 100}),
    ],
)
def test_an_unknown_id_names_the_nearest(known: list[str], asked: str, data: Facts) -> None:
    """As a fact of the fault."""
    registry = ModelRegistry([replace(ENTRY, model_id=one) for one in known])
    with pytest.raises(EffectFailed) as caught:
        registry.entry(asked)
    assert caught.value.fault.data == data


async def test_an_id_is_registered_once() -> None:
    """Twice is refused, and the entries in force stay."""
    registry = ModelRegistry([ENTRY])
    with pytest.raises(DuplicateModel, match=r"'gpt-4\.1' is registered twice"):
        registry.put([ENTRY, ENTRY])
    assert registry.entry("gpt-4.1") is ENTRY


async def test_a_snapshot_never_changes() -> None:
    """Replacing makes another one."""
    registry = ModelRegistry([ENTRY])
    before = registry.entries
    registry.put([])
    assert (list(before), list(registry.entries)) == (["gpt-4.1"], [])


async def test_a_changed_entry_holds_from_the_next_call() -> None:
    """Without a restart."""

    async def answer(wire: Wire) -> None:
        await wire.head()
        await wire.events(delta(content="Hi"), finish())
        await wire.end()

    async with serving(answer) as loopback, registry_of(loopback.entry()) as registry:
        await whole(streaming(registry))
        registry.put([replace(loopback.entry(), model="loop-2")])
        await registry.close_unwanted()
        await whole(streaming(registry))
        assert len(registry.clients) == 1
    assert [request.body["model"] for request in loopback.requests] == ["loop-1", "loop-2"]


async def test_equal_providers_share_a_client() -> None:
    """By value; another key is another client."""
    async with serving(held) as loopback:
        one, other = loopback.entry(), loopback.entry()
        keyed = replace(one.provider, key=Secret("sk-2"))
        entries = [one, replace(other, model_id="m2"), replace(one, model_id="m3", provider=keyed)]
        async with registry_of(*entries) as registry, asyncio.TaskGroup() as group:
            calls = [structs.replace(CALL, model_id=entry.model_id) for entry in entries]
            streams = [once(registry).stream("reply", call) for call in calls]
            for stream in streams:
                await anext(stream)
            assert len(registry.clients) == 2
            for stream in streams:
                group.create_task(stream.aclose())
        assert [request.headers["authorization"] for request in loopback.requests][-1] == (
            "Bearer sk-2"
        )


async def test_a_client_in_use_is_closed_when_its_last_stream_ends() -> None:
    """Removing an entry aborts no answer."""
    async with serving(held) as loopback, registry_of(loopback.entry()) as registry:
        first, second = streaming(registry), streaming(registry)
        assert (await anext(first)).text == (await anext(second)).text == "Hi"
        registry.put([])
        await registry.close_unwanted()
        assert len(registry.clients) == 1
        await first.aclose()
        assert len(registry.clients) == 1
        await second.aclose()
        assert len(registry.clients) == 0


async def test_clients_can_be_made_before_anybody_asks() -> None:
    """One for each provider, and those are the ones that are used."""
    async with serving(held) as loopback:
        one = loopback.entry()
        other = replace(one, model_id="m2", provider=replace(one.provider, key=Secret("sk-2")))
        async with registry_of(one, other) as registry:
            registry.clients.warm()
            assert len(registry.clients) == 2
            stream = streaming(registry)
            await anext(stream)
            await stream.aclose()
            assert len(registry.clients) == 2
    assert len(loopback.requests) == 1


async def test_an_idle_client_is_closed_at_once() -> None:
    """When its provider is gone from the registry."""
    async with serving(held) as loopback, registry_of(loopback.entry()) as registry:
        stream = streaming(registry)
        await anext(stream)
        await stream.aclose()
        assert len(registry.clients) == 1
        registry.put([ENTRY])
        await registry.close_unwanted()
        assert len(registry.clients) == 0


async def test_a_client_asked_for_after_its_removal_is_not_kept() -> None:
    """A rescue may still hold the old entry."""
    async with serving(held) as loopback, registry_of() as registry:
        async with aclosing(answer_of(registry, loopback.entry())) as answer:
            assert await anext(answer)
        assert len(registry.clients) == 0


async def test_a_server_that_needs_no_key_gets_a_placeholder() -> None:
    """The SDK insists on sending one."""
    async with serving(held) as loopback, registry_of() as registry:
        provider = replace(loopback.entry().provider, key=Secret())
        async with aclosing(answer_of(registry, ModelEntry("m", provider, "m"))) as answer:
            assert await anext(answer)
    assert loopback.requests[0].headers["authorization"] == "Bearer no-key"


def test_a_secret_shows_itself_only_when_asked() -> None:
    """Nor is it written down; equal secrets are equal."""
    secret = Secret("sk-1")
    assert (repr(secret), str(secret), repr(Secret())) == ("Secret('…')", "Secret('…')", "Secret()")
    assert secret.reveal() == "sk-1"
    assert secret == Secret("sk-1") != Secret("sk-2")
    assert secret != "sk-1"
    with pytest.raises(TypeError, match="never serialised"):
        pickle.dumps(secret)


@pytest.mark.parametrize("text", ["sk-é", "sk 1", "sk-1\n"])
def test_a_key_no_header_can_carry_is_refused_without_being_named(text: str) -> None:
    """When it is configured, not when it is sent."""
    with pytest.raises(KeyUnusable) as caught:
        Secret(text)
    assert text not in str(caught.value)


def test_the_first_token_is_due_sooner_where_a_fallback_stands_ready() -> None:
    """Unless the model, or else its provider, has a limit of its own."""
    entry = ModelEntry("m", Provider("p", "http://127.0.0.1:1/v1"), "m")
    assert entry.limits(fallback_ready=True).first_token == 20
    assert entry.limits(fallback_ready=False).first_token == 120
    slow = replace(entry, provider=replace(entry.provider, limits=Limits(first_token=50)))
    for ready in (True, False):
        assert slow.limits(fallback_ready=ready).first_token == 50
        assert replace(slow, first_token=90).limits(fallback_ready=ready).first_token == 90


def test_a_limit_of_a_model_holds_for_its_headers_too() -> None:
    """One of its provider would end the call before the model may speak."""
    brief = Provider("p", "http://127.0.0.1:1/v1", limits=Limits(first_byte=3))
    entry = ModelEntry("m", brief, "m")
    assert entry.limits(fallback_ready=False).first_byte == 3
    own = replace(entry, first_token=90).limits(fallback_ready=False)
    assert (own.first_byte, own.first_token) == (None, 90)
