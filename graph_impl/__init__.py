"""The new stack: the same files as the old one, driven by the graph engine."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from contract.flow import OpenedFlows
from graph_impl.chat import chat
from graph_impl.companion import companion
from graph_impl.session import session
from graph_impl.threads import opened_threads

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from contract.flow import Flow

FLOWS: Mapping[str, Flow] = {"chat": chat(), "companion": companion(), "session": session()}
"""The flows, with threads kept nowhere."""


@asynccontextmanager
async def opened(threads: str) -> AsyncIterator[OpenedFlows]:
    """Give the flows with their threads kept at an address, for as long as the block lasts."""
    async with opened_threads(threads) as kept:
        flows = {**FLOWS, "session": session(threads=kept)}
        yield OpenedFlows(flows, kept.forget)


__all__ = ["FLOWS", "opened"]
