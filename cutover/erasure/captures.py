"""Captures of somebody: found by the ids in them, removed with the whole of their exchange."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import fsspec

from compare.input.files import files_below, no_file, on_disk
from cutover.erasure.segments import Segment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cutover.erasure.subject import SubjectMatcher

_PACKED = ".jsonl.zst"
_FEEDBACK = "/feedback/"


@dataclass(frozen=True, slots=True)
class ForgottenCaptures:
    """What was removed: the exchanges, how many had feedback, and long texts kept apart."""

    exchanges: frozenset[str]
    feedbacks: int
    blobs: int


def forget_captures(place: str, sought: SubjectMatcher) -> ForgottenCaptures:
    """Remove every exchange a line of which is about who is sought; whole batches stay readable.

    Routers may go on writing: what they write meanwhile is not looked at. Raises `OSError`.
    """
    began = time.time()
    folder = _Folder(place)
    exchanges: set[str] = set()
    concerned: list[Segment] = []
    for segment in folder.segments():
        found = segment.exchanges(sought.stands_in)
        if found or segment.damaged or _FEEDBACK in segment.path:
            concerned.append(segment)
        exchanges |= found
    feedbacks, blobs = 0, set[bytes]()
    for segment in concerned:
        removed = segment.without(exchanges)
        feedbacks += len(removed.exchanges) if _FEEDBACK in segment.path else 0
        blobs |= removed.blobs
    return ForgottenCaptures(frozenset(exchanges), feedbacks, folder.remove_blobs(blobs, began))


class _Folder:
    """The files of captures below a path or fsspec URL."""

    def __init__(self, place: str) -> None:
        self._system: Any
        self._system, self._root = fsspec.core.url_to_fs(place)
        self._local = on_disk(self._system)

    def segments(self) -> Iterator[Segment]:
        """Yield the segments there are, runs and feedback; a pipe or a device keeps nothing."""
        for path in sorted(files_below(self._system, self._root)):
            if path.endswith(_PACKED) and not (self._local and no_file(path)):
                yield Segment(self._system, path, local=self._local)

    def remove_blobs(self, digests: set[bytes], began: float) -> int:
        """Remove the blobs nobody names any more, and nobody has used since; returns how many."""
        if not digests:
            return 0
        used = {one for segment in self.segments() for one in segment.blobs() if one in digests}
        removed = 0
        for digest in digests - used:
            path = f"{self._root}/blobs/{digest.decode()}.zst"
            with suppress(FileNotFoundError):
                if self._system.info(path).get("mtime", 0) < began:
                    self._system.rm_file(path)
                    removed += 1
        return removed
