"""Recordings: captured exchanges that can be replayed, and why others cannot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from compare.input.blobs import BlobMissing
from contract.blobs import with_blobs
from contract.flow import Request
from effects.tape import Tape

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compare.input.captures import Exchange
    from contract.blobs import Fetch
    from contract.flow import FlowSpec
    from contract.records import RunRecord

_BY_ROUTER = frozenset({"serving", "fallback"})


@dataclass(frozen=True, slots=True)
class Recording:
    """An exchange that can be replayed: what was asked, what is on tape, and the runs there were.

    `last` is the run whose frames went to the client last: the router ended its stream if it
    did not.
    """

    spec: FlowSpec
    request: Request[Any, Any]
    tape: Tape
    runs: Exchange
    serving: RunRecord
    last: RunRecord

    @property
    def redacted(self) -> bool:
        """Whether something was taken out of it, so that no replay can say what it said."""
        return any(run.redacted for run in self.runs)


@dataclass(frozen=True, slots=True)
class Skipped:
    """An exchange that is not replayed."""

    reason: str


def recording_of(
    exchange: Exchange, specs: Mapping[str, FlowSpec], fetch: Fetch
) -> Recording | Skipped:
    """Make an exchange ready, or say why it cannot be; replays among its runs are left out."""
    try:
        runs = tuple(with_blobs(run, fetch) for run in exchange if run.role != "replay")
    except BlobMissing:
        return Skipped("a blob is missing")
    serving = next((run for run in runs if run.role == "serving"), None)
    if serving is None:
        return Skipped("it has no serving run")
    if serving.flow not in specs:
        return Skipped(f"unknown flow {serving.flow!r}")
    if any(run.outcome == "cancelled" for run in runs if run.role in _BY_ROUTER):
        return Skipped("cancelled")
    return _loaded(specs[serving.flow], runs, serving)


def _loaded(spec: FlowSpec, runs: Exchange, serving: RunRecord) -> Recording | Skipped:
    if serving.tape is None or serving.request is None:
        return Skipped("no tape")
    try:
        request = spec.request_of(serving.request)
    except msgspec.DecodeError:
        return Skipped("its request is none of today's")
    try:
        tape = Tape.load(serving.tape)
    except msgspec.DecodeError:
        return Skipped("its tape is none of today's")
    last = next(run for run in reversed(runs) if run.role in _BY_ROUTER)
    return Recording(spec, request, tape, runs, serving, last)
