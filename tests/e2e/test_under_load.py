"""A real router under load: stacks that break, clients that leave, processes killed and stopped.

Oracles count what the model was asked and what was written, and know every text.
"""

import asyncio
import logging
import os
import random
import re
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

from cutover.errors import Completed
from cutover.wire import Reader, find_dialect
from router.captures import CaptureReader, Store
from tests.support import breaking, shop
from tests.support.crowd import Heard, Model, ask, at_once, client, orders, provider, text_of
from tests.support.databases import postgresql
from tests.support.processes import RouterProcess, free_port, share
from tests.support.services import serving

pytestmark = [pytest.mark.nightly, pytest.mark.sockets]

log = logging.getLogger(__name__)

REQUESTS = int(os.environ.get("CUTOVER_LOAD_REQUESTS", "3000"))
AT_ONCE = 100
EVENTS = 30
"""Of an item, about: stacks break at any of them."""


@dataclass(frozen=True)
class Plan:
    """A request: what breaks at it, and how its client behaves."""

    number: int
    identity: str
    broken: frozenset[str]
    leaves_after: int | None
    each: float


def plans(count: int, kinds: tuple[str, ...]) -> Iterator[Plan]:
    """Yield requests: three fifths break a stack or both; some clients leave, or dawdle."""
    drawn = random.Random(20)
    for number in range(count):
        broken = drawn.choice([(), (), ("legacy",), ("graph",), ("legacy", "graph")])
        told = [
            f":{one}.{drawn.choices(kinds, [6, 3, 1, 1])[0]}.{drawn.randrange(EVENTS)}"
            for one in broken
        ]
        behaves = drawn.randrange(10)
        leaves = drawn.randrange(EVENTS) if behaves == 0 else None
        each = 0.02 if behaves == 1 else 0.0
        yield Plan(number, f"m{number}{''.join(told)}", frozenset(broken), leaves, each)


def chat_tables(database: str, **tables: Any) -> dict[str, Any]:
    """Return the configuration of a router that serves chat and ops by both stacks alike."""
    return {
        "stores": {"database": database},
        "tools": ["tests.support.breaking:note"],
        "flows": {"chat": share(50.0, options={"yield_interval": 0.0}), "ops": share(50.0)},
        **tables,
    }


async def asked(
    router: RouterProcess, kinds: tuple[str, ...], path: str, body: Callable[[Plan], Any]
) -> tuple[dict[Plan, Heard], dict[str, Any]]:
    """Ask for all plans, many at once; return what was heard, and the router's status then."""
    heard = dict[Plan, Heard]()
    async with client() as session:

        async def one(plan: Plan) -> None:
            how: Any = {"leaves_after": plan.leaves_after, "each": plan.each}
            heard[plan] = await ask(session, f"{router.url}{path}", body(plan), **how)

        await at_once(AT_ONCE, plans(REQUESTS, kinds), one)
        return heard, await router.status()


def endings(heard: dict[Plan, Heard], ending: Callable[[Heard, int], str]) -> dict[Plan, str]:
    """Return how each stream ended; fail where one broke, or failed though one stack was whole."""
    found = {plan: ending(one, plan.number) for plan, one in heard.items()}
    for plan, how in found.items():
        assert not heard[plan].broken, heard[plan]
        assert how in {"whole", "left"} or len(plan.broken) == 2, (plan, heard[plan])
    log.info("endings=%s", Counter(found.values()))
    assert Counter(found.values())["whole"] > REQUESTS / 2
    return found


def rows(database: str, statement: str) -> list[Any]:
    """Return what a database holds."""
    engine = sqlalchemy.create_engine(database)
    with engine.connect() as connection:
        found = list(connection.execute(sqlalchemy.text(statement)))
    engine.dispose()
    return found


def tracebacks(log: str) -> list[str]:
    """Return the lines of a log that tracebacks follow, but for breaks behind a stream's end."""
    lines = re.findall(r"^(\d{4}-.*)\nTraceback", log, re.MULTILINE)
    return [one for one in lines if "failed behind its terminal event" not in one]


def chat_ending(heard: Heard, number: int) -> str:
    """Return how a stream of chat ended; fail where it is neither whole nor honest."""
    if heard.status != 200:
        assert heard.status in {500, 503}, heard
        return "refused"
    events = heard.events
    steps = [one["step"] for one in events]
    texts = [one["content"] for one in events if one["step"] in {"SEND", "SUCCESS"}]
    assert all(text_of(number).startswith(one) for one in texts), (number, texts)
    assert all(late.startswith(early) for early, late in pairwise(texts)), texts
    if heard.left:
        return "left"
    assert (steps[:2], steps[-1]) == (["ACCEPT", "START_REPLY"], "END"), (steps, heard)
    assert steps.count("ACCEPT") == steps.count("END") == 1
    if steps[-2] == "FAILED":
        assert "SUCCESS" not in steps
        return "failed"
    assert texts[-1] == text_of(number)
    return "whole"


