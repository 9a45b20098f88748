"""Keeping the history of a deployment, and `cutover history`."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from openfeature.event import ProviderEventDetails
from openfeature.flag_evaluation import FlagResolutionDetails
from openfeature.provider.in_memory_provider import InMemoryFlag, InMemoryProvider
from typer.testing import CliRunner

from contract.flows import SPECS
from cutover.cli import app
from cutover.wiring.history import follow_history, owner
from effects.stores import sqlite_file
from router.admin.history import History
from router.config.watcher import SettingsWatcher
from tests.support.deployment import Deployment, Setup, deployed, tasks, until
from tests.support.operations_client import ALICE, ENVIRON, MORE, Operator
from tests.support.patience import PATIENCE_S

if TYPE_CHECKING:
    from router.admin.history import HistoryEntry

HERE = f"{__name__}:"
MADE: list[InMemoryProvider] = []


SHARES = [10]


def share(_: object, __: object) -> FlagResolutionDetails[int]:
    """Return the share of these tests."""
    return FlagResolutionDetails(SHARES[-1])


def factory() -> InMemoryProvider:
    """Make a provider whose flag can be changed."""
    flag = InMemoryFlag("on", {"on": 10}, context_evaluator=share)
    MADE.append(InMemoryProvider({"chat.langgraph_percent": flag}))
    return MADE[-1]


def kept_in(folder: Path, more: str = "") -> Setup:
    """Keep the history in a folder."""
    return Setup(history=f"sqlite:///{folder}/history.sqlite", more=more)


async def written(place: Deployment) -> list[HistoryEntry]:
    """Wait until everything is written down; gives it, newest first."""
    await until(lambda: not tasks("history"))
    async with History.open(place.folder / "history.sqlite") as history:
        return await history.entries()


def shown(*args: str) -> tuple[int, str]:
    """Run the command; returns exit status and what it said."""
    result = CliRunner().invoke(app, ["history", *args])
    return result.exit_code, result.output


@pytest.mark.sockets
async def test_edits_are_noted_with_who_and_what(tmp_path: Path) -> None:
    """By the name in the file, else by its owner; the version is that of the new file."""
    async with deployed(tmp_path, kept_in(tmp_path)) as place:
        good = place.watched.path.read_text("utf-8")
        assert await written(place) == []
        place.edit(good.replace("langgraph_percent = 0", "langgraph_percent = 25"))
        place.edit(f'changed_by = "ann"\n{good.replace("_percent = 0", "_percent = 50", 1)}')
        place.edit(good.replace("langgraph_percent", "langgraph_persent"))
        newest, oldest = await written(place)
        assert (newest.who, newest.what) == ("ann", "flows.chat.langgraph_percent")
        assert (bytes(newest.before), bytes(newest.after)) == (b"25.000", b"50.000")
        assert newest.version == place.watched.settings().version
        assert (oldest.who, bytes(oldest.after)) == (owner(place.watched.path), b"25.000")
        place.edit(good)
    status, table = await asyncio.to_thread(shown, "chat", "--config", str(place.watched.path))
    assert status == 0
    assert "flows.chat.langgraph_percent" in " ".join(table.split())
    args = ("--json", "--limit", "1", "--config", str(place.watched.path))
    status, lines = await asyncio.to_thread(shown, *args)
    assert json.loads(lines)["before"] == 50.0


@pytest.mark.sockets
async def test_a_change_through_the_operations_api_is_noted_in_the_name_of_its_token(
    tmp_path: Path,
) -> None:
    """Not in that of the file's owner, who the router is; once, with the version it made."""
    more = MORE.replace("FOLDER", str(tmp_path))
    setup = replace(kept_in(tmp_path, more), environ=ENVIRON)
    async with deployed(tmp_path, setup) as place:
        alice = Operator(place, ALICE)
        for share in (25.0, 25.0, 50.0):
            status, _ = await alice.post("/flows/chat/percent", {"percent": share})
            assert status == 200
        await alice.post("/breaker/chat/graph/reset")
        newest, oldest = await written(place)
        assert newest.version == place.watched.settings().version != oldest.version
        for entry, after in ((oldest, b"25.0"), (newest, b"50.0")):
            noted = entry.who, entry.what, bytes(entry.after).rstrip(b"0") + b"0"
            assert noted == ("alice", "flows.chat.langgraph_percent", after)


@pytest.mark.sockets
async def test_who_begins_with_what_is_out_of_date_undoes_nothing(tmp_path: Path) -> None:
    """A worker reads the file, takes a while to start, and meanwhile another follows an edit."""
    async with deployed(tmp_path, kept_in(tmp_path)) as place, AsyncExitStack() as stack:
        late = SettingsWatcher(place.watched.path, SPECS)
        good = late.path.read_text("utf-8")
        place.edit(good.replace("langgraph_percent = 0", "langgraph_percent = 25"))
        (noted,) = await written(place)
        await follow_history(late, {}, {}, stack)
        assert late.poll_once() == "taken"
        assert await written(place) == [noted]


