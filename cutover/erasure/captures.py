"""Erasure in captures: exchanges found by a data subject's id, plain or redacted, removed whole.

A segment is read batch by batch and written anew without them.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import msgspec

from compare.input.batches import decompressed
from compare.input.captures import head_of
from compare.input.damage import ILLEGIBLE, Damage
from compare.input.files import files_below, no_file
from compare.input.segments import PACKED_LINES
from contract.capture_files import FEEDBACK, FramesSize, seek_table
from contract.flow import FlowSpec
from contract.records import FeedbackRecord
from contract.stores import DataSubject, SubjectKind
from effects.files import whole_file
from effects.places import ObjectChanged, Place, changed_at
from router.capture.pseudonyms import PSEUDONYM, digest
from router.capture.segments import (
    ForgottenLists,
    blob_path,
    compressor,
    exclusive,
    in_place,
)

_FIELDS: Mapping[SubjectKind, str] = {
    "user": "user_id|by",
    "chat": "chat_id|session_id",
    "message": "message_id|reply_to",
}
_VALUE = r'("(?:[^"\\]|\\.)*"|-?\d+)'
_ROUTE_KEYS: Mapping[SubjectKind, str] = {
    "user": "user_id",
    "chat": "session_id",
    "message": "message_id",
}


def declared_fields(kind: SubjectKind, flows: Iterable[FlowSpec]) -> frozenset[str]:
    """Name the fields that hold such an id in the requests of declared flows."""
    paths = (flow.route_keys.get(_ROUTE_KEYS[kind]) for flow in flows if flow.declared)
    return frozenset(path.rpartition(".")[2] for path in paths if path)


class SubjectMatcher:
    """Matches lines of captures that hold a field with the subject's id, wherever it stands.

    An id may have been redacted as a whole, or an address or a name inside it. With the key of the
    pseudonyms both are recognised; without one only the plain id is. `fields` are more names of
    fields that hold such ids.
    """

    def __init__(
        self, subject: DataSubject, key: bytes = b"", fields: Collection[str] = ()
    ) -> None:
        names = "|".join((_FIELDS[subject.kind], *map(re.escape, sorted(fields))))
        self._fields = re.compile(rf'"(?:{names})"\s*:\s*{_VALUE}'.encode())
        self._value = subject.value
        self._key = key
        self._known: dict[bytes, bool] = {}

    def matches(self, line: bytes) -> bool:
        """Whether a line is about the subject."""
        return any(self._is(found) for found in self._fields.findall(line))

    def _is(self, raw: bytes) -> bool:
        if raw not in self._known:
            self._known[raw] = self._stored(raw)
        return self._known[raw]

    def _stored(self, raw: bytes) -> bool:
        try:
            return self._is_id(str(msgspec.json.decode(raw, strict=False)))
        except ILLEGIBLE:
            return False

    def _is_id(self, stored: str) -> bool:
        if stored == self._value:
            return True
        pseudonyms = PSEUDONYM.findall(stored)
        if not self._key or not pseudonyms:
            return False
        digests = [one.rpartition(":")[2].removesuffix(">") for one in pseudonyms]
        return self._fits(PSEUDONYM.split(stored), digests, self._value)

    def _fits(self, literals: list[str], digests: list[str], value: str) -> bool:
        """Whether literals and, between them, texts of these digests make the value."""
        if not value.startswith(literals[0]):
            return False
        rest = value.removeprefix(literals[0])
        if not digests:
            return not rest
        return any(
            digest(self._key, rest[:length]) == digests[0]
            and self._fits(literals[1:], digests[1:], rest[length:])
            for length in range(1, len(rest) + 1)
        )


_PIECE = 1 << 20
_feedback = msgspec.json.Decoder(FeedbackRecord).decode
_BLOB = re.compile(rb'{"blob":"([0-9a-f]{64})","bytes":\d+}')


@dataclass(slots=True)
class Scanned:
    """The exchanges of one segment: those of lines that are `wanted`, and those split up.

    Of `lone` ones the second run is there without the served one; of `due` ones it is the other
    way about.
    """

    wanted: set[str] = field(default_factory=set)
    lone: set[str] = field(default_factory=set)
    due: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Removed:
    """What was removed from one segment: the exchanges of its lines, and the blobs they name."""

    exchanges: set[str] = field(default_factory=set)
    blobs: set[bytes] = field(default_factory=set)


class SegmentEdit:
    """A segment at a place; one on this host is replaced while none is appended to it."""

    def __init__(self, place: Place, path: str, size: int) -> None:
        self._place = place
        self.path = path
        self._size = size
        self.damaged = False
        """Whether damage has been read so far."""

    def scan(self, wanted: Callable[[bytes], bool], missing: set[str]) -> Scanned:
        """Read the segment, and return its exchanges; none of them is `missing` any more."""
        found, served = Scanned(), set[str]()
        for line in self._lines():
            head = head_of(line)
            missing.discard(head.exchange)
            if wanted(line):
                found.wanted.add(head.exchange)
            if head.role == "shadow":
                found.lone.add(head.exchange)
            elif head.role == "serving":
                served.add(head.exchange)
                if head.shadow == "due":
                    found.due.add(head.exchange)
        found.due -= found.lone
        found.lone -= served
        return found

    def commented(self, before: float) -> Iterator[str]:
        """Yield the exchanges of feedback with a comment; `before` in microseconds."""
        for line in self._lines():
            with suppress(*ILLEGIBLE):
                feedback = _feedback(line)
                if feedback.comment and feedback.at < before:
                    yield feedback.exchange

    def blobs(self) -> Iterator[bytes]:
        """Yield the digests of all blobs that are named."""
        for line in self._lines():
            yield from _BLOB.findall(line)

    def without(self, exchanges: Collection[str]) -> Removed:
        """Write the segment anew without these exchanges, if it holds any, or any damage.

        What is damaged is left out: whose it is cannot be read. An empty segment is removed.
        """
        if not self._place.local:
            return self._put_without(exchanges)
        path = Path(self.path)
        while True:
            with path.open("rb") as file, exclusive(file):
                if in_place(file, path):
                    pieces = iter(partial(file.read, _PIECE), b"")
                    removed, content = self._rewritten(pieces, exchanges)
                    if content is not None:
                        self._replace(content)
                    return removed

    def _put_without(self, exchanges: Collection[str]) -> Removed:
        """Put an object anew, unless another command did so since it was read: then read again."""
        while True:
            try:
                info = self._place.info(self.path)
                pieces = self._place.pieces(self.path, size=info["size"])
                removed, content = self._rewritten(pieces, exchanges)
                if content:
                    self._place.put(self.path, content, tag=self._place.tag(info))
                elif content is not None:
                    self._place.remove(self.path)
            except ObjectChanged:
                continue
            except FileNotFoundError:  # too old, or another command removed the last of it
                return Removed()
            return removed

    def _lines(self) -> Iterator[bytes]:
        with suppress(FileNotFoundError):  # as above
            for batch in _batches(self._place.pieces(self.path, size=self._size), self.path):
                self.damaged |= batch is None
                yield from batch or ()

    def _rewritten(
        self, pieces: Iterable[bytes], exchanges: Collection[str]
    ) -> tuple[Removed, bytes | None]:
        """Return what goes, and the content without it: empty of nothing, None where none goes."""
        removed = Removed()
        kept: list[bytes] = []
        sizes: list[FramesSize] = []
        changed = False
        pack = compressor()
        for batch in _batches(pieces, self.path):
            lines = []
            for line in batch or ():
                exchange = head_of(line).exchange
                if exchange in exchanges:
                    removed.exchanges.add(exchange)
                    removed.blobs |= set(_BLOB.findall(line))
                else:
                    lines.append(line)
            changed |= batch is None or len(lines) < len(batch)
            if lines:
                content = b"".join(lines)
                kept.append(pack.compress(content))
                sizes.append((len(kept[-1]), len(content)))
        if not changed:
            return removed, None
        if kept and not self._place.local:
            kept.append(seek_table(sizes))
        return removed, b"".join(kept)

    def _replace(self, content: bytes) -> None:
        path = Path(self.path)
        if not content:
            path.unlink()
            return
        before = path.stat()
        with whole_file(path) as file:
            file.write(content)
            file.flush()
            # As old as it was: the oldest go first where room is needed.
            os.utime(file.fileno(), ns=(before.st_atime_ns, before.st_mtime_ns))


def _batches(pieces: Iterable[bytes], path: str) -> Iterator[list[bytes] | None]:
    """Yield the whole lines of each batch; None where something is damaged or cut off."""
    found = decompressed(pieces, path)
    for _, parts in groupby(found, lambda part: None if isinstance(part, Damage) else part.begins):
        data = bytearray()
        for part in parts:
            if isinstance(part, Damage):
                yield None
            else:
                data += part.data
        *lines, rest = data.split(b"\n")
        yield [bytes(line) + b"\n" for line in lines]
        if rest:
            yield None


_FEEDBACK = f"/{FEEDBACK}/"
_WRITTEN_WITHIN_SECONDS = 3_600
"""An exchange whose feedback is older has been written, if it ever is."""


@dataclass(frozen=True, slots=True)
class ErasedCaptures:
    """What was removed: exchanges, how many had feedback, and long texts stored apart (blobs)."""

    exchanges: frozenset[str]
    feedbacks: int
    blobs: int


def erase_captures(place: str, subject: SubjectMatcher) -> ErasedCaptures:
    """Remove every exchange with a line about the subject; whole batches stay readable.

    A second run whose served run is nowhere is removed like damage: whose it is cannot be read.
    So is feedback with a comment on an exchange that is nowhere, and any on one that was forgotten.
    The forgotten exchanges are noted: routers store no further feedback on them.
    Routers may go on writing: what they write meanwhile is not read. Raises `OSError`.
    """
    began = time.time()
    folder = _Folder(place)
    exchanges, lone, due = set[str](), set[str](), set[str]()
    concerned: list[tuple[SegmentEdit, set[str]]] = []
    feedback, runs = folder.feedback_and_runs()
    known = {segment.path for segment in (*feedback, *runs)}
    before = (began - _WRITTEN_WITHIN_SECONDS) * 1_000_000
    commented = {one for segment in feedback for one in segment.commented(before)}
    # Backwards, for a served run is written first: it is not missed while segments grow.
    for segment in reversed(runs):
        found = segment.scan(subject.matches, commented)
        exchanges |= found.wanted
        lone |= found.lone
        due |= found.due
        concerned.append((segment, found.wanted | found.lone | found.due))
    going = exchanges | (lone - due)
    folder.note_forgotten(exchanges)  # before they go: what is sent from now on is not stored
    blobs = set[bytes]()
    for segment, held in concerned:
        if segment.damaged or not held.isdisjoint(going):
            blobs |= segment.without(going).blobs
    going |= commented | folder.forgotten()
    feedbacks = sum(len(segment.without(going).exchanges) for segment in feedback)
    for segment in folder.segments():  # what a router stored before it could know of the list
        if segment.path not in known:
            blobs |= segment.without(exchanges).blobs
    return ErasedCaptures(frozenset(exchanges), feedbacks, folder.remove_blobs(blobs, began))


class _Folder:
    """The files of captures below a path or fsspec URL."""

    def __init__(self, place: str) -> None:
        self._place = Place(place)
        self._lists = ForgottenLists(self._place)

    def feedback_and_runs(self) -> tuple[list[SegmentEdit], list[SegmentEdit]]:
        """Return the segments of feedback, and those of runs."""
        feedback, runs = list[SegmentEdit](), list[SegmentEdit]()
        for segment in self.segments():
            (feedback if _FEEDBACK in segment.path else runs).append(segment)
        return feedback, runs

    def note_forgotten(self, exchanges: Collection[str]) -> None:
        """Store that exchanges were forgotten."""
        self._lists.add(exchanges)

    def forgotten(self) -> frozenset[str]:
        """Return the exchanges that were forgotten, now or earlier."""
        return self._lists.read()

    def segments(self) -> Iterator[SegmentEdit]:
        """Yield the segments there are, runs and feedback; a pipe or a device holds none."""
        for path, info in sorted(files_below(self._place).items(), key=itemgetter(0)):
            if path.endswith(PACKED_LINES) and not (self._place.local and no_file(path)):
                yield SegmentEdit(self._place, path, info["size"])

    def remove_blobs(self, digests: set[bytes], began: float) -> int:
        """Remove the blobs that no line names any more, unused since; returns how many."""
        if not digests:
            return 0
        used = {one for segment in self.segments() for one in segment.blobs() if one in digests}
        removed = 0
        for unused in digests - used:
            path = blob_path(self._place.root, unused.decode())
            with suppress(FileNotFoundError):
                if (changed_at(self._place.info(path)) or 0) < began:
                    self._place.remove(path)
                    removed += 1
        return removed
