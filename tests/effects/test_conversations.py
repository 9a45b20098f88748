"""Turns of chats: one suite for the database and the Memory service."""

from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import httpx
import msgspec
import pytest

from cutover import Exchange
from effects import conversations
from effects.conversations import Turn, TurnDiffers
from effects.world import SERVICE_SECONDS, EffectSettings, World, open_world, use
from tests.effects.conftest import Policy, taped
from tests.support.origin import Origin, Reply


def turn(turn_id: str, **changes: Any) -> Turn:
    """Return a user's turn of chat c in flow chat."""
    fields = {"flow": "chat", "chat_id": "c", "role": "user", "content": f"text of {turn_id}"}
    return Turn(**(fields | {"id": turn_id, "at": "2026-01-31T12:00:00.000+00:00"} | changes))


def memory_service(world: World) -> Callable[[httpx.Request], Coroutine[Any, Any, httpx.Response]]:
    """Return a handler that answers the three requests of the protocol from a database."""

    async def answer(request: httpx.Request) -> httpx.Response:
        with use(world):
            return await stored(request)

    async def stored(request: httpx.Request) -> httpx.Response:
        assert request.headers["authorization"] == "Bearer secret"
        path = request.url.raw_path.decode().partition("?")[0]
        _, version, kind, name, *_ = path.split("/")
        assert version == "v1"
        flow = request.url.params["flow"]
        if kind == "chats":
            limit = int(request.url.params["limit"])
            found = await conversations.history(flow, unquote(name), limit)
            return httpx.Response(200, content=msgspec.json.encode(found))
        if request.method == "PUT":
            try:
                await conversations.add(msgspec.json.decode(request.content, type=Turn))
            except TurnDiffers:
                return httpx.Response(409)
            return httpx.Response(201)
        one = await conversations.find(flow, unquote(name))
        return httpx.Response(404) if one is None else httpx.Response(200, json=as_json(one))

    return answer


def as_json(one: Turn) -> Any:
    """Return a turn as plain values."""
    return msgspec.to_builtins(one)


@pytest.fixture(params=["database", "service"])
async def store(request: pytest.FixtureRequest, world: World) -> AsyncIterator[World]:
    """A world whose turns are in the database, or behind HTTP."""
    if request.param == "database":
        yield world
        return
    async with httpx.AsyncClient(
        base_url="http://memory.test/v1",
        headers={"authorization": "Bearer secret"},
        transport=httpx.MockTransport(memory_service(world)),
    ) as client:
        with use(replace(world, http=client)) as opened:
            yield opened


@pytest.mark.usefixtures("store")
async def test_history_is_the_newest_turns_oldest_first() -> None:
    """Order is that of storing, whatever the times say; other chats and flows stay apart."""
    for name in ("one", "two", "three"):
        await conversations.add(turn(name))
    await conversations.add(turn("other", chat_id="d"))
    await conversations.add(turn("one", flow="session", content="of another flow"))
    assert [one.id for one in await conversations.history("chat", "c", 2)] == ["two", "three"]
    assert [one.id for one in await conversations.messages("chat", "c")] == ["one", "two", "three"]
    assert await conversations.history("chat", "c", 0) == []
    assert await conversations.history("chat", "none", 5) == []


@pytest.mark.usefixtures("store")
async def test_turns_without_a_chat_are_in_no_history() -> None:
    """Requests without a chat_id come from strangers: none sees the turns of another."""
    await conversations.add(turn("one", chat_id=""))
    assert await conversations.history("chat", "", 5) == []
    assert await conversations.messages("chat", "") == []
    assert await conversations.find("chat", "one") == turn("one", chat_id="")


@pytest.mark.usefixtures("store")
async def test_a_turn_comes_back_whole() -> None:
    """Every field, with text of all scripts and nested data."""
    whole = turn("x", name="小明", user_id="u", data={"a": [1, None, {"é": "\u2028"}], "n": 1.5})
    await conversations.add(whole)
    assert await conversations.find("chat", "x") == whole
    assert await conversations.history("chat", "c", 1) == [whole]


@pytest.mark.usefixtures("store")
async def test_any_text_is_an_id() -> None:
    """Ids are one segment of the path, also where they look like a path."""
    names = ["a/b", "..", ".", "a b?c#d%2F", "消息", "a.b", "\U0001f600", "%2E", "x" * 500]
    for name in names:
        await conversations.add(turn(name, chat_id=name))
    for name in names:
        assert (await conversations.find("chat", name)) == turn(name, chat_id=name)
        assert len(await conversations.history("chat", name, 5)) == 1, name


