"""Releases of a folder: what is built, which is live, and whether that has been verified.

    root/current -> releases/NAME     replaced by a rename: readers see the old release or the new
    root/.current.back                the link to go back by: made first, as the disk may fill up
    root/releases/NAME/
    root/deployment.json              the releases that were verified, and the one that is not yet
    root/.building/                   what is being built, or removed

The note that a release is not verified is written before the link is switched, and removed after
its check: a process that is killed in between leaves it, and the next deployment goes back.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Final

import msgspec
import psutil

from contract.workers import BadWorkerArguments
from effects.files import write_whole
from effects.workers.action import ActionFailed, ReportLine
from effects.workers.confinement import FolderEntry, NoSuchFile, OutsideRoot, entries_beneath
from effects.workers.threads import Stopped

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_STATE: Final = "deployment.json"
_LOCK: Final = ".deployment.lock"
_LIVE: Final = "current"
_NEXT: Final = ".current.next"
_BACK: Final = ".current.back"
_RELEASES: Final = "releases"
_BUILDING: Final = ".building"
_COPIED: Final = 1 << 20
_TOLD_EVERY: Final = 1_000
_DIGEST_BYTES: Final = 6
_MODE: Final = 0o777
_NO_FOLLOW: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class UnverifiedRelease(msgspec.Struct, frozen=True):
    """A release that is live and not verified, and the one before ("": none).

    Another process may go back from it once its owner (a process of a host, with the moment it
    started) is gone, or after `until`, in seconds since the Unix epoch.
    """

    release: str
    previous: str
    host: str
    pid: int
    started: float
    until: float

    def abandoned(self, now: float) -> bool:
        """Whether the process that released it is gone, or has had its time."""
        if now >= self.until:
            return True
        if self.host != socket.gethostname():
            return False
        try:
            return psutil.Process(self.pid).create_time() != self.started
        except psutil.Error:
            return True


class DeploymentState(msgspec.Struct, frozen=True):
    """What `deployment.json` holds: the verified releases in the order they went live."""

    verified: tuple[str, ...] = ()
    unverified: UnverifiedRelease | None = None


@dataclass(frozen=True, slots=True)
class SourceTree:
    """What a source folder holds: files and links, their bytes, and a digest of both."""

    files: int
    bytes: int
    digest: str


class DeploymentBusy(ActionFailed):
    """Another deployment is under way."""

    def __init__(self, what: str) -> None:
        super().__init__(code="busy", message=f"another deployment is under way: {what}")


class StateDamaged(ActionFailed):
    """The deployment's folder is not as the last action has left it; nothing is done on a guess."""

    def __init__(self, reason: str) -> None:
        super().__init__(code="state_damaged", message=f"in the deployment's folder {reason}")


def release_name(value: str) -> str:
    """Check the name of a release; raises `OutsideRoot`, `BadWorkerArguments`."""
    if "/" in value or value in {".", ".."}:
        raise OutsideRoot(value, reason="a name is no path")
    if not _NAME.fullmatch(value):
        reason = "up to 64 letters, digits, '.', '_' and '-', of which the first is no sign"
        raise BadWorkerArguments(argument="release", reason=reason)
    return value


