"""The worker `system`, on this machine and on folders of its own."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from effects.workers import WorkerRegistry
from effects.workers.system import SystemWorker, size
from effects.workers.threads import WorkerThreads
from tests.support.worker_calls import instruct


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a folder with files of 1 to 5 bytes, a link out of it, and what is outside."""
    root = tmp_path / "root"
    (root / "logs").mkdir(parents=True)
    (root / "tmp").mkdir()
    for number, name in enumerate(("a.log", "logs/b.log", "tmp/c.log", "logs/d", "tmp/e.log"), 1):
        (root / name).write_bytes(b"x" * number)
    (tmp_path / "outside.log").write_bytes(b"x" * 100)
    (root / "tmp" / "link.log").symlink_to(tmp_path / "outside.log")
    return root


def names(folder: Path) -> list[str]:
    """Return the names of all that a folder holds."""
    return sorted(one.name for one in folder.rglob("*"))


@pytest.fixture
def workers(root: Path) -> Iterator[WorkerRegistry]:
    """Return the worker with the folder, of which `tmp` is the temporary one."""
    threads = WorkerThreads()
    worker = SystemWorker(threads, shown=True, root=root, temporary_root=root / "tmp")
    yield WorkerRegistry(worker.actions())
    threads.close()


async def test_disks_are_this_machine_s(workers: WorkerRegistry) -> None:
    """The fullest first; each with its numbers."""
    _, result = await instruct(workers, "system.disk")
    disks = result.data["disks"]
    (top,) = [disk for disk in disks if disk["path"] == "/"]
    assert top["total"] == psutil.disk_usage("/").total
    assert [disk["number"] for disk in disks] == list(range(1, len(disks) + 1))
    assert all(one["percent"] >= other["percent"] for one, other in pairwise(disks))
    assert result.ok
    assert "/: " in result.message


async def test_memory_is_this_machine_s(workers: WorkerRegistry) -> None:
    """In bytes, and as a share."""
    _, result = await instruct(workers, "system.memory")
    assert result.data["total"] == psutil.virtual_memory().total
    assert 0 < result.data["percent"] < 100
    assert result.message.startswith(f"{result.data['percent']:g} % of ")


@pytest.mark.slow
@pytest.mark.parametrize("by", ["memory", "cpu"])
async def test_processes_are_sorted_and_bounded(workers: WorkerRegistry, by: str) -> None:
    """Largest first, at most as many as asked for; what they were started with is not shown."""
    _, result = await instruct(workers, "system.processes", by=by, count=3)
    found = result.data["processes"]
    assert [one["number"] for one in found] == [1, 2, 3]
    assert all(one[by] >= other[by] for one, other in pairwise(found))
    assert set(found[0]) == {"number", "pid", "name", "user", "memory", "cpu"}
    _, refused = await instruct(workers, "system.processes", by="$(id)")
    assert (refused.code, "'by'" in refused.message) == ("bad_arguments", True)


async def test_large_files_are_numbered(workers: WorkerRegistry, root: Path) -> None:
    """Beneath a folder, largest first; a link is neither followed nor counted."""
    _, result = await instruct(workers, "system.large_files", count=2)
    assert result.data == {
        "files": [
            {"number": 1, "path": str(root / "tmp/e.log"), "bytes": 5},
            {"number": 2, "path": str(root / "logs/d"), "bytes": 4},
        ]
    }
    assert result.message == f"1. {root / 'tmp/e.log'} (5 B)\n2. {root / 'logs/d'} (4 B)"
    for path in ("logs", f"{root}/logs"):
        _, result = await instruct(workers, "system.large_files", path=path)
        assert [Path(one["path"]).name for one in result.data["files"]] == ["d", "b.log"]


async def test_the_first_one_can_be_deleted_by_its_path(
    workers: WorkerRegistry, root: Path
) -> None:
    """As it is named by `large_files`, if it is a temporary one; any other is refused."""
    _, found = await instruct(workers, "system.large_files")
    first, second, *_ = found.data["files"]
    _, result = await instruct(workers, "system.delete_temporary", path=first["path"])
    assert result.ok
    assert result.message == f"deleted {first['path']}, 5 B"
    assert result.data["files"] == [first]
    assert not (root / "tmp/e.log").exists()
    _, refused = await instruct(workers, "system.delete_temporary", path=second["path"])
    assert (refused.ok, refused.code) == (False, "outside_root")
    _, gone = await instruct(workers, "system.delete_temporary", path=first["path"])
    assert gone.code == "not_found"


