"""The history: each change once, whichever of several routers sees it first."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from contract.flows.chat import CHAT
from router.admin.audit import Change
from router.admin.history import PROVIDER, History, HistoryEntry, in_force
from router.config.loader import parse_settings

FILE = {"flows.chat.percent": "10", "flows.chat.on": "true", "models.a.price": "2"}


class Clock:
    """A clock that goes on by a second at each look."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Return the time."""
        self.now += 1.0
        return self.now


@pytest.fixture
async def history(tmp_path: Path) -> AsyncIterator[History]:
    """Open an empty history."""
    async with History.open(tmp_path / "history.sqlite", Clock()) as made:
        yield made


async def told(history: History, flow: str = "", **more: int) -> list[tuple[str, str, Any, Any]]:
    """Return who, what, before and after, newest first."""
    return [plain(entry) for entry in await history.entries(flow, **more)]


def plain(entry: HistoryEntry) -> tuple[str, str, Any, Any]:
    """Decode an entry."""
    before, after = (msgspec.json.decode(value) for value in (entry.before, entry.after))
    return entry.who, entry.what, before, after


async def test_the_first_sight_is_no_change(history: History) -> None:
    """What was there before is not known; from then on every difference is told."""
    assert await history.follow("ann", FILE, "v1") == 0
    assert await history.follow("ann", FILE, "v1") == 0
    new = {"flows.chat.percent": "25", "flows.chat.on": "true", "models.b.price": "3"}
    assert await history.follow("bob", new, "v2") == 3
    assert await told(history) == [
        ("bob", "models.b.price", None, 3),
        ("bob", "models.a.price", 2, None),
        ("bob", "flows.chat.percent", 10, 25),
    ]
    (latest, *_) = await history.entries()
    assert (latest.at, latest.version) == (3_000_000, "v2")


async def test_routers_that_share_it_tell_a_change_once(tmp_path: Path) -> None:
    """Each sees the same edit; back and forth are two changes."""
    path = tmp_path / "history.sqlite"
    async with History.open(path) as one, History.open(path) as two:
        for edit in ("10", "25", "10"):
            for history in (one, two, one):
                await history.follow("ann", {"flows.chat.percent": edit})
        assert [after for _, _, _, after in await told(two)] == [10, 25]


async def test_a_change_while_nobody_looked_is_told_at_the_next_start(tmp_path: Path) -> None:
    """The history remembers what was in force."""
    path = tmp_path / "history.sqlite"
    async with History.open(path) as history:
        await history.follow("ann", FILE)
    async with History.open(path) as history:
        await history.follow("bob", FILE | {"flows.chat.percent": "99"})
        assert await told(history) == [("bob", "flows.chat.percent", 10, 99)]


async def test_keys_of_newer_code_had_their_defaults(history: History) -> None:
    """An upgrade changes nothing, and is not recorded as a change."""
    await history.follow("ann", FILE)
    new = {"limits.new": "5", "limits.other": "7"}
    assert await history.follow("ann", FILE | new, unset={"limits.new": "5", "limits.other": "6"})
    assert await told(history) == [("ann", "limits.other", 6, 7)]


async def test_a_person_s_change_bears_their_name(history: History) -> None:
    """A tool tells it first; the routers that see the file change have no news."""
    change = Change(
        at=1,
        who="ann (command line)",
        what="rollback",
        flow="chat",
        before={"on": True},
        after={"on": False},
    )
    await history.audited(change, "v2")
    await history.follow("owner", FILE | {"flows.chat.on": "false"})
    await history.follow("owner", FILE | {"flows.chat.on": "false"})
    assert await told(history) == [("ann (command line)", "flows.chat.on", True, False)]
    assert not await history.note("bob", "flows.chat.on", before=True, after=False)
    assert await history.note("bob", "flows.chat.on", before=None, after=True, version="v")
    assert (await told(history))[0] == ("bob", "flows.chat.on", False, True)


async def test_flags_of_a_provider_are_not_the_file_s(history: History) -> None:
    """They do not count as gone when the file is read, and belong to their flow."""
    await history.follow("ann", FILE)
    await history.note("flagd", f"{PROVIDER}chat.langgraph_percent", None, 25)
    assert await history.follow("ann", FILE) == 0
    await history.follow("ann", FILE | {"flows.chat_2.on": "true", "models.a.price": "3"})
    assert await told(history, "chat") == [("flagd", f"{PROVIDER}chat.langgraph_percent", None, 25)]
    assert [what for _, what, _, _ in await told(history, limit=1)] == ["models.a.price"]


async def test_it_is_bounded(tmp_path: Path) -> None:
    """The oldest go first."""
    async with History.open(tmp_path / "history.sqlite", most=3) as history:
        for number in range(10):
            await history.note("ann", "flows.chat.percent", None, number)
        assert [after for _, _, _, after in await told(history)] == [9, 8, 7]


def test_a_configuration_as_keys() -> None:
    """Numbers as numbers, lists in order, tables by their entries; no name and no version."""
    text = """
        changed_by = "ann"
        [flows.chat]
        langgraph_percent = 10.5
        force_graph = ["b", "a"]
        [providers.p]
        base_url = "http://127.0.0.1"
        [flags.options]
        api_key = "hush"
    """
    found = in_force(parse_settings(text, "cutover.toml", {"chat": CHAT}))
    assert found["flows.chat.langgraph_percent"] == "10.500"
    assert found["flows.chat.force_graph"] == '["a","b"]'
    assert found["providers.p.base_url"] == '"http://127.0.0.1"'
    assert found["flows.chat.options.model_id"] == '"gpt-4.1"'
    assert found["flags.options.api_key"].startswith('"(not shown) ')
    assert "hush" not in str(found)
    assert not {"version", "changed_by", "models"} & found.keys()