class Releases:
    """The releases beneath a root; every method blocks, and raises `ActionFailed`, `OSError`.

    All but `lock` and `built` are called while it is locked.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._releases = root / _RELEASES
        self._building = root / _BUILDING

    def lock(self) -> int:
        """Take the lock of the root; returns a descriptor that holds it until it is closed."""
        self._releases.mkdir(parents=True, exist_ok=True)
        lock = os.open(self._root / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as failure:
            os.close(lock)
            raise DeploymentBusy(what="it holds the lock") from failure
        return lock

    @property
    def live(self) -> str:
        """The release that `current` leads to, "" for none."""
        link = self._root / _LIVE
        try:
            target = link.readlink()
        except FileNotFoundError:
            return ""
        except OSError as failure:
            raise StateDamaged(reason=f"{_LIVE!r} is no link") from failure
        if (self._root / target.parent).resolve() != self._releases.resolve():
            raise StateDamaged(reason=f"{_LIVE!r} does not lead into {_RELEASES!r}")
        return target.name

    @property
    def state(self) -> DeploymentState:
        """What is noted of the releases."""
        try:
            return msgspec.json.decode((self._root / _STATE).read_bytes(), type=DeploymentState)
        except FileNotFoundError:
            return DeploymentState()
        except msgspec.MsgspecError as failure:
            raise StateDamaged(reason=f"{_STATE!r} cannot be read") from failure

    def path(self, name: str) -> Path:
        """Return the folder of a release, whether it is there or not."""
        return self._releases / name

    def built(self, name: str) -> bool:
        """Whether there is a release of a name; what is no name of one is none."""
        with suppress(FileNotFoundError):
            return bool(_NAME.fullmatch(name)) and stat.S_ISDIR(self.path(name).lstat().st_mode)
        return False

    def begin(self, name: str) -> Path:
        """Make a folder to build a release in; what killed builds have left goes."""
        if self._building.is_symlink():
            raise StateDamaged(reason=f"{_BUILDING!r} is a link")
        shutil.rmtree(self._building, ignore_errors=True)
        for stray in self._root.glob(f".{_STATE}.*"):
            stray.unlink()
        folder = self._building / f"{name}.{token_hex(4)}"
        folder.mkdir(parents=True)
        return folder

    def finish(self, folder: Path, name: str) -> None:
        """Make a built folder a release, at once."""
        folder.rename(self.path(name))
        _sync(self._releases)

    def release(self, name: str, now: float, seconds: float) -> str:
        """Make a release live, noted as not verified for `seconds`; returns the one before.

        Raises `NoSuchFile`.
        """
        if not self.built(name):
            raise NoSuchFile(name, "release")
        before, state = self.live, self.state
        before = before if self.built(before) else ""
        if before:
            self._link(_BACK, before)
        note = UnverifiedRelease(
            release=name,
            previous=before,
            host=socket.gethostname(),
            pid=os.getpid(),
            started=psutil.Process().create_time(),
            until=now + seconds,
        )
        self._write(msgspec.structs.replace(state, unverified=note))
        self._switch(name, _NEXT)
        return before

    def verified(self, name: str) -> None:
        """Note that the live release is verified."""
        state = self.state
        previous = state.unverified.previous if state.unverified is not None else ""
        # Those after the one before were gone back from.
        known = state.verified
        if previous in known:
            known = known[: known.index(previous) + 1]
        order = tuple(one for one in known if one != name)
        self._write(DeploymentState((*order, name)))

    def roll_back(self) -> tuple[str, str] | None:
        """Go back to the release before; returns the one left and the one live, None without one.

        From one that is not verified this leads to what was live when it was released, which may
        be none; where that is gone, to the last verified one there is.
        """
        left, state = self.live, self.state
        note, before = state.unverified, state.verified
        if note is not None:
            left, before = note.release, (*before, note.previous) if note.previous else ()
        else:
            before = before[: before.index(left)] if left in before else ()
        target = next((one for one in reversed(before) if one != left and self.built(one)), "")
        if note is None and not target:
            return None
        if before and not target:
            raise StateDamaged(reason=f"there is no release before {left!r} any more")
        self._switch(target, _BACK)
        if note is not None:
            with suppress(OSError):  # on a full disk: what is not live is gone back from next time
                self._write(DeploymentState(state.verified))
        return left, target

    def prune(self, keep: int) -> tuple[str, ...]:
        """Remove the oldest releases beyond `keep`, never the live one or the one before it."""
        live, state = self.live, self.state
        needed = {live, *state.verified[-2:]}
        ages = {
            one.name: one.lstat().st_mtime
            for one in self._releases.iterdir()
            if self.built(one.name)
        }
        newest = sorted(ages, key=lambda name: (name in needed, ages[name]), reverse=True)
        old = tuple(name for name in newest[keep:] if name not in needed)
        for name in old:
            # Renamed first: half a release must not look like one.
            self._building.mkdir(exist_ok=True)
            place = self._building / f"{name}.{token_hex(4)}"
            self.path(name).rename(place)
            shutil.rmtree(place, ignore_errors=True)
        if old:
            left = tuple(one for one in state.verified if one not in old)
            self._write(msgspec.structs.replace(state, verified=left))
        return old

    def _write(self, state: DeploymentState) -> None:
        write_whole(self._root / _STATE, msgspec.json.encode(state))
        _sync(self._root)

    def _switch(self, name: str, by: str) -> None:
        """Let `current` lead to a release, or be gone without a name; `by` is the link used."""
        if name:
            self._link(by, name)
            (self._root / by).replace(self._root / _LIVE)
        else:
            (self._root / _LIVE).unlink(missing_ok=True)
        _sync(self._root)

    def _link(self, link: str, name: str) -> None:
        """Let a link lead to a release; one that does needs no space on the disk."""
        place, target = self._root / link, Path(_RELEASES, name)
        if place.is_symlink() and place.readlink() == target:
            return
        place.unlink(missing_ok=True)
        place.symlink_to(target, target_is_directory=True)


def _sync(folder: Path) -> None:
    """Write the names of a folder to its disk: what is renamed in order stays in order."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def read_source(source: Path, stopped: Stopped) -> SourceTree:
    """Read a source folder; raises `OutsideRoot` for a link that leads out of it."""
    files, size, digests = 0, 0, list[tuple[str, bytes]]()
    for found in _source_entries(source, stopped):
        path, mode = "/".join(found.parts), found.state.st_mode
        digest = hashlib.blake2b(f"{stat.S_IFMT(mode)} {mode & _MODE:o}\0".encode())
        if stat.S_ISLNK(mode):
            digest.update(os.fsencode(_link_target(found)))
            files += 1
        elif stat.S_ISREG(mode):
            for piece in _pieces(found, stopped):
                digest.update(piece)
                size += len(piece)
            files += 1
        digests.append((path, digest.digest()))
    whole = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for path, one in sorted(digests):
        whole.update(os.fsencode(path) + b"\0" + one)
    return SourceTree(files, size, whole.hexdigest())


