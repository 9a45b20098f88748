"""Memory: one suite for every store, by cosine and by age, as LangGraph's own store has it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.store.base import BaseStore, GetOp, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore
from openai.types import CreateEmbeddingResponse
from openai.types.create_embedding_response import Usage

from cutover import Exchange
from effects.memory import (
    Embedder,
    Memory,
    VectorStore,
    matches,
    memories,
    namespace,
    open_memory,
    open_postgres,
)
from effects.models import ModelEntry, Models
from effects.world import World
from tests.effects.conftest import MovableClock, taped
from tests.effects.test_models import provider

ADA = namespace("ada")
WORDS = ("tea", "bread", "walk")


class Counting:
    """An embedder that counts three words; it fails when it is told to."""

    def __init__(self) -> None:
        self.fails = False

    async def __call__(self, texts: Sequence[str]) -> list[list[float]]:
        """Return how often each word occurs."""
        if self.fails:
            raise openai.APIConnectionError(request=None)  # type: ignore[arg-type] # as if away
        return [[float(text.count(word)) for word in WORDS] for text in texts]


@pytest.fixture
def embed() -> Counting:
    """The embedder of the test's store."""
    return Counting()


@pytest.fixture
async def vectors(world: World, embed: Counting, clock: MovableClock) -> VectorStore:
    """A store with embeddings on each database."""
    return VectorStore(world.database, embed, clock)


async def put(store: BaseStore, clock: MovableClock, *found: Memory, user: str = "ada") -> None:
    """Store memories, a second apart."""
    for one in found:
        clock.now += 1
        await store.aput(namespace(user), one.id, one.value())


def ids(items: Any) -> str:
    """Return the ids of found items in a row."""
    return " ".join(item.key for item in items)


async def test_the_nearest_comes_first_and_the_unlike_last(
    vectors: VectorStore, clock: MovableClock
) -> None:
    """Scores are cosines."""
    await put(vectors, clock, Memory("a", "tea"), Memory("b", "tea and bread"), Memory("c", "walk"))
    found = await vectors.asearch(ADA, query="bread", limit=2)
    assert ids(found) == "b c"
    assert [round(score, 3) for item in found if (score := item.score) is not None] == [0.707, 0]


async def test_without_an_embedder_the_newest_come_first(world: World, clock: MovableClock) -> None:
    """So that recall works in a first try, with no provider of embeddings."""
    async with open_memory(world.database, clock=clock) as store:
        await put(store, clock, Memory("a", "tea"), Memory("b", "bread"), Memory("c", "walk"))
        await put(store, clock, Memory("a", "green tea"))
        found = await store.asearch(ADA, query="bread", limit=2)
    assert memories(found) == [
        Memory("a", "green tea", time="2023-11-14T22:13:24+00:00"),
        Memory("c", "walk", time="2023-11-14T22:13:23+00:00"),
    ]


async def test_users_are_told_apart_to_the_letter(
    vectors: VectorStore, clock: MovableClock
) -> None:
    """Case, wildcards, periods and common beginnings do not mix users up."""
    users = ["ada", "Ada", "ad", "adab", "a_a", "a%a", "ada.b", "ada%2Eb", "ада"]
    for user in users:
        await put(vectors, clock, Memory(user, "tea"), user=user)
    for user in users:
        assert ids(await vectors.asearch(namespace(user), query="tea", limit=99)) == user
    assert await vectors.asearch(("memories",), limit=99) == []


async def test_memories_of_a_session_or_relation_are_filtered(
    vectors: VectorStore, clock: MovableClock
) -> None:
    """A session never recalls itself; the pipeline asks for a relation."""
    await put(
        vectors,
        clock,
        Memory("a", "tea", session_id="s1", relation="friend"),
        Memory("b", "tea", session_id="s2"),
        Memory("c", "tea"),
    )
    not_s1: dict[str, Any] = {"session_id": {"$ne": "s1"}}
    assert ids(await vectors.asearch(ADA, query="tea", filter=not_s1)) == "c b"
    assert ids(await vectors.asearch(ADA, filter={"relation": "friend"})) == "a"
    assert ids(await vectors.asearch(ADA, limit=1, offset=1)) == "b"


async def test_an_item_is_read_changed_and_deleted(
    vectors: VectorStore, clock: MovableClock
) -> None:
    """A change keeps the time of creation."""
    value = {"text": "quote ' \" \0 \ud800 é 你好", "deep": {"list": [1, 2.5, None, True]}}
    await vectors.aput(ADA, "a", {"text": "tea"})
    clock.now += 60
    await vectors.aput(ADA, "a", value)
    item = await vectors.aget(ADA, "a")
    assert item is not None
    assert item.value == value | {"text": "quote ' \" \0 ? é 你好"}
    assert (item.updated_at - item.created_at).total_seconds() == 60
    assert (item.key, item.namespace) == ("a", ADA)
    await vectors.adelete(ADA, "a")
    await vectors.adelete(ADA, "a")
    assert await vectors.aget(ADA, "a") is None


async def test_a_failing_embedder_loses_no_memory(
    vectors: VectorStore, embed: Counting, clock: MovableClock
) -> None:
    """It is found behind those with a vector; a search without its vector fails."""
    embed.fails = True
    await put(vectors, clock, Memory("a", "tea"))
    with pytest.raises(openai.APIConnectionError):
        await vectors.asearch(ADA, query="tea")
    embed.fails = False
    await put(vectors, clock, Memory("b", "bread"))
    assert ids(await vectors.asearch(ADA, query="tea")) == "b a"


