"""The actions of the workers `system`, `network`, `container` and `deploy`."""

from __future__ import annotations

import asyncio
import fnmatch
import os
import stat
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import docker
import docker.errors
import psutil
import requests
from msgspec import Meta

from effects import world
from effects.workers.command import run_command
from effects.workers.registry import Impossible, Progress, Report, Result, WorkerSettings, action

T = TypeVar("T")

ROWS_AT_MOST: Final = 100
"""Rows of a result's data."""
DELETED_AT_MOST: Final = 10_000
"""Files that one instruction deletes."""
PROCESSES: Final = 10
REACH_SECONDS: Final = 5.0
LOG_LINES: Final = 50
ENGINE_SECONDS: Final = 20
LOG_BYTES: Final = 65_536
DEPLOY_LIMIT: Final = 3_600.0
"""Seconds beyond which no `deploy_seconds` reaches."""
_STEP: Final = 1_000

Name = Annotated[str, Meta(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,127}$")]


def settings() -> WorkerSettings:
    """Return what the workers of the open world may touch."""
    return world.current().workers.settings


# system


@action("system", "disk")
async def disk() -> AsyncIterator[Report]:
    """Report the space of each disk, the fullest first."""
    rows = await asyncio.to_thread(_disks)
    lines = [
        f"{row['path']}: {row['percent']:g} % of {_size(row['total'])} used, "
        f"{_size(row['free'])} free"
        for row in rows
    ]
    yield Result(ok=True, message="; ".join(lines), data={"disks": rows})


@action("system", "memory")
async def memory() -> AsyncIterator[Report]:
    """Report memory and swap."""
    ram, swap = psutil.virtual_memory(), psutil.swap_memory()
    message = (
        f"{ram.percent:g} % of {_size(ram.total)} used, {_size(ram.available)} available; "
        f"swap: {_size(swap.used)} of {_size(swap.total)}"
    )
    data = {"total": ram.total, "available": ram.available, "percent": ram.percent}
    yield Result(ok=True, message=message, data=data | {"swap_used": swap.used})


@action("system", "processes")
async def processes() -> AsyncIterator[Report]:
    """Report the processes that take most memory."""
    rows = await asyncio.to_thread(_processes)
    rows = _numbered(sorted(rows, key=lambda row: (-row["memory"], row["pid"]))[:PROCESSES])
    lines = [
        f"{row['number']}. {row['name']} ({row['pid']}): {_size(row['memory'])}" for row in rows
    ]
    yield Result(ok=True, message="\n".join(lines), data={"processes": rows})


@action("system", "delete_temporary", writes=True)
async def delete_temporary(
    pattern: Annotated[str, Meta(min_length=1, max_length=255)] = "*",
) -> AsyncIterator[Report]:
    """Delete the files beneath the configured folder whose names match, such as *.log."""
    root = settings().temporary_root
    if not root or not await asyncio.to_thread(os.path.isdir, root):
        raise Impossible(why="there is no configured folder for temporary files")
    deleted = await asyncio.to_thread(
        lambda: list(islice(_deleted(root, pattern), DELETED_AT_MOST))
    )
    count, freed = len(deleted), sum(size for _, size in deleted)
    if deleted:
        yield Progress(f"{count} deleted, the last {deleted[-1][0]}")
    rows = _numbered([{"path": name, "bytes": size} for name, size in deleted[:ROWS_AT_MOST]])
    data = {"deleted": count, "bytes": freed, "files": rows}
    yield Result(ok=True, message=f"{count} files deleted, {_size(freed)}", data=data)


def _deleted(root: str, pattern: str) -> Iterator[tuple[str, int]]:
    """Delete regular files; yield their paths below the root and their sizes.

    `fwalk` opens each folder within its parent and follows no link, and a file is deleted by its
    open folder: a link that takes the place of a checked name leads nowhere.
    """
    root = os.path.realpath(root)
    for here, folders, names, descriptor in os.fwalk(root):
        folders.sort()
        for name in sorted(fnmatch.filter(names, pattern)):
            with suppress(OSError):  # gone meanwhile, or not ours to delete
                state = os.lstat(name, dir_fd=descriptor)
                if stat.S_ISREG(state.st_mode):
                    os.unlink(name, dir_fd=descriptor)
                    yield str(Path(here, name).relative_to(root)), state.st_size


def _disks() -> list[dict[str, Any]]:
    disks = {one.device: one.mountpoint for one in reversed(psutil.disk_partitions())}
    rows = []
    for path in sorted({*disks.values(), "/"}):
        with suppress(OSError):  # a disk that is gone, or not ours to see
            rows.append({"path": path, **psutil.disk_usage(path)._asdict()})
    return _numbered(sorted(rows, key=lambda row: (-row["percent"], row["path"])))


def _processes() -> list[dict[str, Any]]:
    """Return the processes; never their command lines, which may hold secrets."""
    rows = []
    for one in psutil.process_iter():
        with suppress(psutil.Error), one.oneshot():
            used = one.memory_info().rss
            rows.append(
                {"pid": one.pid, "name": one.name(), "user": one.username(), "memory": used}
            )
    return rows


# network


@action("network", "reach")
async def reach(
    host: Annotated[str, Meta(min_length=1, max_length=253)],
    port: Annotated[int, Meta(ge=1, le=65_535)],
) -> AsyncIterator[Report]:
    """Report whether a TCP connection to a host and port can be made."""
    where = f"{host}:{port}"
    if not any(fnmatch.fnmatchcase(host.lower(), one) for one in settings().hosts):
        raise Impossible(why=f"{host!r} is no host that is configured")
    began = time.perf_counter()
    try:
        async with asyncio.timeout(REACH_SECONDS):
            _, writer = await asyncio.open_connection(host, port)
    except TimeoutError as late:
        raise Impossible(why=f"{where} does not answer within {REACH_SECONDS:g} s") from late
    except (OSError, UnicodeError) as failure:
        number = getattr(failure, "errno", 0)
        reason = os.strerror(number) if (number or 0) > 0 else "no such host"
        raise Impossible(why=f"{where} cannot be reached: {reason}") from failure
    took = (time.perf_counter() - began) * _STEP
    writer.close()
    yield Result(ok=True, message=f"{where} is reachable ({took:.0f} ms)")


# container


@action("container", "list")
async def list_containers() -> AsyncIterator[Report]:
    """List the containers, stopped ones too."""
    found = await _engine(lambda engine: engine.api.containers(all=True))
    rows = [
        {
            "name": str((one.get("Names") or ["?"])[0]).lstrip("/"),
            "image": str(one.get("Image", "")),
            "state": str(one.get("State", "")),
            "status": str(one.get("Status", "")),
        }
        for one in found
    ]
    rows = _numbered(sorted(rows, key=lambda row: row["name"]))
    lines = [f"{row['number']}. {row['name']} ({row['image']}): {row['status']}" for row in rows]
    message = "\n".join(lines) or "there are no containers"
    yield Result(ok=True, message=message, data={"containers": rows})


@action("container", "logs")
async def container_logs(name: Name) -> AsyncIterator[Report]:
    """Return the last lines of a container's log."""
    found = await _engine(lambda engine: engine.api.logs(name, tail=LOG_LINES))
    yield Result(ok=True, message=found[-LOG_BYTES:].decode(errors="replace"))


@action("container", "restart", writes=True)
async def restart_container(name: Name) -> AsyncIterator[Report]:
    """Restart a container."""
    yield Progress(f"restarting {name}")
    await _engine(lambda engine: engine.api.restart(name, timeout=10))
    yield Result(ok=True, message=f"{name} restarted")


async def _engine(work: Callable[[Any], T]) -> T:
    """Return what `work` gets of the container engine; raises `Impossible`."""
    address = settings().docker

    def ask() -> T:
        with closing(
            docker.DockerClient(base_url=address or None, timeout=ENGINE_SECONDS)
        ) as engine:
            return work(engine)

    try:
        return await asyncio.to_thread(ask)
    except docker.errors.NotFound as absent:
        raise Impossible(why="there is no such container") from absent
    except docker.errors.APIError as refused:
        why = f"the container engine refuses with status {refused.status_code}"
        raise Impossible(why=why) from refused
    except (docker.errors.DockerException, requests.RequestException) as away:
        where = address or "its usual address"
        raise Impossible(why=f"no container engine answers at {where}") from away


# deploy


@action("deploy", "run", writes=True, seconds=DEPLOY_LIMIT + 60)
async def deploy() -> AsyncIterator[Report]:
    """Run the configured deployment; its output is the progress."""
    now = settings()
    if not now.deploy:
        raise Impossible(why="no deployment is configured")
    limit = min(now.deploy_seconds, DEPLOY_LIMIT)
    async for report in run_command(now.deploy, now.deploy_folder, limit):
        yield report


ACTIONS: Final = (
    *(disk, memory, processes, delete_temporary, reach),
    *(list_containers, container_logs, restart_container, deploy),
)


def _numbered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"number": number, **row} for number, row in enumerate(rows, start=1)]


def _size(count: float) -> str:
    """Return a number of bytes with a decimal unit: 1.5 GB."""
    units = ["B", "kB", "MB", "GB", "TB", "PB"]
    while count >= _STEP and len(units) > 1:
        count, units = count / _STEP, units[1:]
    return f"{count:.3g} {units[0]}"
