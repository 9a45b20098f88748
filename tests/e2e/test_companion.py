"""The companion over HTTP: pictures by reference, refusals, pauses, captures that compare."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from typer.testing import CliRunner

from compare.report import Report
from contract.flow import Event, Flow, Request
from contract.flows.companion import MOST_OF_AN_IMAGE, CompanionText
from contract.ports import Effects
from cutover.cli import app
from cutover.wiring.stacks import load_stacks
from graph_impl import FLOWS as GRAPH
from router.serving.stack import LocalStack
from tests.support.companion_client import hitl_id, picture, post, setup
from tests.support.deployment import Deployment, deployed, tasks, until
from tests.support.pictures import PNG, url

if TYPE_CHECKING:
    from router.stack import StackName
    from tests.support.deployment import Answer

pytestmark = pytest.mark.sockets

BOTH: tuple[StackName, ...] = ("legacy", "graph")
LARGEST = PNG.ljust(MOST_OF_AN_IMAGE, b"0")


async def ask(place: Deployment, path: str, body: object) -> Answer:
    """Ask the companion."""
    return await post(place.session, place.url + path, body)


async def paused(place: Deployment) -> str:
    """Show a picture that holds something to remember; returns the question's id."""
    answer = await ask(place, "/chat/image", picture())
    assert answer.events[-1] == {"status": "suspended"}, answer.body
    return hitl_id(answer)


REFUSED = [
    (url(b"GIF89a", "image/gif"), 422, "image_type"),
    (url(PNG, "image/webp"), 422, "image_type_mismatch"),
    (url(PNG)[:-1], 422, "image_not_base64"),
    (url(PNG[:-1]), 422, "image_not_whole"),
    ("picture.png", 422, "image_not_data_url"),
    (url(LARGEST + b"0"), 413, "image_too_large"),
    (url(PNG.ljust(9 << 20, b"0")), 413, "body_too_large"),
]


@pytest.mark.untraced
@pytest.mark.slow
@pytest.mark.parametrize("stack", BOTH)
async def test_pictures_that_cannot_be_read_are_refused(tmp_path: Path, stack: StackName) -> None:
    """Each with its code, before any frame; and other paths take no more than before."""
    async with deployed(tmp_path, setup(tmp_path, stack)) as place:
        for image, status, code in REFUSED:
            answer = await ask(place, "/chat/image", picture(image))
            assert (answer.status, answer.problem["code"]) == (status, code)
        body = {"session_id": "s", "message": "x" * (2 << 20)}
        assert (await ask(place, "/chat", body)).problem["code"] == "body_too_large"
        assert place.provider.ledger.counts()["total"] == 0


@pytest.mark.untraced
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Sending a large body")  # how the SDK's transport sends it
@pytest.mark.parametrize("stack", BOTH)
async def test_the_largest_picture_is_shown_and_pauses(tmp_path: Path, stack: StackName) -> None:
    """The model gets its bytes, the tape its name: it can pause, and go on on the other stack."""
    async with deployed(tmp_path, setup(tmp_path, stack)) as place:
        answer = await ask(place, "/chat/image", picture(url(LARGEST)))
        said = "".join(event.get("content", "") for event in answer.events)
        assert "PNG" in said
        hitl = hitl_id(answer)
        other = BOTH[stack == "legacy"]
        place.edit(place.watched.path.read_text("utf-8").replace(*_switched(stack)))
        await ask(place, "/hitl/respond", {"hitl_id": hitl, "action": "approve"})
        rest = await ask(place, "/hitl/continue", {"hitl_id": hitl})
        assert rest.headers["x-cutover-served"].startswith(other)
        assert rest.events[-1] == {"status": "completed"}
        runs = await place.lines()
    tape = runs[0].tape or ()
    assert sum(len(bytes(entry.args)) for entry in tape) < 65_536


def _switched(stack: StackName) -> tuple[str, str]:
    head = "[flows.companion]\nenable_langgraph = true\nlanggraph_percent = "
    percent = {"legacy": "0", "graph": "100"}
    return head + percent[stack], head + percent[BOTH[stack == "legacy"]]


async def test_a_vision_model_that_fails_is_said(tmp_path: Path) -> None:
    """With the fault's code, and an honest end."""
    broken = 'vision_model_id = "broken"\n[models.broken]\nprovider = "simulated"\n'
    broken += 'model = "sim-chat?ending=http_error&status=400"\n'
    async with deployed(tmp_path, setup(tmp_path, "graph", broken)) as place:
        answer = await ask(place, "/chat/image", picture())
        assert answer.events[-1] == {"status": "failed"}
        assert "model" in answer.events[-2]["code"]


@pytest.mark.parametrize("stack", BOTH)
async def test_a_tool_says_as_much_as_is_configured(tmp_path: Path, stack: StackName) -> None:
    """On either stack, and to the user too."""
    limits = "[limits]\ntool_characters = 2\n"
    async with deployed(tmp_path, setup(tmp_path, stack, limits)) as place:
        answer = await ask(place, "/chat", {"session_id": "s", "message": "What is 60 * 70?"})
    (shown,) = (event for event in answer.events if "tool" in event)
    assert shown["content"] == "42\n[2 characters left out]"


