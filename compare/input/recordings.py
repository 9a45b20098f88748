"""Recordings: plain recorded streams, in files and folders, found by their ids."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from compare.input.damage import ILLEGIBLE, CapturesUnreadable, Damage
from compare.input.files import no_file

ONE_A_FILE = (".sse", ".ndjson", ".txt")
ONE_A_LINE = ".jsonl"
_US = 1_000


class _Line(msgspec.Struct, frozen=True):
    id: str | int
    body: str
    times: tuple[int, ...] = ()


class _Id(msgspec.Struct, frozen=True):
    id: str | int


_lines = msgspec.json.Decoder(_Line)
_ids = msgspec.json.Decoder(_Id)


@dataclass(frozen=True, slots=True)
class RecordedStream:
    """One recorded stream; `place` is its file, and the line in it.

    `times` has a moment for each of its events, in microseconds, or is empty; `began` is when
    its file was written, in microseconds since the Unix epoch.
    """

    id: str
    place: str
    body: bytes
    times: Sequence[int]
    began: int


@dataclass(frozen=True, slots=True)
class _Place:
    """Where one recording is: a whole file, or a line of one (`at` and `size` in bytes)."""

    path: Path
    number: int = 0
    at: int = 0
    size: int = 0

    def __str__(self) -> str:
        return f"{self.path}, line {self.number}" if self.number else str(self.path)

    @property
    def bytes(self) -> int:
        """How many bytes to read; 0 of a file that cannot be read."""
        try:
            return self.size or self.path.stat().st_size
        except OSError:
            return 0

    def broken(self, trouble: Exception) -> Damage:
        return Damage("broken", str(self.path), f"line {self.number}: {trouble}")


class Recordings:
    """The recordings of one side: where each is, read when it is wanted."""

    def __init__(self, place: Path) -> None:
        """Look through a file or folder; raises `CapturesUnreadable`."""
        self.place = place
        self.damage: list[Damage] = []
        self._places: dict[str, _Place] = {}
        if not place.exists():
            raise CapturesUnreadable(str(place), "there is nothing there")
        self.is_one = place.is_file() and place.suffix in ONE_A_FILE
        for path in self._files():
            self._file(path)

    def _files(self) -> list[Path]:
        if self.place.is_dir():
            known = (*ONE_A_FILE, ONE_A_LINE)
            found = (path for path in self.place.rglob("*") if path.suffix in known)
            return sorted(path for path in found if not path.is_dir())
        if self.place.suffix not in (*ONE_A_FILE, ONE_A_LINE):
            kinds = ", ".join((*ONE_A_FILE, ONE_A_LINE))
            raise CapturesUnreadable(str(self.place), f"a file of {kinds} or a folder is due")
        return [self.place]

    def _file(self, path: Path) -> None:
        if path.exists() and (why := no_file(path)):
            self.damage.append(Damage("unreadable", str(path), why))
            return
        if path.suffix != ONE_A_LINE:
            name = path.relative_to(self.place).as_posix() if path != self.place else path.name
            self._found(name, _Place(path))
            return
        at = 0
        try:
            with path.open("rb") as file:
                for number, whole in enumerate(file, 1):
                    line = whole if at else whole.removeprefix(BOM_UTF8)
                    at += len(whole)
                    if line.strip():
                        self._line(line, _Place(path, number, at - len(line), len(line)))
        except OSError as trouble:
            self.damage.append(_unreadable(path, trouble))
            return
        if not at:
            self.damage.append(Damage("torn", str(path), "the file is empty"))

    def _line(self, line: bytes, place: _Place) -> None:
        try:
            # Values of other keys are passed over unread: half a character, too.
            line.decode()
            self._found(str(_ids.decode(line).id), place)
        except ILLEGIBLE as trouble:
            self.damage.append(place.broken(trouble))

    def _found(self, name: str, place: _Place) -> None:
        known = self._places.setdefault(name, place)
        if known is not place:
            which = str(known), str(place)
            why = f"the id {name!r} is ambiguous: {which[0]} and {which[1]}"
            raise CapturesUnreadable(str(self.place), why)

    @property
    def ids(self) -> list[str]:
        """List the ids, in the order in which they stand there."""
        return list(self._places)

    @property
    def size(self) -> int:
        """How many bytes there are to read."""
        return sum(place.bytes for place in self._places.values())

    def read(self, name: str) -> RecordedStream | Damage:
        """Read one recording; what is none, or cannot be read, is damage."""
        place = self._places[name]
        try:
            began = place.path.stat().st_mtime_ns // _US
            with place.path.open("rb") as file:
                file.seek(place.at)
                body = file.read(place.size or -1)
        except OSError as trouble:
            return _unreadable(place.path, trouble)
        if not place.size:
            return RecordedStream(name, str(place), body, (), began)
        try:
            line = _lines.decode(body)
        except ILLEGIBLE as trouble:
            return place.broken(trouble)
        return RecordedStream(name, str(place), line.body.encode(), line.times, began)


def _unreadable(path: Path, trouble: OSError) -> Damage:
    return Damage("unreadable", str(path), trouble.strerror or str(trouble))


def pairs_of(legacy: Recordings, graph: Recordings) -> Iterator[tuple[str | None, str | None]]:
    """Pair ids: equal ones, and two single files whatever they are called; None: no partner."""
    if legacy.is_one and graph.is_one:
        yield legacy.ids[0], graph.ids[0]
        return
    if legacy.is_one or graph.is_one:
        one, many = (legacy, graph) if legacy.is_one else (graph, legacy)
        why = f"it is one stream, and {str(many.place)!r} may hold several: give two of a kind"
        raise CapturesUnreadable(str(one.place), why)
    known, others = set(legacy.ids), set(graph.ids)
    yield from ((name, name if name in others else None) for name in legacy.ids)
    yield from ((None, name) for name in graph.ids if name not in known)
