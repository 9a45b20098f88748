"""Where captures lie: files of lines in a folder of the disk, or in a bucket, by flow and date."""

import os
import re
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import fsspec  # type: ignore[import-untyped]
import zstandard
from fsspec.implementations.local import LocalFileSystem  # type: ignore[import-untyped]

LEVEL = 3
_FOLDER = re.compile(r"(?:\A|/)flow=(?P<flow>[^/]+)/date=(?P<date>\d{4}-\d\d-\d\d)/[^/]+\Z")
_SUFFIX, _UNFINISHED = ".jsonl.zst", ".tmp"
_LEFT_BEHIND = timedelta(minutes=10)
"""Age of an unfinished file that no writer is at any longer."""


@dataclass(slots=True)
class Store:
    """Files of captures below `url`: a folder, or whatever fsspec knows (`s3://bucket/captures`).

    A file is written whole under its name: on disk by moving it there, on an object store by
    putting it. `options` are the file system's own. It may be used from any thread, and blocks.
    """

    url: str
    options: dict[str, Any] = field(default_factory=dict)
    _system: Any = None
    _root: str = ""

    def __post_init__(self) -> None:
        self._system, root = fsspec.core.url_to_fs(self.url, **self.options)
        self._root = root.rstrip("/")

    def add(self, flow: str, day: date, lines: bytes) -> str:
        """Write a new file of lines; return its name. Names sort by the time of writing."""
        written = f"{time.time_ns():020}-{uuid.uuid4().hex}{_SUFFIX}"
        name = f"flow={flow}/date={day.isoformat()}/{written}"
        self._put(name, lines)
        return name

    def replace(self, name: str, lines: Sequence[bytes]) -> None:
        """Write a file again with other lines; without any it is removed."""
        if lines:
            self._put(name, b"\n".join(lines) + b"\n")
        else:
            self._system.rm_file(f"{self._root}/{name}")

    def _put(self, name: str, lines: bytes) -> None:
        data = zstandard.ZstdCompressor(LEVEL, write_checksum=True).compress(lines)
        path = f"{self._root}/{name}"
        if not isinstance(self._system, LocalFileSystem):
            self._system.pipe_file(path, data)
            return
        unfinished = f"{path}{_UNFINISHED}"
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        try:
            with Path(unfinished).open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            Path(unfinished).replace(path)
        except BaseException:
            Path(unfinished).unlink(missing_ok=True)
            raise

    def names(self, flow: str | None = None) -> list[str]:
        """Return the names of all files of lines, in order of flow, date and time of writing."""
        return sorted(
            name
            for name, found in self._files()
            if name.endswith(_SUFFIX) and flow in {None, found["flow"]}
        )

    def pieces(self, name: str) -> Iterator[bytes]:
        """Yield what is in a file; raises `zstandard.ZstdError`, also where it is cut off.

        Files that were joined, one behind another, are read to their end.
        """
        with self._system.open(f"{self._root}/{name}", "rb") as file:
            frame = zstandard.ZstdDecompressor().decompressobj()
            while data := file.read(1 << 18):
                while data:
                    if frame.eof:
                        frame = zstandard.ZstdDecompressor().decompressobj()
                    yield frame.decompress(data)
                    data = frame.unused_data
        if not frame.eof:
            message = "the file is cut off"
            raise zstandard.ZstdError(message)

    def sweep(self, keep_days: int = 0, today: date | None = None) -> int:
        """Remove files of days before the last `keep_days`, and what killed writers left half done.

        0 keeps all days. Return how many files were removed.
        """
        days = timedelta(days=keep_days)
        oldest = ((today or datetime.now(UTC).date()) - days).isoformat() if keep_days else ""
        before = datetime.now(UTC) - _LEFT_BEHIND
        removed = 0
        for name, found in self._files():
            path = f"{self._root}/{name}"
            if found["date"] < oldest or (
                name.endswith(_UNFINISHED) and self._system.modified(path) < before
            ):
                self._system.rm_file(path)
                removed += 1
        return removed

    def _files(self) -> Iterator[tuple[str, re.Match[str]]]:
        self._system.invalidate_cache()
        for path in self._system.find(self._root):
            name = path[len(self._root) :].lstrip("/")
            if found := _FOLDER.search(name):
                yield name, found
