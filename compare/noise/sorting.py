"""Sorting: which runs of a message asked the model themselves, and which played a tape."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from compare.pairs import CANDIDATE, CONTROL, REPLAY, Pair
from contract.operations import MODEL_STREAM

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from compare.reading import Exchange
    from contract.records import RunRecord


_ENDED = frozenset({"completed", "refused", "failed"})


class Sorted(NamedTuple):
    """The runs of one message that asked the model themselves."""

    legacy: tuple[RunRecord, ...]
    graph: tuple[RunRecord, ...]


class TooFew(NamedTuple):
    """Why a message says nothing about noise."""

    reason: str


def message_of(exchange: Exchange) -> bytes:
    """Name the message of an exchange: its flow and what was asked, else the exchange itself."""
    asked = next((bytes(run.request.body) for run in exchange if run.request), None)
    named = exchange[0].exchange.encode() if asked is None else asked
    return blake2b(b"\x1f".join((exchange[0].flow.encode(), named)), digest_size=16).digest()


def owning_tape(exchange: Exchange) -> Exchange:
    """Give every run of an exchange that names calls of the tape the tape itself."""
    tape = next((run.tape for run in exchange if run.tape is not None), None)
    return tuple(
        msgspec.structs.replace(run, tape=tape) if run.plays and run.tape is None else run
        for run in exchange
    )


def live(run: RunRecord) -> bool:
    """Whether every answer of a model came from the model.

    A run that lists no calls had no tape to play, unless it is a replay.
    """
    if run.role == REPLAY:
        return False
    if not run.plays:
        return True
    heard = [play.how for play in run.plays if _asks_model(play.port, play.op)]
    return bool(heard) and all(how == "live" for how in heard)


def _asks_model(port: str, op: str) -> bool:
    return (port, op) == (MODEL_STREAM.port, MODEL_STREAM.name)


def sort(runs: Iterable[RunRecord]) -> Sorted | TooFew:
    """Choose the runs that show noise; a run that was read twice counts once."""
    all_there = _once(runs)
    if not any(run.stack == CANDIDATE for run in all_there):
        return TooFew("no run of graph")
    once = [run for run in all_there if not _drifts(run)]
    if not any(run.stack == CANDIDATE for run in once):
        return TooFew("graph was told earlier answers of its own")
    legacy, graph = (
        tuple(run for run in once if run.stack == stack and live(run))
        for stack in (CONTROL, CANDIDATE)
    )
    if not graph:
        return TooFew("graph was played the model's answers")
    if len(legacy) < 2:  # noqa: PLR2004 (a pair)
        return TooFew("legacy did not ask the model twice")
    return Sorted(legacy, graph)


def _drifts(run: RunRecord) -> bool:
    """Whether a run was told other earlier answers than were served: it was asked otherwise."""
    return run.history is not None and run.history.other > 0


def _once(runs: Iterable[RunRecord]) -> list[RunRecord]:
    seen: set[object] = set()
    kept: list[RunRecord] = []
    for run in runs:
        name = (run.exchange, run.role, run.stack, run.began, run.frames)
        if run.outcome != "cancelled" and name not in seen:
            seen.add(name)
            kept.append(run)
    return kept


def control_pairs(exchange: Sequence[RunRecord]) -> Iterator[Pair]:
    """List the pairs of two legacy runs on one tape: each replay with the first run there was.

    What was taken out of a recording cannot be repeated: then only replays go together. A run that
    did not end by itself may have been ended by the clock, and one that took over began in the
    middle.
    """
    legacy = [
        run
        for run in _once(exchange)
        if run.stack == CONTROL and run.outcome in _ENDED and run.role != "fallback"
    ]
    recorded = [run for run in legacy if run.tape and live(run) and not run.redacted]
    played = [run for run in legacy if not live(run)]
    replays = [run for run in played if run.role == REPLAY]
    others = [run for run in played if run.role != REPLAY and not run.redacted]
    one_tape = (*recorded[:1], *others, *replays)
    for run in one_tape[1:]:
        first = one_tape[0]
        yield Pair(first.exchange, first.flow, first, run, first.tape or ())
