"""The worker `system`: disks, memory, processes, and files beneath configured folders."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import psutil

from contract.workers import BadWorkerArguments, WorkerResult
from effects.workers.action import Action, Arguments, ReportLine
from effects.workers.confinement import (
    Parts,
    delete_file,
    delete_matching,
    files_beneath,
    parts_beneath,
)
from effects.workers.progress import one_line
from effects.workers.threads import Stopped, WorkerThreads

Row: TypeAlias = dict[str, Any]
"""An item of a result's data."""

SAMPLE_SECONDS: Final = 0.5
"""Over which the processor time of processes is measured."""
_MOST_NAMED: Final = 100
_TOLD_EVERY: Final = 20_000
_UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB")
_STEP: Final = 1000


class SystemWorker:
    """Shows the machine where that is `shown`, finds large files and deletes temporary ones.

    Large files are looked for beneath `root`, files are deleted beneath `temporary_root` alone;
    without a folder that action is not offered. What may block runs in `threads`.
    """

    def __init__(
        self,
        threads: WorkerThreads,
        *,
        shown: bool = False,
        root: Path | None = None,
        temporary_root: Path | None = None,
    ) -> None:
        self._threads = threads
        self._shown = shown
        self._root = root
        self._temporary_root = temporary_root

    def actions(self) -> Mapping[tuple[str, str], Action]:
        """Return the actions that are configured."""
        offered = dict[str, Action]()
        if self._shown:
            offered = {"disk": self.disk, "memory": self.memory, "processes": self.processes}
        if self._root is not None:
            offered["large_files"] = partial(self.large_files, self._root)
        if self._temporary_root is not None:
            offered["delete_temporary"] = partial(self.delete_temporary, self._temporary_root)
        return {("system", name): action for name, action in offered.items()}

    async def disk(self, arguments: Arguments, report: ReportLine) -> WorkerResult:
        """Report the space of each disk, the fullest first."""
        disks = await self._threads.run(_disks)
        lines = [
            f"{one['path']}: {one['percent']:g} % of {size(one['total'])} used,"
            f" {size(one['free'])} free"
            for one in disks
        ]
        return WorkerResult(ok=True, message="; ".join(lines), data={"disks": disks})

    async def memory(self, arguments: Arguments, report: ReportLine) -> WorkerResult:
        """Report memory and swap."""
        memory = await self._threads.run(psutil.virtual_memory)
        swap = await self._threads.run(psutil.swap_memory)
        data = {
            "total": memory.total,
            "available": memory.available,
            "percent": memory.percent,
            "swap_total": swap.total,
            "swap_used": swap.used,
        }
        message = (
            f"{memory.percent:g} % of {size(memory.total)} used, "
            f"{size(memory.available)} available; swap: {size(swap.used)} of {size(swap.total)}"
        )
        return WorkerResult(ok=True, message=message, data=data)

    async def processes(self, arguments: Arguments, report: ReportLine) -> WorkerResult:
        """Report the processes that take most; their command lines, which may hold secrets, not."""
        by = str(arguments["by"])
        if by not in {"memory", "cpu"}:
            raise BadWorkerArguments(argument="by", reason="allowed: 'memory', 'cpu'")
        processes = await self._threads.run(_first_sample)
        if by == "cpu":
            await asyncio.sleep(SAMPLE_SECONDS)
        rows = await self._threads.run(_usage, processes)
        rows.sort(key=lambda row: (-row[by], row["pid"]))
        found = _numbered(rows[: _count(arguments)])
        lines = [
            f"{one['number']}. {one_line(one['name'])} (pid {one['pid']}):"
            f" {size(one['memory'])}, {one['cpu']:g} % of a processor"
            for one in found
        ]
        return WorkerResult(ok=True, message="\n".join(lines), data={"processes": found})

    async def large_files(
        self, root: Path, arguments: Arguments, report: ReportLine
    ) -> WorkerResult:
        """Find the largest files beneath a folder of the root, numbered from 1."""
        path, count = str(arguments["path"]), _count(arguments)

        def search(stopped: Stopped) -> list[tuple[int, str]]:
            return heapq.nsmallest(count, entries(parts_beneath(root, path), stopped))

        def entries(parts: Parts, stopped: Stopped) -> Iterator[tuple[int, str]]:
            for seen, found in enumerate(files_beneath(root, parts, stopped), start=1):
                if seen % _TOLD_EVERY == 0:
                    report(f"{seen} files searched")
                yield -found.state.st_size, str(root.joinpath(*parts, *found.parts))

        largest = await self._threads.stoppable(search)
        files = _numbered({"path": name, "bytes": -less} for less, name in largest)
        lines = [
            f"{one['number']}. {one_line(one['path'])} ({size(one['bytes'])})" for one in files
        ]
        message = "\n".join(lines) or "there are no files"
        return WorkerResult(ok=True, message=message, data={"files": files})

    async def delete_temporary(
        self, root: Path, arguments: Arguments, report: ReportLine
    ) -> WorkerResult:
        """Delete one file, or the files whose names match, beneath the temporary root."""
        path, pattern = str(arguments["path"]), str(arguments["pattern"])
        if bool(path) == bool(pattern):
            raise BadWorkerArguments(argument="path", reason="either it or 'pattern' is due")
        if "/" in pattern:
            raise BadWorkerArguments(argument="pattern", reason="names of files hold no '/'")

        def delete(stopped: Stopped) -> tuple[int, int, list[Row]]:
            found: Iterable[tuple[Parts, int]] = delete_matching(root, pattern, stopped)
            if path:
                parts = parts_beneath(root, path)
                found = [(parts, delete_file(root, parts))]
            count, freed, files = 0, 0, list[Row]()
            for parts, bytes_ in found:
                name = str(root.joinpath(*parts))
                report(f"deleted {name}")
                count, freed = count + 1, freed + bytes_
                if len(files) < _MOST_NAMED:
                    files.append({"path": name, "bytes": bytes_})
            return count, freed, _numbered(files)

        count, freed, files = await self._threads.stoppable(delete)
        what = one_line(files[0]["path"]) if path else f"{count} files"
        data = {"deleted": count, "bytes": freed, "files": files}
        return WorkerResult(ok=True, message=f"deleted {what}, {size(freed)}", data=data)