@pytest.mark.usefixtures("store")
async def test_the_same_turn_again_is_stored_once() -> None:
    """A later time and a null byte make no other turn; another text or chat does."""
    await conversations.add(turn("one", content="a\0b"))
    await conversations.add(turn("one", content="a\0b", at="later"))
    for other in ({"content": "b"}, {"chat_id": "d"}, {"role": "assistant"}, {"user_id": "u"}):
        with pytest.raises(TurnDiffers, match="'one'"):
            await conversations.add(turn("one", **({"content": "a\0b"} | other)))
    assert len(await conversations.messages("chat", "c")) == 1


@pytest.mark.usefixtures("world")
async def test_text_that_postgresql_refuses_is_stored_alike_everywhere() -> None:
    """U+0000 and lone surrogates are replaced rather than refused, in any place."""
    await conversations.add(turn("a\0", content="x\0y\ud800z", data={"k": "\0"}))
    (stored,) = await conversations.messages("chat", "c")
    assert (stored.id, stored.content, stored.data) == ("a\ufffd", "x\ufffdy?z", {"k": "\0"})
    assert await conversations.find("chat", "a\0") == stored


@pytest.mark.usefixtures("world")
async def test_forgetting_removes_a_chat_or_a_user() -> None:
    """A reply has the user it answers, so that it goes with the user."""
    await conversations.add(turn("one", user_id="u"))
    await conversations.add(turn("reply", role="assistant", user_id="u"))
    await conversations.add(turn("two", user_id="v"))
    await conversations.add(turn("three", chat_id="d", user_id="u", flow="session"))
    assert await conversations.users("u") == {("chat", "c"): {"u", "v"}, ("session", "d"): {"u"}}
    assert await conversations.forget([], ["u"], dry_run=True) == 3
    assert await conversations.forget([], ["u"]) == 3
    assert await conversations.forget([("session", "c")]) == 0
    assert await conversations.forget([("chat", "c")]) == 1
    assert await conversations.messages("chat", "c") == []


@pytest.mark.usefixtures("world")
async def test_a_turn_that_differs_is_refused_to_each_run_alike() -> None:
    """The error is declared: a run that plays gets the same class and the same sentence."""
    await conversations.add(turn("one"))
    async with Exchange() as exchange:
        policies: tuple[Policy, ...] = ("live", "play")
        for policy in policies:
            with taped(exchange, policy):
                with pytest.raises(TurnDiffers, match="turn 'one' is stored with other content"):
                    await conversations.add(turn("one", content="other"))
                assert await conversations.find("chat", "one") == turn("one")
        assert [entry.call.name for entry in exchange.entries] == [
            "conversations.add",
            "conversations.find",
        ]


async def test_settings_choose_the_service() -> None:
    """Its base URL, its token and its time limit; without them the database holds the turns."""
    settings = EffectSettings(
        database="sqlite+aiosqlite://",
        memory_service="https://memory.test/v1",
        memory_service_token="secret",
    )
    async with open_world(settings) as world:
        assert world.http is not None
        request = world.http.build_request("GET", "messages/a")
        assert str(request.url) == "https://memory.test/v1/messages/a"
        assert request.headers["authorization"] == "Bearer secret"
        assert world.http.timeout.read == SERVICE_SECONDS
    async with open_world(EffectSettings(database="sqlite+aiosqlite://")) as world:
        assert world.http is None


@pytest.mark.sockets
async def test_a_connection_that_is_lost_is_opened_anew() -> None:
    """For each of the three requests."""
    lost = Reply(before="reset")
    async with Origin() as service:
        settings = EffectSettings(database="sqlite+aiosqlite://", memory_service=service.url)
        service.script(lost, Reply([b"[]"]), lost, Reply(status=404), lost, Reply([b"{}"]))
        async with open_world(settings):
            assert await conversations.history("chat", "c", 5) == []
            assert await conversations.find("chat", "m") is None
            await conversations.add(turn("one"))


@pytest.mark.parametrize("status", [302, 404, 500])
async def test_a_failing_service_is_an_error_and_no_empty_chat(status: int) -> None:
    """A redirect is not followed, and an error is not taken for "no turns"."""
    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url)
        return httpx.Response(status, headers={"location": "http://elsewhere.test/"})

    async with open_world(EffectSettings(database="sqlite+aiosqlite://")) as world:
        transport = httpx.MockTransport(answer)
        async with httpx.AsyncClient(base_url="http://memory.test", transport=transport) as client:
            with use(replace(world, http=client)):
                with pytest.raises(httpx.HTTPStatusError):
                    await conversations.history("chat", "c", 5)
                with pytest.raises(conversations.NotForgotten):
                    await conversations.forget([("chat", "c")])
    assert len(asked) == 1