async def test_a_vector_of_another_length_is_not_compared(
    vectors: VectorStore, world: World, clock: MovableClock
) -> None:
    """The model of the embeddings may change."""
    await put(vectors, clock, Memory("a", "tea"))

    async def other(texts: Sequence[str]) -> list[list[float]]:
        return [[1.0, 0.0] for _ in texts]

    changed = VectorStore(world.database, other, clock)
    await put(changed, clock, Memory("b", "bread"))
    assert ids(await changed.asearch(ADA, query="tea")) == "b a"


async def test_concurrent_writes_of_one_key_leave_one_item(vectors: VectorStore) -> None:
    """The database decides."""
    texts = [f"tea {number}" for number in range(8)]
    await asyncio.gather(*(vectors.aput(ADA, "a", {"text": text}) for text in texts))
    [item] = await vectors.asearch(ADA)
    assert item.value["text"] in texts


async def test_a_batch_is_performed_in_its_order(vectors: VectorStore) -> None:
    """A read after a write sees it."""
    first, _, second, found = await vectors.abatch(
        [GetOp(ADA, "a"), PutOp(ADA, "a", {"text": "tea"}), GetOp(ADA, "a"), SearchOp(ADA)]
    )
    assert first is None
    assert second is not None
    assert ids(found) == "a"


@pytest.mark.parametrize("database_url", ["memory"], indirect=True)
async def test_what_the_store_does_not_support_is_refused(vectors: VectorStore) -> None:
    """Other operators than one, a listing of namespaces."""
    await vectors.aput(ADA, "a", {"text": "tea"})
    with pytest.raises(NotImplementedError, match="like"):
        await vectors.asearch(ADA, filter={"text": {"$like": "t%"}})
    with pytest.raises(NotImplementedError):
        await vectors.alist_namespaces()


values = st.none() | st.integers(-3, 3) | st.sampled_from(["a", "b"])


@given(
    st.dictionaries(st.sampled_from("xyz"), values),
    st.dictionaries(st.sampled_from("xyz"), values | st.fixed_dictionaries({"$ne": values})),
)
async def test_filters_mean_what_they_mean_in_langgraphs_own_store(
    value: dict[str, Any], wanted: dict[str, Any]
) -> None:
    """Plain values, and what is not equal."""
    theirs = InMemoryStore()
    await theirs.aput(("n",), "k", value)
    assert matches(value, wanted) == bool(await theirs.asearch(("n",), filter=wanted))


@pytest.fixture
async def langgraphs(database_url: str) -> AsyncIterator[BaseStore]:
    """LangGraph's own store on PostgreSQL, without the vectors that need an extension."""
    url = database_url.replace("+psycopg", "")
    async with open_postgres(url, None) as store:
        yield store


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
async def test_langgraphs_own_store_performs_in_the_callers_run(
    langgraphs: BaseStore, clock: MovableClock
) -> None:
    """Each exchange has its operations on its own tape, the second as the first."""
    await put(langgraphs, clock, Memory("a", "tea", session_id="s1"), Memory("b", "bread"))
    for _ in range(2):
        exchange = Exchange()
        for policy in ("live", "play"):
            with taped(exchange, policy):
                not_s1: dict[str, Any] = {"session_id": {"$ne": "s1"}}
                found = await langgraphs.asearch(ADA, query="tea", filter=not_s1)
                assert ids(found) == "b"
        assert [entry.call.name for entry in exchange.entries] == ["store.search"]


@pytest.mark.parametrize("database_url", ["memory"], indirect=True)
async def test_a_run_that_plays_writes_no_memory(world: World, clock: MovableClock) -> None:
    """A shadow finds on the tape what the serving run wrote and found."""
    async with open_memory(world.database, clock=clock) as store:
        exchange = Exchange()
        with taped(exchange):
            await put(store, clock, Memory("a", "tea"))
            first = memories(await store.asearch(ADA))
        await store.adelete(ADA, "a")
        with taped(exchange, "play"):
            await put(store, clock, Memory("a", "tea"))
            assert memories(await store.asearch(ADA)) == first
        assert await store.aget(ADA, "a") is None


@pytest.mark.sockets
async def test_an_embedder_without_embeddings_fails_as_a_provider_does(
    world: World, clock: MovableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A provider that answers with too few of them costs no memory."""
    async with Models([ModelEntry("e", base_url="http://127.0.0.1:9", key="k")]) as models:
        embedder = Embedder(models, "e", 2)
        none = CreateEmbeddingResponse(
            data=[], model="e", object="list", usage=Usage(prompt_tokens=1, total_tokens=1)
        )

        async def create(**_: object) -> CreateEmbeddingResponse:
            return none

        embeddings = models.openai(models.find("e")).embeddings
        monkeypatch.setattr(embeddings, "create", create)
        store = VectorStore(world.database, embedder, clock)
        await put(store, clock, Memory("a", "tea"))
        assert ids(await store.asearch(ADA)) == "a"


@pytest.mark.sockets
async def test_an_embedder_asks_the_models_provider() -> None:
    """Answers are put in the order of the texts."""
    async with provider() as (url, _), Models([ModelEntry("e", base_url=url, key="k")]) as models:
        assert await Embedder(models, "e", 2)(["a", "bcd"]) == [[1.0, 1.0], [3.0, 1.0]]