def size(count: float) -> str:
    """Write a number of bytes with a decimal unit: 1.5 GB."""
    unit = 0
    while count >= _STEP and unit < len(_UNITS) - 1:
        count, unit = count / _STEP, unit + 1
    return f"{count:.1f} {_UNITS[unit]}" if unit else f"{count:g} B"


def _count(arguments: Arguments) -> int:
    return int(arguments["count"])


def _numbered(rows: Iterable[Row]) -> list[Row]:
    """Number rows from 1, for "the first one"."""
    return [{"number": number, **row} for number, row in enumerate(rows, start=1)]


def _disks() -> list[Row]:
    found: dict[str, Row] = {}
    partitions = [(one.device, one.mountpoint) for one in psutil.disk_partitions()]
    if "/" not in dict(partitions).values():  # in a container it is no device
        partitions.append(("/", "/"))
    for device, path in partitions:
        with suppress(OSError):  # a disk that is gone, or not ours to see
            usage = psutil.disk_usage(path)
            row = {"path": path, **usage._asdict()}
            found.setdefault(device, row)
    return _numbered(sorted(found.values(), key=lambda row: (-row["percent"], row["path"])))


def _first_sample() -> list[psutil.Process]:
    processes = []
    for one in psutil.process_iter():
        with suppress(psutil.Error):
            one.cpu_percent()
            processes.append(one)
    return processes


def _usage(processes: list[psutil.Process]) -> list[Row]:
    rows: list[Row] = []
    for one in processes:
        with suppress(psutil.Error), one.oneshot():
            rows.append(
                {
                    "pid": one.pid,
                    "name": one.name(),
                    "user": one.username(),
                    "memory": one.memory_info().rss,
                    "cpu": one.cpu_percent(),
                }
            )
    return rows
