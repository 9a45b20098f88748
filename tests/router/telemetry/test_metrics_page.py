"""The page of metrics over HTTP, on a whole deployment."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from router.telemetry import instruments as i
from router.telemetry.access_log import AccessLog
from tests.conftest import ROOT
from tests.support.deployment import Deployment, Setup, deployed, moment
from tests.support.metrics_page import samples
from tests.support.patience import PATIENCE_S
from tests.support.records import a_pause
from tests.support.scripted_service import serving, streams

pytestmark = pytest.mark.sockets

HELLO = {"message_id": "m", "content": "I am ann@example.org", "chat_id": "c"}
MORE = "[metrics]\nenabled = true\n"


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Deployment]:
    """Deploy with metrics, everything shadowed."""
    async with deployed(tmp_path, Setup(shadow=100, more=MORE)) as running:
        yield running


async def page(place: Deployment, accept: str = "text/plain") -> tuple[str, str]:
    """Read the page; gives its media type, too."""
    async with place.session.get(f"{place.url}/metrics", headers={"accept": accept}) as response:
        assert response.status == 200
        return await response.text(), response.headers["content-type"]


async def test_the_page_tells_what_was_done(place: Deployment) -> None:
    """Every instrument is there, and nothing a user wrote."""
    await place.ask(HELLO)
    await place.ask(b"no request")
    await place.ask({"message_id": 5})
    await place.settled()
    await place.services.captures.flush()
    said, media_type = await page(place)
    assert media_type.startswith("text/plain; version=")
    who = ("chat", "legacy", "legacy")
    assert samples(said, i.EXCHANGES) == {(*who, "completed"): 1}
    assert samples(said, i.DURATION, "_count") == {who: 1}
    settled = {line: count for line, count in samples(said, i.LEDGER).items() if count}
    assert settled == {("chat", "compared", "equal"): 1}
    assert samples(said, i.REFUSALS) == {
        ("chat", "400", "not_json"): 1,
        ("chat", "422", "invalid_request"): 1,
    }
    assert samples(said, i.CAPTURES_WRITTEN) == {(): 1}
    tokens = samples(said, i.TOKENS)
    assert {labels[1:4] for labels in tokens} == {("legacy", "serving", "gpt-4.1")}
    for instrument in i.INSTRUMENTS:
        assert f"# TYPE {instrument.name} {instrument.kind}\n" in said
    assert "ann@" not in said
    assert "_created" not in said


async def test_every_router_shows_the_pauses_of_all_also_after_a_restart(tmp_path: Path) -> None:
    """They are counted in the store, however many share it: none is lost, none counts twice."""
    setup = Setup(more=MORE, others=f"sqlite:///{tmp_path}/stored.sqlite")
    async with deployed(tmp_path, setup) as before:
        store = before.services.router.pauses
        assert store is not None
        for name in ("h1", "h2"):
            assert await store.store.open(a_pause(hitl_id=name))
        stored = [await store.store.get(name) for name in ("h1", "h2")]
        async with deployed(tmp_path, setup) as beside:
            pages = [await counted(beside)]
    async with deployed(tmp_path, setup) as again:
        pages.append(await counted(again))
    for said in pages:
        assert samples(said, i.OPEN_PAUSES) == {("companion",): 2}
        [size] = samples(said, i.OPEN_PAUSE_BYTES).values()
        assert size >= sum(len(one.tape) for one in stored if one is not None) > 0


async def counted(place: Deployment) -> str:
    """Read the page once the pauses have been counted."""
    async with asyncio.timeout(PATIENCE_S):
        while not samples(said := (await page(place))[0], i.OPEN_PAUSES):
            await moment()
    return said


async def test_a_bad_edit_is_a_fault_and_a_count(place: Deployment) -> None:
    """The fault goes with the next good edit, the count stays."""
    text = place.watched.path.read_text("utf-8")
    place.edit("[nonsense]")
    said, _ = await page(place)
    assert samples(said, i.FAULTS)["configuration",] == 1  # a busy machine may have others
    place.edit(text)
    said, _ = await page(place)
    assert samples(said, i.FAULTS)["configuration",] == 0
    assert samples(said, i.EDITS_REFUSED) == {(): 1}


async def test_the_first_text_of_a_stack_behind_an_address_is_found(tmp_path: Path) -> None:
    """Its frames pass unread; whether they carry text is looked up when they have."""
    frames = (
        b": a comment\n\n",
        b'data: {"step":"ACCEPT"}\n\n',
        b"data: no JSON\n\n",
        b'data: {"step":"SEND","content":"Hi"}\n\n',
        b'data: {"step":"SUCCESS","content":"Hi"}\n\n',
        b'data: {"step":"END"}\n\n',
    )
    async with serving(streams(*frames)) as service:
        stacks = f'[stacks.legacy]\nurl = "{service.url}/chat/sse"\n'
        async with deployed(tmp_path, Setup(more=stacks + MORE)) as place:
            assert (await place.ask(HELLO)).body == b"".join(frames)
            said, _ = await page(place)
            run = await place.run()
    who = ("chat", "legacy", "legacy")
    assert samples(said, i.FIRST_TEXT, "_sum") == {who: run.frames[3][0] / 1e6}
    assert samples(said, i.FIRST_FRAME, "_sum") == {who: run.frames[0][0] / 1e6}


async def test_openmetrics_is_spoken_where_it_is_asked_for(place: Deployment) -> None:
    """And whatever else is asked for, the plain format answers."""
    for accept, given in {
        "application/openmetrics-text; version=1.0.0": "application/openmetrics-text",
        "application/openmetrics-text;version=nonsense": "text/plain",
        "text/plain;version=x.y.z;q=": "text/plain",
        "": "text/plain",
    }.items():
        said, media_type = await page(place, accept)
        assert media_type.startswith(given), accept
        assert "cutover_open_streams" in said


async def test_the_document_tells_of_the_page(place: Deployment) -> None:
    """Its only answer is text."""
    document = await place.get("/openapi.json")
    assert set(document["paths"]["/metrics"]["get"]["responses"]) == {"200"}
    assert set(document["paths"]["/metrics"]["get"]["responses"]["200"]["content"]) == {
        "text/plain"
    }


async def test_without_being_wanted_there_is_no_page(tmp_path: Path) -> None:
    """And nothing observes."""
    async with deployed(tmp_path) as place:
        async with place.session.get(f"{place.url}/metrics") as response:
            assert response.status == 404
        assert place.services.metrics is None
        assert [type(one) for one in place.services.router.observers] == [AccessLog]


@pytest.mark.slow
def test_the_client_is_not_imported_without_metrics() -> None:
    """Prometheus' client would decide about several workers, and all of them cost the start."""
    libraries = {"prometheus_client", "opentelemetry.sdk", "structlog", "mcp", "jsonschema"}
    script = f"import sys, cutover.application; sys.exit(bool({libraries} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True)
