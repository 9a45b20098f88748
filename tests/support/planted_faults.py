"""Copies of the graph stack with a fault of the self-test, and exchanges served beside them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

from contract.flow import Flow
from contract.flows import SPECS
from contract.records import RunRecord
from cutover.selftest.effect_faults import EFFECT_FAULTS
from cutover.selftest.stream_faults import STREAM_FAULTS
from effects.testing import VirtualLoop
from graph_impl import FLOWS as GRAPH
from router.capture.writer import CaptureWriter
from router.config.schema import CaptureSettings
from tests.support.flow_runs import Case
from tests.support.router_world import House, Rules

PLAIN = 12
"""A seed whose case calls tools and ends well on both stacks."""
PLANTED = {
    "CHANGED_PROMPT": ("white space in the prompt", "effects"),
    "CHANGED_ARGUMENT": ("tool argument", "effects"),
    "DROPPED_FRAME": ("tool feedback lost", "frames"),
    "WRONG_FINAL_TEXT": ("wrong finish text", "text"),
    "FRAME_AFTER_END": ("frame after END", "grammar"),
}
"""Faults of the self-test's scene, and the layer on which each is found."""


def planted(name: str) -> Flow:
    """Return the graph stack's chat with one fault."""
    faults = (*STREAM_FAULTS, *EFFECT_FAULTS)
    [fault] = (fault for fault in faults if fault.name == PLANTED[name][0])
    return fault.wrap(GRAPH["chat"])


def served(cases: Iterable[Case], graph: Flow | None = None) -> list[list[RunRecord]]:
    """Serve cases on legacy, graph in the shadow; returns the lines of each exchange."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return [batch for one in cases for batch in runner.run(_serve(one, graph))]


async def _serve(one: Case, graph: Flow | None) -> list[list[RunRecord]]:
    async with House(one, Rules(shadow=100.0), graph=graph or GRAPH["chat"]) as house:
        await house.ask()
    return house.captured.batches


def captured(batches: list[list[RunRecord]], folder: Path) -> Path:
    """Write exchanges down as the router does."""
    asyncio.run(_write(batches, folder))
    return folder


async def _write(batches: list[list[RunRecord]], folder: Path) -> None:
    writer = CaptureWriter(CaptureSettings(path=str(folder)), SPECS, salt="planted")
    for batch in batches:
        writer.put(batch)
    await writer.aclose(30.0)
