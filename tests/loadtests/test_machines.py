"""A master and its workers, as on several machines: one schedule, one clock, one report."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from benchmarks.load_truth import Stamps, fetch_stamps, write_scripts
from loadtests import machines as module
from loadtests.arrivals import Cancellations, Poisson, offsets
from loadtests.machines import (
    Address,
    AddressRefused,
    AddressTaken,
    Hello,
    Machines,
    MasterUnreachable,
    Secrets,
    WorkerRefused,
    order_of,
    work,
)
from loadtests.plan import Engine, LoadPlan, PlannedRun
from loadtests.processes import child_environment, module_command, own_port
from loadtests.report import LoadReport
from loadtests.requests import Target
from loadtests.rows import SECOND, LoadRow, read_rows
from loadtests.runner import GeneratorFailed, OwnProcesses, run_load
from tests.support.commands import run_command
from tests.support.deployment import until
from tests.support.patience import PATIENCE_S

pytestmark = [pytest.mark.sockets, pytest.mark.slow]

QUICK = "first=0.01 gap=0.01 sends=2"
HANGING = "first=3600"
HERE = {"python": "3"}
RUN = PlannedRun(0, 0, "legacy", 7)


@pytest.fixture(autouse=True)
def _busy_machines_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loadtests.runner.WARM_UP_SECONDS", 0.25)
    monkeypatch.setattr("loadtests.runner.LOCUSTFILE", Path(__file__).with_name("few_users.py"))
    for limit in ("SILENT", "HELLO", "REACH"):
        monkeypatch.setattr(module, limit, PATIENCE_S)


@pytest.fixture
def at() -> Iterator[Address]:
    """Return where a master may listen, and Locust's behind it."""
    with own_port(behind=1) as port:
        yield Address("127.0.0.1", port)


def differing(versions: Mapping[str, str]) -> str:
    """Say what a worker has that is not here."""
    return "" if versions == HERE else f"python {versions['python']}, here 3"


def plan(url: str, folder: Path, engine: Engine, *scripts: str, **more: Any) -> LoadPlan:
    """One stack; an open loop has 40 requests, drawn with the seed of its run."""
    return LoadPlan(
        targets=(Target(stack="legacy", url=url),),
        messages=write_scripts(folder / "messages.jsonl", scripts),
        users=4,
        rate=None if engine == "locust" else 40.0,
        seconds=60.0 if engine == "locust" else 1.0,
        think=0.1,
        pairs=1,
        engine=engine,
        patience=PATIENCE_S,
        workers=2,
        **more,
    )


async def joined(at: Address, secrets: Mapping[str, Secrets] | None = None) -> asyncio.Task[None]:
    """Start a worker and wait until its master has taken it."""
    taken = asyncio.Event()
    task = asyncio.create_task(work(at, HERE, secrets or {}, taken.set))
    waiting = asyncio.create_task(taken.wait())
    await asyncio.wait({task, waiting}, return_when="FIRST_COMPLETED")
    if task.done():
        waiting.cancel()
        await task
    return task


@asynccontextmanager
async def two_workers(
    at: Address, secrets: Mapping[str, Secrets] | None = None
) -> AsyncIterator[tuple[Machines, list[asyncio.Task[None]]]]:
    """Give a master, its port, and two workers, which end with it."""
    async with Machines.at(at, 2, differing) as master:
        workers = [await joined(at, secrets) for _ in range(2)]
        await master.gathered()
        yield master, workers
    for worker in workers:
        with suppress(asyncio.CancelledError):
            await worker


def rows_in(folder: Path) -> list[LoadRow]:
    """Read what was measured, in the order in which it was due."""
    rows = [row for path in folder.glob("rows-*.jsonl") for row in read_rows(path)]
    return sorted(rows, key=lambda row: row.scheduled)


def schedule(rows: list[LoadRow]) -> list[tuple[int, str, int | None]]:
    """Return when each request was due, what it said and when its client was to leave."""
    first = rows[0].scheduled
    return [(row.scheduled - first, row.message_id.rpartition("-")[0], row.leaves) for row in rows]