@pytest.mark.parametrize("stack", BOTH)
async def test_of_two_who_go_on_at_once_one_is_told_409(tmp_path: Path, stack: StackName) -> None:
    """And what was approved is written once."""
    async with deployed(tmp_path, setup(tmp_path, stack)) as place:
        hitl = await paused(place)
        answered = {"hitl_id": hitl, "action": "approve"}
        for _ in range(2):
            assert (await ask(place, "/hitl/respond", answered)).status == 200
        other = await ask(place, "/hitl/respond", {"hitl_id": hitl, "action": "reject"})
        assert (other.status, other.problem["code"]) == (409, "answered_otherwise")
        both = await asyncio.gather(
            *(ask(place, "/hitl/continue", {"hitl_id": hitl}) for _ in range(2))
        )
        assert sorted(answer.status for answer in both) == [200, 409]
        (won,) = (answer for answer in both if answer.status == 200)
        assert won.events[-1] == {"status": "completed"}
    assert _remembered(tmp_path) == 1


def _remembered(folder: Path) -> int:
    with closing(sqlite3.connect(folder / "store.sqlite")) as store:
        (count,) = store.execute("SELECT count(*) FROM memories").fetchone()
    return int(count)


async def test_answers_are_held_against_the_form(tmp_path: Path) -> None:
    """An unexpected field, a wrong type, an unknown question, one without an answer."""
    async with deployed(tmp_path, setup(tmp_path, "graph")) as place:
        hitl = await paused(place)
        for body, status, code in (
            ({"hitl_id": hitl, "action": "edit", "data": {"x": "y"}}, 422, "invalid_answer"),
            ({"hitl_id": hitl, "action": "edit", "data": {"memory_1": 1}}, 422, "invalid_answer"),
            ({"hitl_id": hitl, "action": "shrug"}, 422, "invalid_request"),
            ({"hitl_id": "unknown", "action": "approve"}, 404, "unknown_pause"),
        ):
            answer = await ask(place, "/hitl/respond", body)
            assert (answer.status, answer.problem["code"]) == (status, code)
        answer = await ask(place, "/hitl/continue", {"hitl_id": hitl})
        assert (answer.status, answer.problem["code"]) == (409, "unanswered")


async def test_a_client_that_leaves_while_it_goes_on_loses_nothing(tmp_path: Path) -> None:
    """The pause is over, or given back to who comes next; nothing is remembered twice."""
    async with deployed(tmp_path, setup(tmp_path, "graph")) as place:
        hitl = await paused(place)
        await ask(place, "/hitl/respond", {"hitl_id": hitl, "action": "approve"})
        going = msgspec.json.encode({"hitl_id": hitl})
        async with place.session.post(f"{place.url}/hitl/continue", data=going) as left:
            left.close()
        await until(
            lambda: not place.services.router.admission.streams.total and not tasks("close")
        )
        again = await ask(place, "/hitl/continue", {"hitl_id": hitl})
        assert again.status == 200 or again.problem["code"] == "finished"
    assert _remembered(tmp_path) == 1


async def invoked(*command: str) -> int:
    """Run a command beside the test's own loop; gives its exit status."""
    done = await asyncio.to_thread(CliRunner().invoke, app, list(command))
    return done.exit_code


def louder(flow: Flow) -> Flow:
    """Add an exclamation mark to every text."""

    async def shouting(request: Request[Any, Any], effects: Effects) -> AsyncIterator[Event]:
        async for event in flow(request, effects):
            yield CompanionText(f"{event.content}!") if isinstance(event, CompanionText) else event

    return shouting


@pytest.mark.untraced
@pytest.mark.slow
@pytest.mark.parametrize("planted", [False, True])
async def test_captures_of_the_companion_compare(tmp_path: Path, *, planted: bool) -> None:
    """Equal: no finding. A frame that was changed is found, before a pause and after it."""
    flow = GRAPH["companion"]
    stacks = load_stacks()
    graph = LocalStack("graph", {"companion": louder(flow) if planted else flow}, "g")
    place_of = replace(
        setup(tmp_path, "legacy", shadow=100),
        stacks={**stacks, "graph": replace(graph, flows={**GRAPH, **graph.flows})},
    )
    async with deployed(tmp_path, place_of) as place:
        hitl = await paused(place)
        await ask(place, "/hitl/respond", {"hitl_id": hitl, "action": "approve"})
        await ask(place, "/hitl/continue", {"hitl_id": hitl})
        await ask(place, "/chat", {"session_id": "t", "message": "今天很开心！What is 6*7?"})
        await place.lines()
    captures = str(tmp_path / "captures")
    status = await invoked("diff", captures, "-o", str(tmp_path / "report"), "--processes", "1")
    report = msgspec.json.decode((tmp_path / "report" / "report.json").read_bytes(), type=Report)
    assert (status, report.counts.pairs) == (int(planted), 3)
    for stack in () if planted else BOTH:
        command = ("replay", captures, "--stack", stack, "-o", str(tmp_path / stack))
        assert await invoked(*command, "--processes", "0") == 0
    assert {cluster.layer for cluster in report.clusters} == ({"text"} if planted else set())
