"""Folders of captures: what is below them, all of it or none."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_LOCAL = frozenset({"file", "local"})


def on_disk(system: Any) -> bool:  # noqa: ANN401 - fsspec has no types
    """Whether a file system of fsspec is that of this host."""
    return bool(_LOCAL & set(system.protocol))


def files_below(system: Any, root: str) -> Mapping[str, Mapping[str, Any]]:  # noqa: ANN401 - as above
    """Give all files below a folder, with what is known of each; raises `OSError`.

    A folder nobody may look into is empty to fsspec: here it is an error, for what is in it would
    be neither compared nor forgotten, and nobody would be told.
    """
    if on_disk(system):
        for _ in os.walk(root, onerror=_refuse):
            pass
    found: Mapping[str, Mapping[str, Any]] = system.find(root, detail=True)
    return found


def _refuse(trouble: OSError) -> None:
    if not isinstance(trouble, FileNotFoundError | NotADirectoryError):  # gone since, or a file
        raise trouble
