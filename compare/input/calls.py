"""Calls: what each run asked of the world, from the tape and its play log."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from compare.input.damage import ILLEGIBLE
from contract.model import GATEWAY_SITE
from contract.normalisation import Fold, NormalCall, folds_between, normal_call
from contract.operations import HUMAN_OPEN, MODEL_STREAM, OPERATIONS
from contract.records import EntryRecord, How, RunRecord

_LASTING: Final = frozenset(key for key, row in OPERATIONS.items() if row.order == "lasting")


class EffectCall(msgspec.Struct, frozen=True):
    """One effect call of a run.

    `label` is `port.op`; `n` counts the run's calls of one label and site; `entry` is the sequence
    number of the tape entry that answered it, None when nothing did; `frames` how many frames the
    run had produced by then, -1 where that is unknown.
    """

    port: str
    label: str
    site: str
    n: int
    args: bytes
    how: How
    entry: int | None
    frames: int = -1

    @property
    def place(self) -> str:
        """`port.op@site[n]`, the head of a finding's path."""
        return f"{self.label}@{self.site}[{self.n}]"

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments, decoded; {} of what is no JSON, what is no object under ""."""
        try:
            value = msgspec.json.decode(self.args)
        except ILLEGIBLE:
            return {}
        return value if isinstance(value, dict) else {"": msgspec.json.encode(value).decode()}


def calls_of(run: RunRecord, tape: tuple[EntryRecord, ...]) -> list[EffectCall]:
    """List a run's calls in the order it made them."""
    counts: dict[tuple[str, str], int] = {}

    def call(
        port: str, op: str, site: str, args: bytes, how: How, entry: int | None, frames: int = -1
    ) -> EffectCall:
        label = f"{port}.{op}"
        n = counts[label, site] = counts.get((label, site), -1) + 1
        return EffectCall(port, label, site, n, args, how, entry, frames)

    if not run.plays and run.tape:
        return [call(e.port, e.op, e.site, bytes(e.args), "live", e.seq) for e in run.tape]
    recorded: dict[int | None, msgspec.Raw | bytes] = {e.seq: e.args for e in run.tape or tape}
    return [
        call(
            play.port,
            play.op,
            play.site,
            bytes(recorded.get(play.entry, b"") if play.args is None else play.args),
            play.how,
            play.entry,
            play.frames,
        )
        for play in run.plays
    ]


def in_normal_form(
    legacy: list[EffectCall], graph: list[EffectCall]
) -> tuple[tuple[list[EffectCall], list[EffectCall]], frozenset[Fold]]:
    """Bring the calls that passed the gateway into normal form.

    Also returns the folds that took different things from both runs' calls of one number.
    """
    if not any(call.site == GATEWAY_SITE for call in (*legacy, *graph)):
        return (legacy, graph), frozenset()
    folds: set[Fold] = set()
    old, new = _normal(legacy), _normal(graph)
    for one, other in zip(old, new, strict=False):
        if one is not None and other is not None and one.undone != other.undone:
            folds |= folds_between(one, other)
    return (_with_args(legacy, old), _with_args(graph, new)), frozenset(folds)


def _normal(calls: list[EffectCall]) -> list[NormalCall | None]:
    passed = (call.site == GATEWAY_SITE and call.label == MODEL_STREAM.label for call in calls)
    return [
        normal_call(call.args) if each else None for call, each in zip(calls, passed, strict=True)
    ]


def _with_args(calls: list[EffectCall], normal: list[NormalCall | None]) -> list[EffectCall]:
    return [
        call if form is None else msgspec.structs.replace(call, args=form.args)
        for call, form in zip(calls, normal, strict=True)
    ]


def same_calls(control: RunRecord, candidate: RunRecord) -> bool:
    """Whether both runs made the same calls in the same order, told without reading arguments.

    Numbers of entries say nothing across two tapes: such runs are never told the same here.
    """
    if not one_tape(control, candidate) or _entries(control) != _entries(candidate):
        return False
    old, new = _behind(control), _behind(candidate)
    return old == new or -1 in old or -1 in new


def _behind(run: RunRecord) -> list[int]:
    """List behind how many frames each lasting effect stands, as far as that is compared.

    That is whether it stands before the last frame, unless a question was shown.
    """
    lasting = [play for play in run.plays if (play.port, play.op) in _LASTING]
    asked = any(play.port == HUMAN_OPEN.port for play in lasting)
    last = 0 if asked else len(run.frames) - 1
    return [max(play.frames, last) if play.frames >= 0 else -1 for play in lasting]


def one_tape(control: RunRecord, candidate: RunRecord) -> bool:
    """Whether both runs stand on one tape: only one of them, or neither, brings its own."""
    return control.tape is None or candidate.tape is None


def _entries(run: RunRecord) -> list[object]:
    """List the entries that answered; a call for another, or without any, equals nothing."""
    if not run.plays and run.tape:
        return [entry.seq for entry in run.tape]
    return [
        play.entry if play.args is None and play.entry is not None else object()
        for play in run.plays
    ]
