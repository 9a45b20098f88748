"""The composition root: what the configuration says is what is opened."""

import itertools
from typing import Any

import pytest
from aiohttp import web

from cutover.records import PauseRecord
from effects.memory import Memory, namespace
from effects.pauses import Pauses
from harness import root
from harness.config import ConfigRefused, parse

MEMORY: dict[str, Any] = {"stores": {"database": "sqlite+aiosqlite://"}}


async def _embed(request: web.Request) -> web.Response:
    """Answer with vectors of which only those of texts about tea are alike."""
    texts = (await request.json())["input"]
    vectors = [[1.0, 0.0] if "tea" in text else [0.0, 1.0] for text in texts]
    data = [{"object": "embedding", "index": i, "embedding": v} for i, v in enumerate(vectors)]
    usage = {"prompt_tokens": 1, "total_tokens": 1}
    return web.json_response({"object": "list", "data": data, "model": "e", "usage": usage})


@pytest.mark.sockets
async def test_memories_are_embedded_where_a_model_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`[embeddings]` names a model of the registry."""
    app = web.Application()
    app.router.add_post("/v1/embeddings", _embed)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    monkeypatch.setenv("EMBEDDING_KEY", "k")
    url = f"{site.name}/v1"
    settings = parse(
        MEMORY
        | {"embeddings": {"model": "small", "dims": 2}}
        | {"models": {"small": {"base_url": url, "key": "env:EMBEDDING_KEY", "name": "e"}}}
    )
    try:
        async with root.opened(settings) as world:
            for number, text in enumerate(("likes tea", "has a dog", "has a cat")):
                memory = Memory(f"m{number}", text)
                await world.memory.aput(namespace("u"), memory.id, memory.value())
            found = await world.memory.asearch(namespace("u"), query="tea?", limit=1)
            assert [one.key for one in found] == ["m0"]
    finally:
        await runner.cleanup()


DECLARED: dict[str, Any] = {"stacks": {"legacy": {"url": "http://127.0.0.1:1"}}}
PATHS = {"paths": ["/a"]}
SHARE = {"enable_langgraph": True, "langgraph_percent": 1.0}


@pytest.mark.parametrize(
    ("tables", "problem"),
    [
        ({"embeddings": {"model": "small", "dim": 2}}, "embeddings.dim: .* mean 'dims'"),
        ({"flows": {"chta": {}}}, "flows.chta: .* mean 'chat'"),
        ({"flows": {"chat": {"stciky": "chat_id"}}}, "stciky: .* mean 'sticky'"),
        ({"flows": {"chat": {"sticky": "chat"}}}, "flows.chat.sticky: .* mean 'chat_id'"),
        ({"flows": {"ops": {"route_key": "user_id"}}}, "flows.ops.route_key: no such route key"),
        ({"rollout": {"qa_key": "env:CUTOVER_UNSET"}}, "qa_key: .* CUTOVER_UNSET is not set"),
        ({"limits": {"streams": 0}}, "limits.streams: .* greater than or equal to 1"),
        ({"flows": {"mine": {"paths": ["/a"]}}}, r"needs \[stacks.legacy\]"),
        ({"flows": {"chat": {"paths": ["/a"]}}}, "flows.chat.paths: chat is built in"),
        (
            DECLARED | {"flows": {"m": {**PATHS, "sticky": "x"}}},
            "flows.m.sticky: no such route key",
        ),
        (DECLARED | {"flows": {"m": {**PATHS, "keys": {"u": "boddy.u"}}}}, "is no place"),
        (DECLARED | {"flows": {"m": {**PATHS, "options": {"a": 1}}}}, "a declared flow has none"),
        (DECLARED | {"flows": {"m": {**PATHS, **SHARE}}}, "has a share for graph, and there is no"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_nearest(
    tables: dict[str, Any], problem: str
) -> None:
    """Tables, keys and names alike, each with its place."""
    with pytest.raises(ConfigRefused, match=problem):
        parse(tables)


async def test_pauses_long_over_make_room_for_new_ones() -> None:
    """A stored tape is not kept for ever."""
    days = itertools.count()
    async with root.opened(parse(MEMORY)) as world:
        table = Pauses(world.database, lambda: next(days) * 86_400.0)
        for name in ("first", "second", "third", "fourth", "fifth"):
            await table.put(
                PauseRecord(
                    id=name,
                    flow="ops",
                    session=name,
                    path="/ops/react",
                    stack="legacy",
                    request=b"{}",
                    tape=b"{}",
                    question={},
                    frames={},
                )
            )
        assert await table.question("first") is None
        assert await table.question("fifth") is not None
