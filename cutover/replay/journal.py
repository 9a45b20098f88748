"""The journal: which parts are done, so that a replay that was interrupted goes on.

A part's segment is in its place before the journal says that the part is done; a part that was
done without being noted is done again and takes its own place.
"""

from __future__ import annotations

import fcntl
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

import msgspec

from cutover.replay.counts import Counts
from cutover.replay.sides import ReplayMisused

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from cutover.replay.parts import Part

NAME = "replay.journal"
VERSION = 1


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """What is replayed, and how: a replay only goes on when all of it is the same."""

    v: int = VERSION
    captures: str
    stack: str
    code: str
    against: str
    against_code: str
    pace: str
    only: tuple[str, ...] = ()
    limit: int | None = None


class Done(msgspec.Struct, frozen=True):
    """A part that is done."""

    segment: str
    number: int
    size: int
    counts: Counts


class OtherReplay(ReplayMisused):
    """The place holds another replay."""

    def __init__(self, out: Path, what: str, there: object, asked: object) -> None:
        super().__init__(
            f"{str(out)!r} holds a replay with {what} {there!r}, not {asked!r}: "
            "choose another place, or remove it"
        )


class NotOurs(ReplayMisused):
    """The place holds something that is no replay."""

    def __init__(self, out: Path) -> None:
        super().__init__(f"{str(out)!r} is not empty and holds no replay: choose another place")


class InUse(ReplayMisused):
    """Another replay is writing there."""

    def __init__(self, out: Path) -> None:
        super().__init__(f"another replay is writing to {str(out)!r}")


@dataclass(frozen=True, slots=True)
class _Read:
    header: Header | None
    done: dict[tuple[str, int], Done]
    whole: int


class Journal:
    """An open journal; nobody else can open it meanwhile."""

    def __init__(self, out: Path, header: Header) -> None:
        """Open the journal of a place, or begin one; raises `ReplayMisused` or `OSError`."""
        path = out / NAME
        if out.exists() and not path.exists() and any(out.iterdir()):
            raise NotOurs(out)
        out.mkdir(parents=True, exist_ok=True)
        self._file: IO[bytes] = path.open("a+b")
        try:
            self._done = self._opened(out, header)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._file.close()

    def done(self, part: Part) -> Counts | None:
        """Give the counts of a part that is done; None when it is not, or not as it is now."""
        done = self._done.get((part.segment, part.number))
        return done.counts if done is not None and done.size == part.size else None

    def note(self, part: Part, counts: Counts) -> None:
        """Note that a part is done and in its place."""
        self._write(Done(part.segment, part.number, part.size, counts))

    def _opened(self, out: Path, header: Header) -> dict[tuple[str, int], Done]:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise InUse(out) from error
        self._file.seek(0)
        read = _read(self._file.read())
        self._file.truncate(read.whole)  # a note that was being written when it ended
        if read.header is None:
            self._write(header)
        else:
            _same(out, read.header, header)
        return read.done

    def _write(self, entry: Header | Done) -> None:
        self._file.write(msgspec.json.encode(entry) + b"\n")
        self._file.flush()


def _read(data: bytes) -> _Read:
    header: Header | None = None
    done: dict[tuple[str, int], Done] = {}
    whole = 0
    for line in data.splitlines(keepends=True):
        try:
            if header is None:
                header = msgspec.json.decode(line, type=Header)
            else:
                entry = msgspec.json.decode(line, type=Done)
                done[entry.segment, entry.number] = entry
        except msgspec.DecodeError:
            break
        if not line.endswith(b"\n"):
            break
        whole += len(line)
    return _Read(header if whole else None, done, whole)


def _same(out: Path, there: Header, asked: Header) -> None:
    for name in Header.__struct_fields__:
        old, new = getattr(there, name), getattr(asked, name)
        if old != new:
            raise OtherReplay(out, name.replace("_", " of "), old, new)
