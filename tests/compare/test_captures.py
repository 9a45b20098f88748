"""Captures read from disk: whole, torn, broken, foreign; counted and compared."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from random import Random
from typing import get_args

import fsspec
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compare.captures import Question, compare_captures
from compare.clusters import KINDS_AT_MOST, NAME_AT_MOST
from compare.input.batches import decompressed
from compare.input.damage import CapturesUnreadable, Damage
from compare.input.segments import CapturedLine, find_segments, split_lines
from compare.report.latency import METRICS
from compare.tally import SERIES_AT_MOST, Tally
from compare.verdict import verdict_on
from contract.flows.chat import CHAT
from contract.records import VERSION, FeedbackRecord, Role, RunRecord, ShadowState
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


def due(*runs: RunRecord) -> tuple[RunRecord, ...]:
    """Return an exchange whose record says that its second run was started."""
    return tuple(msgspec.structs.replace(run, shadow="due") for run in runs)


def test_a_second_run_that_was_started_must_be_there(tmp_path: Path) -> None:
    """An equal rest is no pass where more than one in a hundred are missing."""
    runs = [due(*exchange(number=n)) for n in range(100)]
    one, two = (
        tally(store(tmp_path / str(k), batch(*runs[k:], *(each[:1] for each in runs[:k]))))
        for k in (1, 2)
    )
    assert [(it.pairs, it.missing) for it in (one, two)] == [(99, 1), (98, 2)]
    assert verdict_on(one).label == verdict_on(two, missing=0.02).label == "equal"
    verdict = verdict_on(two)
    assert (verdict.label, verdict.text) == ("incomplete", "not enough read")
    assert verdict.reasons[0].startswith("2 of 100 pairs that should be there are missing")


def test_what_was_not_sampled_or_dropped_is_told_apart(tmp_path: Path) -> None:
    """It is not missing; the share that was compared is among the reasons."""
    states: tuple[ShadowState, ...] = ("not_sampled", "not_sampled", "dropped", "cancelled", "")
    alone = [
        (msgspec.structs.replace(exchange(number=n)[0], shadow=state),)
        for n, state in enumerate(states)
    ]
    full, _ = exchange(number=8)
    alone += [(msgspec.structs.replace(full, shadow="dropped", shadow_reason="queue_full"),)]
    store(tmp_path, batch(*alone, exchange(number=9)))
    result = tally(tmp_path)
    assert result.not_comparable == {
        "not sampled": 2,
        "its second run was dropped": 1,
        "its second run was dropped (queue_full)": 1,
        "no second run, it was cancelled": 1,
        "one run only": 1,
    }
    assert result.unshadowed == {
        "not_sampled()": 2,
        "dropped()": 1,
        "dropped(queue_full)": 1,
        "cancelled()": 1,
    }
    verdict = verdict_on(result)
    assert verdict.label == "equal"
    assert "compared: 1 of 7 exchanges (14.3 %)" in verdict.reasons


def test_lines_in_any_order_are_equal_or_not_enough(tmp_path: Path) -> None:
    """A few pairs that happen to stand together are no pass of all the others."""
    runs = list(chain.from_iterable(exchange(number=n) for n in range(60)))
    Random(7).shuffle(runs)
    store(tmp_path, batch(tuple(runs)))
    result = tally(tmp_path)
    label = verdict_on(result).label
    assert (label, result.pairs) == ("equal", 60) or label in {"incomplete", "no data"}


@pytest.mark.parametrize("processes", [1, 2])
def test_an_exchange_that_is_read_twice_counts_once(tmp_path: Path, processes: int) -> None:
    """A copy of a segment, of some of its lines, or of one line; each is named."""
    runs = [exchange(graph=COLD if n < 2 else None, number=n) for n in range(8)]
    store(tmp_path, batch(*runs), name="a.jsonl.zst")
    store(tmp_path, batch(*runs[:4], exchange(number=8)), name="b.jsonl.zst")
    twice = exchange(number=9)
    store(tmp_path, batch((twice[0], *twice, twice[1])), name="c.jsonl.zst")
    with ThreadPoolExecutor(2) as threads:
        executor = threads if processes > 1 else None
        result = compare_captures(str(tmp_path), ASKED, processes=processes, executor=executor)
    assert (result.exchanges, result.pairs, result.different) == (10, 10, 2)
    [cluster] = result.clusters.ordered()
    assert cluster.exchanges == 2
    assert dict(result.damage) == {"duplicate": 6}
    assert [one.detail for one in result.named][::5] == [
        "exchange 'x-00000' was read before",
        "shadow run of 'x-00009' was read before",
    ]
    assert "6 duplicates passed over: each counts once" in verdict_on(result).reasons


@pytest.mark.untraced
def test_a_copy_of_a_segment_is_no_pass(tmp_path: Path) -> None:
    """Nor is a segment that cannot be read: how much it held is unknown."""
    for name in ("a", "b"):
        store(tmp_path, batch(exchange()), name=f"{name}.jsonl.zst")
    assert verdict_on(tally(tmp_path)).label == "incomplete"
    store(tmp_path, batch(*(exchange(number=n) for n in range(1, 400))), name="c.jsonl.zst")
    assert verdict_on(tally(tmp_path)).label == "equal"
    (tmp_path / "d.jsonl.zst").write_bytes(b"no batch")
    assert verdict_on(tally(tmp_path)).label == "incomplete"


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


@pytest.mark.parametrize(
    ("name", "content", "detail"),
    [
        ("b.jsonl", b'{"v":1,"exchange":"x","score":5,"at":0}\n', "Invalid"),
        ("b.jsonl", b'{"v":1,"exch', "truncated"),
        ("b.jsonl.zst", b"(\xb5/\xfd\x04", ""),
    ],
)
def test_damaged_feedback_is_counted_and_is_no_missing_pair(
    tmp_path: Path, name: str, content: bytes, detail: str
) -> None:
    """What can be read of it still counts; the verdict is on all pairs, and reports the rest."""
    store(tmp_path, batch(exchange()))
    folder = tmp_path / "feedback" / "date=2026-11-21"
    folder.mkdir(parents=True)
    whole = FeedbackRecord(v=VERSION, exchange=exchange()[0].exchange, score=-1, at=0)
    (folder / "a.jsonl").write_bytes(msgspec.json.encode(whole) + b"\n")
    (folder / name).write_bytes(content)
    result = tally(tmp_path)
    assert (result.pairs, result.lost, dict(result.damage)) == (1, 0, {"feedback": 1})
    [totals] = result.outcomes.groups.values()
    assert totals.total("feedback", "-1") == 1
    assert f"/feedback/date=2026-11-21/{name}" in result.named[0].place
    assert detail in result.named[0].detail
    verdict = verdict_on(result)
    assert verdict.label == "equal"
    assert "1 damaged file, batch or line passed over" in verdict.reasons
