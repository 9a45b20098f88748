"""Prompts of a folder on a real deployment: served, shadowed, and replayed as they are now."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.e2e.session import say, setup, typed
from tests.support.deployment import deployed

pytestmark = [pytest.mark.sockets, pytest.mark.slow]


def edit(folder: Path, words: str) -> None:
    """Write the session's prompt for both stacks."""
    (folder / "session_system.j2").write_text(f"{words} {{{{ memories }}}}", "utf-8")
    (folder / "session_system.md").write_text(f"{words} {{memories}}", "utf-8")


@pytest.mark.parametrize("percent", [0, 100])
async def test_prompts_of_a_folder_are_served_shadowed_and_replayed(
    tmp_path: Path, percent: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both stacks ask with them; a replay with others asks otherwise."""
    monkeypatch.chdir(tmp_path)
    prompts = tmp_path / "prompts"
    prompts.mkdir()
    edit(prompts, "BE KIND")
    own = setup(tmp_path, percent, shadow=100)
    section = own.more.replace("[flows.session]", f'[flows.session]\nprompts = "{prompts}"')
    async with deployed(tmp_path, replace(own, more=section)) as place:
        await say(place.session, place.url, "Hello")
        runs = await place.lines()
        assert set(place.books()) == {"compared(equal)"}
        (tape,) = (run.tape for run in runs if run.tape)
        (call,) = (entry for entry in tape if entry.op == "stream")
        assert b"BE KIND" in bytes(call.args)
        assert len({run.code for run in runs}) == 2
        assert place.watched.path == tmp_path / "cutover.toml"

    async def replayed(out: str, *more: str) -> set[int]:
        """Replay on both stacks; returns the exit statuses."""
        command = ("replay", str(tmp_path / "captures"), "--processes", "0", "--no-report", *more)
        return {
            await typed(*command, "--stack", stack, "-o", str(tmp_path / out / stack))
            for stack in ("legacy", "graph")
        }

    assert await replayed("same") == {0}
    (tmp_path / "empty.toml").write_text("", "utf-8")
    assert await replayed("built-in", "--config", str(tmp_path / "empty.toml")) == {1}
    edit(prompts, "BE BRIEF")
    assert await replayed("other") == {1}
