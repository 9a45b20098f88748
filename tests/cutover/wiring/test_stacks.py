"""Loading stacks: from where the configuration says, or with a word about what is wrong."""

from __future__ import annotations

import logging
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from types import ModuleType

import pytest

import legacy
from cutover.wiring.stacks import StackNotLoaded, fingerprint, load_stack, open_stacks
from router.config.schema import StackSettings
from router.serving.stack import LocalStack


def test_a_stack_is_found_by_module_and_name() -> None:
    """`FLOWS` is what it is called unless said otherwise."""
    for where in ("legacy", "legacy:FLOWS"):
        assert load_stack("legacy", where).flows == legacy.FLOWS


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("nowhere:FLOWS", "No module named 'nowhere'"),
        ("legacy:FLOW", "no attribute 'FLOW'"),
        ("os:environ", "no mapping from the names of flows to flows"),
        ("os:sep", "no mapping from the names of flows to flows"),
    ],
)
def test_what_is_no_stack_is_refused(where: str, why: str) -> None:
    """With its name, its place and the reason: at the start, not at the first request."""
    with pytest.raises(StackNotLoaded) as refused:
        load_stack("graph", where)
    assert str(refused.value).startswith(f"stack 'graph' cannot be loaded from {where!r}: ")
    assert why in str(refused.value)


def test_prompts_of_a_folder_are_part_of_the_fingerprint(tmp_path: Path) -> None:
    """Those of the flow; another file in the folder, and no folder, change nothing."""
    bare, folders = fingerprint("legacy"), {"chat": tmp_path}
    assert fingerprint("legacy", folders) == bare
    (tmp_path / "notes.md").write_text("x", "utf-8")
    assert fingerprint("legacy", folders) == bare
    (tmp_path / "chat_system.j2").write_text("x", "utf-8")
    changed = load_stack("legacy", "legacy:FLOWS", folders)
    assert changed.fingerprint == fingerprint("legacy", folders) != bare
    assert changed.flows["session"] is legacy.FLOWS["session"]
    assert changed.flows["chat"] is not legacy.FLOWS["chat"]
    (tmp_path / "chat_system.j2").unlink()
    (tmp_path / "chat_system.chat").mkdir()
    (tmp_path / "chat_system.chat" / "1.system.j2").write_text("x", "utf-8")
    assert fingerprint("legacy", folders) not in {bare, changed.fingerprint}


@pytest.mark.parametrize("checkpoints", ["", "memory://"])
async def test_a_bad_prompt_keeps_a_stack_from_loading(tmp_path: Path, checkpoints: str) -> None:
    """Whether it stores threads or not."""
    (tmp_path / "session_system.md").write_text("{", "utf-8")
    async with AsyncExitStack() as opened:
        with pytest.raises(StackNotLoaded, match=r"session_system\.md"):
            await open_stacks(StackSettings(), opened, checkpoints, {"session": tmp_path})


@pytest.mark.parametrize("stack", ["legacy:FLOWS", "graph_impl:FLOWS"])
def test_a_folder_of_prompts_that_does_not_exist_is_refused(tmp_path: Path, stack: str) -> None:
    """It is misspelt: every prompt would be the built-in one."""
    with pytest.raises(StackNotLoaded, match=r"flows\.pipeline\.prompts: no folder '.*/promts'"):
        load_stack("legacy", stack, {"pipeline": tmp_path / "promts"})


async def test_every_flow_reads_its_own_folder(tmp_path: Path) -> None:
    """Also where the stack stores threads; a flow without a folder is the built-in one."""
    async with AsyncExitStack() as opened:
        folders = {"session": tmp_path, "chat": tmp_path}
        stacks = await open_stacks(StackSettings(), opened, "memory://", folders)
        plain = await open_stacks(StackSettings(), opened)
    for name, stack in stacks.items():
        other = plain[name]
        assert isinstance(stack, LocalStack)
        assert isinstance(other, LocalStack)
        same = {flow: stack.flows[flow] is other.flows[flow] for flow in stack.flows}
        builtin = dict.fromkeys(("companion", "ops", "pipeline"), True)
        assert same == {"chat": False, "session": False, **builtin}


def test_a_stack_without_the_hook_reads_no_prompts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A team's own may have prompts elsewhere: the log says so."""
    module = ModuleType("their_stack")
    vars(module)["FLOWS"] = dict(legacy.FLOWS)
    module.__file__ = str(tmp_path / "their_stack.py")
    Path(module.__file__).write_text("", "utf-8")
    monkeypatch.setitem(sys.modules, "their_stack", module)
    with caplog.at_level(logging.WARNING):
        stack = load_stack("legacy", "their_stack:FLOWS", {"chat": tmp_path})
    assert stack.flows == legacy.FLOWS
    assert "no with_prompts" in caplog.text
