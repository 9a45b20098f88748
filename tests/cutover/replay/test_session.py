"""A whole replay in processes: split, interrupted, blocked, killed; nothing lost, nothing twice."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from multiprocessing import active_children
from multiprocessing.process import BaseProcess
from pathlib import Path

import msgspec
import pytest

from compare.input.damage import CapturesUnreadable
from compare.input.segments import find_segments
from contract.records import RunRecord
from cutover.replay import (
    Counts,
    PlayOptions,
    ReplayPlan,
    ReplayProgress,
    ReplaySelection,
    pool,
    replay,
    sides_of,
)
from cutover.replay import parts as cutting
from cutover.replay.journal import NAME
from cutover.replay.parts import PartReader
from cutover.replay.pool import LOG
from cutover.replay.session import SUMMARY, InsideItself
from cutover.replay.sides import Side, Sides
from cutover.selftest.cases import case
from tests.cutover.replay.broken import MARK
from tests.cutover.replay.conftest import MANY, answered, store
from tests.support.capture_files import runs
from tests.support.deployment import until
from tests.support.planted_faults import served

BROKEN = "tests.cutover.replay.broken:NAMED"
ALONE = Sides(Side("legacy", "legacy:FLOWS"), Side("graph", ""))
"""A worker loads one stack sooner than two."""
EVERY = ReplaySelection()

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def captures(alone: list[list[RunRecord]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the captures of legacy alone: its replay is compared with its own past."""
    return store(alone, tmp_path_factory.mktemp("captures"))


