"""Reloading: good edits come into force, bad ones are told, half ones are waited for."""

import asyncio
import dataclasses
import os
from pathlib import Path

import pytest

from contract.flows.chat import CHAT, ChatOptions
from router.config.errors import ConfigRefused
from router.config.schema import Settings
from router.config.watcher import SettingsWatcher

SPECS = {"chat": CHAT}
ON = "[flows.chat]\nenable_langgraph = true\nlanggraph_percent = 10\n"
OFF = "[flows.chat]\nenable_langgraph = false\nlanggraph_percent = 10\n"


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


def test_an_edit_in_place_is_taken_at_the_second_look(path: Path) -> None:
    """The first look at new content waits, in case the writer has not finished."""
    watched = SettingsWatcher(path, SPECS)
    heard: list[Settings] = []
    watched.on_change(heard.append)
    path.write_text(OFF, "utf-8")
    assert [watched.poll_once() for _ in range(3)] == ["settling", "taken", "same"]
    assert not watched.current.flows["chat"].enable_langgraph
    assert heard == [watched.current]


def test_a_file_that_has_lost_its_text_is_refused(path: Path) -> None:
    """As a full disk leaves it; a comment in the file asks for the defaults."""
    watched = SettingsWatcher(path, SPECS)
    path.write_text("\n", "utf-8")
    assert [watched.poll_once() for _ in range(2)] == ["settling", "refused"]
    assert watched.current.flows["chat"].enable_langgraph
    assert "empty; for the defaults put a comment in it" in (watched.fault or "")
    path.write_text("# defaults", "utf-8")
    assert [watched.poll_once() for _ in range(2)] == ["settling", "taken"]
    assert not watched.current.flows["chat"].enable_langgraph


def test_a_replacement_by_rename_is_noticed(path: Path) -> None:
    """Editors and deploy tools put a new file in the old one's place."""
    watched = SettingsWatcher(path, SPECS)
    replace(path, OFF)
    assert [watched.poll_once() for _ in range(2)] == ["settling", "taken"]
    assert not watched.current.flows["chat"].enable_langgraph


def test_time_stamps_and_size_do_not_matter(path: Path) -> None:
    """An edit of equal length within the clock's grain is noticed by content."""
    watched = SettingsWatcher(path, SPECS)
    stat = path.stat()
    path.write_text(ON.replace("10", "20"), "utf-8")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert [watched.poll_once() for _ in range(2)] == ["settling", "taken"]
    assert watched.current.flows["chat"].graph_thousandths == 20_000


def test_a_half_written_file_is_never_in_force(path: Path) -> None:
    """A truncated file is valid TOML that turns everything off; it must not win a poll."""
    watched = SettingsWatcher(path, SPECS)
    path.write_text("", "utf-8")
    assert watched.poll_once() == "settling"
    path.write_text(ON.replace("10", "30"), "utf-8")
    assert watched.poll_once() == "settling"
    assert watched.current.flows["chat"].graph_thousandths == 10_000
    assert watched.poll_once() == "taken"
    assert watched.current.flows["chat"].graph_thousandths == 30_000


def test_after_a_bad_edit_the_last_good_settings_stay(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The fault is kept and logged once; mending the file clears it."""
    watched = SettingsWatcher(path, SPECS)
    before = watched.current
    path.write_text("[flows.chat]\nenable_langgraf = true\n", "utf-8")
    assert [watched.poll_once() for _ in range(3)] == ["settling", "refused", "same"]
    assert watched.current is before
    assert "did you mean 'enable_langgraph'?" in (watched.fault or "")
    assert caplog.text.count("did you mean") == 1
    path.write_text(ON, "utf-8")
    assert [watched.poll_once() for _ in range(2)] == ["settling", "taken"]
    assert watched.fault is None
    assert watched.current is before


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


def test_a_file_that_is_gone_is_a_fault(path: Path) -> None:
    """Nothing falls back to defaults because a file was moved."""
    watched = SettingsWatcher(path, SPECS)
    path.unlink()
    assert [watched.poll_once() for _ in range(2)] == ["settling", "refused"]
    assert "cannot be read" in (watched.fault or "")
    assert watched.current.flows["chat"].enable_langgraph


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
    assert heard == [watched.current]


def test_the_first_reading_refuses(path: Path) -> None:
    """There is no last good configuration to start with."""
    path.write_text("[server]\nport = 'x'", "utf-8")
    with pytest.raises(ConfigRefused, match=r"server\.port"):
        SettingsWatcher(path, SPECS)


@pytest.mark.virtual
def test_a_pipe_is_refused() -> None:
    """As a shell's `<(…)` is: at the second reading it would be empty, and all go to legacy."""
    reading, writing = os.pipe()
    try:
        os.write(writing, ON.encode())
        os.close(writing)
        with pytest.raises(ConfigRefused, match="a pipe cannot be watched"):
            SettingsWatcher(Path(f"/dev/fd/{reading}"), SPECS)
    finally:
        os.close(reading)


def test_a_pipe_in_the_place_of_the_file_holds_nobody_up(path: Path) -> None:
    """Opening it would block the loop until a writer opens it."""
    watched = SettingsWatcher(path, SPECS)
    path.unlink()
    os.mkfifo(path)
    assert [watched.poll_once() for _ in range(2)] == ["settling", "refused"]
    assert "a pipe cannot be watched" in (watched.fault or "")
    assert watched.current.flows["chat"].enable_langgraph


async def test_a_change_is_in_force_within_a_second(path: Path) -> None:
    """Two polls and some slack, on the virtual clock."""
    watched = SettingsWatcher(path, SPECS)
    async with watched.watching():
        replace(path, OFF)
        await asyncio.sleep(0.99)
        assert not watched.current.flows["chat"].enable_langgraph
