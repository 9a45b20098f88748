"""Captures read once: what clients were served comes with the pairs, and what is known stays."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from random import Random

import msgspec
import pytest

from compare.captures import KnownParts, Question, compare_captures
from compare.input.damage import Damage
from compare.input.outcomes import ServedTally, read_outcomes
from compare.input.segments import CaptureSegment
from compare.input.selection import EVERYTHING, Selection
from compare.report import report_of
from compare.report.document import encode_report
from compare.tally import Tally
from contract.flows.chat import CHAT
from contract.records import VERSION, FeedbackRecord, RunRecord, Score
from cutover.selftest.exchanges import Script, batch, exchange, store
from evidence.decision import NAMED, LastingWrites
from tests.support.records import a_run

FLOWS = {"chat": CHAT}
ASKED = Question(FLOWS, served=EVERYTHING)
COLD = Script(system="冷")


class NotedParts(KnownParts):
    """Notes which parts have to be read."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[str] = []

    def begin(
        self, question: Question, parts: Sequence[CaptureSegment]
    ) -> Sequence[CaptureSegment]:
        """Note the names of the segments."""
        unread = super().begin(question, parts)
        self.read = [Path(part.url).name for part in unread]
        return unread


def served_by_graph(number: int) -> tuple[RunRecord, RunRecord]:
    """Make an exchange that the candidate served, and legacy played."""
    runs = exchange(number=number)
    first, second = (
        msgspec.structs.replace(run, stack=stack, assigned="graph", served="graph")
        for run, stack in zip(runs, ("graph", "legacy"), strict=True)
    )
    return first, second


def drawn(draw: Random, number: int) -> Sequence[RunRecord]:
    """Draw an exchange: served by either stack, with a fallback, without a shadow, differing."""
    name = f"x-{number:05}"
    kind = draw.randrange(6)
    if kind == 0:
        failed = a_run(name, assigned="graph", stack="graph", outcome="failed", began=number)
        return failed, a_run(name, assigned="graph", role="fallback", began=number)
    if kind == 1:
        return exchange(graph=COLD, number=number)
    if kind == 2:
        return exchange(number=number)[:1]
    return served_by_graph(number) if kind < 5 else exchange(number=number)


def captures(folder: Path, draw: Random) -> None:
    """Store drawn exchanges in segments; some runs stand in another one, some are there twice."""
    for name in range(5):
        runs = [tuple(drawn(draw, 10 * name + number)) for number in range(10)]
        if draw.random() < 0.5:
            runs.append(exchange(number=0))
        store(folder, batch(*runs[:4]), batch(*runs[4:]), name=f"{name}.jsonl.zst")


def rate(folder: Path, exchange_id: str, score: Score, at: int) -> None:
    """Store what a user thought of an exchange."""
    place = folder / "feedback" / "date=2026-11-20"
    place.mkdir(parents=True, exist_ok=True)
    record = FeedbackRecord(v=VERSION, exchange=exchange_id, score=score, at=at)
    (place / f"{at}.jsonl").write_bytes(msgspec.json.encode(record) + b"\n")


def document(tally: Tally) -> tuple[bytes, list[object], list[LastingWrites]]:
    """Return all that is reported of captures, and what clients were served."""
    report = encode_report(report_of(tally, "captures", "tape"))
    return report, [*tally.served.outcomes.values()], tally.served.lasting()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("processes", [1, 2])
def test_outcomes_of_one_reading_are_those_read_alone(
    tmp_path: Path, seed: int, processes: int
) -> None:
    """One by one and in their order, also where the pairs are of fewer exchanges."""
    draw = Random(seed)
    captures(tmp_path, draw)
    rate(tmp_path, "x-00003", 1, at=1)
    since = Selection(since=draw.choice([None, 1_795_000_000_000_000]))
    question = replace(ASKED, served=since, selection=Selection(since.since, fallbacks=False))
    with ThreadPoolExecutor(2) as threads:
        tally = compare_captures(
            str(tmp_path), question, processes=processes, executor=threads, known=KnownParts()
        )
    alone = [
        one for one in read_outcomes(str(tmp_path), FLOWS, since) if not isinstance(one, Damage)
    ]
    assert [*tally.served.outcomes.values()] == alone
    assert any(one.feedback for one in alone)
    assert tally.served.lasting()


