"""Modules of a team's own: imported from the working directory, behind everything else."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from contract.errors import CutoverError

PACKAGES: Final = (
    *("compare", "contract", "cutover", "effects", "evidence", "graph_impl", "legacy"),
    *("loadtests", "router", "rules"),
)
"""The packages of this distribution."""


class ModuleHidden(CutoverError):
    """A module of the working directory bears the name of one that is found before it."""

    def __init__(self, name: str, own: Path, found: Path) -> None:
        super().__init__(
            f"module {name!r} is {str(found)!r}, which hides your own, {str(own)!r}: rename yours"
        )


def append_working_directory() -> None:
    """Let modules of the working directory be found, behind all others.

    `python -m` puts it first: a folder there that has the name of a package of ours would be
    imported in its place. Where cutover itself lies there, all is as it should be.
    """
    here = Path.cwd()
    ours = Path(__file__).resolve().parents[1]
    if ours == here.resolve():
        if not {"", str(here)}.intersection(sys.path):
            sys.path.append(str(here))
        return
    sys.path[:] = [*(path for path in sys.path if path not in {"", str(here)}), str(here)]


def refuse_hidden(name: str) -> None:
    """Raise `ModuleHidden` where the working directory has a module that importing would miss.

    That is the named one or, where that is found in the working directory and may import others of
    it, one with the name of a package of ours.
    """
    root = name.partition(":")[0].partition(".")[0]
    if root and _in_working_directory(root) is not None:
        for one in (root, *PACKAGES):
            _refuse_hidden_root(one)


def _refuse_hidden_root(root: str) -> None:
    own = _in_working_directory(root)
    found = find_spec(root) if own is not None else None
    if own is None or found is None:
        return
    origins = [found.origin] if found.has_location else found.submodule_search_locations or ()
    places = [Path(origin).resolve() for origin in origins if origin]
    if places and not any(place.is_relative_to(own) for place in places):
        raise ModuleHidden(root, own, places[0])


def _in_working_directory(root: str) -> Path | None:
    here = Path.cwd().resolve()
    folder, file = here / root, here / f"{root}.py"
    if file.is_file():
        return file
    return folder if root and any(folder.glob("*.py")) else None