async def test_files_of_a_pattern_are_deleted(workers: WorkerRegistry, root: Path) -> None:
    """In the temporary folder alone; links stay, and what they lead to."""
    lines, result = await instruct(workers, "system.delete_temporary", pattern="*.log")
    assert sorted(lines) == [f"deleted {root / 'tmp' / name}" for name in ("c.log", "e.log")]
    assert (result.data["deleted"], result.data["bytes"]) == (2, 8)
    assert names(root / "tmp") == ["link.log"]
    assert (root / "a.log").exists()
    assert (root.parent / "outside.log").exists()


async def test_a_name_cannot_pretend_to_be_two(workers: WorkerRegistry, root: Path) -> None:
    """Each file has one line, whatever its name holds; its path is told as it is."""
    name = "a (9 GB)\n2. passwd\r\x1b[2K"
    (root / "tmp" / name).write_bytes(b"x" * 9)
    _, found = await instruct(workers, "system.large_files", count=2)
    first, second = found.message.split("\n")
    assert first.startswith("1. ")
    assert second == f"2. {root / 'tmp' / 'e.log'} (5 B)"
    assert found.data["files"][0]["path"] == str(root / "tmp" / name)
    lines, deleted = await instruct(workers, "system.delete_temporary", path=name)
    assert "\n" not in deleted.message + "".join(lines)
    assert not (root / "tmp" / name).exists()


async def test_of_many_deleted_files_some_are_named(workers: WorkerRegistry, root: Path) -> None:
    """And all are counted."""
    for number in range(150):
        (root / "tmp" / f"{number}.tmp").write_bytes(b"xy")
    _, result = await instruct(workers, "system.delete_temporary", pattern="*.tmp")
    assert (result.data["deleted"], result.data["bytes"]) == (150, 300)
    assert len(result.data["files"]) == 100
    assert result.message == "deleted 150 files, 300 B"


@pytest.mark.parametrize(
    ("action", "arguments", "code"),
    [
        ("large_files", {"path": "../"}, "outside_root"),
        ("large_files", {"path": "/"}, "outside_root"),
        ("large_files", {"path": "tmp/link.log"}, "outside_root"),
        ("large_files", {"path": "nowhere; ls"}, "not_found"),
        ("large_files", {"path": "a.log"}, "not_found"),
        ("large_files", {"count": 101}, "bad_arguments"),
        ("delete_temporary", {"path": "../a.log"}, "outside_root"),
        ("delete_temporary", {"path": "link.log"}, "outside_root"),
        ("delete_temporary", {"path": "x" * 300}, "worker_failed"),
        ("delete_temporary", {"path": "a\ud800"}, "bad_arguments"),
        ("delete_temporary", {"pattern": "../*"}, "bad_arguments"),
        ("delete_temporary", {}, "bad_arguments"),
        ("delete_temporary", {"path": "c.log", "pattern": "*"}, "bad_arguments"),
    ],
)
async def test_what_is_not_to_be_is_refused(
    workers: WorkerRegistry, root: Path, action: str, arguments: dict[str, str], code: str
) -> None:
    """And nothing is deleted."""
    _, result = await instruct(workers, f"system.{action}", **arguments)
    assert (result.ok, result.code) == (False, code)
    assert len(names(root)) == 8


async def test_without_folders_no_files_are_touched() -> None:
    """Those actions are not configured; the others are."""
    threads = WorkerThreads()
    workers = WorkerRegistry(SystemWorker(threads, shown=True).actions())
    _, result = await instruct(workers, "system.large_files")
    assert result.code == "not_configured"
    _, result = await instruct(workers, "system.memory")
    assert result.ok
    assert SystemWorker(threads).actions() == {}
    threads.close()


@pytest.mark.parametrize(
    ("count", "written"), [(0, "0 B"), (999, "999 B"), (1_500, "1.5 kB"), (2e15, "2.0 PB")]
)
def test_sizes_have_decimal_units(count: float, written: str) -> None:
    """As disks are sold."""
    assert size(count) == written
