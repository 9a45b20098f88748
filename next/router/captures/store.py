"""Where captures lie: files of lines in a folder of the disk, or in a bucket, by flow and date."""

from __future__ import annotations

import os
import re
import time
import uuid
from collections.abc import Iterator
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
_LEFT_BEHIND_SECONDS = 600.0
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
        name = (
            f"flow={flow}/date={day.isoformat()}/{time.time_ns():020}-{uuid.uuid4().hex}{_SUFFIX}"
        )
        self.put(name, lines)
        return name

    def put(self, name: str, lines: bytes) -> None:
        """Write or replace a file."""
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
        """Yield what is in a file; raises `zstandard.ZstdError`, also where it is cut off."""
        with self._system.open(f"{self._root}/{name}", "rb") as file:
            frame, begun = zstandard.ZstdDecompressor().decompressobj(), False
            while data := file.read(1 << 18):
                while data:
                    yield frame.decompress(data)
                    data, begun = frame.unused_data, True
                    if frame.eof:
                        frame, begun = zstandard.ZstdDecompressor().decompressobj(), False
        if begun:
            message = "the file ends before its last frame does"
            raise zstandard.ZstdError(message)

    def remove(self, name: str) -> None:
        """Remove a file."""
        self._system.rm_file(f"{self._root}/{name}")

    def sweep(self, keep_days: int, today: date | None = None) -> int:
        """Remove files of days before the last `keep_days`; return how many there were."""
        oldest = (today or datetime.now(UTC).date()) - timedelta(days=keep_days)
        old = [name for name, found in self._files() if found["date"] < oldest.isoformat()]
        for name in old:
            self.remove(name)
        return len(old)

    def remove_unfinished(self) -> int:
        """Remove what killed writers have left half written; return how many files."""
        if not isinstance(self._system, LocalFileSystem):
            return 0
        before = time.time() - _LEFT_BEHIND_SECONDS
        left = [name for name, _ in self._files() if name.endswith(_UNFINISHED)]
        old = [name for name in left if Path(self._root, name).stat().st_mtime < before]
        for name in old:
            self.remove(name)
        return len(old)

    def _files(self) -> Iterator[tuple[str, re.Match[str]]]:
        self._system.invalidate_cache()
        for path in self._system.find(self._root):
            name = path[len(self._root) :].lstrip("/")
            if found := _FOLDER.search(name):
                yield name, found
