"""Captures read from disk: whole, torn, broken, foreign; counted and compared."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import fsspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compare.captures import Question, compare_captures
from compare.input.batches import decompressed
from compare.input.damage import CapturesUnreadable, Damage
from compare.input.segments import CapturedLine, find_segments, split_lines
from compare.report.latency import METRICS
from compare.tally import KINDS_AT_MOST, NAME_AT_MOST, SERIES_AT_MOST, Tally
from compare.verdict import verdict_on
from contract.flows.chat import CHAT
from contract.records import Role
from cutover.selftest.exchanges import Script, batch, exchange, lines, store
from tests.compare.pairs import tallied_lines

ASKED = Question({"chat": CHAT})
COLD = Script(system="冷")


def tally(folder: Path) -> Tally:
    """Compare what a folder holds."""
    return compare_captures(str(folder), ASKED)


def test_equal_pairs_are_counted_equal(tmp_path: Path) -> None:
    """Several batches in one segment read as one."""
    runs = [exchange(number=n) for n in range(20)]
    store(tmp_path, batch(*runs[:7]), batch(*runs[7:]))
    result = tally(tmp_path)
    assert (result.exchanges, result.pairs, result.equal, result.different) == (20, 20, 20, 0)
    assert verdict_on(result).label == "equal"


def test_differing_pairs_are_clustered_with_exemplars(tmp_path: Path) -> None:
    """One signature is one cluster, with the earliest exchanges as exemplars."""
    store(tmp_path, *(batch(exchange(graph=COLD, number=n)) for n in range(9, -1, -1)))
    result = tally(tmp_path)
    [cluster] = result.clusters.ordered()
    assert (cluster.exchanges, cluster.findings, cluster.layer) == (10, 10, "effects")
    assert [e.exchange for e in cluster.exemplars] == ["x-00000", "x-00001", "x-00002"]
    assert cluster.first_seen < cluster.last_seen
    assert verdict_on(result).label == "different"


def test_an_exchange_with_one_run_is_counted_not_compared(tmp_path: Path) -> None:
    """No shadow, no pair; and no pair, no verdict."""
    store(tmp_path, batch(exchange()[:1]))
    result = tally(tmp_path)
    assert result.not_comparable == {"one run only": 1}
    assert verdict_on(result).label == "no data"


def test_an_empty_folder_is_no_data(tmp_path: Path) -> None:
    """Nothing found is not a pass."""
    assert verdict_on(tally(tmp_path)).label == "no data"


def test_a_place_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """A misspelt path is no empty folder."""
    with pytest.raises(CapturesUnreadable, match="there is nothing there"):
        find_segments(str(tmp_path / "nowhere"))


def test_an_unknown_flow_is_counted_not_compared(tmp_path: Path) -> None:
    """Nothing is compared by a grammar that is not its own."""
    store(tmp_path, lines(exchange()).replace(b'"chat"', b'"chit"'), name="s.jsonl")
    assert tally(tmp_path).not_comparable == {"unknown flow 'chit'": 1}


def test_names_anybody_may_have_made_up_take_bounded_memory() -> None:
    """A thousand flows, a thousand stacks: the first are told apart, and none goes uncounted."""
    many = 1_000
    flows = b"".join(
        lines(exchange(number=n)).replace(b'"chat"', f'"{n}{"x" * 999}"'.encode())
        for n in range(many)
    )
    stacks = b"".join(
        lines(exchange(number=many + n)).replace(b'"stack":"graph"', f'"stack":"s{n}"'.encode())
        for n in range(many)
    )
    halves = [_read(part) for part in (flows, stacks)]
    for result in (_merged(halves), _merged(halves[::-1]), _merged([halves[0]] * 2)):
        assert len(result.not_comparable) <= KINDS_AT_MOST + 1
        assert result.not_comparable.total() == result.exchanges == 2 * many
        assert max(map(len, result.not_comparable)) < 2 * NAME_AT_MOST
        assert len(result.times) <= SERIES_AT_MOST + len(get_args(Role)) * len(METRICS)
    assert sum(map(len, halves[1].times.values())) == 2 * len(METRICS) * many


def _merged(parts: list[Tally]) -> Tally:
    whole = Tally()
    for part in parts:
        whole.merge(part)
    return whole


def test_parts_merge_into_the_whole() -> None:
    """Comparing segments apart and merging equals comparing them together."""
    runs = [exchange(graph=COLD if n % 3 else None, number=n) for n in range(12)]
    parts = [_read(lines(*runs[k : k + 4])) for k in (8, 0, 4)]
    total, whole = _merged(parts), _read(lines(*runs))
    assert (total.pairs, total.equal, total.different) == (whole.pairs, whole.equal, 8)
    assert total.clusters.ordered() == whole.clusters.ordered()
    assert {k: sorted(v) for k, v in total.times.items()} == {
        k: sorted(v) for k, v in whole.times.items()
    }


def _read(data: bytes) -> Tally:
    return tallied_lines(data)


@given(st.integers(0, 10_000), st.integers(0, 255))
def test_no_damaged_byte_stops_the_reader(at: int, byte: int) -> None:
    """Whatever is spoilt, what stands behind is still read, and nothing is raised."""
    first, second = batch(exchange(number=0)), batch(exchange(number=1))
    at %= len(first)
    spoilt = first[:at] + bytes([byte]) + first[at + 1 :] + second
    read = list(split_lines(decompressed(iter([spoilt]), "memory"), "memory"))
    whole = [item.data for item in read if isinstance(item, CapturedLine)]
    assert set(lines(exchange(number=1)).splitlines()) <= set(whole)
    assert spoilt == first + second or any(isinstance(item, Damage) for item in read)


def test_captures_are_read_from_any_place_fsspec_knows() -> None:
    """A place is a URL."""
    memory = fsspec.filesystem("memory")
    memory.pipe("/captures/flow=chat/date=2026-11-21/s.jsonl.zst", batch(exchange()))
    try:
        assert compare_captures("memory://captures", ASKED).equal == 1
    finally:
        memory.rm("/captures", recursive=True)


def test_segments_are_found_in_a_stable_order(tmp_path: Path) -> None:
    """By path; files that are no segments are not read."""
    store(tmp_path, batch(exchange()), name="b.jsonl.zst")
    store(tmp_path, lines(exchange()), name="a.jsonl")
    store(tmp_path, b"not ours", name="notes.txt")
    found = find_segments(str(tmp_path))
    assert [segment.url.rpartition("/")[2] for segment in found] == ["a.jsonl", "b.jsonl.zst"]
    assert all(segment.size > 0 for segment in found)


def test_feedback_is_no_run(tmp_path: Path) -> None:
    """What users thought lies beside the exchanges and is neither compared nor called broken."""
    store(tmp_path, batch(exchange()))
    folder = tmp_path / "feedback" / "date=2026-11-21"
    folder.mkdir(parents=True)
    (folder / "a.jsonl").write_text('{"v":1,"exchange":"x","score":1,"at":0}\n', "utf-8")
    result = tally(tmp_path)
    assert (result.exchanges, dict(result.damage)) == (1, {})