async def test_a_stream_is_whole_or_honestly_failed_whatever_its_stack_does(tmp_path: Path) -> None:
    """3 000 requests, 100 at once: no model asked twice, nothing written twice."""
    model, notes = Model(), tmp_path / "notes"

    def body(plan: Plan) -> Any:
        text = f"Tell me of item {plan.number}"
        return {"message_id": plan.identity, "chat_id": plan.identity, "content": text}

    with postgresql() as database:
        async with (
            provider(model, 5) as sim,
            RouterProcess(
                tmp_path,
                chat_tables(database),
                module="tests.support.breaking",
                environment={"OPENAI_BASE_URL": sim.base_url, "NOTES": str(notes)},
            ) as router,
        ):
            heard, said = await asked(router, breaking.KINDS, "/chat/sse", body)
        counts = rows(database, "select chat_id, role, count(*) from turns group by 1, 2")
    turns = Counter({(chat, role): count for chat, role, count in counts})
    noted = Counter(map(int, notes.read_text().split()))
    for plan, ending in endings(heard, chat_ending).items():
        stored = (turns[plan.identity, role] for role in ("user", "assistant"))
        written, due = [noted[plan.number], *stored], [int(orders(plan.number)), 1, 1]
        assert written == due or ending != "whole", (plan, written)
        assert all(made <= one_due for made, one_due in zip(written, due, strict=True)), plan
    assert max(model.calls.values()) == 1, [one for one, n in model.calls.items() if n > 1]
    assert not tracebacks(router.log)
    assert said["streams"]["open"] == 0
    log.info("taken_over=%s", Counter(re.findall(r"taken_over=(\w+)", router.log)))


@asynccontextmanager
async def services(folder: Path, model: Model, chunk_ms: float) -> AsyncIterator[RouterProcess]:
    """Open two shops with a model, and a router before them."""
    async with AsyncExitStack() as opened:
        sim = await opened.enter_async_context(provider(model, chunk_ms))
        stacks = {}
        for name in ("legacy", "graph"):
            url = await opened.enter_async_context(serving(shop.shop(name, sim.base_url)))
            stacks[name] = {"url": url, "silence_seconds": 30.0, "shadow_safe": True}
        tables = {
            "stacks": stacks,
            "flows": {"mine": share(50.0, paths=["/ask"], keys={"id": "body.id"})},
            "gateway": {"port": free_port()},
            "providers": {"openai": {"base_url": sim.base_url}},
        }
        yield await opened.enter_async_context(RouterProcess(folder, tables))


def service_ending(heard: Heard, number: int) -> str:
    """Return how a service's stream ended; fail where it is neither whole nor honest."""
    if heard.status != 200:
        assert heard.status >= 500, heard
        return "refused"
    reader = Reader(find_dialect("chat-completions"))
    failures = [one.failed for one in reader.feed(heard.raw) if one.failed]
    said = reader.texts.get("content", "")
    assert text_of(number).startswith(said), (said, heard)
    if heard.left:
        return "left"
    reader.close()
    if failures:
        return "failed"
    assert reader.ending == Completed(), heard
    assert said == text_of(number)
    return "whole"


# SDKs of services that hang when their server stops leave generators open.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_stream_of_services_is_whole_or_honestly_failed(tmp_path: Path) -> None:
    """3 000 requests of two services that break: no model asked twice, no order made twice."""
    model = Model("order")
    shop.ordered.clear()

    def body(plan: Plan) -> Any:
        return {"id": plan.identity, "message": f"Tell me of item {plan.number}"}

    async with services(tmp_path, model, 5) as router:
        heard, said = await asked(router, shop.KINDS, "/ask", body)
    for plan, ending in endings(heard, service_ending).items():
        assert shop.ordered[plan.number] == orders(plan.number) or ending != "whole", plan
    assert max(shop.ordered.values()) == 1
    assert max(model.calls.values()) == 1, [one for one, n in model.calls.items() if n > 1]
    assert said["streams"]["open"] == 0
    assert not tracebacks(router.log)


OPEN, STOPPED_SECONDS = 120, 12.0