def test_lasting_writes_are_those_of_the_candidate_while_it_served(tmp_path: Path) -> None:
    """A shadow's writes go nowhere, and legacy's are no news; locks are released."""
    runs = [*(served_by_graph(number) for number in range(NAMED + 5)), exchange(number=99)]
    store(tmp_path, batch(*runs[:9]), name="a.jsonl.zst")
    store(tmp_path, batch(*runs[9:]), name="b.jsonl.zst")
    [put] = compare_captures(str(tmp_path), ASKED).served.lasting()
    assert (put.store, put.what.split()[0], put.count) == ("conversations", "put", 2 * (NAMED + 5))
    assert put.exchanges == tuple(f"x-{number:05}" for number in range(NAMED))


def test_writes_of_parts_add_up() -> None:
    """What is merged stays as it was."""
    first, second = ServedTally(), ServedTally()
    first.wrote("memory", "put", "a")
    second.wrote("memory", "put", "b")
    second.wrote("memory", "put", "b")
    first.merge(second)
    assert first.lasting() == [
        LastingWrites(store="memory", what="put", count=3, exchanges=("a", "b"))
    ]
    assert second.lasting()[0].exchanges == ("b",)


def test_without_being_asked_nothing_is_noted(tmp_path: Path) -> None:
    """`cutover diff` counts outcomes and names none."""
    captures(tmp_path, Random(0))
    assert compare_captures(str(tmp_path), Question(FLOWS)).served == ServedTally()


class Looks:
    """Compares a folder again and again, with what is known and without."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.known = NotedParts()

    def look(self, question: Question = ASKED) -> list[str]:
        """Compare; return the segments that were read. What comes out is as if all had been."""
        place = str(self.folder)
        seen = compare_captures(place, question, known=self.known)
        alone = compare_captures(place, question)
        assert document(seen) == document(alone)
        assert seen.outcomes == alone.outcomes
        return self.known.read


@pytest.fixture
def looks(tmp_path: Path) -> Looks:
    """Captures of five segments, seen once."""
    captures(tmp_path, Random(1))
    looks = Looks(tmp_path)
    looks.look()
    return looks


def test_a_look_reads_what_is_new(looks: Looks) -> None:
    """A finished segment never changes; the one that is being written does."""
    assert looks.look() == []
    store(looks.folder, batch(exchange(number=70)), name="5.jsonl.zst")
    store(looks.folder, batch(exchange(number=80)), name="6.jsonl.zst")
    assert looks.look() == ["5.jsonl.zst", "6.jsonl.zst"]
    store(
        looks.folder,
        batch(exchange(number=80)),
        batch(exchange(graph=COLD, number=81)),
        name="6.jsonl.zst",
    )
    store(looks.folder, batch(exchange(number=90)), name="7.jsonl.zst")
    assert looks.look() == ["6.jsonl.zst", "7.jsonl.zst"]
    assert looks.look() == []


def test_a_look_forgets_what_is_removed(looks: Looks) -> None:
    """Retention deletes segments; one that comes back is read."""
    path = next(looks.folder.rglob("2.jsonl.zst"))
    content = path.read_bytes()
    path.unlink()
    assert looks.look() == []
    path.write_bytes(content)
    assert looks.look() == ["2.jsonl.zst"]


def test_a_rewritten_segment_is_read_again(looks: Looks) -> None:
    """Erasure may leave its size as it was."""
    path = next(looks.folder.rglob("3.jsonl.zst"))
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    other.replace(path)
    assert looks.look() == ["3.jsonl.zst"]


def test_exchanges_that_were_scored_since_are_read_again(looks: Looks) -> None:
    """Also where a user changes the score."""
    rate(looks.folder, "x-00021", 1, at=1)
    assert looks.look() == ["2.jsonl.zst"]
    rate(looks.folder, "x-00021", -1, at=2)
    rate(looks.folder, "unknown", 1, at=3)
    assert looks.look() == ["2.jsonl.zst"]
    assert looks.look() == []


def test_another_question_reads_everything(looks: Looks) -> None:
    """A step that began later is one; asking again is none."""
    later = replace(ASKED, selection=Selection(since=1), served=Selection(since=1))
    assert len(looks.look(later)) == 5
    assert looks.look(later) == []
    assert len(looks.look()) == 5


def test_what_cannot_be_read_is_tried_again(looks: Looks) -> None:
    """A disk or a bucket that was away gives no answer to remember."""
    path = next(looks.folder.rglob("4.jsonl.zst"))
    path.rename(looks.folder / "away")
    os.mkfifo(path)
    assert looks.look() == ["4.jsonl.zst"]
    assert looks.look() == ["4.jsonl.zst"]


def test_all_bytes_are_reported_as_read(looks: Looks) -> None:
    """A progress bar reaches its end whatever is known."""
    sizes: list[int] = []
    compare_captures(str(looks.folder), ASKED, sizes.append, known=looks.known)
    assert sum(sizes) == sum(path.stat().st_size for path in looks.folder.rglob("*.zst"))
