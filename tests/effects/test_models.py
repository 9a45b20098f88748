"""Models: who serves an id, what is cached, what is never shown, and how tokens are counted."""

import hashlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import openai
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from cutover import Exchange
from cutover.errors import StackFailed
from effects import models as module
from effects.models import OPENAI, ModelEntry, Models, tokens
from tests.effects.conftest import taped

VARIABLES = ("OPENAI_BASE_URL", "OPENAI_API_KEY", "TIKTOKEN_CACHE_DIR", "OTHER_KEY")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Nothing is configured but a key."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-default")
    return monkeypatch


@pytest.mark.parametrize(
    ("entry", "model_id", "wanted"),
    [
        (ModelEntry("*"), "gpt-4.1", ("gpt-4.1", OPENAI, "sk-default")),
        (ModelEntry("a", name="b"), "a", ("b", OPENAI, "sk-default")),
        (ModelEntry("a", base_url="http://h/v1/", key="k"), "a", ("a", "http://h/v1", "k")),
        (ModelEntry("a", key="env:OTHER_KEY"), "a", ("a", OPENAI, "sk-other")),
        (ModelEntry("a", key=""), "a", ("a", OPENAI, "unused")),
    ],
)
def test_an_entry_resolves_to_name_address_and_key(
    entry: ModelEntry, model_id: str, wanted: tuple[str, str, str], environment: pytest.MonkeyPatch
) -> None:
    """What an entry leaves out comes from the environment."""
    environment.setenv("OTHER_KEY", "sk-other")
    found = Models([entry]).find(model_id)
    assert (found.name, found.base_url, found.key) == wanted
    assert found.id == model_id


def test_the_default_provider_is_that_of_the_environment(environment: pytest.MonkeyPatch) -> None:
    """A local server needs an address and no key."""
    environment.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    environment.delenv("OPENAI_API_KEY")
    assert Models().find("any").base_url == "http://127.0.0.1:1/v1"


@pytest.mark.parametrize(
    ("entry", "code"),
    [(ModelEntry("a"), "unknown_model"), (ModelEntry("*", key="env:OTHER_KEY"), "model_auth")],
)
def test_what_is_not_configured_is_blamed_on_the_configuration(
    entry: ModelEntry, code: str
) -> None:
    """An unknown id and an unset variable have codes of their own."""
    with pytest.raises(StackFailed) as failed:
        Models([entry]).find("b")
    assert (failed.value.code, failed.value.blame) == (code, "configuration")


async def test_a_swapped_entry_takes_effect_and_others_keep_their_client() -> None:
    """Clients are cached by address and key."""
    async with Models([ModelEntry("a"), ModelEntry("b", base_url="http://h")]) as models:
        kept, changed = (models.openai(models.find(one)) for one in "ab")
        models.swap([ModelEntry("a"), ModelEntry("b", base_url="http://other")])
        assert models.openai(models.find("a")) is kept
        assert models.openai(models.find("b")) is not changed
        assert models.find("b").base_url == "http://other"
    assert kept.is_closed()
    assert changed.is_closed()


def test_a_key_is_never_printed() -> None:
    """Neither the entry nor its client show it."""
    entry = ModelEntry("a", key="sk-secret").resolved("a")
    shown = repr(entry) + str(entry) + f"{entry}" + str(list(entry.__rich_repr__()))
    assert "sk-secret" not in shown + repr(Models().openai(entry))
    assert "id='a'" in shown


def test_entries_are_read_from_configuration() -> None:
    """A misspelt field is refused."""
    assert msgspec.convert({"id": "a", "tools": False}, ModelEntry).tools is False
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"id": "a", "tool": False}, ModelEntry)


@asynccontextmanager
async def provider() -> AsyncIterator[tuple[str, list[str]]]:
    """A provider on loopback: its address, and the keys it was called with."""
    keys: list[str] = []

    async def embed(request: web.Request) -> web.Response:
        keys.append(request.headers["Authorization"])
        texts = (await request.json())["input"]
        vectors = [
            {"object": "embedding", "index": index, "embedding": [float(len(text)), 1.0]}
            for index, text in enumerate(texts)
        ]
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        return web.json_response(
            {"object": "list", "model": "e", "data": vectors[::-1], "usage": usage}
        )

    app = web.Application()
    app.router.add_post("/v1/embeddings", embed)
    async with TestServer(app) as server:
        yield str(server.make_url("/v1")), keys


@pytest.mark.sockets
async def test_a_client_calls_its_provider_through_the_tape() -> None:
    """A second run on the tape is answered without another request, and without the key."""
    async with (
        provider() as (url, keys),
        Models([ModelEntry("*", base_url=url, key="sk-one")]) as models,
    ):
        entry = models.find("e")

        async def call() -> list[float]:
            client: openai.AsyncOpenAI = models.openai(entry)
            found = await client.embeddings.create(
                model=entry.name, input=["abc"], encoding_format="float"
            )
            return found.data[0].embedding

        exchange = Exchange()
        with taped(exchange):
            assert await call() == [3.0, 1.0]
        with taped(exchange, "play"):
            assert await call() == [3.0, 1.0]
    assert keys == ["Bearer sk-one"]


@pytest.fixture
def no_encodings() -> Iterator[None]:
    """Encodings are looked for anew."""
    module._encoding.cache_clear()  # noqa: SLF001 - a cache for the life of a process
    yield
    module._encoding.cache_clear()  # noqa: SLF001 - as above


@pytest.mark.usefixtures("no_encodings")
@pytest.mark.parametrize("content", [None, b"", b"broken"])
def test_an_encoding_that_is_not_whole_is_never_downloaded(
    content: bytes | None, tmp_path: Path, environment: pytest.MonkeyPatch
) -> None:
    """Otherwise tiktoken would replace a file that is missing or broken by one of the network."""
    environment.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    source = "https://openaipublic.blob.core.windows.net/encodings/o200k_base.tiktoken"
    if content is not None:
        (tmp_path / hashlib.sha1(source.encode()).hexdigest()).write_bytes(content)  # noqa: S324 - tiktoken's file names
    assert tokens("hello", "gpt-4.1") == (2, False)