async def test_workers_send_what_one_process_sends(
    stamped: str, tmp_path: Path, at: Address
) -> None:
    """At the same moments, to the nanosecond: bodies in turn and clients that leave included."""
    scripts = [f"first=0 gap=0 sends={number}" for number in range(1, 6)]
    wanted = plan(stamped, tmp_path, "open", *scripts, cancellations=Cancellations(0.2, 3600.0))
    async with two_workers(at) as (master, _):
        await master.load(wanted, RUN, tmp_path / "two")
    await OwnProcesses().load(msgspec.structs.replace(wanted, workers=1), RUN, tmp_path / "one")
    two, one = rows_in(tmp_path / "two"), rows_in(tmp_path / "one")
    drawn = [int(moment * SECOND) for moment in offsets(Poisson(40.0, RUN.seed), 1.0)]
    assert [due for due, _, _ in schedule(one)] == [moment - drawn[0] for moment in drawn]
    assert [(due, leaves) for due, _, leaves in schedule(two)] == [
        (due, leaves) for due, _, leaves in schedule(one)
    ]
    assert [row.contents for row in two] == [row.contents for row in one]
    tags = Counter(row.message_id.rsplit("-", 2)[1] for row in two)
    assert sorted(tags.values()) == [len(two) // 2, len(two) - len(two) // 2]
    assert {row.ending for row in two} == {"complete"}


async def test_locusts_workers_report_to_one_master(
    stamped: str, tmp_path: Path, at: Address
) -> None:
    """Its own master leads, and its workers' rows are those of the report."""
    async with two_workers(at) as (master, _):
        wanted = plan(stamped, tmp_path, "locust", QUICK)
        report = await run_load(wanted, tmp_path / "out", generators=master)
    rows = list(read_rows(tmp_path / "out" / "rows.jsonl"))
    assert len({row.message_id.split("-")[-2] for row in rows}) == 2
    assert {row.ending for row in rows} <= {"complete", "cancelled"}
    [run] = report.runs
    assert (run.requests, report.workers, report.broken_off) == (len(rows), 2, False)
    written = (tmp_path / "out" / "load.json").read_bytes()
    assert msgspec.json.decode(written, type=LoadReport) == report


async def test_a_run_without_a_worker_that_was_lost_is_void(
    stamped: str, tmp_path: Path, at: Address
) -> None:
    """Its requests are missing, so nothing follows; those that are left share the next run."""
    await fetch_stamps(stamped)
    wanted = plan(stamped, tmp_path, "open", QUICK, HANGING)
    due = len(offsets(Poisson(40.0, PlannedRun(0, 0, "legacy", 0).seed), 1.0))
    async with two_workers(at) as (master, workers):
        running = asyncio.create_task(run_load(wanted, tmp_path / "out", generators=master))
        await some_ended(stamped, due // 3)
        workers[1].cancel()
        report = await running
        [run] = report.runs
        assert "its connection ended): its part of the load is missing" in run.void[0]
        assert (report.basis, report.broken_off) == ("void", False)
        assert run.requests > 0
        again = plan(stamped, tmp_path, "open", QUICK)
        await master.load(again, RUN, tmp_path / "again")
        drawn = offsets(Poisson(40.0, RUN.seed), 1.0)
        assert (len(rows_in(tmp_path / "again")), master.lost) == (len(drawn), [])
        workers[0].cancel()
        await asyncio.wait({workers[0]})
        await until(lambda: master.gone)


async def some_ended(stamped: str, count: int) -> None:
    """Wait until so many streams were sent to their end since stamps were fetched last."""
    seen: dict[str, Stamps] = {}
    async with asyncio.timeout(PATIENCE_S):
        while sum(one.sent[-1][0] == "END" for one in seen.values() if one.sent) < count:
            seen |= await fetch_stamps(stamped)
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("engine", ["open", "locust"])
async def test_a_load_that_is_broken_off_keeps_what_workers_have_seen(
    stamped: str, tmp_path: Path, at: Address, engine: Engine
) -> None:
    """They stop, and send it."""
    await fetch_stamps(stamped)
    wanted = plan(stamped, tmp_path, engine, QUICK)
    wanted = msgspec.structs.replace(wanted, seconds=600.0)
    enough = False

    async def watch() -> None:
        nonlocal enough
        await some_ended(stamped, 8)
        enough = True

    async with two_workers(at) as (master, _):
        watching = asyncio.create_task(watch())
        report = await run_load(
            wanted, tmp_path / "out", broken_off=lambda: enough, generators=master
        )
        await watching
    assert report.broken_off
    assert list(read_rows(tmp_path / "out" / "rows.jsonl"))


async def test_secrets_stay_where_they_are(stamped: str, tmp_path: Path, at: Address) -> None:
    """A worker has its own, of the same names: else it sends nothing."""
    target = Target(stack="legacy", url=stamped, headers=(("x-who", "master"),))
    wanted = msgspec.structs.replace(plan(stamped, tmp_path, "open", QUICK), targets=(target,))
    sent = order_of(wanted, RUN, None)
    assert b"master" not in msgspec.msgpack.encode(sent)
    async with two_workers(at) as (master, _):
        with pytest.raises(GeneratorFailed, match="bear 'x-who' and no QA key"):
            await master.load(wanted, RUN, tmp_path / "none")
    own = {"legacy": Secrets((("x-who", "worker"),))}
    async with two_workers(at, own) as (master, _):
        await master.load(wanted, RUN, tmp_path / "sent")
    assert rows_in(tmp_path / "sent")


async def test_a_generator_that_fails_on_a_worker_ends_the_load(
    stamped: str, tmp_path: Path, at: Address
) -> None:
    """As it does here; it says where, and the last lines it wrote."""
    broken = plan(stamped, tmp_path, "open", QUICK)
    (tmp_path / "messages.jsonl").write_text("no json\n")
    async with two_workers(at) as (master, _):
        with pytest.raises(GeneratorFailed, match=r"on .* at 127\.0\.0\.1:"):
            await master.load(broken, RUN, tmp_path / "rows")


async def test_who_is_not_expected_is_refused(at: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other versions, one worker too many, and what is no worker at all."""
    async with Machines.at(at, 1, differing) as master:
        reader, writer = await asyncio.open_connection(at.host, at.port)
        writer.write(b"GET / HTTP/1.1\r\nhost: here\r\n\r\n")
        assert await reader.read() == b""
        writer.close()
        with pytest.raises(WorkerRefused, match="python 2, here 3"):
            await work(at, {"python": "2"}, {})
        worker = await joined(at)
        await master.gathered()
        with pytest.raises(WorkerRefused, match="its 1 workers are there already"):
            await work(at, HERE, {})
        with pytest.raises(AddressTaken, match=r"cannot wait for workers at 127\.0\.0\.1"):
            await Machines.at(at, 1, differing).__aenter__()
    await worker
    monkeypatch.setattr(module, "REACH", 0.0)
    with pytest.raises(MasterUnreachable, match=r"no master of a load at 127\.0\.0\.1"):
        await work(at, HERE, {})


async def test_a_master_that_falls_silent_is_lost(
    at: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker does not wait for it for ever: a cable is pulled without a word."""
    silent = asyncio.Event()

    async def welcome(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        size = int.from_bytes(await reader.readexactly(4))
        hello = msgspec.msgpack.decode(await reader.readexactly(size), type=Hello)
        assert hello.versions == HERE
        taken = msgspec.msgpack.encode(module.Welcome())
        writer.write(len(taken).to_bytes(4) + taken)
        await silent.wait()
        writer.close()

    async with await asyncio.start_server(welcome, at.host, at.port):
        monkeypatch.setattr(module, "SILENT", 0.05)
        with pytest.raises(MasterUnreachable, match=r"silent for 0\.05 s"):
            await work(at, HERE, {})
        silent.set()


@pytest.mark.parametrize(
    "text", ["", "7557", "host", "host:", ":7557", "host:0", "host:65535", "host:x", "::1:7557"]
)
def test_an_address_is_read_or_refused(text: str) -> None:
    """Its port has another one behind it."""
    with pytest.raises(AddressRefused, match="write HOST:PORT"):
        Address.parse(text, "--master")
    assert Address.parse("[::1]:7557", "--master") == Address("::1", 7557)
    assert str(Address.parse("[::1]:7557", "--worker")) == "[::1]:7557"
    assert str(Address.parse("10.0.0.1:65534", "--worker")) == "10.0.0.1:65534"


async def test_three_commands_make_one_report(stamped: str, tmp_path: Path, at: Address) -> None:
    """A master and two workers, as they are typed; their versions are compared."""
    messages = write_scripts(tmp_path / "messages.jsonl", [QUICK])
    urls = [f"--{stack}-url={stamped}" for stack in ("legacy", "graph")]
    options = ["--engine=open", "--rate=20", "--seconds=1", "--pairs=1", f"--messages={messages}"]
    out = tmp_path / "out"
    commands = [
        [*urls, *options, f"--master={at}", "--workers=2", f"--output={out}"],
        [f"--worker={at}"],
        [f"--worker={at}"],
    ]
    processes = [
        await asyncio.create_subprocess_exec(
            *module_command("cutover", "load", *command),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=sys.stderr,
            env=child_environment(),
        )
        for command in commands
    ]
    try:
        async with asyncio.timeout(2 * PATIENCE_S):
            await asyncio.gather(*(process.wait() for process in processes))
    finally:
        for process in processes:
            if process.returncode is None:
                process.kill()
                await process.wait()
    master, *workers = [process.returncode for process in processes]
    report = msgspec.json.decode((out / "load.json").read_bytes(), type=LoadReport)
    assert (master, workers) == (0 if report.basis == "valid" else 3, [0, 0])
    assert (report.workers, report.broken_off, len(report.runs)) == (2, False, 2)
    assert not any("lost" in why for run in report.runs for why in run.void)


async def test_a_worker_that_is_ended_takes_its_generator_along(
    stamped: str, tmp_path: Path, at: Address
) -> None:
    """Its exit status is that of the signal; its master has lost it."""
    await fetch_stamps(stamped)
    wanted = plan(stamped, tmp_path, "open", QUICK, HANGING)
    async with Machines.at(at, 1, lambda _: "") as master:
        command = module_command("cutover", "load", f"--worker={at}")
        worker = await asyncio.create_subprocess_exec(*command, env=child_environment())
        try:
            await master.gathered()
            loading = asyncio.create_task(master.load(wanted, RUN, tmp_path / "rows"))
            await some_ended(stamped, 1)
            generators = psutil.Process(worker.pid).children(recursive=True)
            worker.terminate()
            assert await worker.wait() == 128 + signal.SIGTERM
        finally:
            if worker.returncode is None:
                worker.kill()
                await worker.wait()
        await loading
        assert len(master.lost) == 1
    assert generators
    await until(lambda: not any(one.is_running() for one in generators))


def test_the_command_refuses_what_makes_no_sense(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit 2 with one sentence."""
    monkeypatch.setattr(module, "REACH", 0.0)
    for options, says in (
        (["--master", "here"], "--master 'here': write HOST:PORT"),
        (["--worker", "127.0.0.1:0"], "--worker '127.0.0.1:0': write HOST:PORT"),
        (["--worker", "127.0.0.1:1", "--master", "127.0.0.1:1"], "are two commands"),
        (["--worker", "127.0.0.1:1"], "no master of a load at 127.0.0.1:1"),
        (["--ui", "graph", "--master", "127.0.0.1:1"], "leave out --master"),
    ):
        status, said = run_command("load", *options)
        assert (status, says in " ".join(said.split())) == (2, True), said
