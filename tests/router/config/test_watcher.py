"""Reloading: good edits come into force, bad ones are told, half ones are waited for."""

import asyncio
import dataclasses
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from contract.flows.chat import CHAT, ChatOptions
from router.config.errors import ConfigRefused
from router.config.schema import Settings
from router.config.watcher import SettingsWatcher
from tests.router.config.texts import SPECS

ON = "[flows.chat]\nenable_langgraph = true\nlanggraph_percent = 10\n"
OFF = "[flows.chat]\nenable_langgraph = false\nlanggraph_percent = 20\n"
BAD = "[server]\nprot = 1"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a real file that sends a tenth to graph."""
    file = tmp_path / "cutover.toml"
    file.write_text(ON, "utf-8")
    return file


def replace(path: Path, text: str) -> None:
    """Replace a file the atomic way."""
    beside = path.with_suffix(".new")
    beside.write_text(text, "utf-8")
    beside.rename(path)


def pipe(path: Path) -> None:
    """Put a pipe in the place of a file: opening it would block the loop until a writer does."""
    path.unlink()
    os.mkfifo(path)


Edit = str | Callable[[Path], None]


EDITS: dict[str, tuple[list[Edit], str, int, str]] = {
    "in place": ([OFF], "settling taken same", 20, ""),
    "another file": ([partial(replace, text=OFF)], "settling taken same", 20, ""),
    "no text left": (["\n"], "settling refused same", 10, "empty; for the defaults put a comment"),
    "a comment": (["\n", "# defaults"], "settling settling taken same", 0, ""),
    "half written at first": (["", OFF], "settling settling taken same", 20, ""),
    "gone": ([Path.unlink], "settling refused same", 10, "cannot be read"),
    "a pipe": ([pipe], "settling refused same", 10, "a pipe, not a file"),
    "misspelt": ([BAD], "settling refused same", 10, "did you mean 'port'?"),
    "mended": ([BAD, BAD, ON], "settling refused settling taken same", 10, ""),
    "taken back": ([BAD, ON], "settling same same same", 10, ""),
}


@pytest.mark.parametrize(("edits", "seen", "percent", "fault"), EDITS.values(), ids=EDITS)
def test_an_edit_counts_once_two_looks_have_seen_it(
    path: Path,
    edits: list[Edit],
    seen: str,
    percent: int,
    fault: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A look follows each edit, and two the last; what is refused leaves all as it was."""
    watched = SettingsWatcher(path, SPECS)
    heard: list[Settings] = []
    watched.on_change(heard.append)
    looks = []
    for edit in edits:
        path.write_text(edit, "utf-8") if isinstance(edit, str) else edit(path)
        looks.append(watched.poll_once())
    looks += [watched.poll_once() for _ in range(2)]
    assert looks == seen.split()
    assert watched.settings().flows["chat"].langgraph_percent == percent
    assert heard == [watched.settings()] * (percent != 10)
    assert fault in (watched.fault or "") if fault else watched.fault is None
    assert not fault or caplog.text.count(fault) == 1


def test_time_stamps_and_size_do_not_matter(path: Path) -> None:
    """An edit of equal length within the clock's grain is noticed by content."""
    watched = SettingsWatcher(path, SPECS)
    stat = path.stat()
    path.write_text(ON.replace("10", "20"), "utf-8")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert [watched.poll_once() for _ in range(2)] == ["settling", "taken"]
    assert watched.settings().flows["chat"].langgraph_percent == 20


