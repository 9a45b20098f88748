"""Blobs: long texts that were stored apart, put back where a comparison looks into them."""

from __future__ import annotations

import re
from collections import OrderedDict
from hashlib import blake2b
from operator import is_

import msgspec
import zstandard

from compare.input.damage import Damage
from contract.blobs import put_back
from contract.capture_files import BLOBS
from contract.errors import CutoverError
from contract.records import EntryRecord, PlayRecord, RunRecord
from effects.places import Place

KEPT_AT_MOST = 1 << 26
_LEVELS = 4
_RECORDED = re.compile(r"/flow=[^/]+/date=[^/]+/[^/]+$")


class BlobMissing(CutoverError):
    """A text that was put beside the captures cannot be read there."""

    def __init__(self, digest: str, why: str) -> None:
        super().__init__(f"blob {digest} {why}")


class BlobFolder:
    """The blobs of one segment's captures: in the nearest folder above it that holds some."""

    def __init__(self, segment: str) -> None:
        self._segment = segment
        self._place: Place | None = None

    def fetch(self, digest: str) -> bytes:
        """Read one; raises `BlobMissing`."""
        try:
            if self._place is None:
                self._place = self._find()
            packed = self._place.read(f"{self._place.root}/{digest}.zst")
            content = zstandard.ZstdDecompressor().decompress(packed)
        except FileNotFoundError as error:
            raise BlobMissing(digest, "is not there") from error
        except (OSError, ValueError, zstandard.ZstdError) as error:
            raise BlobMissing(digest, f"cannot be read: {error}") from error
        if blake2b(content, digest_size=len(digest) // 2).hexdigest() != digest:
            raise BlobMissing(digest, "does not hold what its name says")
        return bytes(content)

    def _find(self) -> Place:
        folders = []
        if (captured := _RECORDED.search(self._segment)) is not None:
            folders.append(self._segment[: captured.start()])  # where the recorder puts them
        folder = self._segment
        for _ in range(_LEVELS):
            folder = folder.rpartition("/")[0]
            folders.append(folder)
        for one in dict.fromkeys(folders):
            place = Place(f"{one}/{BLOBS}")
            if place.exists(place.root):
                return place
        raise FileNotFoundError(BLOBS)


class Blobs:
    """The blobs beside a segment; the ones used last are kept, up to `at_most` bytes.

    What cannot be put back stays a reference, and is named once in `damage`.
    """

    def __init__(self, segment: str, at_most: int = KEPT_AT_MOST) -> None:
        self._at_most = at_most
        self._folder = BlobFolder(segment)
        self._segment = segment
        self.kept: OrderedDict[str, bytes] = OrderedDict()
        self._lost: set[str] = set()
        self.damage: list[Damage] = []

    def restored(self, run: RunRecord) -> RunRecord:
        """Return a run with the long texts of its calls' arguments put back."""
        plays = tuple(map(self._play, run.plays))
        tape = run.tape and self.restored_tape(run.tape)
        if tape is run.tape and all(map(is_, plays, run.plays)):
            return run
        return msgspec.structs.replace(run, plays=plays, tape=tape)

    def restored_tape(self, tape: tuple[EntryRecord, ...]) -> tuple[EntryRecord, ...]:
        """Return a tape with the long texts of its arguments put back."""
        entries = tuple(map(self._entry, tape))
        return tape if all(map(is_, entries, tape)) else entries

    def _play(self, play: PlayRecord) -> PlayRecord:
        args = play.args and put_back(play.args, self._content)
        return play if args is play.args else msgspec.structs.replace(play, args=args)

    def _entry(self, entry: EntryRecord) -> EntryRecord:
        args = put_back(entry.args, self._content)
        return entry if args is entry.args else msgspec.structs.replace(entry, args=args)

    def _content(self, digest: str) -> bytes | None:
        if digest in self._lost:
            return None
        if digest not in self.kept:
            try:
                self.kept[digest] = self._folder.fetch(digest)
            except BlobMissing as missing:
                self._lost.add(digest)
                self.damage.append(Damage("missing", self._segment, str(missing)))
                return None
        self.kept.move_to_end(digest)
        content = self.kept[digest]
        while len(self.kept) > 1 and sum(map(len, self.kept.values())) > self._at_most:
            self.kept.popitem(last=False)
        return content
