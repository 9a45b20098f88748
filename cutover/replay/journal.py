"""What a replay writes: counts, segments, and the journal by which an interrupted one continues.

A part's segment is in its place before the journal has the part; a part that was replayed but not
noted is replayed again and overwrites its own segment.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import IO, NamedTuple, Self

import msgspec
from zstandard import ZstdCompressor

from compare.input.damage import UNBOUNDED, Damage
from compare.input.segments import PACKED_LINES
from contract.errors import CutoverError
from cutover.replay.parts import BLOB_MISSING, Part
from effects.files import write_whole

NAME = "replay.journal"
VERSION = 1
MOST_NAMED = 20
_FOLDER = "segments"
_LEVEL = 3
NO_TURNS: Mapping[str, int] = {}


class ReplayMisused(CutoverError):
    """A replay was asked for that makes no sense."""


class OtherReplay(ReplayMisused):
    """The folder holds another replay."""

    def __init__(self, out: Path, what: str, there: object, requested: object) -> None:
        super().__init__(
            f"{str(out)!r} holds a replay with {what} {there!r}, not {requested!r}: "
            "choose another place, or remove it"
        )


class NotAReplay(ReplayMisused):
    """The folder holds something that is no replay."""

    def __init__(self, out: Path) -> None:
        super().__init__(f"{str(out)!r} is not empty and holds no replay: choose another place")


class InUse(ReplayMisused):
    """Another replay is writing there."""

    def __init__(self, out: Path) -> None:
        super().__init__(f"another replay is writing to {str(out)!r}")


class Finished(ReplayMisused):
    """A replay of a service has ended; what runs at its address now may be other code."""

    def __init__(self, out: Path) -> None:
        super().__init__(
            f"{str(out)!r} holds a whole replay, and a service does not say which code it runs: "
            "choose another place, or remove it"
        )


class Counts(msgspec.Struct):
    """Exchanges: each was `replayed` or `skipped`, each replayed one is `equal` or `different`.

    `compared` counts by what was compared with what, `outcomes` by how the replay ended;
    `damaged` counts lines and batches, and as `missing` exchanges whose long texts are not there;
    `named` lists the first that were passed over. Of the skipped, `unread` could not be read.
    `outside` are calls of services that named no exchange, and were refused; `silent` runs made no
    call, though those that were recorded did.
    """

    exchanges: int = 0
    equal: int = 0
    different: int = 0
    unread: int = 0
    skipped: dict[str, int] = {}
    compared: dict[str, int] = {}
    outcomes: dict[str, int] = {}
    damaged: dict[str, int] = {}
    named: list[str] = []
    outside: int = 0
    silent: int = 0

    @property
    def replayed(self) -> int:
        """How many were run and compared."""
        return self.equal + self.different

    @property
    def lost_share(self) -> float:
        """The share of what should be replayed that could not be read; 1 where no end is known."""
        if UNBOUNDED & set(self.damaged):
            return 1.0
        # What is `missing` is among the unread.
        lines = sum(count for kind, count in self.damaged.items() if kind != "missing")
        lost = self.unread + lines
        return lost / (self.replayed + lost) if lost else 0.0

    def skip(self, exchange: str, reason: str, *, unread: bool = False) -> None:
        """Count an exchange that was not replayed."""
        self.exchanges += 1
        self.unread += unread
        if reason == BLOB_MISSING:
            _add(self.damaged, "missing", 1)
        _add(self.skipped, reason, 1)
        self._name(f"{exchange}: {reason}")

    def compare(self, basis: str, outcome: str, *, equal: bool) -> None:
        """Count an exchange that was replayed and compared."""
        self.exchanges += 1
        _add(self.compared, basis, 1)
        _add(self.outcomes, outcome, 1)
        if equal:
            self.equal += 1
        else:
            self.different += 1

    def damage(self, damage: Damage) -> None:
        """Count a line or a batch that cannot be read."""
        self.unreadable(damage.kind, f"{damage.place}: {damage.detail}")

    def unreadable(self, kind: str, name: str) -> None:
        """Count something that cannot be read."""
        _add(self.damaged, kind, 1)
        self._name(f"{kind}: {name}")

    def merge(self, other: Counts) -> None:
        """Add the counts of another part."""
        self.exchanges += other.exchanges
        self.equal += other.equal
        self.different += other.different
        self.unread += other.unread
        self.outside += other.outside
        self.silent += other.silent
        for name in ("skipped", "compared", "outcomes", "damaged"):
            for key, count in getattr(other, name).items():
                _add(getattr(self, name), key, count)
        self.named = (self.named + other.named)[:MOST_NAMED]

    def _name(self, name: str) -> None:
        if len(self.named) < MOST_NAMED:
            self.named.append(name)


def _add(counts: dict[str, int], key: str, count: int) -> None:
    counts[key] = counts.get(key, 0) + count


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """What is replayed, and how: a replay continues only if all of it is the same."""

    v: int = VERSION
    captures: str
    stack: str
    code: str
    against: str
    against_code: str
    pace: str
    only: tuple[str, ...] = ()
    limit: int | None = None


class ReplayedPart(msgspec.Struct, frozen=True, omit_defaults=True):
    """A part that is replayed and written, or begun: then it has no `counts` yet.

    `turns` are the last ones of conversations that services have stored by it.
    """

    segment: str
    number: int
    size: int
    counts: Counts | None = None
    turns: dict[str, int] = {}


class ReplayJournal:
    """An open journal, locked against other replays."""

    def __init__(self, out: Path, header: Header) -> None:
        """Open or begin the journal of a folder; raises `ReplayMisused` or `OSError`."""
        path = out / NAME
        if out.exists() and not path.exists() and any(out.iterdir()):
            raise NotAReplay(out)
        out.mkdir(parents=True, exist_ok=True)
        self._file: IO[bytes] = path.open("a+b")
        try:
            self._done = self._open(out, header)
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
        """Return the counts of a part; None if it is not replayed, or has grown since."""
        done = self._done.get((part.segment, part.number))
        return done.counts if done is not None and done.size == part.size else None

    def noted(self, part: Part) -> bool:
        """Whether a part of its name was replayed, with these lines or others."""
        return (part.segment, part.number) in self._done

    @property
    def turns(self) -> dict[str, int]:
        """The last turns of conversations that services have stored, by conversation."""
        turns: dict[str, int] = {}
        for done in self._done.values():
            for name, turn in done.turns.items():
                turns[name] = max(turn, turns.get(name, 0))
        return turns

    def note(self, part: Part, counts: Counts, turns: Mapping[str, int] = NO_TURNS) -> None:
        """Note that a part is replayed and written."""
        self._write(ReplayedPart(part.segment, part.number, part.size, counts, dict(turns)))

    def begin(self, part: Part) -> bool:
        """Note that a part begins; whether it had begun before, and was interrupted."""
        begun = self._done.get((part.segment, part.number))
        self._write(ReplayedPart(part.segment, part.number, part.size))
        return begun is not None

    def _open(self, out: Path, header: Header) -> dict[tuple[str, int], ReplayedPart]:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise InUse(out) from error
        self._file.seek(0)
        there, done, whole = _parse(self._file.read())
        self._file.truncate(whole)  # drops a note that was being written at the end
        if there is None:
            self._write(header)
            return done
        for name in Header.__struct_fields__:
            old, new = getattr(there, name), getattr(header, name)
            if old != new:
                raise OtherReplay(out, name.replace("_", " of "), old, new)
        return done

    def _write(self, entry: Header | ReplayedPart) -> None:
        self._file.write(msgspec.json.encode(entry) + b"\n")
        self._file.flush()


class _Parsed(NamedTuple):
    header: Header | None
    done: dict[tuple[str, int], ReplayedPart]
    whole: int


def _parse(data: bytes) -> _Parsed:
    header: Header | None = None
    done: dict[tuple[str, int], ReplayedPart] = {}
    whole = 0
    for line in data.splitlines(keepends=True):
        try:
            if header is None:
                header = msgspec.json.decode(line, type=Header)
            else:
                entry = msgspec.json.decode(line, type=ReplayedPart)
                done[entry.segment, entry.number] = entry
        except msgspec.DecodeError:
            break
        if not line.endswith(b"\n"):
            break
        whole += len(line)
    return _Parsed(header if whole else None, done, whole)


def packed_lines(lines: Iterable[bytes]) -> bytes:
    """Return the segment that lines make; "" of none."""
    text = b"".join(lines)
    return ZstdCompressor(level=_LEVEL, write_checksum=True).compress(text) if text else b""


class SegmentWriter:
    """Writes one segment for each part below a folder, whole or not at all."""

    def __init__(self, out: Path) -> None:
        self._folder = out / _FOLDER

    def write(self, part: Part, packed: bytes) -> None:
        """Write a part's lines, as they are `packed`; raises `OSError`."""
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / segment_name(part)
        if not packed:
            path.unlink(missing_ok=True)
            return
        write_whole(path, packed)

    def remove_unfinished(self) -> None:
        """Remove what was being written when a replay ended; no other may be writing."""
        for path in self._folder.glob(f"*{PACKED_LINES}.*"):
            path.unlink(missing_ok=True)


def segment_name(part: Part) -> str:
    """Return the name of a part's segment: always the same, in the order of the captures."""
    stem = part.segment.rpartition("/")[2].partition(".")[0]
    place = blake2b(part.segment.encode(), digest_size=4).hexdigest()
    return f"{stem}-{place}-{part.number:06d}{PACKED_LINES}"
