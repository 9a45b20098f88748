"""One table: flow, assigned stack, setting, fault and place, and what must come of each."""

import asyncio
import itertools
import random
import re
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from fastapi import FastAPI

from cutover import Event, Request, Stack, StackFailed, effect
from cutover.errors import Failed, Outcome, Refused
from cutover.tape import current_run
from effects.pauses import Pauses
from harness import root
from harness.config import parse
from harness.live import LiveSettings
from harness.root import equal_shadow
from router.exchange import Served
from router.serve import serve
from router.shadow import Shadows
from rules.flows import FLOWS
from rules.flows.pipeline import NodeFailure, PipelineMessage, TokenInfo
from tests.flows.faults import FLOWS as ASKED
from tests.router.fault_rows import Ended, Expected, Row, expected, rows
from tests.support.client import Client
from tests.support.stage import Stage, read, staged

pytestmark = [pytest.mark.virtual, pytest.mark.slow]

NEVER_SAID = re.compile(rb"SECRET|Exception|ZeroDivision|simulated|Traceback")


class NotDue(msgspec.Struct, frozen=True, tag="NOT_DUE", tag_field="step"):
    """An event that no grammar allows."""


class BreaksOff(Exception):
    """Ends a stack's stream."""


@effect("late.write", writes=True)
async def write_late() -> None:
    """Write what a run that has failed must not write."""


@dataclass
class Scene:
    """The application with what a row breaks, and its client."""

    row: Row
    app: FastAPI = field(init=False)
    client: Client = field(init=False)
    background: list[asyncio.Task[None]] = field(default_factory=list)

    @property
    def endpoint(self) -> Any:
        """The flow's endpoint."""
        path, routes = FLOWS[self.row.flow].path, list[Any](self.app.router.routes)
        return next(one.app for one in routes if getattr(one, "path", "") == path)

    def breaking(self, stack: Stack) -> Stack:
        """Return a stack that breaks at the row's place."""
        row, story = self.row, self.row.story
        behind = {"text": story.text_behind, "behind": story.last}.get(row.place)
        before = story.last if row.place == "terminal" else None

        async def broken(request: Request[Any, Any]) -> AsyncIterator[Event]:
            due, last = True, None
            try:
                async with aclosing(stack(request)) as events:  # type: ignore[type-var]
                    if row.place == "first":
                        async for one in self._break(None):
                            yield one
                    async for event in events:
                        name = event.__struct_config__.tag
                        if name == before:
                            async for one in self._break(last):
                                yield one
                        yield event
                        last = event
                        if name == behind and due:
                            due = False
                            async for one in self._break(event):
                                yield one
            except BreaksOff:
                return

        return broken

    async def _break(self, last: Any) -> AsyncIterator[Event]:
        """Break as the row says, behind the event `last`."""
        row, fault = self.row, self.row.what
        if row.setting == "overflow":
            current_run().exchange.grow(1 << 40)  # type: ignore[union-attr]
        match row.fault:
            case "raises":
                raise ZeroDivisionError("SECRET")
            case "exits":
                raise SystemExit(3)
            case "hangs":
                try:
                    await asyncio.Event().wait()
                finally:
                    await write_late()  # refused: its successor has taken over
            case "sends an event that is not due":
                yield NotDue()
            case "breaks off":
                raise BreaksOff
            case "refuses":
                raise Refused(409, fault.code, "not now")
            case "goes on without end":
                while True:
                    yield last
            case "reports its failure":
                tokens = TokenInfo(1, 8_000, "continue")
                failures = (NodeFailure("response_generator", fault.code),)
                yield PipelineMessage(
                    success=False,
                    message=None,
                    token_info=tokens,
                    end_intent=False,
                    memories=(),
                    errors=failures,
                )
                raise BreaksOff
            case "the client leaves":
                if row.place != "behind":  # behind, it has left when it got the terminal event
                    self.client.leave()
                    await asyncio.Event().wait()
            case "the server stops":
                self.background.append(asyncio.create_task(self.app.state.drain(1.0)))
                if row.place != "behind":
                    await asyncio.Event().wait()
            case one if one.startswith("says that"):
                raise StackFailed(fault.code, fault.blame or "stack", "SECRET")
            case _:
                pass


async def _no_store(*_: object, **__: object) -> None:
    raise OSError("SECRET")


def _cases() -> list[Any]:
    """Return the table; by day each fault in each setting and place, for a flow that is drawn."""
    cells: dict[tuple[str, ...], list[Row]] = {}
    for row in rows():
        cells.setdefault((row.setting, row.fault, row.place, str(row.pauses)), []).append(row)
    draw = random.Random(7)
    by_day = {draw.choice(cell) for cell in cells.values()}
    return [
        pytest.param(row, id=str(row), marks=() if row in by_day else pytest.mark.nightly)
        for cell in cells.values()
        for row in cell
    ]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("row", _cases())