def copy_source(source: Path, target: Path, stopped: Stopped, report: ReportLine) -> None:
    """Copy a source folder into one that is empty, with the modes of its files.

    Ends early once it is `stopped`. Raises `OutsideRoot` for a link that leads out of it.
    """
    copied = 0
    for found in _source_entries(source, stopped):
        place, mode = target.joinpath(*found.parts), found.state.st_mode
        if stat.S_ISDIR(mode):
            place.mkdir()
            place.chmod(mode & _MODE | stat.S_IRWXU)
            continue
        if stat.S_ISLNK(mode):
            place.symlink_to(_link_target(found))
        else:
            with place.open("xb") as file:
                for piece in _pieces(found, stopped):
                    file.write(piece)
                os.fchmod(file.fileno(), mode & _MODE)
        copied += 1
        if copied % _TOLD_EVERY == 0:
            report(f"{copied} files copied")


def _source_entries(source: Path, stopped: Stopped) -> Iterator[FolderEntry]:
    """Return folders, regular files and links; sockets, pipes and devices are left out."""
    for found in entries_beneath(source, (), stopped, strict=True):
        mode = found.state.st_mode
        if stat.S_ISDIR(mode) or stat.S_ISREG(mode) or stat.S_ISLNK(mode):
            yield found


def _link_target(found: FolderEntry) -> str:
    """Return where a link of the source leads; raises `OutsideRoot` where that is not in it.

    `..` may only begin it: after another component, itself perhaps a link, it leads anywhere.
    """
    target = os.readlink(found.name, dir_fd=found.folder)
    parts = Path(target).parts
    up = next((at for at, part in enumerate(parts) if part != ".."), len(parts))
    if Path(target).is_absolute() or up >= len(found.parts) or ".." in parts[up:]:
        raise OutsideRoot("/".join(found.parts), reason="it is a link that leads out of the source")
    return target


def _pieces(found: FolderEntry, stopped: Stopped) -> Iterator[bytes]:
    """Read a regular file, piece by piece; what has taken its place meanwhile is not followed."""
    with _opened(found) as file:
        while not stopped() and (piece := os.read(file, _COPIED)):
            yield piece


@contextmanager
def _opened(found: FolderEntry) -> Iterator[int]:
    file = os.open(found.name, _NO_FOLLOW, dir_fd=found.folder)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise NoSuchFile("/".join(found.parts))
        yield file
    finally:
        os.close(file)
