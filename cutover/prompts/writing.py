"""Converted prompts as files: written whole or not at all, and over nothing unasked."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec

from contract.errors import CutoverError
from cutover.files import write_whole

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class WouldOverwrite(CutoverError):
    """Files are there that hold something else."""

    def __init__(self, paths: Sequence[Path]) -> None:
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        super().__init__(
            f"{str(paths[0])!r}{more} would be written over: --force does; nothing is written"
        )


class Blocked(CutoverError):
    """A folder is where a file is due, or a file where a folder is."""

    def __init__(self, path: Path, is_there: str) -> None:
        super().__init__(f"{str(path)!r} is {is_there}; nothing is written")


class NotEncoded(CutoverError):
    """A text has letters its file's encoding has not."""

    def __init__(self, path: Path, encoding: str) -> None:
        super().__init__(f"{str(path)!r} cannot be written as {encoding}; nothing is written")


class Outcome(msgspec.Struct, frozen=True):
    """One file to be: its bytes, and the file whose mode it takes, if any."""

    path: Path
    content: bytes
    like: Path | None = None


def encoded(path: Path, text: str, encoding: str) -> bytes:
    """Encode a text; raises `NotEncoded`."""
    try:
        return text.encode(encoding)
    except UnicodeEncodeError as error:
        raise NotEncoded(path, encoding) from error


def write_all(outcomes: Sequence[Outcome], *, force: bool) -> set[Path]:
    """Write files, each whole; gives those that were not as they are now.

    Raises `Blocked`, `WouldOverwrite` before anything is written.
    """
    fresh = [outcome for outcome in outcomes if not _as_it_is(outcome)]
    for outcome in fresh:
        _refuse_blocked(outcome.path)
    # A link that leads nowhere is there, too.
    in_the_way = [outcome.path for outcome in fresh if os.path.lexists(outcome.path)]
    if in_the_way and not force:
        raise WouldOverwrite(in_the_way)
    for outcome in fresh:
        write_outcome(outcome)
    return {outcome.path for outcome in fresh}


def _refuse_blocked(path: Path) -> None:
    """Raise `Blocked` where no file can be put."""
    if path.is_dir():
        raise Blocked(path, "a folder, and a prompt is to be a file there")
    above = next((folder for folder in path.parents if os.path.lexists(folder)), None)
    if above is not None and not above.is_dir():
        raise Blocked(above, "no folder, and prompts are to be in it")


def write_outcome(outcome: Outcome) -> None:
    """Write one file whole, in the mode of the one it is like."""
    path = outcome.path
    path.parent.mkdir(parents=True, exist_ok=True)
    like = outcome.like
    write_whole(path, outcome.content, None if like is None else like.stat().st_mode & 0o777)


def _as_it_is(outcome: Outcome) -> bool:
    return outcome.path.is_file() and outcome.path.read_bytes() == outcome.content
