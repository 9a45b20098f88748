"""Trials of mutants: the same tapes are played to a mutant as to the real graph stack."""

from __future__ import annotations

import asyncio
import gc
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

from contract import operations as ops
from contract.flows.chat import CHAT
from contract.records import ErrorRecord
from cutover.selftest.case import FOREVER, Case
from cutover.selftest.cases import case
from cutover.selftest.findings import NotAPair, causes
from cutover.selftest.meddling import Meddled, through
from cutover.selftest.mutant_loading import loaded
from cutover.selftest.mutant_scenes import SCENES, SLOW_TOOLS
from cutover.selftest.scene import SCENE
from cutover.selftest.serving import on_virtual_time, play, serve, stack_of
from effects.tape import Tape, TapeSession
from router.serving.run import Order, RunOutcome

if TYPE_CHECKING:
    import ast
    from collections.abc import AsyncGenerator, Coroutine, Iterator

    from contract.flow import Event, Flow
    from contract.records import RunRecord
    from router.serving.stack import LocalStack

Way = Literal[
    "compared",
    "not loaded",
    "no pair",
    "tasks left",
    "did not let go",
    "hid a crash",
    "ran ahead",
    "complained",
    "broke its driver",
    "hung",
]
"""How a mutant was found out."""

DRAWN = 60
LIVE = 3
"""How many of the scenes a mutant serves itself, too."""
LEAVING_AFTER = (*((SCENE, frames) for frames in (0, 1, 4, 9, 11)), (SLOW_TOOLS, 6))
"""Cases, and the frames after which the client leaves: in the midst of tools, too."""
NOWHERE = Path("no such folder")
"""Where no prompts are: both stacks have a text that stands in for them."""
CLOSED_AFTER = 4
LETS_GO_WITHIN = 0.1
TURNS = 5

_LEFT = RunOutcome("cancelled", error=ErrorRecord("client_gone"))


class FoundOut(NamedTuple):
    """How a mutant that behaves otherwise than the stack it was made of was found out."""

    way: Way
    what: str


class Tapes:
    """The fixed cases, as legacy has served them."""

    def __init__(self, legacy: LocalStack, package: str, drawn: int = DRAWN) -> None:
        self._legacy = legacy
        self._package = package
        bare = stack_of("legacy", import_module("legacy.chat").chat(NOWHERE))
        self._unprompted = on_virtual_time(serve(bare, SCENE))
        cases = [SCENE, *SCENES, *map(case, range(drawn))]
        self._served = [(it, on_virtual_time(serve(legacy, it))) for it in cases]

    def try_out(self, module: str, tree: ast.Module) -> FoundOut | None:
        """Try one mutant; None: it behaves as the stack it was made of."""
        with ExitStack() as loading:
            try:
                flows = loading.enter_context(loaded(self._package, module, tree))
                flow = flows[CHAT.name]
                bare = import_module(f"{self._package}.chat").chat(NOWHERE)
            except Exception as error:  # noqa: BLE001 - a mutant may raise anything
                return FoundOut("not loaded", repr(error))
            return self.try_flow(flow) or on_virtual_time(
                _shadow(stack_of("graph", bare), SCENE, self._unprompted)
            )

    def try_flow(self, flow: Flow) -> FoundOut | None:
        """Try a flow in every way, up to the first that finds it out."""
        tried = (on_virtual_time(_heard(way)) for way in self._ways(stack_of("graph", flow)))
        return next((found for found in tried if found), None)

    def _ways(self, graph: LocalStack) -> Iterator[Coroutine[object, object, FoundOut | None]]:
        for it, serving in self._served:
            yield _shadow(graph, it, serving)
        for it in (SCENE, *SCENES)[:LIVE]:
            yield _live(graph, self._legacy, it)
        for it, frames in LEAVING_AFTER:
            yield _left_alone(graph, it, frames)
        yield _closed(graph.flows[CHAT.name], SCENE)
        yield _unread(graph.flows[CHAT.name], SCENE)
        yield _crashed(graph.flows[CHAT.name], SCENE)


