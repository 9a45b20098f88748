"""Workers: real disks, files, sockets, processes, and an engine that speaks Docker's API."""

import asyncio
import gc
import os
import select
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import psutil
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from cutover import Exchange
from effects.workers.actions import ACTIONS
from effects.workers.command import run_command
from effects.workers.registry import Progress, Report, Result, Workers, WorkerSettings, action
from effects.world import World, use
from rules.risk import ACTIONS as RULES
from tests.effects.conftest import taped

PERFORMED: list[str] = []


@pytest.fixture
def database_url() -> str:
    """The database matters to no worker."""
    return "sqlite+aiosqlite://"


@action("test", "work", writes=True)
async def work(how: str = "well") -> AsyncIterator[Report]:
    """Work."""
    PERFORMED.append(how)
    yield Progress("begun")
    if how == "raise":
        message = "the password is hunter2"
        raise ValueError(message)
    if how != "stop":
        yield Result(ok=True, message=how)


@contextmanager
def workers(world: World, actions: Any = ACTIONS, **settings: Any) -> Iterator[Workers]:
    """Put workers into a world."""
    made = Workers(actions, WorkerSettings(**settings))
    with use(replace(world, workers=made)):
        yield made


async def run(made: Workers, what: str, /, **arguments: Any) -> list[Report]:
    """Return all that an instruction yields."""
    worker, name = what.split(".")
    async with aclosing(made.run(worker, name, arguments)) as reports:  # type: ignore[type-var] # a generator
        return [one async for one in reports]


async def result(made: Workers, what: str, /, **arguments: Any) -> Result:
    """Return the result of an instruction, which is its only one and its last report."""
    *progress, last = await run(made, what, **arguments)
    assert all(isinstance(one, Progress) for one in progress)
    assert isinstance(last, Result)
    return last


def test_actions_are_those_of_the_rules() -> None:
    """Prompts and risks name the same actions with the same arguments."""
    made = {(one.worker, one.name, *one.arguments.__struct_fields__) for one in ACTIONS}
    assert made == {(one.worker, one.action, *one.args) for one in RULES}


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("test.work", {"how": 1}, "wrong arguments of test.work: Expected `str`, got `int`"),
        ("test.work", {"other": "x"}, "wrong arguments of test.work: Object contains unknown"),
        ("test.work", {"how": "raise"}, "test.work was cut off; its outcome is unknown"),
        ("test.work", {"how": "stop"}, "test.work was cut off; its outcome is unknown"),
        ("network.reach", {"host": "h", "port": 0}, "wrong arguments of network.reach: Expected"),
        ("container.logs", {"name": "../../x"}, "wrong arguments of container.logs: Expected"),
    ],
)
async def test_what_cannot_be_carried_out_is_a_result(
    name: str, arguments: dict[str, Any], message: str, world: World
) -> None:
    """With our sentence, and nothing of an exception's."""
    with workers(world, (*ACTIONS, work)) as made:
        found = await result(made, name, **arguments)
    assert not found.ok
    assert found.message.startswith(message)
    assert "hunter2" not in found.message


async def test_a_run_that_plays_executes_nothing(world: World) -> None:
    """Progress and result come from the tape, typed."""
    PERFORMED.clear()
    exchange = Exchange()
    with workers(world, [work]) as made:
        for policy in ("live", "play"):
            with taped(exchange, policy):
                assert await run(made, "test.work") == [
                    Progress("begun"),
                    Result(ok=True, message="well"),
                ]
    assert PERFORMED == ["well"]


# system


@pytest.mark.parametrize(
    ("name", "key"), [("system.disk", "disks"), ("system.processes", "processes")]
)
async def test_rows_are_numbered_for_references(name: str, key: str, world: World) -> None:
    """From 1: "the first one"."""
    with workers(world) as made:
        found = await result(made, name)
    rows = found.data[key]
    assert [row["number"] for row in rows] == list(range(1, len(rows) + 1))
    assert rows
    assert not any("cmdline" in row for row in rows)


