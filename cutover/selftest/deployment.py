"""Exchanges as in production: served and shadowed by a router, captured, and compared from disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from compare.captures import Question, compare_captures
from compare.tally import Tally
from contract.errors import Refused
from contract.flow import Body, Event, Flow
from contract.ports import Effects
from cutover.selftest.cases import FOREVER, Scene
from cutover.wiring.router import assemble_router
from effects.tape import TapeSession
from effects.testing import VirtualLoop, World
from router.capture.writer import CaptureWriter
from router.config.schema import (
    CaptureSettings,
    FlowSettings,
    RolloutSettings,
    Settings,
    ShadowSettings,
)
from router.router import Router
from router.serving.run import RunRequest
from router.serving.stack import LocalRun, LocalStack
from router.serving.stream import NotServed

IDLE_GUARD = 10.0
_WALL = 1_790_000_000.0


Encode = Callable[[Event], bytes]
"""Writes an event as a frame."""
WireOf = Callable[[Encode], Encode]
"""Returns how a stack writes frames, given how its flow does."""


def as_it_is(encode: Encode) -> Encode:
    """Write frames as the flow does."""
    return encode


@dataclass(frozen=True, slots=True)
class _Stack(LocalStack):
    """A stack in this process; its wire may be wrapped."""

    wire: WireOf = as_it_is

    def new_run(
        self, request: RunRequest, session: TapeSession, *, strict: bool = True
    ) -> LocalRun:
        spec = replace(request.spec, encode=self.wire(request.spec.encode))
        asked = msgspec.structs.replace(request, spec=spec)
        return LocalRun(asked, session, self.flows[spec.name], strict=strict)


def compared(
    scenes: Iterable[Scene], legacy: Flow, graph: Flow, place: Path, wire: WireOf = as_it_is
) -> Tally:
    """Serve scenes on legacy with graph in their shadow, and compare what was captured.

    All scenes are of one flow; `place` is a folder for the captures, `wire` wraps graph's wire.
    """
    shown = list(scenes)
    spec = shown[0].spec
    stacks = {
        "legacy": _Stack("legacy", {spec.name: legacy}, "legacy under test"),
        "graph": _Stack("graph", {spec.name: graph}, "graph under test", wire=wire),
    }
    writer = CaptureWriter(
        CaptureSettings(path=str(place)), {spec.name: spec}, salt="self-test", key=b"self-test"
    )
    try:
        with asyncio.Runner(loop_factory=partial(VirtualLoop, IDLE_GUARD)) as runner:
            for scene in shown:
                runner.run(_exchange(scene, stacks, writer))
    finally:
        asyncio.run(writer.aclose(30.0))
    return compare_captures(str(place), Question({spec.name: spec}))


async def _exchange(scene: Scene, stacks: Mapping[Any, Any], writer: CaptureWriter) -> None:
    world = scene.world()
    if scene.taken:
        await world.live().locks.acquire("other", scene.taken, FOREVER)
    router = _router(scene, stacks, writer, world)
    try:
        stream = await router.open(scene.spec, scene.request.body, path=scene.request.path)
        try:
            await stream.open()
            async for _ in stream.pieces():
                pass
        except (Refused, NotServed):
            pass  # refused and failed exchanges are captured like all others
        finally:
            router.close(stream)
    finally:
        await router.aclose(FOREVER)
        await writer.flush()


def _router(scene: Scene, stacks: Mapping[Any, Any], writer: CaptureWriter, world: World) -> Router:
    spec = scene.spec
    flow = FlowSettings(
        enable_langgraph=True,
        langgraph_percent=Decimal(0),
        fallback_to_graph=False,
        shadow_percent=Decimal(100),
        options=scene.request.options,
    )
    settings = Settings(
        rollout=RolloutSettings(salt="self-test"),
        flows={spec.name: flow},
        shadow=ShadowSettings(seconds=60.0),
        version="self-test",
    )

    def live(_flow: str, _: Body) -> Effects:
        return world.live()

    return assemble_router(
        flows={spec.name: spec},
        stacks=stacks,
        live=live,
        captures=writer,
        settings=lambda: settings,
        monotonic=asyncio.get_running_loop().time,
        wall=lambda: _WALL,
    )