def test_after_a_bad_edit_the_last_good_settings_stay(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The fault is kept and logged once; mending the file clears it."""
    watched = SettingsWatcher(path, SPECS)
    before = watched.settings()
    path.write_text("[flows.chat]\nenable_langgraf = true\n", "utf-8")
    assert [watched.poll_once() for _ in range(3)] == ["settling", "refused", "same"]
    assert watched.settings() is before
    assert "did you mean 'enable_langgraph'?" in (watched.fault or "")
    assert caplog.text.count("did you mean") == 1
    path.write_text(ON, "utf-8")
    assert [watched.poll_once() for _ in range(2)] == ["settling", "taken"]
    assert watched.fault is None
    assert watched.settings() is before


STARTED = """
[stacks]
graph = "http://new:1/"
[tools.mcp.files]
command = ["mcp-files"]
[limits.tools]
build = 300.0
"""
RESTARTS: dict[str, tuple[str, str]] = {
    "nothing": (STARTED, ""),
    "the rollout": (STARTED + OFF, ""),
    "a key of a section that is read once": (
        STARTED + "[captures]\npercent = 1.0",
        "captures.percent",
    ),
    "a key of it that follows the file": (STARTED + "[server]\nmax_body_bytes = 9", ""),
    "a single key": (STARTED + "[limits]\ntotal_bytes = 9", "limits.total_bytes"),
    "a key beside it": (STARTED + "[limits]\nstall_seconds = 9.0", ""),
    "of every flow": (STARTED + '[flows.chat]\nprompts = "p"', "flows.chat.prompts"),
    "an entry of a table": (
        STARTED.replace("[limits.tools]", "[tools.mcp.web]\ncommand = ['w']\n[limits.tools]"),
        "tools.mcp.web",
    ),
    "one within it": (STARTED.replace('"mcp-files"', '"other"'), "tools.mcp.files.command"),
    "one that is gone": (STARTED.replace("build = 300.0", ""), "limits.tools.build"),
    "of another kind": (STARTED.replace("http://new:1/", "own:FLOWS"), "stacks.graph"),
    "several": (
        STARTED + "[server]\nport = 1\n[admin]\nanywhere = true",
        "admin.anywhere, server.port",
    ),
}


@pytest.mark.parametrize(("text", "keys"), RESTARTS.values(), ids=RESTARTS)
def test_changed_keys_that_need_a_restart_are_named(
    path: Path, text: str, keys: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Once in the log, and until they are as they were; the rest of the edit is in force."""
    path.write_text(STARTED, "utf-8")
    watched = SettingsWatcher(path, SPECS)
    told = f"{keys} changed since the start: restart cutover serve" if keys else ""
    for percent in (20, 30):
        path.write_text(f"{text}\n[flows.chat.options]\nyield_interval = 0.{percent}", "utf-8")
        assert [watched.poll_once() for _ in range(2)] == ["settling", "taken"]
        assert watched.restart == told
    assert caplog.text.count("restart") == bool(keys)
    path.write_text(STARTED, "utf-8")
    assert [watched.poll_once() for _ in range(2)] == ["settling", "taken"]
    assert watched.restart == ""


def test_the_log_names_what_an_edit_changes(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With numbers and switches; a text may be a secret."""
    caplog.set_level("INFO")
    path.write_text('[providers.a]\nbase_url = "http://a:1"\n[flows.chat]\nlanggraph_percent = 0.0')
    watched = SettingsWatcher(path, SPECS)
    path.write_text(
        '[providers.a]\nbase_url = "http://b:1"\n'
        "[flows.chat]\nlanggraph_percent = 2.5\nenable_langgraph = true"
    )
    assert [watched.poll_once() for _ in range(2)] == ["settling", "taken"]
    assert caplog.messages[-1].partition(": ")[2] == (
        "flows.chat.enable_langgraph False → True, flows.chat.langgraph_percent 0.000 → 2.500, "
        "providers.a.base_url"
    )


class Fragile(ChatOptions, frozen=True):
    """Options with a bug."""

    def __post_init__(self) -> None:
        """Fail with an unforeseen error."""
        if self.wire == "extended":
            raise KeyError(self.wire)


def test_an_edit_that_breaks_the_reading_itself_does_not_end_the_watch(path: Path) -> None:
    """It is told like any bad edit, and the next one is taken."""
    watched = SettingsWatcher(path, {"chat": dataclasses.replace(CHAT, options=Fragile)})
    path.write_text('[flows.chat.options]\nwire = "extended"\n', "utf-8")
    assert [watched.poll_once() for _ in range(3)] == ["settling", "refused", "same"]
    assert watched.fault == f"{path}: cannot be judged: KeyError"
    path.write_text(OFF, "utf-8")
    assert [watched.poll_once() for _ in range(2)] == ["settling", "taken"]
    assert watched.fault is None


def test_a_listener_that_fails_stops_nobody(path: Path) -> None:
    """The others still hear, and the settings are in force."""
    watched = SettingsWatcher(path, SPECS)
    heard: list[Settings] = []

    def broken(settings: Settings) -> None:
        raise KeyError(settings.version)

    watched.on_change(broken)
    watched.on_change(heard.append)
    replace(path, OFF)
    for _ in range(2):
        watched.poll_once()
    assert heard == [watched.settings()]


def test_the_first_reading_refuses(path: Path) -> None:
    """There is no last good configuration to start with."""
    path.write_text("[server]\nport = 'x'", "utf-8")
    with pytest.raises(ConfigRefused, match=r"server\.port"):
        SettingsWatcher(path, SPECS)


def test_a_pipe_is_refused(path: Path) -> None:
    """At the second reading it would be empty, and all go to legacy."""
    pipe(path)
    with pytest.raises(ConfigRefused, match="a pipe, not a file"):
        SettingsWatcher(path, SPECS)


@pytest.mark.virtual
async def test_a_change_is_in_force_within_a_second(path: Path) -> None:
    """Two polls and some slack, on the virtual clock."""
    watched = SettingsWatcher(path, SPECS)
    async with watched.watching():
        replace(path, OFF)
        await asyncio.sleep(0.99)
        assert not watched.settings().flows["chat"].enable_langgraph
