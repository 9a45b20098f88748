"""Calls: what each run asked of the world, from the tape and its play log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from compare.input.damage import ILLEGIBLE
from contract.records import EntryRecord, How, PlayRecord, RunRecord


class Call(msgspec.Struct, frozen=True):
    """One effect call of a run.

    `n` counts the run's calls of one port, operation and site; `entry` is the sequence number of
    the tape entry that answered it, None when nothing did.
    """

    port: str
    op: str
    site: str
    n: int
    args: bytes
    how: How
    entry: int | None

    @property
    def label(self) -> str:
        """`port.op`."""
        return f"{self.port}.{self.op}"

    @property
    def place(self) -> str:
        """`port.op@site[n]`, the head of a finding's path."""
        return f"{self.port}.{self.op}@{self.site}[{self.n}]"

    @property
    def arguments(self) -> dict[str, Any]:
        """What was asked, decoded; {} of what is no JSON, what is no object under ""."""
        try:
            value = msgspec.json.decode(self.args)
        except ILLEGIBLE:
            return {}
        return value if isinstance(value, dict) else {"": msgspec.json.encode(value).decode()}


def calls_of(run: RunRecord, tape: tuple[EntryRecord, ...]) -> list[Call]:
    """List a run's calls in the order it made them."""
    entries = {entry.seq: entry for entry in (run.tape or tape)}
    counts: dict[tuple[str, str, str], int] = {}
    if not run.plays and run.tape:
        return [_recorded(entry, counts) for entry in run.tape]
    return [_played(play, entries, counts) for play in run.plays]


def same_calls(control: RunRecord, candidate: RunRecord) -> bool:
    """Whether both runs made the same calls in the same order, told without reading arguments.

    Numbers of entries say nothing across two tapes: such runs are never told the same here.
    """
    return one_tape(control, candidate) and _answers(control) == _answers(candidate)


def one_tape(control: RunRecord, candidate: RunRecord) -> bool:
    """Whether both runs stand on one tape: only one of them, or neither, brings its own."""
    return control.tape is None or candidate.tape is None


def _answers(run: RunRecord) -> list[object]:
    if not run.plays and run.tape:
        return [entry.seq for entry in run.tape]
    return answers_of(run.plays)


def answers_of(plays: Iterable[PlayRecord]) -> list[object]:
    """List the entries that answered; what asked for another, or got none, equals nothing."""
    return [
        play.entry if play.args is None and play.entry is not None else object() for play in plays
    ]


def _recorded(entry: EntryRecord, counts: dict[tuple[str, str, str], int]) -> Call:
    n = _count(counts, entry.port, entry.op, entry.site)
    args = bytes(entry.args)
    return Call(entry.port, entry.op, entry.site, n, args, "live", entry.seq)


def _played(
    play: PlayRecord,
    entries: Mapping[int, EntryRecord],
    counts: dict[tuple[str, str, str], int],
) -> Call:
    n = _count(counts, play.port, play.op, play.site)
    return Call(play.port, play.op, play.site, n, _args(play, entries), play.how, play.entry)


def _args(play: PlayRecord, entries: Mapping[int, EntryRecord]) -> bytes:
    if play.args is not None:
        return bytes(play.args)
    entry = entries.get(play.entry) if play.entry is not None else None
    return b"" if entry is None else bytes(entry.args)


def _count(counts: dict[tuple[str, str, str], int], port: str, op: str, site: str) -> int:
    key = (port, op, site)
    n = counts.get(key, 0)
    counts[key] = n + 1
    return n
