"""Judgements as a file: what people and models prefer, without any text of theirs or of users."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from contract.errors import CutoverError
from contract.wire import NO_JSON
from effects.files import locked_folder, write_whole
from effects.places import Place
from evidence.preferences import (
    PERSON,
    JudgedPair,
    Preferences,
    candidate_first,
    preferred,
    tally,
)

QUALITY_FILE: Final = "quality.json"
VERSION: Final = 1


class JudgementsUnreadable(CutoverError):
    """A file is none of judgements."""

    def __init__(self, place: str, why: str) -> None:
        super().__init__(f"no judgements in {place!r}: {why}")


class NoLocalFolder(CutoverError):
    """Judgements are to be stored where nothing can be replaced whole."""

    def __init__(self, place: str) -> None:
        super().__init__(f"{place!r} is no local folder: say where judgements go, --out FILE")


class StoredJudgements(msgspec.Struct, frozen=True):
    """What is read of a file: every judgement."""

    v: int
    judged: tuple[JudgedPair, ...] = ()


class JudgementFile(StoredJudgements, frozen=True):
    """What is written: what the judgements add up to, too, for those who read the file."""

    preferences: tuple[Preferences, ...] = ()


class PersonJudgement(msgspec.Struct, frozen=True):
    """A person's choice between the two answers of a pair."""

    exchange: str
    flow: str
    began: int
    choice: Literal["a", "b", "tie", "skip"]

    def judgement(self, seed: int) -> JudgedPair:
        """Return the choice between A and B as a judgement of a person."""
        first = candidate_first(self.exchange, seed)
        return JudgedPair(
            exchange=self.exchange,
            flow=self.flow,
            began=self.began,
            judge=PERSON,
            preferred=preferred(self.choice, candidate_is_a=first),
        )


class PageExport(msgspec.Struct, frozen=True):
    """What a page of pairs exports: the choices, and the seed that says what A and B were."""

    v: int
    seed: int
    judged: tuple[PersonJudgement, ...]

    def judgements(self) -> list[JudgedPair]:
        """Return the choices as judgements of a person."""
        return [one.judgement(self.seed) for one in self.judged]


def default_file(captures: str) -> Path:
    """Return where judgements of captures go; raises `NoLocalFolder`."""
    folder = Path(captures)
    if not folder.is_dir():
        raise NoLocalFolder(captures)
    return folder / QUALITY_FILE


def read_judged(path: Path) -> tuple[JudgedPair, ...]:
    """Read a file of judgements; none where there is no file. Raises `JudgementsUnreadable`."""
    return _decoded(path.read_bytes(), str(path)) if path.exists() else ()


def read_judged_beside(captures: str) -> tuple[JudgedPair, ...]:
    """Read the judgements beside captures at a path or URL; none where there is no file.

    Raises `JudgementsUnreadable`.
    """
    place = f"{captures.rstrip('/')}/{QUALITY_FILE}"
    try:
        at = Place(place)
        content = at.read(at.root)
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError as error:
        raise JudgementsUnreadable(place, str(error)) from error
    return _decoded(content, place)


def read_export(path: Path) -> PageExport:
    """Read what a page exported; raises `JudgementsUnreadable`, `OSError`."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=PageExport)
    except NO_JSON as error:
        raise JudgementsUnreadable(str(path), f"no export of a page: {error}") from error
    if found.v != VERSION:
        raise JudgementsUnreadable(str(path), f"version {found.v}, not {VERSION}")
    return found


def _decoded(content: bytes, place: str) -> tuple[JudgedPair, ...]:
    try:
        found = msgspec.json.decode(content, type=StoredJudgements)
    except NO_JSON as error:
        raise JudgementsUnreadable(place, str(error)) from error
    if found.v != VERSION:
        raise JudgementsUnreadable(place, f"version {found.v}, not {VERSION}")
    return found.judged


def add_judged(path: Path, added: Iterable[JudgedPair]) -> Sequence[JudgedPair]:
    """Store judgements, whole or not at all, after concurrent writers; returns all that are stored.

    Of one judge on one pair the last counts. Raises `JudgementsUnreadable`, `OSError`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    place = path.resolve()
    with locked_folder(place.parent):
        known = {_key(one): one for one in (*read_judged(place), *added)}
        judged = (*known.values(),)
        found = JudgementFile(VERSION, judged, (*tally(judged),))
        write_whole(place, msgspec.json.format(msgspec.json.encode(found)) + b"\n")
    return judged


def _key(one: JudgedPair) -> tuple[str, str, bool]:
    return one.judge, one.exchange, one.itself
