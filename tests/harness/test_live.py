"""Settings that follow their file, and keep the last good one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from harness.config import ConfigRefused, load, parse, read
from harness.live import LiveSettings, versions

pytestmark = pytest.mark.virtual

ON = "[flows.chat]\nenable_langgraph = true\nlanggraph_percent = {percent}\n"


@pytest.fixture
async def live(tmp_path: Path) -> AsyncIterator[LiveSettings]:
    """The settings of a file that is watched."""
    path = tmp_path / "cutover.toml"
    path.write_text(ON.format(percent=10.0))
    watched = LiveSettings(load(path), path)
    watching = asyncio.create_task(watched.watch())
    await asyncio.sleep(1.5)
    yield watched
    watching.cancel()
    with suppress(asyncio.CancelledError):
        await watching


async def write(live: LiveSettings, text: str | bytes, seconds: float = 3.0) -> float:
    """Change the file; return the share of graph when the time has passed."""
    assert live.path is not None
    live.path.write_bytes(text if isinstance(text, bytes) else text.encode())
    await asyncio.sleep(seconds)
    return live.flows["chat"].shares.percent


async def test_a_change_is_taken_when_it_was_read_twice(live: LiveSettings) -> None:
    """A file that is just being written is read in the middle."""
    assert await write(live, ON.format(percent=20.0), seconds=1.0) == 10.0
    assert await write(live, ON.format(percent=30.0), seconds=1.0) == 10.0
    await asyncio.sleep(2.0)
    assert live.flows["chat"].shares.percent == 30.0


async def test_a_change_while_the_server_starts_counts(tmp_path: Path) -> None:
    """Between the reading of the file and the first look at it."""
    path = tmp_path / "cutover.toml"
    path.write_text(ON.format(percent=10.0))
    live = LiveSettings(load(path), path)
    path.write_text(ON.format(percent=20.0))
    watching = asyncio.create_task(live.watch())
    await asyncio.sleep(3.0)
    assert live.flows["chat"].shares.percent == 20.0
    watching.cancel()
    await asyncio.wait({watching})


@pytest.mark.parametrize(
    "bad",
    [
        "[flows.chat",
        "[flows.chat]\nlanggraph_percent = 101.0",
        "[flows.chta]",
        '[flows.chat]\noptions = {wire = "none"}',
        b"\xff",
        b"#" * (1 << 20) + b"#",
    ],
)
async def test_a_bad_edit_keeps_the_last_good_one(
    live: LiveSettings, caplog: pytest.LogCaptureFixture, bad: str | bytes
) -> None:
    """And says so, once, until the file is good again."""
    assert await write(live, bad, seconds=10.0) == 10.0
    assert "cutover.toml: " in live.refused
    assert len([one for one in caplog.messages if one.startswith("refused")]) == 1
    assert await write(live, ON.format(percent=50.0)) == 50.0
    assert not live.refused


async def test_a_file_that_is_away_changes_nothing(live: LiveSettings) -> None:
    """It is said, and the next one counts."""
    assert live.path is not None
    live.path.unlink()
    await asyncio.sleep(5.0)
    assert "No such file" in live.refused
    assert live.flows["chat"].shares.percent == 10.0
    assert await write(live, ON.format(percent=40.0)) == 40.0


async def test_a_file_system_that_hangs_stops_nothing(
    live: LiveSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said meanwhile, once; when it answers, the file counts again."""
    answers = asyncio.Event()

    async def late(path: Path) -> bytes | str:
        await answers.wait()
        return read(path)

    monkeypatch.setattr("harness.live._content", late)
    await asyncio.sleep(20.0)
    assert live.flows["chat"].shares.percent == 10.0
    assert "not read within 5 s" in live.refused
    answers.set()
    assert await write(live, ON.format(percent=40.0)) == 40.0
    assert not live.refused


async def test_what_needs_a_restart_is_said(
    live: LiveSettings, caplog: pytest.LogCaptureFixture
) -> None:
    """Switches and shares are in force at once, the port is not; the salt never moves by itself."""
    edit = ON.format(percent=60.0) + '[server]\nport = 1\n[rollout]\nsalt = "other"\n[flows.ops]\n'
    assert await write(live, edit) == 60.0
    assert "in force after a restart only: server, rollout, the list of flows" in caplog.messages
    assert live.flows["chat"].shares.salt == "cutover"
    assert live.flows.keys() == {"chat"}


def test_a_configuration_is_a_regular_file(tmp_path: Path) -> None:
    """A folder, a pipe or a book is refused, with its name."""
    with pytest.raises(ConfigRefused, match="not a regular file"):
        read(tmp_path)
    with pytest.raises(ConfigRefused, match=r"none\.toml: No such file"):
        load(tmp_path / "none.toml")


FILE: dict[str, Any] = {
    "flows": {"chat": {"langgraph_percent": 5.0}, "ops": {}},
    "models": {"m": {"base_url": "http://localhost/v1", "key": "sk-one"}},
    "stacks": {"legacy": {"url": "http://localhost:1"}, "graph": {"url": "http://localhost:2"}},
}
SERVICES = FILE["stacks"]


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        ({"flows": {"chat": {"langgraph_percent": 6.0}, "ops": {}}}, True),
        ({"rollout": {"salt": "new"}}, True),
        ({"timezone": "Asia/Shanghai"}, True),
        ({"models": {"m": {"base_url": "http://localhost/v2", "key": "sk-one"}}}, True),
        ({"models": {"m": {"base_url": "http://localhost/v1", "key": "sk-two"}}}, False),
        ({"stacks": {**SERVICES, "graph": {"url": "http://localhost:3"}}}, True),
        ({"stacks": {**SERVICES, "graph": {"app": "shop:app"}}}, True),
        ({"providers": {"openai": {"base_url": "http://localhost/v2"}}}, True),
        (
            {"stacks": {one: table | {"headers": {"x": "y"}} for one, table in SERVICES.items()}},
            False,
        ),
        ({"flows": {"chat": {"langgraph_percent": 5.0}, "ops": {"enable_langgraph": True}}}, False),
        ({"rollout": {"qa_key": "secret"}}, False),
        ({"server": {"port": 1}}, False),
    ],
)
def test_settings_by_which_a_flow_is_served_alike_have_one_digest(
    change: dict[str, Any], *, differs: bool
) -> None:
    """Another flow's settings, secrets and ports do not count."""
    before, after = versions(parse(FILE), "chat"), versions(parse(FILE | change), "chat")
    assert (before["config"] != after["config"]) == differs
    assert before["code"] == after["code"]
