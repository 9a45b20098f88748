"""Places: a folder of this host, or objects below an address that fsspec knows."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import IO, Any, Final

import fsspec

from contract.errors import CutoverError, MissingExtra

Info = Mapping[str, Any]
"""What a listing says of a file: its `size`, and by names of each store's own its age and tag."""

PIECE: Final = 1 << 18
"""Bytes of a piece that is read."""
FETCHED: Final = 1 << 23
"""Bytes that one request for a range of an object asks for, and a reader holds."""

_LOCAL: Final = frozenset({"file", "local"})
_EXTRAS: Final = {"s3": "s3", "s3a": "s3"}
_CHANGED: Final = ("LastModified", "last_modified", "mtime", "created")
_CONFLICTS: Final = frozenset({"412", "PreconditionFailed", "ConditionalRequestConflict"})
_DELETED_AT_ONCE: Final = 1_000


class ObjectChanged(OSError):
    """An object is no longer the version that was to be replaced."""


def on_disk(system: Any) -> bool:
    """Whether a file system of fsspec is that of this host."""
    protocol = system.protocol
    return bool(_LOCAL & {*((protocol,) if isinstance(protocol, str) else protocol)})


@contextmanager
def _translated() -> Iterator[None]:
    """Raise as `OSError` what the library of a store raises: each has errors of its own."""
    try:
        yield
    except (OSError, CutoverError):
        raise
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
        raise OSError(message) from error