async def stopped(router: RouterProcess, asking: list[asyncio.Task[Heard]], heads: int) -> None:
    """Stop a router for a while, once all its streams have begun."""
    while True:
        said = await router.status()
        assert not any(one.done() for one in asking), "streams ended before all had begun"
        if said["streams"]["open"] >= heads:
            break
        await asyncio.sleep(0.1)
    await asyncio.sleep(1)  # so that streams stand at different places
    router.send(signal.SIGSTOP)
    await asyncio.sleep(STOPPED_SECONDS)
    router.send(signal.SIGCONT)


@pytest.mark.parametrize("where", ["within", "behind addresses"])
async def test_a_router_that_stood_still_blames_no_stack(tmp_path: Path, where: str) -> None:
    """SIGSTOP for 12 s under 120 open streams: all whole, no takeover, no breaker."""
    model, within = Model(), where == "within"
    async with AsyncExitStack() as opened:
        if within:
            sim = await opened.enter_async_context(provider(model, 400))
            environment = {"OPENAI_BASE_URL": sim.base_url, "NOTES": str(tmp_path / "n")}
            tables = chat_tables(opened.enter_context(postgresql()))
            open_router: Any = RouterProcess(tmp_path, tables, environment=environment)
        else:
            model.tool = "order"
            open_router = services(tmp_path, model, 400)
        router = await opened.enter_async_context(open_router)
        session = await opened.enter_async_context(client())
        path, check = ("/chat/sse", chat_ending) if within else ("/ask", service_ending)

        def body(number: int) -> Any:
            message = f"Tell me of item {number}"
            if within:
                return {"message_id": f"m{number}", "content": message}
            return {"id": f"m{number}", "message": message}

        asking = [
            asyncio.create_task(ask(session, f"{router.url}{path}", body(number)))
            for number in range(OPEN)
        ]
        await stopped(router, asking, OPEN)
        heard = await asyncio.gather(*asking)
        said = await router.status()
    assert [check(one, number) for number, one in enumerate(heard)] == ["whole"] * OPEN
    assert max(model.calls.values()) == 1
    assert {one for flow in said["flows"].values() for one in flow["breakers"].values()} == {
        "closed"
    }
    assert router.log.count("outcome=completed") == router.log.count("taken_over= ") == OPEN


KILLS = int(os.environ.get("CUTOVER_KILLS", "30"))
BATCH_SECONDS, WRITING_SECONDS = 5.0, 3.0
"""How long lines wait for their batch; and for the thread that writes, on a busy machine."""


async def test_a_kill_loses_the_last_batch_of_captures_at_most(tmp_path: Path) -> None:
    """`kill -9` 30 times: each older exchange can be read, and no file is torn."""
    folder, model, drawn = tmp_path / "captures", Model("none"), random.Random(30)
    ended = dict[str, float]()  # by exchange
    killed: list[tuple[float, set[str]]] = []
    captures = {"url": str(folder), "key": "sixteen letters!"}
    with postgresql() as database:
        async with provider(model, 1) as sim, client() as session:
            router = RouterProcess(
                tmp_path,
                chat_tables(database, captures=captures),
                environment={"OPENAI_BASE_URL": sim.base_url},
            )
            loop, number = asyncio.get_running_loop(), 1
            for _ in range(KILLS):
                await router.start()
                dead, before = asyncio.Event(), set(ended)

                async def clients(dead: asyncio.Event = dead) -> None:
                    nonlocal number
                    while not dead.is_set():
                        number += 3  # none that asks for a tool
                        body = {"message_id": f"m{number}", "content": f"Tell of item {number}"}
                        heard = await ask(session, f"{router.url}/chat/sse", body)
                        if heard.status == 200 and not heard.broken:
                            ended[heard.headers["x-cutover-exchange"]] = heard.ended

                asking = [asyncio.create_task(clients()) for _ in range(8)]
                await asyncio.sleep(drawn.uniform(1, 12))
                at = loop.time()
                await router.kill()
                dead.set()
                await asyncio.gather(*asking)
                killed.append((at, set(ended) - before))
    reader = CaptureReader(Store(str(folder)))
    stored = {one.exchange for one in reader}
    lost = [(at - ended[one], one) for at, those in killed for one in those if one not in stored]
    oldest, _ = max(lost, default=(0.0, ""))
    log.info("ended=%d lost=%d oldest=%.1f s files=%d", len(ended), len(lost), oldest, reader.files)
    assert not reader.damage
    assert oldest < BATCH_SECONDS + WRITING_SECONDS
    assert len(stored & set(ended)) > len(ended) / 4