async def test_memory_says_what_is_used(world: World) -> None:
    """In bytes and percent."""
    with workers(world) as made:
        found = await result(made, "system.memory")
    assert found.data["total"] == psutil.virtual_memory().total
    assert "% of" in found.message


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with files and hostile links, beside files that are not its own."""
    root = tmp_path / "root"
    for name in ("root/a.log", "root/deep/er/b.log", "root/deep/c.txt", "out/d.log", "e.log"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("12345")
    (root / "link.log").symlink_to(tmp_path / "e.log")
    (root / "folder").symlink_to(tmp_path / "out")
    (root / "deep" / "loop").symlink_to(root)
    (root / "deep" / "broken.log").symlink_to("nowhere")
    (root / "folder.log").mkdir()
    os.mkfifo(root / "pipe.log")
    return root


@pytest.mark.parametrize(
    ("pattern", "deleted"),
    [
        ("*.log", ["a.log", "deep/er/b.log"]),
        ("*", ["a.log", "deep/c.txt", "deep/er/b.log"]),
        ("[ab].log", ["a.log", "deep/er/b.log"]),
        *((name, []) for name in ("e.log", "d.log", "folder/d.log", "folder/*", "/", ".", "..")),
        *((f"{kind}.log", []) for kind in ("link", "broken", "folder", "pipe")),
        *((f"{{parent}}/{name}", []) for name in ("e.log", "root/a.log")),
        *((name, []) for name in ("../e.log", "../*", "deep/../../e.log", "a.log\0")),
    ],
)
async def test_only_regular_files_beneath_the_root_are_deleted(
    pattern: str, deleted: list[str], root: Path, world: World
) -> None:
    """Links are neither followed nor deleted, and no pattern leads out."""
    before = {path for path in root.parent.rglob("*") if not path.is_dir()}
    with workers(world, temporary_root=str(root)) as made:
        found = await result(
            made, "system.delete_temporary", pattern=pattern.replace("{parent}", str(root.parent))
        )
    after = {path for path in root.parent.rglob("*") if not path.is_dir()}
    assert found.ok
    assert sorted(row["path"] for row in found.data["files"]) == deleted
    assert before - after == {root / name for name in deleted}
    assert found.data["bytes"] == 5 * len(deleted)
    assert (root.parent / "e.log").read_text() == "12345"


async def test_a_root_may_be_a_link(root: Path, tmp_path: Path, world: World) -> None:
    """Where it leads is the configuration's affair."""
    (tmp_path / "tmp").symlink_to(root)
    with workers(world, temporary_root=str(tmp_path / "tmp")) as made:
        found = await result(made, "system.delete_temporary", pattern="a.log")
    assert found.data["deleted"] == 1


