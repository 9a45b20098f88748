"""The shadow of a stack behind an address: asked as well, where that is declared safe."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.router.remote.test_stack import FAULTS, faulty
from tests.support.deployment import Deployment, Setup, deployed, until
from tests.support.log_records import listening
from tests.support.scripted_service import HELLO, WHOLE, Asked, Service, Stream, serving, streams

pytestmark = pytest.mark.sockets


@asynccontextmanager
async def mirrored(
    folder: Path, more: str = ""
) -> AsyncIterator[tuple[Deployment, Service, Service]]:
    """Deploy a router before two services, everything mirrored to the candidate."""
    async with serving(streams(WHOLE)) as control, serving(streams(WHOLE)) as candidate:
        stacks = f"""
[stacks]
legacy = "{control.url}"
[stacks.graph]
url = "{candidate.url}"
shadow_safe = true
{more}"""
        async with deployed(folder, Setup(more=stacks, shadow=100)) as place:
            yield place, control, candidate


async def test_a_shadow_is_asked_as_well_and_told_so(tmp_path: Path) -> None:
    """Comments are no difference; the request is the same."""
    async with mirrored(tmp_path) as (place, control, candidate):
        more = streams(b": comment\n\n" + WHOLE, b": more\n\n")
        for answer in (streams(WHOLE), more, streams(WHOLE.replace(b'"a"', b'"b"'))):
            candidate.answer = answer
            assert (await place.ask(HELLO)).body == WHOLE
            await place.settled()
        assert place.books() == {"compared(equal)": 2, "compared(different)": 1}
        for served, shadow in zip(control.asked, candidate.asked, strict=True):
            assert (served.line, served.body) == (shadow.line, shadow.body)
            exchange = "x-cutover-exchange"
            assert served.header(exchange) == shadow.header(exchange)
            assert shadow.header("x-cutover-role") == ["shadow"]
        assert {run.role: run.outcome for run in await place.lines()} == {
            "serving": "completed",
            "shadow": "completed",
        }


async def test_what_is_not_safe_is_not_asked_and_the_ledger_says_so(tmp_path: Path) -> None:
    """Graph serves; legacy has not been declared safe."""
    async with mirrored(tmp_path) as (place, control, candidate):
        text = place.watched.path.read_text("utf-8")
        place.edit(
            text.replace("langgraph_percent = 0", 'langgraph_percent = 1\nforce_graph=["m"]')
        )
        await place.ask(HELLO)
        await place.settled()
        assert (len(control.asked), len(candidate.asked)) == (0, 1)
        assert place.books() == {"not_sampled(cannot)": 1}


@pytest.mark.parametrize("mode", ["replay", "tail"])
async def test_each_failure_of_a_shadow_is_one_line_of_the_log(tmp_path: Path, mode: str) -> None:
    """Its client sees none of it."""
    more = f'first_event_seconds = 0.05\n[shadow]\nmode = "{mode}"\n'
    with listening() as lines:
        async with mirrored(tmp_path, more) as (place, _, candidate):
            candidate.answer = faulty
            for fault in FAULTS:
                body = {**HELLO, "message_id": fault, "fault": fault}
                assert (await place.ask(body)).body == WHOLE
            await place.settled()
            assert place.books() == {"compared(different)": len(FAULTS)}
    assert {line["role"] for line in lines.failures} == {"shadow"}
    logged = [(line["outcome"], line["reason"]) for line in lines.failures]
    assert sorted(logged) == sorted((outcome, code) for _, outcome, code in FAULTS.values())


@pytest.mark.parametrize("mode", ["replay", "tail"])
async def test_shadows_behind_an_address_run_side_by_side(tmp_path: Path, mode: str) -> None:
    """They wait for another machine: one that hangs holds up no other."""
    goes_on = asyncio.Event()

    async def hang(asked: Asked, stream: Stream) -> None:
        await goes_on.wait()
        await streams(WHOLE)(asked, stream)

    more = f'[shadow]\nmode = "{mode}"\nstreams = 2\n'
    async with mirrored(tmp_path, more) as (place, _, candidate):
        for count, answer in enumerate((hang, streams(WHOLE), streams(WHOLE))):
            candidate.answer = answer
            await place.ask(HELLO | {"message_id": f"m{count}"})
            await until(partial(reached, place, candidate, count))
        goes_on.set()
        await place.settled()
        assert place.books() == {"compared(equal)": 3}


def reached(place: Deployment, candidate: Service, compared: int) -> bool:
    """Whether so many have been compared while the first one hangs."""
    asked = len(candidate.asked) > compared
    return asked and place.services.router.ledger.total("compared") == compared
