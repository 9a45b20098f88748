"""The work shared among processes, and long segments cut for it: what comes out is the same."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard

from compare.captures import Question, compare_captures
from compare.input.segments import CaptureSegment, find_segments, read_lines, stretches
from compare.report import report_of
from compare.report.document import encode_report
from compare.sharing import (
    WORTH_SHARING,
    WorkerLost,
    Workers,
    can_send,
    in_order,
    process_pool,
    processes_for,
)
from compare.tally import Tally
from contract.errors import CutoverError
from contract.flow import FlowSpec
from contract.flows import SPECS
from contract.flows.chat import CHAT
from contract.flows.declared import DeclaredFlow, declared_spec
from contract.wire import built_in
from cutover.selftest.exchanges import Script, batch, exchange, lines, store

ASKED = Question({"chat": CHAT})
SHIPPED = {
    **SPECS,
    **{
        name: declared_spec(name, DeclaredFlow(path=f"/{name}", dialect=dialect))
        for name, dialect in built_in().items()
    },
}
COLD = Script(system="冷")
NEVER = Script(final="Never.")
NOISE = Script(system="".join(str(n * n * 7919) for n in range(20_000)))


def captures(folder: Path) -> str:
    """Store segments of all kinds: equal, different, damaged."""
    runs = [exchange(graph=(COLD, NEVER, None)[n % 3], number=n) for n in range(24)]
    for k in range(6):
        whole = batch(*runs[4 * k : 4 * k + 3]), batch(runs[4 * k + 3])
        store(folder, *whole, batch(runs[0])[: 90 * (k % 2)], name=f"{k}.jsonl.zst")
    return str(folder)


def document(tally: Tally) -> bytes:
    """Give the whole report."""
    return encode_report(report_of(tally, "captures", "ignore"))


@pytest.mark.slow
def test_several_processes_find_what_one_does(tmp_path: Path) -> None:
    """To the byte of the report, exemplars and damage included; progress is told in full."""
    place = captures(tmp_path)
    told: list[int] = []
    alone = compare_captures(place, ASKED)
    shared = compare_captures(place, ASKED, told.append, processes=2)
    assert document(shared) == document(alone)
    assert (alone.pairs, alone.different, dict(alone.damage)) == (24, 16, {"torn": 3})
    assert sum(told) == sum(segment.size for segment in find_segments(place))


def test_a_long_segment_is_cut_between_exchanges(tmp_path: Path) -> None:
    """Every line is in one stretch, and stretches cover the file."""
    parts = [batch(exchange(NOISE, number=n)) for n in range(12)]
    [segment] = find_segments(str(store(tmp_path, *parts)))
    cut = stretches(segment, stretch=3 * len(lines(exchange(NOISE))))
    assert len(cut) == 4
    assert [part.begins for part in cut[1:]] == [part.ends for part in cut[:-1]]
    assert sum(part.size for part in cut) == segment.size
    apart = [line for part in cut for line in read_lines(part)]
    assert apart == list(read_lines(segment))


def test_an_exchange_over_two_batches_is_not_cut(tmp_path: Path) -> None:
    """Nor is a line: batches of others may end anywhere."""
    runs = exchange(NOISE)
    line = lines(runs[:1])
    halves = (batch(runs[:1]), batch(runs[1:])), (_packed(line[:50_000]), _packed(line[50_000:]))
    for k, parts in enumerate(halves):
        store(tmp_path, *parts, name=f"{k}.jsonl.zst")
    for segment in find_segments(str(tmp_path)):
        assert stretches(segment, stretch=1) == [segment]


def _packed(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


def test_what_is_damaged_is_left_to_one_reader(tmp_path: Path) -> None:
    """Behind a torn batch nothing is cut, so that it is named once."""
    parts = [batch(exchange(NOISE, number=n)) for n in range(6)]
    [segment] = find_segments(str(store(tmp_path, *parts[:3], parts[3][:-30], *parts[4:])))
    cut = stretches(segment, stretch=1)
    assert [part.begins for part in cut] == [0, len(parts[0]), len(parts[0] + parts[1])]
    result = Tally()
    result.merge(compare_captures(str(tmp_path), ASKED))
    assert (result.equal, dict(result.damage)) == (5, {"torn": 1})


def test_little_work_is_done_by_one_process() -> None:
    """Starting others would take longer."""
    assert processes_for([CaptureSegment("a.jsonl.zst", WORTH_SHARING - 1)]) == 1
    assert processes_for([CaptureSegment("a.jsonl.zst", WORTH_SHARING)]) >= 1


def test_a_question_that_cannot_be_sent_is_answered_here(tmp_path: Path) -> None:
    """Flows made on the spot cannot reach another process; their captures are compared anyway."""
    local = Question({"chat": CHAT, "odd": _unsendable()})
    assert can_send(ASKED)
    assert not can_send(local)
    place = captures(tmp_path)
    assert compare_captures(place, local, processes=2).pairs == 24


@pytest.mark.parametrize("name", SHIPPED)
def test_every_flow_can_be_sent_to_another_process(name: str) -> None:
    """Those that are shipped, and declared ones on each wire: no lambda, no local function."""
    assert can_send(Question({name: SHIPPED[name]}))


@pytest.mark.slow
def test_every_flow_arrives_in_another_process() -> None:
    """Which imports what it needs of it anew."""
    with process_pool(1) as pool:
        assert pool.submit(_failures, SHIPPED).result() == _failures(SHIPPED)


def _failures(flows: Mapping[str, FlowSpec]) -> dict[str, bytes]:
    """Return the frames in which each flow ends a broken stream."""
    return {
        name: b"".join(map(spec.encode, spec.failure(spec.options(), "broken", None)))
        for name, spec in flows.items()
    }


def _unsendable() -> FlowSpec:
    return replace(CHAT, failure=lambda _options, _code, _last: ())


@pytest.mark.slow
def test_a_worker_that_is_lost_is_an_error_not_a_wait(tmp_path: Path) -> None:
    """For want of memory, or killed by hand."""
    parts = find_segments(captures(tmp_path))
    with process_pool(2) as pool, pytest.raises(WorkerLost, match="has ended"):
        list(in_order(_dies, parts, Workers(pool, 1)))


class _TooSlow(CutoverError):
    """An error of its own, with facts for arguments."""

    def __init__(self, rule: str, seconds: float) -> None:
        super().__init__(f"the rule {rule!r} is too slow: {seconds} s")
        self.seconds = seconds


@pytest.mark.slow
def test_a_worker_that_cannot_compare_says_why(tmp_path: Path) -> None:
    """The error is the one a single process would have ended with."""
    parts = find_segments(captures(tmp_path))
    with process_pool(2) as pool, pytest.raises(_TooSlow, match="'r' is too slow") as found:
        list(in_order(_refuses, parts, Workers(pool, 1)))
    assert found.value.seconds == 1.5


def _refuses(_part: CaptureSegment) -> Tally:
    raise _TooSlow("r", 1.5)


def _dies(_part: CaptureSegment) -> Tally:
    os._exit(7)
