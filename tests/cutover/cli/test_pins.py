"""`cutover pins`: counts and releases pins in their store, on record, and reports what follows."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from effects.stores import Pin, PinCount, SqlPins
from tests.support.commands import run_on_one_line

FLOW = "[flows.chat]\nenable_langgraph = true\nlanggraph_percent = {}\nroute_key = 'session_id'\n"
TOKENS = "CUTOVER_TEST_TOKENS"


def written(
    folder: Path, percent: float = 100, pins: str = "", more: str = "", flow: str = ""
) -> Path:
    """Write a configuration whose pins are in a file, or where `pins` names."""
    path = folder / "cutover.toml"
    admin = f'[admin]\naudit_path = "{folder}/audit.jsonl"\n{more}'
    stores = f'[stores]\npins = "{pins or f"sqlite:///{folder}/pins.sqlite"}"\n'
    path.write_text(FLOW.format(percent) + flow + admin + stores, "utf-8")
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a configuration with three conversations on legacy and one on graph."""

    async def pin() -> None:
        async with SqlPins.open(tmp_path / "pins.sqlite") as store:
            for number in range(4):
                pin = Pin("legacy" if number else "graph", "v", 1)
                await store.hold("chat", f"c{number}", pin, 1e9)

    asyncio.run(pin())
    return written(tmp_path)


def counted(folder: Path) -> dict[str, PinCount]:
    """Count what is in the file."""

    async def count() -> dict[str, PinCount]:
        async with SqlPins.open(folder / "pins.sqlite") as store:
            return dict(await store.count())

    return asyncio.run(count())


def test_pins_are_listed_by_flow_and_stack(path: Path) -> None:
    """Beside the share that is configured."""
    status, said = run_on_one_line("pins", "list", "--config", path)
    assert (status, said) == (0, "flow legacy graph configured chat 3 1 100 % on graph")
    status, said = run_on_one_line("pins", "list", "--json", "--config", path)
    assert json.loads(said) == {"flow": "chat", "percent": 100.0, "legacy": 3, "graph": 1}


def test_a_release_reports_what_it_moves_and_is_on_record(path: Path, tmp_path: Path) -> None:
    """All of a flow; the second time there is nothing to release."""
    status, said = run_on_one_line("pins", "release", "chat", "--config", path)
    assert status == 0
    assert said == (
        "chat: released 3 conversations from legacy and 1 from graph; by the configured 100 % on "
        "graph 3 of them change stacks with their next turn"
    )
    assert counted(tmp_path) == {}
    (line,) = (tmp_path / "audit.jsonl").read_text("utf-8").splitlines()
    change = json.loads(line)
    assert change["who"].endswith("(command line)")
    assert (change["what"], change["flow"]) == ("pins released", "chat")
    assert (change["before"], change["after"]) == (
        {"graph": 1, "legacy": 3},
        {"graph": 0, "legacy": 0},
    )
    status, said = run_on_one_line("pins", "release", "chat", "--config", path)
    assert (status, said) == (0, "chat: no conversation was pinned")


def test_the_conversations_of_one_stack_are_released(path: Path, tmp_path: Path) -> None:
    """Those of the other one stay."""
    written(tmp_path, percent=50)
    status, said = run_on_one_line("pins", "release", "chat", "--stack=legacy", "--config", path)
    assert status == 0
    assert "by the configured 50 % on graph about 2 of them change stacks" in said
    assert counted(tmp_path) == {"chat": PinCount(graph=1)}


def test_a_release_reports_how_many_lose_their_history(path: Path, tmp_path: Path) -> None:
    """Where each stack stores its own, those that change stacks."""
    services = "[stacks]\nlegacy = 'http://127.0.0.1:1/'\ngraph = 'http://127.0.0.1:2/'\n"
    written(tmp_path, percent=0, flow=f'history = "own"\n{services}')
    status, said = run_on_one_line("pins", "release", "chat", "--config", path)
    assert status == 0
    assert said.endswith(
        "0 % on graph 1 of them change stacks with their next turn, and up to 1 lose their "
        "history: each stack stores its own"
    )


def test_where_nothing_is_pinned_no_file_is_made(tmp_path: Path) -> None:
    """Reading changes nothing; there may be no router yet."""
    status, said = run_on_one_line("pins", "list", "--config", written(tmp_path))
    assert (status, said) == (0, "flow legacy graph configured chat 0 0 100 % on graph")
    assert not (tmp_path / "pins.sqlite").exists()


def test_an_unknown_flow_is_refused(path: Path, tmp_path: Path) -> None:
    """With the nearest one; nothing is released."""
    status, said = run_on_one_line("pins", "release", "chta", "--config", path)
    assert status == 2
    assert "did you mean 'chat'?" in said
    assert counted(tmp_path) == {"chat": PinCount(3, 1)}


def test_pins_in_the_memory_of_a_router_need_its_operations_api(
    tmp_path: Path, unused_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the setting, and then the address that does not answer."""
    path = written(tmp_path, pins="process")
    status, said = run_on_one_line("pins", "release", "chat", "--config", path)
    assert status == 2
    assert "[admin] token_env names no token" in said
    written(tmp_path, pins="process", more=f'token_env = "{TOKENS}"\n')
    monkeypatch.setenv(TOKENS, "ann:" + "a" * 20)
    router = f"http://127.0.0.1:{unused_port}"
    status, said = run_on_one_line("pins", "list", "--config", path, "--router", router)
    assert status == 2
    assert f"no router answers at {router}" in said
