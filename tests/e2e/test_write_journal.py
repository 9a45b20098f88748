"""`[exchanges] journal`: the next router tells the audit what a killed one had begun."""

from __future__ import annotations

from pathlib import Path
from time import time

import msgspec
import pytest

from effects.stores import SqlWriteJournal, StoredWrite
from tests.support.deployment import Setup, deployed, until

pytestmark = [pytest.mark.sockets, pytest.mark.slow]


async def test_the_audit_is_told_what_a_killed_router_wrote(tmp_path: Path) -> None:
    """With its outcome, or that this is unknown; an exchange that ends leaves nothing."""
    stores, audit = f"sqlite:///{tmp_path}/store.sqlite", tmp_path / "audit.jsonl"
    more = f'[exchanges]\njournal = true\n[admin]\naudit_path = "{audit}"\n'
    began = time() - 100.0
    async with SqlWriteJournal.open(stores) as journal:
        for seq, what in enumerate(("conversations.put", "tools.run pay")):
            write = StoredWrite("x", seq, "chat", what, "begun", began, began + 90.0)
            await journal.begin(write)
        await journal.end("x", 0, "done")
        async with deployed(tmp_path, Setup(others=stores, more=more)) as place:
            await until(audit.exists)
            answer = await place.ask({"message_id": "m", "content": "Hello"})
            assert answer.steps[-1] == "END"
            await place.settled()
        assert await journal.abandoned(time() + 2 * 86_400.0) == ()
    (line,) = audit.read_bytes().splitlines()
    change = msgspec.json.decode(line)
    assert (change["what"], change["flow"]) == ("exchange without end", "chat")
    assert change["after"] == {"0 conversations.put": "done", "1 tools.run pay": "outcome_unknown"}


async def test_the_audit_is_told_what_an_exchange_left_in_doubt(tmp_path: Path) -> None:
    """It has ended, and its record may be lost with a router: which effect it was is told."""
    stores, audit = f"sqlite:///{tmp_path}/store.sqlite", tmp_path / "audit.jsonl"
    more = f'[exchanges]\njournal = true\n[admin]\naudit_path = "{audit}"\n'
    began = time() - 100.0
    what = "external.run orders.insert"
    async with SqlWriteJournal.open(stores) as journal:
        for seq in range(2):
            await journal.begin(StoredWrite("x", seq, "chat", what, "begun", began, began + 90.0))
        await journal.end("x", 0, "done")
        await journal.end("x", 1, "in_doubt")
        await journal.close("x")
        async with deployed(tmp_path, Setup(others=stores, more=more)):
            await until(audit.exists)
    change = msgspec.json.decode(audit.read_bytes())
    assert (change["what"], change["before"]) == ("outcome unknown", {"exchange": "x"})
    assert change["after"] == {f"1 {what}": "outcome_unknown"}


async def test_the_audit_is_told_of_a_tool_whose_outcome_is_unknown(tmp_path: Path) -> None:
    """By flow, pause and tool: the router that goes on calls this once for each."""
    audit = tmp_path / "audit.jsonl"
    setup = Setup(more=f'[admin]\naudit_path = "{audit}"\n')
    async with deployed(tmp_path, setup) as place:
        pauses = place.services.router.pauses
        assert pauses is not None
        pauses.on_unknown("companion", "h1", "pay")
    change = msgspec.json.decode(audit.read_bytes())
    assert (change["what"], change["flow"]) == ("outcome unknown", "companion")
    assert change["after"] == {"pay": "outcome_unknown", "pause": "h1"}