async def _heard(way: Coroutine[object, object, FoundOut | None]) -> FoundOut | None:
    """Go one way, and hear what the loop complains of: failures nobody has asked for."""
    complaints: list[str] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: complaints.append(str(context["message"]))
    )
    found = await way
    gc.collect(0)
    return found or (FoundOut("complained", complaints[0]) if complaints else None)


async def _shadow(graph: LocalStack, it: Case, serving: RunRecord) -> FoundOut | None:
    return _compared((serving, await play(graph, it, serving))) or await _left()


async def _live(graph: LocalStack, legacy: LocalStack, it: Case) -> FoundOut | None:
    """Let the mutant serve, and legacy play what it has recorded."""
    serving = await serve(graph, it)
    return await _left() or _compared((serving, await play(legacy, it, serving)))


async def _left_alone(graph: LocalStack, it: Case, frames: int) -> FoundOut | None:
    """Leave after some frames: the run must end at once, and leave nothing behind."""
    exchange = it.world().exchange(Tape())
    order = Order(CHAT, graph, it.request, "serving")
    drive = graph.drive(order, TapeSession(exchange, "left alone"), exchange.stamp)
    drive.start()
    while len(drive.frames) < frames and drive.ending is None:
        await asyncio.wait_for(drive.changed.wait(), FOREVER)
    await _some_turns()  # what the last frame announces has begun
    drive.dismiss(_LEFT)
    gone = await drive.gone(LETS_GO_WITHIN)
    left = await _left()
    await exchange.close()
    if not gone:
        return FoundOut("did not let go", f"the client left after {frames} frames")
    return left


async def _closed(flow: Flow, it: Case) -> FoundOut | None:
    """Close the stream in the midst of it, once in peace and once cancelled meanwhile."""
    for cancelled in (False, True):
        exchange = it.world().exchange(Tape())
        run = TapeSession(exchange, "closed")
        events = cast("AsyncGenerator[Event, None]", flow(it.request, run.effects()))
        for _ in range(CLOSED_AFTER):
            await anext(events)
        closing = asyncio.ensure_future(events.aclose())
        await asyncio.sleep(0)
        if cancelled:
            closing.cancel()
        await asyncio.wait({closing}, timeout=LETS_GO_WITHIN)
        await exchange.close()
        if not closing.done() or closing.cancelled() != cancelled:
            return FoundOut("did not let go", f"closed, cancelled meanwhile: {cancelled}")
    return None


async def _unread(flow: Flow, it: Case) -> FoundOut | None:
    """Stop reading in the midst of it: the run must wait for its reader, not go on to its end."""
    exchange = it.world().exchange(Tape())
    run = TapeSession(exchange, "unread")
    events = cast("AsyncGenerator[Event, None]", flow(it.request, run.effects()))
    for _ in range(CLOSED_AFTER):
        await anext(events)
    await asyncio.sleep(FOREVER)
    stored = any(play.operation is ops.TURN_PUT and play.site == "reply" for play in run.plays)
    await events.aclose()
    await exchange.close()
    if stored:
        return FoundOut("ran ahead", f"stored its reply after {CLOSED_AFTER} events were read")
    return await _left()


async def _crashed(flow: Flow, it: Case) -> FoundOut | None:
    """Let it break in the midst, as nobody foresaw: the run must say so, not just end."""
    graph = stack_of("graph", through(ids=lambda port, _: Meddled(port, new=_breaks))(flow))
    ended = (await serve(graph, it)).error
    if ended is None or ended.code != "crash":
        return FoundOut("hid a crash", f"ended by {ended.code if ended else 'nothing'}")
    return await _left()


async def _breaks(_site: str) -> str:
    raise RuntimeError


def _compared(runs: tuple[RunRecord, RunRecord]) -> FoundOut | None:
    try:
        found = causes(runs)
    except NotAPair as trouble:
        return FoundOut("no pair", str(trouble))
    return FoundOut("compared", str(found[0])) if found else None


async def _left() -> FoundOut | None:
    """Say which tasks a run that is over has left behind."""
    await _some_turns()
    left = asyncio.all_tasks() - {asyncio.current_task()}
    # Pumps belong to the exchange: it ends them, the stack need not.
    names = sorted(task.get_name() for task in left)
    own = [name for name in names if not name.startswith("pump ")]
    return FoundOut("tasks left", ", ".join(own)) if own else None


async def _some_turns() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)
