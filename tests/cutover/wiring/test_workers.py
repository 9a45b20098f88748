"""Workers as they are configured."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from contract.errors import EffectFailed
from contract.flows import SPECS
from contract.workers import WORKER_ACTIONS, WorkerCall
from cutover.wiring.tools import open_workers
from router.config.errors import ConfigRefused
from router.config.loader import parse_settings
from router.config.schema import Settings
from tests.support.process_trees import running, tree
from tests.support.worker_calls import instruct

COMMANDS = """
[workers]
root = "{folder}"
temporary_root = "{folder}/tmp"
[workers.deploy]
root = "{folder}/root"
source = "{folder}/source"
build = ["sh", "-c", "printf %s \\"$TOKEN $RELEASE\\" > token"]
check = ["test", "-s", "token"]
env = ["TOKEN"]
"""


def settings(text: str) -> Settings:
    """Read a configuration."""
    return parse_settings(text, "cutover.toml", SPECS)


async def codes(text: str) -> dict[str, str]:
    """Return the code of each action without arguments, where that is all it needs."""
    async with AsyncExitStack() as stack:
        workers = open_workers(settings(text).workers, {}, stack)
        return {
            name: (await instruct(workers, name))[1].code
            for key, action in WORKER_ACTIONS.items()
            if not any(one.required for one in action.arguments)
            for name in [".".join(key)]
        }


async def test_by_default_nothing_is_configured() -> None:
    """Every worker says so."""
    assert set((await codes("")).values()) == {"not_configured"}


async def test_each_part_is_switched_on_by_itself(tmp_path: Path) -> None:
    """What is shown, what is searched, what is deleted."""
    found = await codes("[workers]\nsystem = true")
    assert {name for name, code in found.items() if not code} == {
        "system.disk",
        "system.memory",
        "system.processes",
    }
    found = await codes(f'[workers]\nroot = "{tmp_path}"')
    assert {name for name, code in found.items() if not code} == {"system.large_files"}
    found = await codes(f'[workers]\nengine = "unix://{tmp_path}/none"')
    assert found["container.list"] == "no_engine"


async def test_a_deployment_gets_the_variables_it_names(tmp_path: Path) -> None:
    """And one that is not set is refused when the router starts."""
    (tmp_path / "source").mkdir()
    section = settings(COMMANDS.format(folder=tmp_path)).workers
    async with AsyncExitStack() as stack:
        workers = open_workers(section, {"TOKEN": "t;1", "PATH": "/usr/bin:/bin"}, stack)
        for stage in ("build", "release", "verify"):
            _, result = await instruct(workers, f"deploy.{stage}", release="a")
            assert result.ok, result
        assert (tmp_path / "root" / "current" / "token").read_text() == "t;1 a"
        with pytest.raises(ConfigRefused, match="TOKEN: not set"):
            open_workers(section, {}, stack)


async def test_a_worker_that_hangs_keeps_no_other_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has threads of its own: a release must be able to go back."""
    (tmp_path / "source").mkdir()
    text = COMMANDS.format(folder=tmp_path).replace("[workers]", '[workers]\nhosts = ["*"]')
    loop, asked, over = asyncio.get_running_loop(), asyncio.Semaphore(0), threading.Event()

    def hang(*_: object, **__: object) -> list[object]:
        loop.call_soon_threadsafe(asked.release)
        over.wait()
        return []

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        workers = open_workers(settings(text).workers, {"TOKEN": "t"}, stack)
        for _ in range(20):
            group.create_task(instruct(workers, "network.reach", host="h", port=80))
        try:
            for _ in range(8):  # as many as a worker has threads
                await asked.acquire()
            _, result = await instruct(workers, "deploy.plan")
        finally:
            over.set()
    assert result.ok, result


@pytest.mark.slow
async def test_closing_ends_what_runs(tmp_path: Path) -> None:
    """With all it started; afterwards no instruction is taken."""
    (tmp_path / "source").mkdir()
    text = COMMANDS.format(folder=tmp_path).replace('["sh"', f"{json.dumps(tree())}\n#")
    async with AsyncExitStack() as stack:
        workers = open_workers(settings(text).workers, {"TOKEN": "t"}, stack)
        stream = workers.run("", WorkerCall("deploy", "build", {"release": "a"}))
        line = (await anext(stream)).progress
        assert len(running(line)) == 3
    assert running(line) == []
    with pytest.raises(EffectFailed, match="'worker_unavailable'"):
        await anext(stream)
    await asyncio.sleep(0)


def test_the_deadline_of_workers_is_beyond_their_own_limits() -> None:
    """A worker that is stopped from outside leaves no result; what is set longer stays."""
    assert settings("").writes.operations == {}
    assert settings("[workers]\nsystem = true").writes.operations == {"workers.run": 90.0}
    deploy = '[workers.deploy]\nroot = "a"\nsource = "b"\ncheck = ["true"]\nbuild_seconds = 300'
    assert settings(deploy).writes.operations == {"workers.run": 360.0}
    longer = f'{deploy}\n[limits.operations]\n"workers.run" = 900.0'
    assert settings(longer).writes.operations == {"workers.run": 900.0}


@pytest.mark.parametrize(
    ("section", "key"),
    [
        ('root = "a"\ncheck = ["true"]', "source"),
        ('root = "a"\nsource = "b"', "check"),
        ('root = "a"\nsource = "b"\ncheck = ["true"]\ncheck_url = "http://127.0.0.1:1/"', "check"),
        ('root = "a"\nsource = "a/b"\ncheck = ["true"]', "root"),
        ('root = "a/b/c"\nsource = "a/b"\ncheck = ["true"]', "root"),
        ('check_url = "http://example.org/"', "check_url"),
        ('check_url = "http://127.0.0.1.example.org/"', "check_url"),
    ],
)
def test_a_deployment_that_cannot_work_is_refused(section: str, key: str) -> None:
    """When the file is read, by its key."""
    with pytest.raises(ConfigRefused) as refusal:
        settings(f"[workers.deploy]\n{section}")
    assert refusal.value.key == f"workers.deploy.{key}"


def test_files_are_deleted_neither_of_releases_nor_of_their_source() -> None:
    """A pattern reaches every folder beneath the temporary root."""
    text = """
    [workers]
    temporary_root = "{}"
    [workers.deploy]
    root = "a/releases"
    source = "b/source"
    check = ["true"]
    """
    for folder in ("a", "b", "b/source", "."):
        with pytest.raises(ConfigRefused) as refusal:
            settings(text.format(folder))
        assert refusal.value.key == "workers.temporary_root"
    assert settings(text.format("b/source/tmp")).workers.temporary_root == "b/source/tmp"


def test_a_network_that_is_none_is_refused() -> None:
    """It would never match; patterns of names are no networks."""
    with pytest.raises(ConfigRefused, match=r"must be an address or a network"):
        settings('[workers]\nhosts = ["db.internal", "10.0.0.5/8"]')
    found = settings('[workers]\nhosts = ["*.internal", "10.0.0.0/8", "::1"]').workers.hosts
    assert found == ("*.internal", "10.0.0.0/8", "::1")
