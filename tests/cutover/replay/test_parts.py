"""Parts: captures cut between exchanges, never within one."""

from __future__ import annotations

from pathlib import Path

import pytest
import zstandard
from msgspec.structs import replace

from compare.input.damage import CapturesUnreadable, Damage
from compare.input.segments import CapturedLine, find_segments
from contract.records import RunRecord
from cutover.replay import parts as cutting
from cutover.replay.journal import MOST_NAMED, Counts
from cutover.replay.parts import REST, Part, PartReader, ReplaySelection
from cutover.selftest.exchanges import batch, exchange, lines, store


def cut(place: Path, wanted: ReplaySelection | None = None) -> list[Part]:
    """Cut captures."""
    troubles: list[CapturesUnreadable] = []
    cutter = PartReader(wanted or ReplaySelection(), troubles.append)
    found = list(cutter.parts(find_segments(str(place))))
    assert not troubles
    return found


def ids(part: Part) -> list[str]:
    """Return the exchanges of a part's lines, line by line."""
    return [
        line.data.partition(b'"exchange":"')[2][:7].decode()
        for line in part.lines
        if isinstance(line, CapturedLine)
    ]


def many(count: int) -> bytes:
    """Return so many exchanges as one batch."""
    return batch(*(exchange(number=number) for number in range(count)))


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cutting, "EXCHANGES", 3)


@pytest.mark.usefixtures("_small")
def test_parts_hold_whole_exchanges(tmp_path: Path) -> None:
    """Both lines of each, in their order, none twice."""
    found = cut(store(tmp_path, many(4), many(3)))
    assert [len(ids(part)) for part in found] == [6, 6, 2]
    assert [part.number for part in found] == [0, 1, 2]
    assert sorted({name for part in found for name in ids(part)}) == [
        f"x-{number:05}" for number in range(4)
    ]


def test_a_part_holds_so_many_bytes_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or one exchange, however big."""
    monkeypatch.setattr(cutting, "LINE_BYTES", 1)
    assert [len(part.lines) for part in cut(store(tmp_path, many(3)))] == [2, 2, 2]


@pytest.mark.usefixtures("_small")
def test_a_limit_counts_exchanges_over_all_segments(tmp_path: Path) -> None:
    """The first so many."""
    store(tmp_path, many(4), name="a.jsonl.zst")
    store(tmp_path, many(4), name="b.jsonl.zst")
    assert [len(part.lines) for part in cut(tmp_path, ReplaySelection(limit=5))] == [6, 2, 2]
    assert [len(part.lines) for part in cut(tmp_path, ReplaySelection(limit=4))] == [6, 2]


def test_only_what_is_wanted_is_taken(tmp_path: Path) -> None:
    """By its id; what is damaged is told all the same."""
    text = lines(*(exchange(number=number) for number in range(9))) + b"{oops\n"
    store(tmp_path, text, name="s.jsonl")
    (part,) = cut(tmp_path, ReplaySelection(only=frozenset({"x-00004", "x-00007"})))
    assert ids(part)[:4] == ["x-00004"] * 2 + ["x-00007"] * 2
    assert len(part.lines) == 5


@pytest.mark.usefixtures("_small")
def test_a_segment_that_grows_has_another_last_part(tmp_path: Path) -> None:
    """The parts before are what they were."""
    before = cut(store(tmp_path, many(4)))
    after = cut(store(tmp_path, many(4), batch(exchange(number=9))))
    assert (before[0].lines, before[0].size) == (after[0].lines, after[0].size)
    assert before[1].size < after[1].size


def test_a_torn_end_is_in_the_last_part(tmp_path: Path) -> None:
    """Even when nothing else is there."""
    torn = many(2)
    found = cut(store(tmp_path, torn[: len(torn) // 2]))
    assert [type(line) for part in found for line in part.lines][-1] is Damage


def refuse(error: CapturesUnreadable) -> None:
    """Fail: every segment can be read."""
    raise error


def due(number: int) -> tuple[RunRecord, RunRecord]:
    """Return the runs of an exchange whose second run must be there."""
    serving, shadow = exchange(number=number)
    return replace(serving, shadow="due"), shadow


def apart(folder: Path, count: int) -> Path:
    """Store served runs, and the second runs of all but the first in a later segment."""
    pairs = [due(number) for number in range(count)]
    store(folder, batch(*((serving,) for serving, _ in pairs)), name="a.jsonl.zst")
    return store(folder, batch(*((one,) for _, one in pairs[1:])), name="b.jsonl.zst")


@pytest.mark.usefixtures("_small")
def test_an_exchange_over_two_segments_is_in_a_part_of_the_second(tmp_path: Path) -> None:
    """Its lines beside each other; the rest has those of which a run is nowhere."""
    reader = PartReader(ReplaySelection(), refuse)
    found = list(reader.parts(find_segments(str(apart(tmp_path, 6)))))
    assert [part.segment.rpartition("/")[2] for part in found] == ["b.jsonl.zst"] * 2
    assert [ids(part) for part in found] == [
        [f"x-{number:05}" for number in numbers for _ in range(2)]
        for numbers in ((1, 2, 3), (4, 5))
    ]
    rest = reader.rest()
    assert (rest.segment, ids(rest)) == (REST, ["x-00000"])
    assert rest.place.endswith("a.jsonl.zst")


def test_a_limit_counts_what_is_whole(tmp_path: Path) -> None:
    """What waits for its second run is counted when that has come, or at the end."""
    for limit, expected in ((3, [6, 0]), (5, [10, 0]), (6, [10, 1]), (9, [10, 1])):
        reader = PartReader(ReplaySelection(limit=limit), refuse)
        found = [*reader.parts(find_segments(str(apart(tmp_path, 6)))), reader.rest()]
        assert [len(part.lines) for part in found] == expected


def test_lines_that_wait_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest go into a part as they are; no line is lost."""
    monkeypatch.setattr(cutting, "HELD_BYTES", 1)
    reader = PartReader(ReplaySelection(), refuse)
    found = [*reader.parts(find_segments(str(apart(tmp_path, 3)))), reader.rest()]
    assert [ids(part) for part in found] == [
        ["x-00000", "x-00001"],
        ["x-00002", "x-00001"],
        ["x-00002"],
    ]


