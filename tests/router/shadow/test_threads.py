"""Shadows and what a stack keeps beside the ports: the file of checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

import graph_impl
from tests.support.router_world import House
from tests.support.session_conversations import Talk, free, say, served_by, shadows, talk


def content(folder: Path) -> dict[str, bytes]:
    """Read every file of a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("mode", "history"),
    [("replay", "served"), ("tail", "served"), ("live", "served"), ("live", "own")],
)
async def test_threads_are_not_touched(
    tmp_path: Path, mode: Literal["replay", "tail", "live"], history: Literal["served", "own"]
) -> None:
    """Shadows leave the files of checkpoints as they are, byte for byte; who serves writes them."""
    async with graph_impl.opened(f"sqlite:///{tmp_path}/threads.sqlite") as kept:
        rules = free(mode=mode, history=history)
        async with House(Talk(), rules, graph=kept.flows["session"]) as house:
            before = content(tmp_path)
            session = await talk(house, 3)
            assert [run.stack for run in shadows(house)] == ["graph"] * 3
            assert content(tmp_path) == before
            house.settings = served_by(house, "graph")
            await say(house, session)
            assert content(tmp_path) != before
