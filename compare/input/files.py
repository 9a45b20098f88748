"""Files: what lies below a place, and declarations read from files."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contract.declarations import DeclarationRefused

_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}
_LOCAL = frozenset({"file", "local"})


def on_disk(system: Any) -> bool:
    """Whether a file system of fsspec is that of this host."""
    return bool(_LOCAL & set(system.protocol))


def files_below(system: Any, root: str) -> Mapping[str, Mapping[str, Any]]:
    """Return all files below a folder, with what is known of each; raises `OSError`.

    A folder without permission is empty to fsspec. Here it is an error: what is in it would
    silently be left out.
    """

    def refuse(trouble: OSError) -> None:
        if not isinstance(trouble, FileNotFoundError | NotADirectoryError):  # removed, or a file
            raise trouble

    if on_disk(system):
        for _ in os.walk(root, onerror=refuse):
            pass
    found: Mapping[str, Mapping[str, Any]] = system.find(root, detail=True)
    return found


def no_file(path: str | os.PathLike[str]) -> str:
    """Name what something on this host is if it is neither file nor folder, "" for those.

    Opening a pipe waits for its writer, and a device may have no end. Raises `OSError`.
    """
    kind = stat.S_IFMT(Path(path).stat().st_mode)
    if kind in {stat.S_IFREG, stat.S_IFDIR}:
        return ""
    return f"{_KINDS.get(kind, 'something else')}, not a file: it is not read"


def read_text(path: Path) -> str:
    """Read a file, without a byte order mark; raises `DeclarationRefused` when it cannot be."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as trouble:
        raise DeclarationRefused(str(path), "", str(trouble)) from trouble