class Place:
    """A folder or an fsspec URL; blocking. Every method raises `OSError`, and no other error.

    `root` is its path within its store, `local` whether that is this host. Listings are not cached:
    other processes write there, too. A replaced object is seen as it was or as it is, never in
    part.
    """

    def __init__(self, url: str) -> None:
        """Open a place without a request to it.

        Raises `MissingExtra` where the library of its store is an extra of ours, `ImportError`
        where it is another one, and `ValueError` where no library knows the address.
        """
        self._system: Any
        try:
            self._system, self.root = fsspec.core.url_to_fs(url, use_listings_cache=False)
        except ImportError as error:
            scheme = url.partition("://")[0].rpartition("::")[2]
            if (extra := _EXTRAS.get(scheme)) is None:
                raise
            raise MissingExtra(adapter=url, extra=extra) from error
        self.local = on_disk(self._system)
        self._is_s3 = "s3" in self._system.protocol

    @property
    def system(self) -> Any:
        """The file system of fsspec."""
        return self._system

    def connect(self) -> None:
        """Make the client of a store, where that takes long: S3's holds all threads for 0.2 s.

        Nothing is requested, but what its credentials need.
        """
        if self._is_s3:
            with _translated():
                self._system.connect()

    def url(self, path: str) -> str:
        """Return the address of a path here."""
        return str(self._system.unstrip_protocol(path))

    def exists(self, path: str) -> bool:
        """Whether there is a file, or anything below a folder."""
        with _translated():
            return bool(self._system.exists(path))

    def children(self, path: str) -> tuple[list[str], dict[str, Info]]:
        """List one level of a folder: the folders, sorted, and the files; none where there is none.

        Of a file, that file.
        """
        with _translated():
            try:
                found = self._system.ls(path, detail=True)
            except (FileNotFoundError, NotADirectoryError):
                found = []
        folders = sorted(one["name"].rstrip("/") for one in found if one["type"] == "directory")
        return folders, {one["name"]: one for one in found if one["type"] != "directory"}

    def below(self, path: str) -> dict[str, Info]:
        """List all files below a folder; none where there is none."""
        folder, _, name = path.rpartition("/")
        with _translated():
            if self._is_s3 and folder:  # one request where there is nothing, too
                return dict(self._system.find(folder, prefix=f"{name}/", detail=True))
            return dict(self._system.find(path, detail=True))

    def info(self, path: str) -> Info:
        """Return what is known of a file."""
        with _translated():
            info: Info = self._system.info(path)
            return info

    def read(self, path: str, begins: int | None = None, ends: int | None = None) -> bytes:
        """Read a short file, or a range of one; a negative `begins` counts from its end."""
        with _translated():
            return bytes(self._system.cat_file(path, start=begins, end=ends))

    def open(self, path: str, *, cache: str = "readahead") -> IO[bytes]:
        """Open a file; reading it may raise what its store raises."""
        how: Mapping[str, Any] = {}
        if not self.local:
            how = {"block_size": FETCHED, "cache_type": cache}
        with _translated():
            opened: IO[bytes] = self._system.open(path, "rb", **how)
            return opened

    def pieces(
        self, path: str, begins: int = 0, ends: int | None = None, *, size: int = 0
    ) -> Iterator[bytes]:
        """Yield a file, or a range of one, in pieces of at most `PIECE` bytes.

        Of an object `FETCHED` bytes are held; with its `size`, as listed, a short one takes a
        single request. One that is replaced meanwhile is an error where the store tags its
        versions, as S3 does, and never the one half beside the other.
        """
        if not self.local and 0 < (size if ends is None else ends) - begins < FETCHED:
            data = self.read(path, begins, begins + FETCHED if ends is None else ends)
            if ends is not None or len(data) < FETCHED:  # it has not grown since
                yield from _cut(data)
                return
        with self.open(path, cache="none") as file:
            if begins:
                with _translated():
                    file.seek(begins)
            left = sys.maxsize if ends is None else ends - begins
            most = PIECE if self.local else FETCHED
            while True:
                with _translated():
                    data = file.read(min(most, left))
                if not data:
                    return
                left -= len(data)
                yield from _cut(data)

    def put(self, path: str, content: bytes, *, new: bool = False, tag: str | None = None) -> None:
        """Store an object whole, in place of another one if there is.

        `new`: raises `FileExistsError` where there is one. `tag`: raises `ObjectChanged` where it
        is not of this version any more, in stores that compare.
        """
        how: dict[str, Any] = {"mode": "create"} if new else {}
        if tag is not None:
            how["IfMatch"] = tag
        try:
            with _translated():
                self._system.pipe_file(path, content, **how)
        except OSError as error:
            response = getattr(error.__cause__, "response", None) or {}
            if tag is not None and response.get("Error", {}).get("Code") in _CONFLICTS:
                raise ObjectChanged(path) from error
            raise

    def keeps_versions(self) -> bool:
        """Whether a store is known to keep what is removed or replaced, as a bucket with versions.

        One that does not say so, or to us, is taken not to.
        """
        if not self._is_s3:
            return False
        with suppress(OSError), _translated():
            return bool(self._system.is_bucket_versioned(self._system.split_path(self.root)[0]))
        return False

    def tag(self, info: Info) -> str | None:
        """Return the version of an object, for `put`; None where its store compares none."""
        return info.get("ETag") if self._is_s3 else None

    def remove(self, path: str) -> None:
        """Remove a file, if it is there."""
        with _translated(), suppress(FileNotFoundError):
            self._system.rm_file(path)

    def remove_all(self, paths: Sequence[str]) -> None:
        """Remove many files, as far as they are there and may be removed: no store reports which.

        It takes one request for a thousand of them where the store has such requests.
        """
        for at in range(0, len(paths), _DELETED_AT_ONCE):
            some = list(paths[at : at + _DELETED_AT_ONCE])
            try:
                with _translated():
                    self._system.rm(some)
            except FileNotFoundError:  # another process was faster
                for path in some:
                    self.remove(path)


def _cut(data: bytes) -> Iterator[bytes]:
    return (data[at : at + PIECE] for at in range(0, len(data), PIECE))


def changed_at(info: Info) -> float | None:
    """Return when a file was stored, in seconds since the Unix epoch; None where none says."""
    for name in _CHANGED:
        match info.get(name):
            case datetime() as moment:
                return moment.timestamp()
            case int() | float() as moment:
                return float(moment)
            case _:
                pass
    return None