@pytest.mark.parametrize("configured", ["", "{root}/nowhere", "{root}/a.log"])
async def test_without_a_root_nothing_is_deleted(
    configured: str, root: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Above all not in the working directory."""
    monkeypatch.chdir(root)
    with workers(world, temporary_root=configured.replace("{root}", str(root))) as made:
        found = await result(made, "system.delete_temporary")
    assert not found.data.get("deleted")
    assert (root / "a.log").exists()


# network


@pytest.mark.sockets
async def test_a_port_that_listens_is_reachable_and_another_is_not(world: World) -> None:
    """And the reason is said."""
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with workers(world) as made:
        async with server:
            found = await result(made, "network.reach", host="127.0.0.1", port=port)
            assert found.ok
        found = await result(made, "network.reach", host="127.0.0.1", port=port)
    assert (found.ok, found.message) == (
        False,
        f"127.0.0.1:{port} cannot be reached: Connection refused",
    )


@pytest.mark.parametrize(
    ("host", "hosts", "message"),
    [
        ("no-such-host.invalid", ("*",), "cannot be reached: no such host"),
        ("a" * 70 + ".example", ("*",), "no such host"),
        ("127.0.0.1", ("*.example.com",), "is no host that is configured"),
    ],
)
async def test_a_host_that_is_unknown_or_not_allowed_is_said(
    host: str, hosts: tuple[str, ...], message: str, world: World
) -> None:
    """Without a traceback."""
    with workers(world, hosts=hosts) as made:
        found = await result(made, "network.reach", host=host, port=80)
    assert not found.ok
    assert message in found.message


# container


@asynccontextmanager
async def engine(status: int = 200) -> AsyncIterator[tuple[str, list[str]]]:
    """A container engine on loopback: its address, and the containers it restarted."""
    restarted: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        what = request.path.split("/", 2)[-1]
        if request.path == "/version":
            return web.json_response({"ApiVersion": "1.44"})
        if status != 200:
            return web.json_response({"message": "no"}, status=status)
        if what == "containers/json":
            rows = [
                {"Names": [f"/{name}"], "Image": "img", "State": "running", "Status": "Up 2 hours"}
                for name in ("web", "db")
            ]
            return web.json_response(rows)
        if what == "containers/web/json":
            return web.json_response({"Config": {"Tty": False}})
        if what == "containers/web/logs":
            lines = b"one\ntwo\n"
            return web.Response(body=b"\x01\0\0\0" + len(lines).to_bytes(4) + lines)
        if what == "containers/web/restart":
            restarted.append("web")
            return web.Response(status=204)
        return web.json_response({"message": "no such container"}, status=404)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with TestServer(app) as server:
        yield f"tcp://127.0.0.1:{server.port}", restarted


@pytest.mark.sockets
@pytest.mark.slow
async def test_containers_are_listed_read_and_restarted(world: World) -> None:
    """By name, numbered."""
    async with engine() as (address, restarted):
        with workers(world, docker=address) as made:
            found = await result(made, "container.list")
            assert found.message == "1. db (img): Up 2 hours\n2. web (img): Up 2 hours"
            assert (await result(made, "container.logs", name="web")).message == "one\ntwo\n"
            assert (await result(made, "container.restart", name="web")).ok
            missing = await result(made, "container.restart", name="nothing")
    assert (missing.ok, missing.message) == (False, "there is no such container")
    assert restarted == ["web"]


@pytest.mark.sockets
async def test_a_refusing_engine_is_said(world: World) -> None:
    """With its status."""
    async with engine(status=500) as (address, _):
        with workers(world, docker=address) as made:
            found = await result(made, "container.list")
    assert (found.ok, found.message) == (False, "the container engine refuses with status 500")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    "address", ["tcp://127.0.0.1:1", "unix:///nowhere/docker.sock", "nonsense://x"]
)
async def test_a_missing_engine_is_said(address: str, world: World) -> None:
    """With the address that was asked."""
    with workers(world, docker=address) as made:
        found = await result(made, "container.list")
    assert (found.ok, found.message) == (False, f"no container engine answers at {address}")
    gc.collect()  # docker leaves a socket that did not connect to the collector


# deploy


def python(code: str) -> tuple[str, ...]:
    """Return a command that runs Python code."""
    return (sys.executable, "-I", "-S", "-u", "-c", code)


LINES = "print('one\\n\\x1b[31mtwo\\x1b[0m'); import sys; sys.stderr.write('three')"


@pytest.mark.parametrize(
    ("argv", "lines", "last"),
    [
        (python(LINES), "one two three", (True, "ended with status 0")),
        (python("import sys; print('bad'); sys.exit(3)"), "bad", (False, "ended with status 3")),
        (python("import os; os.kill(os.getpid(), 9)"), "", (False, "ended with status -9")),
        (("/nowhere/deploy",), "", (False, "'/nowhere/deploy' cannot be started in '.'")),
        ((), "", (False, "no deployment is configured")),
    ],
)
async def test_a_deployment_reports_its_lines_and_its_status(
    argv: tuple[str, ...], lines: str, last: tuple[bool, str], world: World
) -> None:
    """Standard error too, without the codes of a terminal."""
    with workers(world, deploy=argv) as made:
        *progress, found = await run(made, "deploy.run")
    assert isinstance(found, Result)
    assert (found.ok, found.message) == last
    assert " ".join(one.message for one in progress) == lines


async def test_many_lines_are_counted_and_the_last_kept() -> None:
    """A program cannot fill the tape; a line without an end cannot fill the memory."""
    code = "print('x' * 500_000); [print(n) for n in range(3000)]"
    reports = [one async for one in run_command(python(code), ".", 30)]
    found = reports[-1]
    assert isinstance(found, Result)
    assert len(reports) == 1_001
    assert (found.data["lines"], found.data["output"][-1]) == (3_001, "2999")
    assert len(reports[0].message) <= 2_000


CHILD = "import subprocess, sys; print(subprocess.Popen(['sleep', '60']).pid, flush=True)"
WAITING = f"{CHILD}; import time; time.sleep(60)"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {WAITING}"


async def gone(pid: int) -> bool:
    """Wait until a process has ended, which was sent SIGKILL."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    ended, _, _ = await asyncio.to_thread(select.select, [process], [], [], 5)
    os.close(process)
    return bool(ended)


async def leave(reports: AsyncIterator[Report]) -> None:
    """Close a generator after its first report."""
    await reports.aclose()  # type: ignore[attr-defined] # it is one


async def cancel(reports: AsyncIterator[Report]) -> None:
    """Cancel a task that waits for the next report."""
    task = asyncio.ensure_future(anext(reports))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


async def await_end(reports: AsyncIterator[Report]) -> None:
    """Wait until the time is over."""
    found = [one async for one in reports]
    assert isinstance(found[-1], Result)
    assert not found[-1].ok
    assert found[-1].message.startswith("stopped after")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "end"), [*product((WAITING, STUBBORN), (leave, cancel, await_end)), (CHILD, leave)]
)
async def test_a_deployment_ends_with_all_it_has_started(
    code: str, end: Callable[[AsyncIterator[Report]], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """When its time is over, when the client leaves, when the task is cancelled."""
    monkeypatch.setattr("effects.workers.command.GRACE_SECONDS", 0.1)
    reports = run_command(python(code), ".", 0.5)
    first = await anext(reports)
    await end(reports)
    assert await gone(int(first.message))


@pytest.mark.slow
async def test_a_child_that_holds_the_output_does_not_hold_the_result() -> None:
    """The program has ended; what is left of its group ends with it."""
    first, last = [one async for one in run_command(python(CHILD), ".", 30)]
    assert isinstance(last, Result)
    assert last.ok
    assert await gone(int(first.message))
