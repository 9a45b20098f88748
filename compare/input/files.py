"""Files: what lies below a place, and declarations read from files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from contract.declarations import MOST_BYTES, DeclarationRefused, decode_text, not_a_file
from effects.places import Info, Place


def files_below(place: Place) -> Mapping[str, Info]:
    """Return all files below a place, with what is known of each; raises `OSError`.

    A folder without permission is empty to fsspec. Here it is an error: what is in it would
    silently be left out.
    """

    def refuse(trouble: OSError) -> None:
        if not isinstance(trouble, FileNotFoundError | NotADirectoryError):  # removed, or a file
            raise trouble

    if place.local:
        for _ in os.walk(place.root, onerror=refuse):
            pass
    return place.below(place.root)


def no_file(path: str | os.PathLike[str]) -> str:
    """Return why something on this host is not read, "" for files and folders.

    Raises `OSError`.
    """
    kind = not_a_file(Path(path).stat().st_mode)
    return f"{kind}: it is not read" if kind else ""


def read_text(path: Path) -> str:
    """Read a declaration, at most 1 MiB of a file; raises `DeclarationRefused`."""
    try:
        if why := no_file(path):
            raise DeclarationRefused(str(path), "", why)
        with path.open("rb") as file:
            return decode_text(file.read(MOST_BYTES + 1), str(path))
    except OSError as trouble:
        raise DeclarationRefused(str(path), "", str(trouble)) from trouble