def test_broken_lines_behind_a_run_that_waits_are_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are parted in one pass: with each compared with all others, many take hours."""
    serving, _ = due(0)
    broken = b"".join(b"{%d\n" % number for number in range(5))
    packed = zstandard.ZstdCompressor(write_checksum=True).compress(lines((serving,)) + broken)
    store(tmp_path, packed)

    def compare(_one: object, _other: object) -> bool:
        raise AssertionError

    monkeypatch.setattr(CapturedLine, "__eq__", compare)
    reader = PartReader(ReplaySelection(), refuse)
    found = list(reader.parts(find_segments(str(tmp_path))))
    assert [len(part.lines) for part in [*found, reader.rest()]] == [5, 1]


def test_a_segment_that_cannot_be_opened_is_told_and_passed_over(tmp_path: Path) -> None:
    """The others are read: a cap on the disk may delete one meanwhile."""
    store(tmp_path, many(1), name="a.jsonl.zst")
    store(tmp_path, many(1), name="b.jsonl.zst")
    segments = find_segments(str(tmp_path))
    next(iter(tmp_path.rglob("a.jsonl.zst"))).unlink()
    troubles: list[CapturesUnreadable] = []
    assert len(list(PartReader(ReplaySelection(), troubles.append).parts(segments))) == 1
    assert len(troubles) == 1


def test_counts_merge_and_name_the_first_only() -> None:
    """Whatever there is, what is kept is bounded."""
    total = Counts()
    for number in range(30):
        part = Counts()
        part.skip(f"x-{number}", "cancelled")
        part.compare("a → b", "completed", equal=number % 3 > 0)
        part.damage(Damage("torn", "place", "why"))
        total.merge(part)
    assert (total.exchanges, total.replayed, total.equal, total.different) == (60, 30, 20, 10)
    assert (total.skipped, total.damaged) == ({"cancelled": 30}, {"torn": 30})
    assert (total.compared, total.outcomes) == ({"a → b": 30}, {"completed": 30})
    assert len(total.named) == MOST_NAMED