@pytest.fixture(scope="module")
def whole(captures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an uninterrupted replay of them in this process."""
    out = tmp_path_factory.mktemp("whole") / "out"
    counts = replay(wishes(captures, out))
    assert (counts.exchanges, counts.equal) == (MANY, MANY)
    return out


def wishes(
    captures: Path, out: Path, processes: int = 0, wanted: ReplaySelection = EVERY
) -> ReplayPlan:
    """Ask for a replay of legacy."""
    return ReplayPlan(str(captures), out, ALONE, selection=wanted, processes=processes)


def workers() -> list[BaseProcess]:
    """Return the worker processes there are."""
    return active_children()


def said(out: Path) -> list[RunRecord]:
    """Read every line that was written, but for how long the nodes took."""
    found = [msgspec.structs.replace(run, nodes={}, run_us=0) for run in runs(out)]
    return sorted(found, key=lambda run: (run.exchange, run.role, run.stack))


def test_a_stack_is_equal_to_its_own_past(whole: Path) -> None:
    """Not one finding in exchanges of every kind; each is there once."""
    found = said(whole)
    assert len(found) == 2 * MANY
    assert len({run.exchange for run in found}) == MANY
    counts = msgspec.json.decode((whole / SUMMARY).read_bytes(), type=Counts)
    assert counts.compared == {"legacy as recorded → legacy as it is now": MANY}
    assert counts.outcomes.keys() >= {"completed", "failed", "refused"}


def test_several_processes_say_the_same(captures: Path, whole: Path, tmp_path: Path) -> None:
    """To the byte: frames bear the moments of the tape."""
    counts = replay(wishes(captures, tmp_path / "out", 2))
    assert counts.equal == MANY
    assert said(tmp_path / "out") == said(whole)
    assert not workers()


def test_an_interrupted_replay_goes_on(captures: Path, whole: Path, tmp_path: Path) -> None:
    """What was done is not done again; the whole is the same as if nothing had happened."""
    out = tmp_path / "out"

    def interrupt(_: ReplayProgress) -> None:
        assert workers()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replay(wishes(captures, out, 1), interrupt)
    assert not workers()
    (done,) = (out / "segments").glob("*.zst")
    (out / "segments" / f"{done.name}.77").write_bytes(b"half")
    before = done.stat().st_mtime_ns
    heard: list[float] = []
    counts = replay(wishes(captures, out), lambda reached: heard.append(reached.share))
    assert (counts.exchanges, counts.equal) == (MANY, MANY)
    assert done.stat().st_mtime_ns == before
    assert said(out) == said(whole)
    assert not list((out / "segments").glob("*.77"))
    assert heard == sorted(heard)
    assert heard[-1] == 1.0


def test_a_part_that_was_not_noted_takes_its_own_place(
    captures: Path, whole: Path, tmp_path: Path
) -> None:
    """The process ended between writing and noting."""
    out = tmp_path / "out"
    replay(wishes(captures, out))
    *noted, _ = (out / NAME).read_bytes().splitlines(keepends=True)
    (out / NAME).write_bytes(b"".join(noted))
    assert replay(wishes(captures, out)).exchanges == MANY
    assert said(out) == said(whole)


def test_the_recorded_pace_says_the_same(tmp_path: Path) -> None:
    """Side by side, each item at its moment."""
    quick = [batch[:1] for batch in served(map(case, range(60))) if _short(batch)]
    captures = store(quick, tmp_path / "captures")
    counts = replay(
        ReplayPlan(str(captures), tmp_path / "out", ALONE, PlayOptions("recorded"), processes=0)
    )
    assert counts.exchanges == counts.equal == len(quick) > 10


def _short(batch: Iterable[RunRecord]) -> bool:
    return all(at < 600_000 for run in batch for entry in run.tape or () for at in [entry.ended])


def test_a_broken_stack_costs_its_own_exchanges_only(tmp_path: Path) -> None:
    """Whatever it does to its process, the others are replayed, and no process is left.

    It blocks, ends its process and ignores that it is cancelled, at the recorded pace: first side
    by side, then one by one. Where a stack stood when it was killed is in the log: who repairs it
    must find the line.
    """
    names = ("m-0", f"{MARK}-stands", "m-2", f"{MARK}-ends", f"{MARK}-ignores", "m-5")
    out, captures = tmp_path / "out", store(answered(names), tmp_path / "captures")
    how = PlayOptions("recorded", 0.5)
    counts = replay(ReplayPlan(str(captures), out, sides_of(BROKEN), how, processes=1))
    assert (counts.exchanges, counts.equal) == (6, 3)
    assert counts.outcomes == {"completed": 3, "timeout": 2, "failed": 1}
    assert not workers()
    assert len({run.exchange for run in said(out)}) == 6
    assert "_block" in (out / LOG).read_text("utf-8")


def test_second_runs_that_come_in_a_later_segment_are_joined(
    exchanges: list[list[RunRecord]], tmp_path: Path
) -> None:
    """A replay of what was there before goes on with them, as if all had been there at once."""
    pairs = [batch for batch in exchanges if [run.role for run in batch] == ["serving", "shadow"]]
    served = [[msgspec.structs.replace(pair[0], shadow="due")] for pair in pairs[:12]]
    captures, out = tmp_path / "captures", tmp_path / "out"
    store(served, captures)
    assert replay(wishes(captures, out)).compared == {
        "legacy as recorded → legacy as it is now": 12
    }
    assert len(said(out)) == 24
    store([pair[1:] for pair in pairs[:12]], captures)
    counts = replay(wishes(captures, out))
    assert (counts.exchanges, counts.unread) == (12, 0)
    assert counts.compared == {"legacy as it is now → graph as recorded": 12}
    fresh = tmp_path / "fresh"
    assert replay(wishes(captures, fresh)) == counts
    assert said(out) == said(fresh)
    assert len(said(out)) == 36


def test_only_one_exchange_and_a_limit(captures: Path, whole: Path, tmp_path: Path) -> None:
    """To look at one, or to try."""
    wanted = said(whole)[8].exchange
    one = wishes(captures, tmp_path / "one", wanted=ReplaySelection(only=frozenset({wanted})))
    assert replay(one).exchanges == 1
    assert {run.exchange for run in said(tmp_path / "one")} == {wanted}
    assert (
        replay(wishes(captures, tmp_path / "few", wanted=ReplaySelection(limit=5))).exchanges == 5
    )


def test_damage_is_counted_once_however_often_it_is_started(
    captures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A torn tail, a broken line, a foreign version."""
    monkeypatch.setattr(cutting, "EXCHANGES", 16)
    spoilt = tmp_path / "captures"
    spoilt.mkdir()
    (segment,) = captures.rglob("*.jsonl.zst")
    (spoilt / "a.jsonl.zst").write_bytes(segment.read_bytes()[:-200])
    (spoilt / "b.jsonl").write_bytes(b'{oops\n{"v":3,"exchange":"x"}\n')
    for _ in range(2):
        counts = replay(wishes(spoilt, tmp_path / "out"))
        assert counts.damaged == {"torn": 1, "broken": 1, "foreign": 1}
        assert 0 < counts.equal == counts.exchanges < MANY


def test_nothing_is_written_into_the_captures(captures: Path) -> None:
    """It would be read as captures."""
    for out in (captures, captures / "replayed"):
        with pytest.raises(InsideItself):
            replay(wishes(captures, out))


def test_captures_that_are_not_there_cannot_be_read(tmp_path: Path) -> None:
    """Misspelt is not empty."""
    with pytest.raises(CapturesUnreadable):
        replay(wishes(tmp_path / "nowhere", tmp_path / "out"))


def test_a_worker_that_has_nothing_to_do_is_ended(
    captures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next part gets another one: in a worker of a cluster nobody says which is the last."""
    monkeypatch.setattr(pool, "IDLE", 0.01)
    read = PartReader(ReplaySelection(limit=2), _unreadable)
    assert not list(read.parts(find_segments(str(captures))))  # each waits for a second run
    part = read.rest()
    with pool.WorkerPool(pool.Terms(ALONE, PlayOptions())) as workers_of_it:
        for _ in range(2):
            result = workers_of_it.replay(part)
            assert (result.counts.equal, result.log) == (2, "")
            asyncio.run(until(lambda: not workers()))


def _unreadable(error: CapturesUnreadable) -> None:
    raise error