async def test_a_fault_ends_as_the_table_says(
    row: Row, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What the client gets, who served, who is blamed, what is recorded; nothing is done twice."""
    caplog.set_level("INFO", "cutover.exchange")
    monkeypatch.setattr("router.driver.STREAM_BYTES", 20_000)
    due, kept, shadows = expected(row), _kept(monkeypatch), Shadows(equal_shadow)
    async with staged() as stage:
        stage.sim.script(row.script)
        if row.fault == "the store of pauses is down":
            monkeypatch.setattr(Pauses, "put", _no_store)
        scene = _scene(row, stage, shadows, monkeypatch)
        body = await scene.client.post(FLOWS[row.flow].path, dict(row.story.body))
        while pending := {*scene.endpoint.ending, *scene.background}:
            await asyncio.wait(pending)
            scene.background.clear()
    _check_client(row, due, scene.client, body)
    [served] = kept
    assert [(one.candidate.name, _ended(one.run.ended)) for one in served.runs] == due.runs
    assert _ended(served.outcome) == due.outcome
    assert _line(caplog) == {
        "flow": row.flow,
        "assigned": row.assigned,
        "served": due.runs[-1][0],
        "outcome": due.outcome[0],
        "code": due.outcome[1],
        "taken_over": ",".join(code for _, (_, code, _) in due.runs[:-1]),
    }
    breakers = scene.endpoint.breakers.items()
    assert {name for name, one in breakers if one.state != "closed"} == due.opened
    assert shadows.offered == 1
    assert dict(shadows.ledger) == ({due.dropped: 1} if due.dropped else {})  # or it waits
    assert stage.model_calls in due.asked
    writes = [one.call.name for one in served.tape.entries if one.call.writes]
    assert len(writes) in due.wrote
    assert writes == row.story.writes[: len(writes)]
    assert not served.tape.off_tape


def _kept(monkeypatch: pytest.MonkeyPatch) -> list[Served]:
    """Return the exchanges that will be served."""
    kept: list[Served] = []

    def keeping(served: Served, *args: Any, **more: Any) -> Any:
        kept.append(served)
        return serve(served, *args, **more)

    monkeypatch.setattr("router.endpoint.serve", keeping)
    return kept


def _scene(row: Row, stage: Stage, shadows: Shadows, patch: pytest.MonkeyPatch) -> Scene:
    """Return the application as the row sets it up."""
    flow = {
        "enable_langgraph": True,
        "langgraph_percent": 100.0 if row.assigned == "graph" else 0.0,
        "langgraph_fallback": row.setting != "no fallback",
        "shadow_percent": 100.0,
        "options": ASKED[row.flow].options,
    }
    breaker = {"failures": 1.0, "runs": 1, "rest_seconds": 10_000.0}
    settings = parse({"flows": {row.flow: flow}, "breaker": breaker})
    scene = Scene(row)
    stacks = {
        name: scene.breaking(stack) if name in row.breaks else stack
        for name, stack in root.stacks(row.flow).items()
    }
    patch.setattr(root, "stacks", lambda _: stacks)
    scene.app = root.application(LiveSettings(settings), stage.world, shadows=shadows)
    scene.client = Client(scene.app)
    if row.fault == "the client leaves" and row.place == "behind":
        end = f"event: {row.story.last}" if FLOWS[row.flow].named else f'"{row.story.last}"'
        scene.client.leaves_at = end.encode()
    if row.setting == "rests":
        scene.endpoint.breakers[row.assigned].record(Failed("stack_failed"))
    return scene


def _check_client(row: Row, due: Expected, client: Client, body: bytes) -> None:
    assert client.status == due.status
    assert not NEVER_SAID.search(body)
    if due.status != 200:
        code = msgspec.json.decode(body)["code"] if body else ""
        assert code == (due.told or "")
        return
    names = client.headers["x-cutover-assigned"], client.headers["x-cutover-served"]
    assert names == (row.assigned, due.served)
    frames = [one + b"\n\n" for one in body.split(b"\n\n")[:-1]]
    taken_over = [one.split()[2].decode() for one in frames if one.startswith(b": served-by")]
    assert taken_over == [stack for stack, _ in due.runs[1:] if stack != due.served]
    events = [event for one in frames if (event := read(one)) is not None]
    shape = [one for one, _ in itertools.groupby(map(_name, events))]
    if due.gets == "cut":
        assert row.story.shape.startswith(" ".join(shape))
        assert row.story.last not in shape
        return
    if due.gets == "whole":
        assert " ".join(shape) == row.story.shape
    if due.gets == "whole" and row.pauses:
        assert events[-1][1]["status"] in {"suspended", "approval_required"}
        return
    ended = ASKED[row.flow].ended(events)
    assert ended.code == due.told
    if due.told != "prefix_mismatch":
        assert ended.text == due.text
    # The stack that ran away has said more; what it said is not taken back.
    assert ended.text.startswith(due.text)


def _name(event: tuple[str, Any]) -> str:
    name, data = event
    return str(name or data.get("step") or data["type"])


def _ended(outcome: Outcome | None) -> Ended:
    """Return the kind of an outcome, its code and its blame."""
    kind = type(outcome).__name__.lower()
    return kind, getattr(outcome, "code", ""), getattr(outcome, "blame", "")


def _line(caplog: pytest.LogCaptureFixture) -> dict[str, str]:
    """Return what the one line about the exchange says, without ids and figures."""
    [line] = [one for *_, one in caplog.record_tuples if one.startswith("exchange=")]
    said = dict(one.split("=", 1) for one in line.split() if "=" in one)
    kept = ("flow", "assigned", "served", "outcome", "code", "taken_over")
    return {name: said[name] for name in kept}