@pytest.mark.sockets
async def test_flags_are_noted_when_their_provider_tells(tmp_path: Path) -> None:
    """With their value without a user, in the provider's name."""
    more = f'[flags]\nprovider = "{HERE}factory"\nask = ["langgraph_percent"]\n'
    async with deployed(tmp_path, kept_in(tmp_path, more)) as place:
        for value in (10, 25, 25):
            SHARES.append(value)
            async with asyncio.timeout(PATIENCE_S):
                while not await told(place, value):
                    MADE[-1].emit_provider_configuration_changed(ProviderEventDetails())
        noted = await written(place)
        assert [(one.who, one.what) for one in noted] == [
            ("In-Memory Provider", "provider chat.langgraph_percent")
        ] * 2
        assert [bytes(one.after) for one in noted] == [b"25", b"10"]


async def told(place: Deployment, value: int) -> bool:
    """Whether a value is the newest on record."""
    return [int(bytes(entry.after)) for entry in (await written(place))[:1]] == [value]


@pytest.mark.sockets
async def test_a_history_that_cannot_be_kept_stops_nobody(tmp_path: Path) -> None:
    """It is told in `/readyz`, and everybody is served."""
    (tmp_path / "history.sqlite").write_text("this is no database", "utf-8")
    async with deployed(tmp_path, kept_in(tmp_path)) as place:
        ready: Any = await place.get("/readyz")
        assert "not a database" in ready["faults"]["history"]
        answer = await place.ask({"message_id": "m", "content": "Hello"})
        assert answer.status == 200


def test_a_rollback_is_in_the_history_in_the_name_of_who_did_it(tmp_path: Path) -> None:
    """Before any router has seen it."""
    path = tmp_path / "cutover.toml"
    audit = f'[admin]\naudit_path = "{tmp_path}/audit.jsonl"\n'
    stores = f'[stores]\nhistory = "sqlite:///{tmp_path}/history.sqlite"\n'
    path.write_text(f"[flows.chat]\nenable_langgraph = true\n{audit}{stores}", "utf-8")
    assert CliRunner().invoke(app, ["rollback", "chat", "--config", str(path)]).exit_code == 0
    status, line = shown("--json", "--config", str(path))
    assert status == 0
    told = json.loads(line)
    assert told["who"].endswith("(command line)")
    assert (told["what"], told["before"], told["after"]) == (
        "flows.chat.enable_langgraph",
        True,
        False,
    )


def test_no_change_is_cut_where_it_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file gets a whole line each, a narrow terminal two, and neither half a word."""
    path = tmp_path / "cutover.toml"
    audit = f'[admin]\naudit_path = "{tmp_path}/audit.jsonl"\n'
    stores = f'[stores]\nhistory = "sqlite:///{tmp_path}/history.sqlite"\n'
    path.write_text(f"[flows.chat]\nenable_langgraph = true\n{audit}{stores}", "utf-8")
    CliRunner().invoke(app, ["rollback", "chat", "--config", str(path)])
    told = json.loads(shown("--json", "--config", str(path))[1])
    monkeypatch.delenv("COLUMNS", raising=False)
    _, wide = shown("--config", str(path))
    assert wide.split("\n")[0].split() == [
        "when",
        "(UTC)",
        "who",
        "what",
        "before",
        "after",
        "version",
    ]
    assert wide.split("\n")[1].endswith(f"  true    false  {told['version']}")
    monkeypatch.setenv("COLUMNS", "60")
    _, narrow = shown("--config", str(path))
    first, second = narrow.rstrip("\n").split("\n")
    assert first.endswith(f"  {told['who']}, version {told['version']}")
    assert second == "    flows.chat.enable_langgraph: true → false"


def test_what_cannot_be_shown_is_said(tmp_path: Path) -> None:
    """An unknown flow, a file that is not there; none yet and none wanted are no faults."""
    path = tmp_path / "cutover.toml"
    path.write_text(f'[stores]\nhistory = "sqlite:///{tmp_path}/h.sqlite"\n', "utf-8")
    assert shown("--config", str(path)) == (0, "no change yet\n")
    status, said = shown("chta", "--config", str(path))
    assert (status, "did you mean 'chat'?" in said) == (2, True)
    path.write_text('[stores]\nhistory = ""\n', "utf-8")
    assert shown("--config", str(path)) == (0, "no change yet\n")
    path.write_text(f'[stores]\nhistory = "sqlite:///{path}/h.sqlite"\n', "utf-8")
    status, said = shown("--config", str(path))
    assert (status, said.strip()) == (2, f"error: '{path}': file exists")
    path.unlink()
    assert shown("--config", str(path))[0] == 2


def test_who_owns_a_file(tmp_path: Path) -> None:
    """A name or a number, "" without a file."""
    assert owner(tmp_path)
    assert owner(tmp_path / "gone") == ""
    assert sqlite_file("sqlite:///relative.sqlite") == Path("relative.sqlite")
