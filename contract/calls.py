"""Calls: what each run asked of the world, from the tape and its play log, and which are alike.

Calls of two runs stand for each other by the entry that answered both, by what was asked, or by
their place. Their order counts where it can be noticed: among writes, and around reads of a store.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from itertools import pairwise
from typing import Any, Final, Literal, NamedTuple

import msgspec

from contract.external import STATE_SITE
from contract.model import GATEWAY_SITE
from contract.normalisation import Fold, NormalCall, folds_between, normal_call, number_of
from contract.operations import (
    HUMAN_OPEN,
    LASTING,
    MODEL_STREAM,
    OPERATIONS,
    STORE_READS,
    TOOLS_RUN,
    WRITES,
)
from contract.records import EntryRecord, How, RunRecord
from contract.wire import NO_JSON

_LASTING: Final = frozenset(key for key, row in OPERATIONS.items() if row.order == "lasting")
_decode = msgspec.json.Decoder(float_hook=number_of).decode
_sorted = msgspec.json.Encoder(order="sorted").encode


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
        """The arguments, decoded, `1.0` as `1`; what is no object or no JSON is a text under ""."""
        try:
            value = _decode(self.args)
        except NO_JSON:
            return {"": self.args.decode("utf-8", "replace")}
        return value if isinstance(value, dict) else {"": _sorted(value).decode()}

    @property
    def passed_gateway(self) -> bool:
        """Whether a service asked the model through the gateway."""
        return self.site == GATEWAY_SITE and self.label == MODEL_STREAM.label

    def same_as(self, other: EffectCall) -> bool:
        """Whether another call is the same question at the same site, however it is written."""
        return self.site == other.site and same_json(self.args, other.args)


def calls_of(run: RunRecord, tape: tuple[EntryRecord, ...]) -> list[EffectCall]:
    """List a run's calls in the order it made them, but for those of a store of its own."""
    counts: dict[tuple[str, str], int] = {}

    def call(
        port: str, op: str, site: str, args: bytes, how: How, entry: int | None, frames: int = -1
    ) -> EffectCall:
        label = f"{port}.{op}"
        n = counts[label, site] = counts.get((label, site), -1) + 1
        return EffectCall(port, label, site, n, args, how, entry, frames)

    if not run.plays and run.tape:
        return [
            call(e.port, e.op, e.site, bytes(e.args), "live", e.seq)
            for e in run.tape
            if e.site != STATE_SITE
        ]
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
        if play.site != STATE_SITE
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
    return [normal_call(call.args) if call.passed_gateway else None for call in calls]


def _with_args(calls: list[EffectCall], normal: list[NormalCall | None]) -> list[EffectCall]:
    return [
        call if form is None else msgspec.structs.replace(call, args=form.args)
        for call, form in zip(calls, normal, strict=True)
    ]


def same_calls(control: RunRecord, candidate: RunRecord) -> bool:
    """Whether both runs made the same calls in the same order, decided without reading arguments.

    Numbers of entries say nothing across two tapes: such runs are never the same here.
    """
    if not one_tape(control, candidate) or _entries(control) != _entries(candidate):
        return False
    together = [play.frames for play in control.plays] == [play.frames for play in candidate.plays]
    if together and len(control.frames) == len(candidate.frames):
        return True
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


def same_json(one: bytes, other: bytes) -> bool:
    """Whether two JSON values are the same: keys in any order, `1.0` as `1`.

    What is no JSON is the same where the bytes are.
    """
    if one == other:
        return True
    try:
        return _sorted(_decode(one)) == _sorted(_decode(other))
    except NO_JSON:
        return False


Twins = list[tuple[int, int]]
"""Indices of calls that stand for each other, in the order of the first run."""


class CallMatch(NamedTuple):
    """The calls of two runs, the indices of those `matched`, and of what is left on each side."""

    legacy: Sequence[EffectCall]
    graph: Sequence[EffectCall]
    matched: Twins
    skipped: Sequence[int]
    extra: Sequence[int]

    @property
    def twins(self) -> list[tuple[EffectCall, EffectCall]]:
        """The calls that stand for each other."""
        return [(self.legacy[i], self.graph[j]) for i, j in self.matched]

    @property
    def behind_other_frames(self) -> list[tuple[EffectCall, EffectCall]]:
        """The lasting ones that the runs made behind other numbers of frames, where known."""
        return [
            (old, new)
            for old, new in self.twins
            if old.frames != new.frames
            and old.label in LASTING
            and min(old.frames, new.frames) >= 0
        ]

    @property
    def same(self) -> bool:
        """Whether both runs made the same calls, in orders that nothing can tell apart."""
        return (
            not (self.skipped or self.extra)
            and all(old.same_as(new) for old, new in self.twins)
            and not reordered(self)
        )


def match_calls(legacy: Sequence[EffectCall], graph: Sequence[EffectCall]) -> CallMatch:
    """Match calls: by the entry that answered both, then by what was asked, then by place.

    A call answered by the nearest entry comes after the ones that asked exactly for it. What is
    asked under another site is matched last, if it is the same question.
    """
    matched: Twins = []
    left, right = list(range(len(legacy))), list(range(len(graph)))

    def by(
        key: Callable[[EffectCall], Hashable], fits: Callable[[EffectCall], bool] = lambda _: True
    ) -> None:
        """Match what is left and equal in key, in order; `fits` says which candidate calls may."""
        if not (left and right):
            return
        waiting: dict[Hashable, list[int]] = defaultdict(list)
        for i in left:
            waiting[key(legacy[i])].append(i)
        waiting.pop(None, None)
        for j in list(right):
            found = waiting.get(key(graph[j])) if fits(graph[j]) else None
            if found:
                i = found.pop(0)
                left.remove(i)
                right.remove(j)
                matched.append((i, j))

    by(lambda call: call.entry, lambda call: call.how in {"live", "exact"})
    by(lambda call: call.entry)
    by(lambda call: (call.label, call.site, call.args))
    by(lambda call: (call.label, call.site))
    by(lambda call: (call.label, call.args))
    return CallMatch(legacy, graph, sorted(matched), left, right)


class Reordered(NamedTuple):
    """Calls that both runs made, in another order; `read` is that of `reads`."""

    what: Literal["tools", "writes", "lasting", "reads"]
    twins: Twins
    read: EffectCall | None = None


def reordered(match: CallMatch) -> list[Reordered]:
    """Compare the order of tool calls, and of what lasts among itself and around its reads."""
    legacy, _, matched, *_ = match
    if not _inverted(matched):  # nor is any part of them
        return []
    writes = [twins for twins in matched if legacy[twins[0]].label in WRITES]
    tools = [twins for twins in writes if legacy[twins[0]].label == TOOLS_RUN.label]
    others = [twins for twins in writes if legacy[twins[0]].label != TOOLS_RUN.label]
    found: list[Reordered] = []
    if _inverted(tools):
        found.append(Reordered("tools", tools))
    if _inverted(others) or (_inverted(writes) and not _inverted(tools)):
        found.append(Reordered("writes", writes))
    lasting = [twins for twins in matched if legacy[twins[0]].label in LASTING]
    if not found and _inverted(lasting):
        found.append(Reordered("lasting", lasting))
    for read in matched if not found else ():
        call = legacy[read[0]]
        if call.label not in STORE_READS:
            continue
        for write in lasting:
            other_side = (read[0] < write[0]) != (read[1] < write[1])
            if other_side and legacy[write[0]].port == call.port:
                return [Reordered("reads", sorted([read, write]), call)]
    return found


def _inverted(twins: Twins) -> bool:
    return any(after[1] < before[1] for before, after in pairwise(twins))
