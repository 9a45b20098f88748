"""The services of compose.yaml, started as processes: they find each other, serve, and stop."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import psutil
import pytest

from deploy import local
from deploy.local import (
    MESSAGES,
    ROUTERS,
    ProgramMissing,
    Topology,
    TopologyFailed,
    VariableMissing,
    interpolate,
)
from tests.support.programs import installed

CONFIG = ("--config", "/etc/cutover/cutover.toml")


@asynccontextmanager
async def topology(folder: Path, dsn: str) -> AsyncIterator[Topology]:
    """Start everything; afterwards no process of it is left."""
    for program, package in (("nginx", "nginx-light"), ("redis-server", "redis-server")):
        installed(program, package)
    async with local.running(folder, dsn) as started:
        yield started
    assert not processes_of(folder)


def processes_of(folder: Path) -> list[str]:
    """Return the command lines of what still runs in a folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if Path(process.cwd()).is_relative_to(folder):
                found.append(" ".join(process.cmdline()))
        except (psutil.Error, OSError):
            continue
    return found


def written_to(pid: int) -> set[Path]:
    """Return the files that a process has open for writing."""
    opened = psutil.Process(pid).open_files()
    return {Path(one.path) for one in opened if one.mode not in {"r", "rb"}}


@pytest.mark.sockets
@pytest.mark.slow
async def test_the_topology_serves_while_its_routers_are_replaced(
    tmp_path: Path, postgres_dsn: str
) -> None:
    """Through the balancer, with captures in the store, equal pairs, and metrics scraped.

    `cutover doctor` objects to nothing, and a rollback of the operator's reaches both routers.
    """
    installed("prometheus", "prometheus")
    async with topology(tmp_path, postgres_dsn) as started:
        for name in ROUTERS:
            service = started.services[name]
            assert service.process is not None
            volumes = {service.root / target.lstrip("/") for _, target in service.mounts}
            for path in written_to(service.process.pid) - {service.log}:
                assert any(path.is_relative_to(volume) for volume in volumes), path
        assert await started.run("operator", "doctor", *CONFIG) == 0
        seen = await local.look(started)
        assert await started.run("operator", "rollback", "chat", *CONFIG) == 0
        async with aiohttp.ClientSession() as session:

            async def rolled_back_everywhere() -> bool:
                urls = [f"{started.url(name, 8080)}/readyz" for name in ROUTERS]
                states = [await local.page(session, url) for url in urls]
                return all(state["stages"]["chat"] == "off" for state in states)

            await local.until(rolled_back_everywhere)
    assert seen.messages > 2 * MESSAGES, "no message was sent while routers were replaced"
    assert (seen.failed, seen.cut, seen.different) == (0, 0, 0)
    assert seen.pairs >= MESSAGES
    assert seen.scraped is not None
    assert seen.scraped >= MESSAGES
    assert seen.rules > 20
    assert seen.good
    log = started.services["shadow-worker"].log.read_text("utf-8")
    (shadows,) = re.findall(r"stopped: (\d+) compared\(equal\)", log)
    assert int(shadows) >= MESSAGES


@pytest.mark.sockets
@pytest.mark.slow
async def test_a_router_with_a_refused_configuration_stops_the_start(
    tmp_path: Path, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last words are reported, and what had started before it is stopped."""
    prepare = Topology.prepare

    def misspelt(self: Topology, variables: dict[str, str]) -> None:
        prepare(self, variables)
        path = self.files / "config/cutover.toml"
        path.write_text(path.read_text("utf-8").replace("drain_seconds", "drain_second"), "utf-8")

    monkeypatch.setattr(Topology, "prepare", misspelt)
    with pytest.raises(ExceptionGroup) as refused:
        async with topology(tmp_path, postgres_dsn):
            pytest.fail("it started")
    for failure in refused.value.exceptions:  # both routers', where they end together
        assert isinstance(failure, TopologyFailed)
        assert re.search(r"router-\d: ended with status 2.*drain_second", str(failure), re.DOTALL)
    assert not processes_of(tmp_path)


async def test_a_missing_program_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With where it comes from."""
    monkeypatch.setattr(local, "PATH", os.fspath(tmp_path))
    with pytest.raises(ProgramMissing, match="nginx, redis-server"):
        async with local.running(tmp_path):
            pytest.fail("it started")


def test_a_required_variable_that_is_missing_is_refused() -> None:
    """As compose refuses it; what may be left out has its default, and a doubled dollar is one."""
    text = "a: ${A:?say a} ${B:-b} $$C ${D}"
    assert interpolate(text, {"A": "1"}) == "a: 1 b $C "
    with pytest.raises(VariableMissing, match="A is not set: say a"):
        interpolate(text, {"A": ""})
