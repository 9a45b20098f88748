"""Erasure in captures: a subject's exchanges are removed, all others stay as they were."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from contract.records import FeedbackRecord, PlayRecord, RunRecord, decode_run
from contract.stores import DataSubject
from cutover.erasure import SubjectMatcher, erase_captures
from router.capture.redaction import ExchangeValues
from router.capture.writer import CaptureWriter
from router.config.schema import CaptureSettings
from tests.support.capture_files import SPECS, batches, segments, spoken
from tests.support.records import a_request

ANN = SubjectMatcher(DataSubject("user", "ann@example.org"), b"key")
LONG = "ab" * 40_000


def asked(exchange: str, user: str, content: str = "hello") -> Sequence[RunRecord]:
    """Build the records of an exchange: its serving run, and a shadow without a user."""
    body = {"message_id": exchange, "user_id": user, "content": content}
    shadow = spoken(exchange, role="shadow")
    return [spoken(exchange, request=a_request(body)), shadow]


async def written(place: str, *exchanges: Sequence[RunRecord], batch: int = 2) -> None:
    """Write exchanges down, two in a batch, as a router does."""
    captures = CaptureSettings(path=place, batch=batch, flush_seconds=60)
    writer = CaptureWriter(captures, SPECS, salt="s", key=b"key")
    for records in exchanges:
        writer.put(records)
        exchange = records[0].exchange
        writer.feedback(FeedbackRecord(v=1, exchange=exchange, score=1, at=records[0].began))
        await writer.flush()
    await writer.aclose()


def exchanges(folder: Path) -> list[str]:
    """Tell the exchange of every run that is left, in order; every batch must be whole."""
    found = []
    for path in segments(folder):
        for content in batches(path):
            assert content, f"a batch of {path.name} is torn or empty"
            if "feedback" not in path.parts:
                found += [decode_run(line).exchange for line in content.splitlines()]
    return found


def files(folder: Path) -> Iterator[Path]:
    """Yield every file below a folder."""
    return (path for path in folder.rglob("*") if path.is_file())


async def test_all_of_somebodys_exchanges_go_and_no_others(tmp_path: Path) -> None:
    """Shadows and feedback with them, whether or not they name the subject; twice is once."""
    await written(
        str(tmp_path),
        asked("1", "ben"),
        asked("2", "ann@example.org"),
        asked("3", "ann"),
        asked("4", "ann@example.org"),
    )
    forgotten = erase_captures(str(tmp_path), ANN)
    assert forgotten.exchanges == {"2", "4"}
    assert (forgotten.feedbacks, forgotten.blobs) == (2, 0)
    assert exchanges(tmp_path) == ["1", "1", "3", "3"]
    (feedback,) = [path for path in segments(tmp_path) if "feedback" in path.parts]
    assert b"".join(one or b"" for one in batches(feedback)).count(b'"exchange":') == 2
    before = {path: path.stat().st_ino for path in segments(tmp_path)}
    assert not erase_captures(str(tmp_path), ANN).exchanges
    assert {path: path.stat().st_ino for path in segments(tmp_path)} == before


async def test_a_segment_that_held_nothing_else_is_removed(tmp_path: Path) -> None:
    """Nothing is left but that the exchange was forgotten."""
    await written(str(tmp_path), asked("2", "ann@example.org"))
    assert erase_captures(str(tmp_path), ANN).exchanges == {"2"}
    assert exchanges(tmp_path) == []
    (forgotten,) = files(tmp_path)
    assert (forgotten.parent.name, forgotten.read_text()) == ("forgotten", "2\n")


def comments(folder: Path) -> list[tuple[str, str | None]]:
    """Return the exchanges of the feedback that is left, with its comments."""
    paths = [path for path in segments(folder) if "feedback" in path.parts]
    lines = b"".join(content or b"" for path in paths for content in batches(path)).splitlines()
    found = [msgspec.json.decode(line, type=FeedbackRecord) for line in lines]
    return [(one.exchange, one.comment) for one in found]


async def test_feedback_whose_subject_cannot_be_found_goes(tmp_path: Path) -> None:
    """With a comment on an exchange that is nowhere; unless that may still be written."""
    await written(str(tmp_path), asked("1", "ben"))
    captures = CaptureSettings(path=str(tmp_path), batch=1, flush_seconds=60)
    writer = CaptureWriter(captures, SPECS, salt="s", key=b"key")
    now = int(time.time() * 1_000_000)
    for exchange, at, comment in (
        ("1", 1, "I am Ben"),
        ("dropped", 1, "I am Ann"),
        ("dropped, silent", 1, None),
        ("not written yet", now, "I am Cleo"),
    ):
        record = FeedbackRecord(v=1, exchange=exchange, score=1, at=at, comment=comment)
        writer.feedback(record)
    await writer.aclose()
    assert erase_captures(str(tmp_path), ANN).feedbacks == 1
    assert sorted(comments(tmp_path), key=str) == [
        ("1", "I am Ben"),
        ("1", None),
        ("dropped, silent", None),
        ("not written yet", "I am Cleo"),
    ]


async def test_feedback_that_was_waiting_goes_when_it_is_done_again(tmp_path: Path) -> None:
    """A router had it in memory while its exchange was forgotten."""
    await written(str(tmp_path), asked("1", "ben"), asked("2", "ann@example.org"))
    held = [path for path in segments(tmp_path) if "feedback" in path.parts]
    (content,) = [path.read_bytes() for path in held]
    assert erase_captures(str(tmp_path), ANN).feedbacks == 1
    held[0].with_name("late.jsonl.zst").write_bytes(content)
    assert ("2", None) in comments(tmp_path)
    again = erase_captures(str(tmp_path), ANN)
    assert (again.exchanges, again.feedbacks) == (frozenset(), 1)
    assert set(comments(tmp_path)) == {("1", None)}


async def test_segments_stay_as_old_as_they_were(tmp_path: Path) -> None:
    """The oldest go first when room is needed: rewriting must not make them young."""
    await written(str(tmp_path), asked("1", "ben"), asked("2", "ann@example.org"))
    for path in segments(tmp_path):
        os.utime(path, (1_000, 1_000))
    erase_captures(str(tmp_path), ANN)
    assert {path.stat().st_mtime for path in segments(tmp_path)} == {1_000}


async def test_long_texts_go_unless_somebody_else_names_them(tmp_path: Path) -> None:
    """The same text of two users is one file: it goes with the last of them."""
    hers, both = "c" + LONG, "d" + LONG
    await written(
        str(tmp_path),
        asked("1", "ben", both),
        asked("2", "ann@example.org", both),
        asked("3", "ann@example.org", hers),
    )
    assert len(list((tmp_path / "blobs").iterdir())) == 2
    assert erase_captures(str(tmp_path), ANN).blobs == 1
    assert len(list((tmp_path / "blobs").iterdir())) == 1
    ben = SubjectMatcher(DataSubject("user", "ben"), b"key")
    assert erase_captures(str(tmp_path), ben).blobs == 1
    assert list((tmp_path / "blobs").iterdir()) == []


@pytest.mark.parametrize("lost", [1, 30])
async def test_a_torn_tail_goes_since_nobody_knows_whose_it_is(tmp_path: Path, lost: int) -> None:
    """What stands before it is whole, and what can still be read of it is judged like the rest."""
    await written(str(tmp_path), asked("1", "ben"), asked("2", "ben"), asked("3", "ben"))
    (path,) = [one for one in segments(tmp_path) if "feedback" not in one.parts]
    path.write_bytes(path.read_bytes()[:-lost])
    assert not erase_captures(str(tmp_path), ANN).exchanges
    assert exchanges(tmp_path)[:4] == ["1", "1", "2", "2"]


def ended_later(exchange: str, user: str) -> tuple[RunRecord, RunRecord]:
    """Build the records of an exchange whose shadow ends long after it."""
    serving, shadow = asked(exchange, user)
    return msgspec.structs.replace(serving, shadow="due"), shadow


def a_segment_each(folder: Path) -> CaptureWriter:
    """Return a writer that begins a segment with each put."""
    captures = CaptureSettings(path=str(folder), batch=1, flush_seconds=60)
    settings = captures.model_copy(update={"segment_bytes": 1})
    return CaptureWriter(settings, SPECS, salt="s", key=b"key")


@pytest.mark.parametrize("named", ["in the served run", "in the second run"])
async def test_a_run_in_another_segment_goes_too(tmp_path: Path, named: str) -> None:
    """It does not name the subject: its exchange does, elsewhere."""
    hers, his = ended_later("2", "ann@example.org"), ended_later("1", "ben")
    if named == "in the second run":
        asks = msgspec.Raw(b'{"user_id": "ann@example.org"}')
        play = PlayRecord(port="memory", op="search", site="s", how="missed", args=asks)
        shadow = msgspec.structs.replace(hers[1], plays=(play,))
        hers = msgspec.structs.replace(hers[0], request=None), shadow
    values = {"1": ExchangeValues(), "2": ExchangeValues()}
    writer = a_segment_each(tmp_path)
    for serving, _ in (his, hers):
        writer.put([serving], values[serving.exchange])
    for _, shadow in (his, hers):
        writer.put_later(shadow, values[shadow.exchange])
    await writer.flush()
    assert len(segments(tmp_path)) == 4
    assert erase_captures(str(tmp_path), ANN).exchanges == {"2"}
    assert exchanges(tmp_path) == ["1", "1"]


@pytest.mark.parametrize("others", [0, 1])
async def test_a_shadow_that_was_still_running_goes_the_next_time(
    tmp_path: Path, others: int
) -> None:
    """Its served run is gone, and only that said whose it is; others that run still are kept."""
    writer = a_segment_each(tmp_path)
    hers, values = ended_later("2", "ann@example.org"), ExchangeValues()
    writer.put([hers[0]], values)
    for number in range(others):
        writer.put([ended_later(f"9{number}", "ben")[0]], ExchangeValues())
    await writer.flush()
    assert erase_captures(str(tmp_path), ANN).exchanges == {"2"}
    writer.put_later(hers[1], values)
    await writer.aclose()
    assert exchanges(tmp_path) == [*["90"][:others], "2"]
    assert erase_captures(str(tmp_path), ANN).exchanges == set()
    assert exchanges(tmp_path) == ["90"][:others]


def test_where_nothing_was_captured_nothing_is_forgotten(tmp_path: Path) -> None:
    """Neither a fault nor a folder."""
    assert not erase_captures(str(tmp_path / "absent"), ANN).exchanges
    assert not (tmp_path / "absent").exists()


async def test_a_router_that_is_writing_goes_on_in_a_new_segment(tmp_path: Path) -> None:
    """What it appended to the replaced file would never be read."""
    captures = CaptureSettings(path=str(tmp_path), batch=1, flush_seconds=60)
    writer = CaptureWriter(captures, SPECS, salt="s", key=b"key")
    writer.put(asked("1", "ben"))
    writer.put(asked("2", "ann@example.org"))
    await writer.flush()
    erase_captures(str(tmp_path), ANN)
    writer.put(asked("3", "ben"))
    await writer.aclose()
    assert exchanges(tmp_path) == ["1", "1", "3", "3"]
    assert writer.counts.written == 3
