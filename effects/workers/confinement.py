"""Confinement to a folder: paths are walked by descriptors, and no link is followed.

Checked names could be replaced by links before they are used. So a path is opened one component
after the other, each in the folder that was opened before it, with `O_NOFOLLOW`: what is opened
lies beneath the root, whatever is renamed or linked meanwhile.
"""

from __future__ import annotations

import fnmatch
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple, TypeAlias

from effects.workers.action import ActionFailed
from effects.workers.threads import Stopped

MAX_DEPTH: Final = 64
"""Levels of folders that are searched; each holds two descriptors open."""

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

Parts: TypeAlias = tuple[str, ...]


class OutsideRoot(ActionFailed):
    """A path leads out of the folder an action is confined to."""

    def __init__(self, path: str, reason: str) -> None:
        message = f"{path!r} is outside the configured folder: {reason}"
        super().__init__(code="outside_root", message=message)


class NoSuchFile(ActionFailed):
    """There is no such file or folder in the root."""

    def __init__(self, path: str, expected: str = "file") -> None:
        super().__init__(code="not_found", message=f"there is no {expected} {path!r}")


class NotSearched(ActionFailed):
    """A folder lies too deep, or on another file system."""

    def __init__(self, path: str) -> None:
        message = f"{path!r} is deeper than {MAX_DEPTH} folders, or on another file system"
        super().__init__(code="not_searched", message=message)


class FolderEntry(NamedTuple):
    """Something found beneath a root: its path, its state, and the open folder it is in.

    The descriptor is closed when the search goes on.
    """

    folder: int
    parts: Parts
    state: os.stat_result

    @property
    def name(self) -> str:
        """Its name in the folder."""
        return self.parts[-1]


def parts_beneath(root: Path, path: str) -> Parts:
    """Return the components of a path beneath a root; raises `OutsideRoot`.

    A relative path is beneath it, an absolute one where the root begins it. `..` is refused
    wherever it leads: behind a link it would not lead where it seems to.
    """
    pure = PurePosixPath(path)
    if ".." in pure.parts:
        raise OutsideRoot(path, reason="'..' is not allowed")
    if not pure.is_absolute():
        return pure.parts
    for base in dict.fromkeys((str(root), os.path.realpath(root))):
        if pure.is_relative_to(base):
            return pure.relative_to(base).parts
    raise OutsideRoot(path, reason="it begins elsewhere")


@contextmanager
def opened_folder(root: Path, parts: Parts) -> Iterator[int]:
    """Open a folder beneath a root; raises `OutsideRoot` for a link on the way, `NoSuchFile`.

    The root itself may be a link: where it leads is the configuration's affair.
    """
    try:
        folder = os.open(root, _FOLDER)
    except (FileNotFoundError, NotADirectoryError) as failure:
        raise NoSuchFile(str(root), "folder") from failure
    try:
        for depth, name in enumerate(parts, start=1):
            below = _open_below(folder, name, "/".join(parts[:depth]))
            os.close(folder)
            folder = below
        yield folder
    finally:
        os.close(folder)


def _open_below(folder: int, name: str, path: str) -> int:
    try:
        return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
    except FileNotFoundError as failure:
        raise NoSuchFile(path, "folder") from failure
    except OSError as failure:
        if _is_link(folder, name):
            raise OutsideRoot(path, reason="it is a symbolic link") from failure
        if isinstance(failure, NotADirectoryError):
            raise NoSuchFile(path, "folder") from failure
        raise


def _is_link(folder: int, name: str) -> bool:
    """Whether a name in an open folder is a symbolic link."""
    try:
        return stat.S_ISLNK(os.lstat(name, dir_fd=folder).st_mode)
    except OSError:
        return False


def entries_beneath(
    root: Path, parts: Parts, stopped: Stopped, *, strict: bool = False
) -> Iterator[FolderEntry]:
    """Search a folder beneath a root; a folder comes before what it holds.

    Ends early once it is `stopped`. Links are not followed. Folders that cannot be read, lie on
    another file system or deeper than `MAX_DEPTH` are passed over; a `strict` search raises
    `OSError` or `NotSearched`. Raises `OutsideRoot`, `NoSuchFile`.
    """
    with opened_folder(root, parts) as top:
        yield from _Search(os.fstat(top).st_dev, stopped, strict).entries(top, ())


def files_beneath(root: Path, parts: Parts, stopped: Stopped) -> Iterator[FolderEntry]:
    """Search for regular files, as `entries_beneath` does."""
    for found in entries_beneath(root, parts, stopped):
        if stat.S_ISREG(found.state.st_mode):
            yield found


@dataclass(frozen=True, slots=True)
class _Search:
    device: int
    stopped: Stopped
    strict: bool

    def entries(self, folder: int, here: Parts) -> Iterator[FolderEntry]:
        with os.scandir(folder) as found:
            for one in found:
                if self.stopped():
                    return
                parts = (*here, one.name)
                try:
                    state = one.stat(follow_symlinks=False)
                    below = self._opened(folder, parts, state)
                except OSError:
                    if self.strict:
                        raise
                    continue
                try:
                    yield FolderEntry(folder, parts, state)
                    if below is not None:
                        yield from self.entries(below, parts)
                finally:
                    if below is not None:
                        os.close(below)

    def _opened(self, folder: int, parts: Parts, state: os.stat_result) -> int | None:
        """Open a folder that is to be searched; None for anything else."""
        if not stat.S_ISDIR(state.st_mode):
            return None
        if len(parts) <= MAX_DEPTH and state.st_dev == self.device:
            return os.open(parts[-1], _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
        if self.strict:
            raise NotSearched("/".join(parts))
        return None


def delete_file(root: Path, parts: Parts) -> int:
    """Delete one regular file beneath a root; returns its bytes.

    A link is not followed, and not deleted either. Raises `OutsideRoot`, `NoSuchFile`.
    """
    path = "/".join(parts)
    if not parts:
        raise NoSuchFile(path or ".")
    *folders, name = parts
    with opened_folder(root, tuple(folders)) as folder:
        try:
            state = os.lstat(name, dir_fd=folder)
        except FileNotFoundError as failure:
            raise NoSuchFile(path) from failure
        if stat.S_ISLNK(state.st_mode):
            raise OutsideRoot(path, reason="it is a symbolic link")
        if not stat.S_ISREG(state.st_mode):
            raise NoSuchFile(path)
        os.unlink(name, dir_fd=folder)  # which follows no link, should one have come meanwhile
    return state.st_size


def delete_matching(root: Path, pattern: str, stopped: Stopped) -> Iterator[tuple[Parts, int]]:
    """Delete the regular files beneath a root whose names match; yields each with its bytes."""
    for found in files_beneath(root, (), stopped):
        if fnmatch.fnmatchcase(found.name, pattern):
            try:
                os.unlink(found.name, dir_fd=found.folder)
            except FileNotFoundError:
                continue
            yield found.parts, found.state.st_size
