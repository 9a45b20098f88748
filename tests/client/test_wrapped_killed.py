"""Routers are killed under wrapped services: no effect twice, and the outcome of each is told."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from time import time
from typing import Any

import aiohttp
import pytest

from contract.records import RunRecord, decode_run
from contract.wire.sse import SseDecoder
from effects.stores import SqlWriteJournal
from evidence.outcomes import is_in_doubt
from tests.client import wrapped_shop
from tests.e2e.processes import RouterProcess, router_process
from tests.support.deployment import Setup, captured, until

pytestmark = [pytest.mark.sockets, pytest.mark.slow, pytest.mark.untraced]

MORE = """
[stacks]
legacy = "tests.client.wrapped_shop:{legacy}"
graph = "tests.client.wrapped_shop:{graph}"
[exchanges]
journal = true
[admin]
audit_path = "{folder}/audit.jsonl"
[shadow]
mode = "tail"
[flows.shop]
path = "/shop"
route_keys = {{ session_id = "chat" }}
enable_langgraph = true
langgraph_percent = {percent}
shadow_percent = 100
[flows.shop.dialect]
event = {{ path = "type" }}
text = {{ text = "text" }}
ids = {{ question = "id" }}
terminal = ["done"]
failure = ['{{"type":"error","code":"{{code}}"}}', '{{"type":"done"}}']
"""
PAUSE = """
[flows.shop.pause]
path = "/shop/answer"
frames = ['{"type":"done"}']
"""
PATHS = {"legacy": 0, "graph": 100}
LATER_S = 2 * 86_400.0


@asynccontextmanager
async def router(
    folder: Path, serves: str, *, legacy: str = "APP", pause: str = ""
) -> AsyncIterator[RouterProcess]:
    """Start a router on the stores in a folder, with the graph as stack of that name."""
    text = MORE.format(folder=folder, legacy=legacy, graph="GRAPH", percent=PATHS[serves])
    setup = Setup(
        more=text + pause,
        chat=False,
        others=f"sqlite:///{folder}/store.sqlite",
        environ={wrapped_shop.DONE: str(folder / "done")},
    )
    async with router_process(folder, "http://127.0.0.1:9", setup) as process:
        yield process


def done(folder: Path) -> list[str]:
    """Return what has been done."""
    file = folder / "done"
    return file.read_text("utf-8").splitlines() if file.exists() else []


async def post(
    session: aiohttp.ClientSession, process: RouterProcess, path: str, body: object
) -> list[Any]:
    """Be a client; return the events."""
    async with session.post(process.url + path, json=body) as response:
        assert response.status == 200, await response.text()
        return [json.loads(event.data) for event in SseDecoder().feed(await response.read())]


def texts(events: list[Any]) -> str:
    """Return the text of a stream."""
    return "".join(event.get("text", "") for event in events)


async def killed(process: RouterProcess, asking: asyncio.Task[Any], folder: Path) -> None:
    """Kill a router once its stack pays; its client sees the cut."""
    await until(lambda: "pay slow tea" in done(folder))
    process.child.kill()
    await process.child.wait()
    with pytest.raises(aiohttp.ClientError):
        await asking


@pytest.mark.parametrize("serves", PATHS)
async def test_a_killed_router_leaves_each_effect_told(tmp_path: Path, serves: str) -> None:
    """What was done is known as done, and what was under way as begun; a shadow does nothing."""
    async with aiohttp.ClientSession() as session:
        async with router(tmp_path, serves) as process:
            body = {"chat": "c1", "goods": "tea"}
            whole = "ordered tea; paid tea; mailed tea; "
            assert texts(await post(session, process, "/shop", body)) == whole
            asking = asyncio.create_task(
                post(session, process, "/shop", {"chat": "c2", "goods": "slow tea"})
            )
            await killed(process, asking, tmp_path)
        assert done(tmp_path)[3:] == ["order slow tea", "pay slow tea"]
        async with SqlWriteJournal.open(f"sqlite:///{tmp_path}/store.sqlite") as journal:
            left = await journal.abandoned(time() + LATER_S)
        assert {one.what: one.state for one in left} == {
            "external.run orders.insert": "done",
            "external.run payments.make": "begun",
        }
        async with router(tmp_path, serves) as process:
            body = {"chat": "c2", "goods": "milk"}
            assert (await post(session, process, "/shop", body))[-1] == {"type": "done"}
    assert done(tmp_path)[5:] == ["order milk", "pay milk", "mail milk"]


@pytest.mark.parametrize("then", PATHS)
async def test_a_graph_that_went_on_and_was_killed_pays_once(tmp_path: Path, then: str) -> None:
    """Whichever stack goes on: it plays what was done, and says that the payment is in doubt."""
    options: Any = {"legacy": "GRAPH", "pause": PAUSE}
    async with aiohttp.ClientSession() as session:
        async with router(tmp_path, "graph", **options) as process:
            body = {"chat": "c", "goods": "slow tea", "asks": True}
            *_, question, end = await post(session, process, "/shop", body)
            assert (question["type"], end) == ("question", {"type": "done"})
            answer = {"id": question["id"], "answer": True}
            asking = asyncio.create_task(post(session, process, "/shop/answer", answer))
            await killed(process, asking, tmp_path)
        lease_ends(tmp_path)
        async with router(tmp_path, then, **options) as process:
            rest = await post(session, process, "/shop/answer", answer)
            assert texts(rest) == "in doubt slow tea; mailed slow tea; "
            assert rest[-1] == {"type": "done"}
            process.child.terminate()
            assert await process.child.wait() == 0
    assert done(tmp_path) == ["order slow tea", "pay slow tea", "mail slow tea"]
    audit = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_bytes().splitlines()]
    [change] = [line for line in audit if line["what"] == "outcome unknown"]
    assert change["after"]["payments.make"] == "outcome_unknown"
    [run] = [run for run in runs(tmp_path) if run.resumes and run.role == "serving"]
    external = [entry for entry in run.tape or () if entry.port == "external"]
    doubted = {entry.site: is_in_doubt(entry) for entry in external}
    assert doubted == {"orders.insert": False, "payments.make": True, "mails.send": False}
    assert run.outcome == "completed"


def runs(folder: Path) -> list[RunRecord]:
    """Return the captured runs."""
    return [decode_run(line) for line in captured(folder, "flow=*").splitlines()]


def lease_ends(folder: Path) -> None:
    """Let the time of the killed router's claim be over."""
    with closing(sqlite3.connect(folder / "store.sqlite")) as store, store:
        store.execute("UPDATE graph_checkpoints SET leased_until = 0")
