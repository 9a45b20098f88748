"""Blobs of captures: long texts beside the segments, found by their digest."""

from __future__ import annotations

from hashlib import blake2b

import fsspec
import zstandard

from contract.errors import CutoverError

FOLDER = "blobs"
_LEVELS = 4


class BlobMissing(CutoverError):
    """A text that was put beside the captures cannot be read there."""

    def __init__(self, digest: str, why: str) -> None:
        super().__init__(f"blob {digest[:12]!r}: {why}")


class Blobs:
    """The blobs of one segment's captures: in the nearest folder above it that holds some."""

    def __init__(self, segment: str) -> None:
        self._segment = segment
        self._place: str | None = None

    def fetch(self, digest: str) -> bytes:
        """Read one; raises `BlobMissing`."""
        try:
            if self._place is None:
                self._place = self._found()
            with fsspec.open(f"{self._place}/{digest}.zst", "rb") as file:
                content = zstandard.ZstdDecompressor().decompress(file.read())
        except FileNotFoundError as error:
            raise BlobMissing(digest, "it is not there") from error
        except (OSError, zstandard.ZstdError) as error:
            raise BlobMissing(digest, "it cannot be read") from error
        if blake2b(content, digest_size=len(digest) // 2).hexdigest() != digest:
            raise BlobMissing(digest, "it holds something else")
        return bytes(content)

    def _found(self) -> str:
        folder = self._segment
        for _ in range(_LEVELS):
            folder = folder.rpartition("/")[0]
            system, path = fsspec.core.url_to_fs(f"{folder}/{FOLDER}")
            if system.isdir(path):
                return f"{folder}/{FOLDER}"
        raise FileNotFoundError(FOLDER)
