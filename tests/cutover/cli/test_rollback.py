"""`cutover rollback`: offline, idempotent, and it says what it did."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from contract.flows.chat import CHAT
from effects.stores import Pin, SqlPins
from router.config.loader import load_settings
from tests.support.commands import run_command

FLOW = """
[flows.support]
path = "/api/support"
dialect = "openai"
route_keys = { session_id = "conversation" }
enable_langgraph = true
langgraph_percent = 50
history = "own"
[stacks]
legacy = "http://127.0.0.1:1/"
graph = "http://127.0.0.1:1/"
[stores]
pins = "sqlite:///FOLDER/pins.sqlite"
history = ""
[admin]
audit_path = "FOLDER/audit.jsonl"
"""


def written(folder: Path, more: str = "") -> Path:
    """Write a configuration that sends half of the keys to graph."""
    path = folder / "cutover.toml"
    audit = f'[admin]\naudit_path = "{folder}/audit.jsonl"\n[stores]\nhistory = ""\n'
    share = "[flows.chat]\nenable_langgraph = true\nlanggraph_percent = 50 # half\n"
    path.write_text(share + audit + more, "utf-8")
    return path


def rollback(path: Path, flow: str = "chat") -> tuple[int, str]:
    """Run `cutover rollback`; returns its exit status and its output."""
    return run_command("rollback", flow, "--config", path)


def test_it_switches_the_flow_off_and_says_so(tmp_path: Path) -> None:
    """The percentage stays for the next attempt; who did it is on record."""
    path = written(tmp_path)
    status, said = rollback(path)
    assert status == 0
    assert "chat: enable_langgraph = false" in said
    flow = load_settings(path, {"chat": CHAT}).flows["chat"]
    assert (flow.stage, float(flow.langgraph_percent)) == ("off", 50)
    assert "# half" in path.read_text("utf-8")
    (line,) = (tmp_path / "audit.jsonl").read_text("utf-8").splitlines()
    told = json.loads(line)
    assert told["who"].endswith("(command line)")
    assert (told["what"], told["flow"]) == ("rollback", "chat")
    assert (told["before"], told["after"]) == (
        {"enable_langgraph": True},
        {"enable_langgraph": False},
    )


async def test_conversations_that_may_lose_their_history_are_counted(tmp_path: Path) -> None:
    """Where each stack stores its own: those pinned to graph, or why they are not known."""
    path = tmp_path / "cutover.toml"
    text = FLOW.replace("FOLDER", str(tmp_path))
    counts = {0: "no conversation is pinned to graph", 1: "1 conversation is", 2: "2 conversations"}
    async with SqlPins.open(tmp_path / "pins.sqlite") as store:
        for pinned, words in counts.items():
            path.write_text(text, "utf-8")
            _, said = await asyncio.to_thread(rollback, path, "support")
            assert f"\n{words}" in said
            assert ("loses its history where legacy lacks a turn" in said) == bool(pinned)
            await store.hold("support", f"c{pinned}", Pin("graph", "v", 1), 60.0)
            await store.hold("support", f"other {pinned}", Pin("legacy", "v", 1), 60.0)
    path.write_text(text.replace(f"sqlite:///{tmp_path}/pins.sqlite", "process"), "utf-8")
    status, said = await asyncio.to_thread(rollback, path, "support")
    assert status == 0
    assert "how many conversations move is not known: " in said


def test_twice_is_once(tmp_path: Path) -> None:
    """The second time there is nothing to do, and that is fine."""
    path = written(tmp_path)
    rollback(path)
    text = path.read_text("utf-8")
    status, said = rollback(path)
    assert (status, path.read_text("utf-8")) == (0, text)
    assert "chat is off already" in said
    assert len((tmp_path / "audit.jsonl").read_text("utf-8").splitlines()) == 1


@pytest.mark.parametrize(
    ("more", "flow", "words"),
    [("", "chta", "did you mean 'chat'?"), ("[sevrer]\n", "chat", "did you mean 'server'?")],
)
def test_what_it_cannot_do_exits_2(tmp_path: Path, more: str, flow: str, words: str) -> None:
    """An unknown flow, or a file no router would follow; nothing is changed."""
    path = written(tmp_path, more)
    before = path.read_text("utf-8")
    status, said = rollback(path, flow)
    assert status == 2
    assert words in said
    assert path.read_text("utf-8") == before
