"""Captures: whole exchanges, whole batches, and no request waits for them."""

import asyncio
import logging
import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path

import msgspec
import pytest
import zstandard

from contract.model import (
    Chunk,
    ModelCall,
    NoArguments,
    OfferedTools,
    ToolSpec,
    UserMessage,
)
from contract.operations import MODEL_STREAM, TOOLS_LIST
from contract.records import FeedbackRecord, RunRecord
from effects.places import Place
from effects.tape import Tape, canonical
from router.capture.redaction import ExchangeValues
from router.capture.segments import CapturePlaceRefused, ForgottenLists, SegmentStore
from router.capture.writer import CaptureWriter
from router.config import patterns
from router.config.schema import CaptureSettings, RedactionSettings
from tests.conftest import ROOT
from tests.support.capture_files import BEGAN, SPECS, batches, runs, segments, spoken
from tests.support.forked import forked_module
from tests.support.patience import PATIENCE_S
from tests.support.records import a_request, an_entry, raw

LONG = "ab" * 40_000


def store_in(
    folder: Path,
    segment: int = 1_000_000,
    disk: int = 10_000_000,
    days: int = 0,
    wall: Callable[[], float] = time.time,
) -> SegmentStore:
    """Return a store with these limits in bytes and days."""
    limits = {"segment_bytes": segment, "disk_bytes": disk, "keep_days": days}
    return SegmentStore(CaptureSettings(path=str(folder)).model_copy(update=limits), wall)


def writer_to(folder: Path | str, **changes: object) -> CaptureWriter:
    """Return a writer that keeps everything."""
    captures = CaptureSettings(path=str(folder)).model_copy(update=changes)
    return CaptureWriter(captures, SPECS, salt="salt", key=b"key")


async def test_what_is_put_is_stored(tmp_path: Path) -> None:
    """Redacted, marked, in the order it came, one exchange's lines together."""
    writer = writer_to(tmp_path)
    for name in ("a", "b"):
        records = [spoken(name, "to li.lei@example.com"), spoken(name)]
        assert writer.put(records) == "queued"
    await writer.aclose()
    found = runs(tmp_path)
    assert [one.exchange for one in found] == ["a", "a", "b", "b"]
    assert all(one.redacted for one in found)
    assert "<email:" in found[0].frames[0][1]
    (path,) = segments(tmp_path)
    assert path.parent == tmp_path / "flow=chat" / "date=2026-11-18"
    assert (writer.counts.written, writer.counts.lines, writer.counts.waiting) == (2, 4, 0)
    assert writer.counts.bytes == path.stat().st_size


@pytest.mark.parametrize(
    "schema",
    [
        b'{\n  "type": "object"\n}',
        b'{"title": "a\\ud83d", "type": "object"}',
        b'{"type":',
        b"[" * 600 + b"]" * 600,
    ],
    ids=["several lines", "half a surrogate pair", "torn", "deep"],
)
@pytest.mark.parametrize("text", ["", "li.lei@example.com"], ids=["short", "redacted"])
async def test_what_a_tool_says_of_itself_breaks_no_record(
    tmp_path: Path, schema: bytes, text: str
) -> None:
    """A schema comes from a service: its exchange is one line, and its tape can be played."""
    tape, tool = Tape(), ToolSpec("search", text, msgspec.Raw(schema))
    listed = tape.add(TOOLS_LIST, "tools", canonical(NoArguments()), 0)
    listed.append(OfferedTools((tool,)))
    call = ModelCall(model_id="m", messages=(UserMessage(text + LONG),), tools=(tool,))
    asked = tape.add(MODEL_STREAM, "main", canonical(call), 1)
    asked.append(Chunk(text="Well"))
    for entry in (listed, asked):
        entry.close("complete", 2)
    writer = writer_to(tmp_path)
    writer.put([msgspec.structs.replace(spoken("a"), tape=tape.record())])
    await writer.aclose()
    (found,) = runs(tmp_path)
    assert found.tape is not None
    loaded = Tape.load(found.tape)
    assert loaded.entries[1].items == [Chunk(text="Well")]
    assert loaded.entries[0].items[0].tools[0].name == "search"


async def test_a_batch_is_one_frame(tmp_path: Path) -> None:
    """Of so many exchanges, whatever their number of lines."""
    writer = writer_to(tmp_path, batch=2, flush_seconds=3_600.0)
    for number in range(5):
        writer.put([spoken(f"x{number}"), spoken(f"x{number}")])
    await writer.flush()
    (path,) = segments(tmp_path)
    assert [len((content or b"").splitlines()) for content in batches(path)] == [4, 4, 2]
    await writer.aclose()


class SlowDisk:
    """A disk whose writes wait, once `busy`, until they may go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.busy, self.go_on = threading.Event(), threading.Event()
        write = SegmentStore.write

        def slow(store: SegmentStore, folder: str, lines: bytes) -> int:
            self.busy.set()
            self.go_on.wait(PATIENCE_S)
            return write(store, folder, lines)

        monkeypatch.setattr(SegmentStore, "write", slow)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> SlowDisk:
    """Write to a slow disk."""
    return SlowDisk(monkeypatch)


async def test_a_lonely_exchange_is_written_in_time(tmp_path: Path, disk: SlowDisk) -> None:
    """A batch that does not fill goes out after `flush_seconds`."""
    disk.go_on.set()
    writer = writer_to(tmp_path, flush_seconds=0.001)
    writer.put([spoken("a")])
    assert await asyncio.to_thread(disk.busy.wait, PATIENCE_S)
    await writer.aclose()
    assert len(runs(tmp_path)) == 1


async def test_a_slow_disk_costs_captures_and_no_time(tmp_path: Path, disk: SlowDisk) -> None:
    """With the queue full whole exchanges are dropped and counted; then it goes on."""
    writer = writer_to(tmp_path, batch=1, queue=3)
    writer.put([spoken("first")])
    assert await asyncio.to_thread(disk.busy.wait, PATIENCE_S)
    taken = [writer.put([spoken(f"x{number}")]) for number in range(8)]
    assert taken.count("dropped") >= 5
    assert writer.counts.dropped["queue_full"] == taken.count("dropped")
    disk.go_on.set()
    await writer.flush()
    assert writer.put([spoken("last")]) == "queued"
    await writer.aclose()
    assert len(runs(tmp_path)) == 10 - taken.count("dropped")


async def test_a_disk_that_refuses_is_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What cannot be written is dropped; the next batch is tried again."""
    blocked = tmp_path / "flow=chat"
    blocked.write_text("not a folder", "utf-8")
    writer = writer_to(tmp_path)
    writer.put([spoken("a")])
    await writer.flush()
    assert writer.counts.dropped == {"disk": 1}
    assert (writer.fault or "").endswith("since the start: 1 disk")
    blocked.unlink()
    writer.put([spoken("b")])
    await writer.flush()
    assert not writer.fault  # it works again, and the count stays
    assert writer.counts.dropped == {"disk": 1}
    await writer.aclose()
    assert [one.exchange for one in runs(tmp_path)] == ["b"]
    assert "1 dropped (disk)" in caplog.text


async def test_a_place_that_was_cleared_is_written_to_again(tmp_path: Path) -> None:
    """Who starts afresh deletes the folder and leaves the router running."""
    writer = writer_to(tmp_path)
    writer.put([spoken("a")])
    await writer.flush()
    shutil.rmtree(tmp_path)
    writer.put([spoken("b")])
    await writer.aclose()
    assert [one.exchange for one in runs(tmp_path)] == ["b"]
    assert writer.counts.dropped == {}


def endless_search(folder: Path, monkeypatch: pytest.MonkeyPatch) -> CaptureWriter:
    """Start a writer that gives up searching a long row of one letter."""
    monkeypatch.setattr(patterns, "PATIENCE_S", 0.05)
    redact = RedactionSettings(patterns={"endless": "((a{1,100}){1,100}){1,100}b"})
    return writer_to(folder, redact=redact)


async def test_a_pattern_without_end_costs_the_exchange_not_the_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What could not be searched to the end is not stored; what comes next is."""
    writer = endless_search(tmp_path, monkeypatch)
    writer.put([spoken("slow", "a" * 3_000)])
    writer.put([spoken("next", "to li.lei@example.com")])
    await writer.aclose()
    assert [one.exchange for one in runs(tmp_path)] == ["next"]
    assert writer.counts.dropped == {"redaction_failed": 1}


async def test_what_cannot_be_redacted_is_never_stored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither in the captures nor in the log."""
    writer = writer_to(tmp_path)
    with caplog.at_level(logging.DEBUG):
        writer.put([spoken("a", "secret words", flow="unknown")])
        await writer.aclose()
    assert writer.counts.dropped == {"redaction_failed": 1}
    assert not runs(tmp_path)
    assert "secret words" not in caplog.text


def a_shadow(exchange: str, content: str = "hello") -> RunRecord:
    """Return a small record of a second run."""
    return spoken(exchange, content, role="shadow", stack="graph")


@pytest.mark.parametrize("content", ["hello", "to li.lei@example.com"], ids=["at once", "searched"])
@pytest.mark.parametrize("later", ["hello", "to li.lei@example.com"], ids=["at once", "searched"])
async def test_a_second_run_is_stored_later(tmp_path: Path, content: str, later: str) -> None:
    """Behind its served run, in whatever segment is open by then; the exchange counts once."""
    writer = writer_to(tmp_path, batch=1, segment_bytes=1)
    for name in ("a", "b"):
        values = ExchangeValues()
        assert writer.put([spoken(name, content)], values) == "queued"
        assert writer.put_later(a_shadow(name, later), values) == "queued"
    await writer.aclose()
    assert [(one.exchange, one.role) for one in runs(tmp_path)] == [
        (name, role) for name in ("a", "b") for role in ("serving", "shadow")
    ]
    assert len(segments(tmp_path)) == 4
    counts = writer.counts
    assert (counts.written, counts.lines, counts.waiting, counts.dropped) == (2, 4, 0, {})


async def test_a_served_run_is_stored_before_its_second_ends(tmp_path: Path) -> None:
    """What a kill takes is at most the batch that is being filled."""
    writer = writer_to(tmp_path, batch=1)
    values = ExchangeValues()
    writer.put([spoken("a")], values)
    await writer.flush()
    assert [one.role for one in runs(tmp_path)] == ["serving"]
    writer.put_later(a_shadow("a"), values)
    await writer.aclose()
    assert [one.role for one in runs(tmp_path)] == ["serving", "shadow"]


async def test_a_second_run_is_lost_with_its_served_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What that would have taught could not be removed from it."""
    writer = endless_search(tmp_path, monkeypatch)
    values = ExchangeValues()
    writer.put([spoken("slow", "a" * 3_000)], values)
    writer.put_later(a_shadow("slow"), values)
    await writer.aclose()
    assert not runs(tmp_path)
    assert writer.counts.dropped == {"redaction_failed": 2}
    assert (writer.counts.written, writer.counts.waiting) == (0, 0)


async def test_sampling_is_by_exchange(tmp_path: Path) -> None:
    """A share of zero keeps nothing; feedback is kept anyway, without words none could find."""
    writer = writer_to(tmp_path, percent=CaptureSettings().percent * 0)
    assert writer.put([spoken("a")]) == "not_sampled"
    assert writer.put([]) == "not_sampled"
    feedback = FeedbackRecord(
        v=1, exchange="a", score=-1, at=BEGAN, comment="Li Lei says", assigned="graph"
    )
    assert writer.feedback(feedback) == "queued"
    await writer.aclose()
    (path,) = segments(tmp_path)
    assert path.parent == tmp_path / "feedback" / "date=2026-11-18"
    (content,) = batches(path)
    stored = msgspec.json.decode(content or b"", type=FeedbackRecord)
    assert stored == msgspec.structs.replace(feedback, comment=None)
    assert writer.counts.not_sampled == 1


async def test_feedback_is_redacted_and_dropped_once_its_exchange_is_forgotten(
    tmp_path: Path,
) -> None:
    """Also where a list was read before another one came: it is read for each batch."""
    writer = writer_to(tmp_path)
    feedback = FeedbackRecord(v=1, exchange="a", score=1, at=BEGAN, comment="li.lei@example.com")
    other = msgspec.structs.replace(feedback, exchange="b")
    for forgotten in ((), ("a",), ("b",)):
        ForgottenLists(Place(str(tmp_path))).add(forgotten)
        writer.feedback(feedback)
        writer.feedback(other)
        await writer.flush()
    await writer.aclose()
    (path,) = segments(tmp_path)
    lines = b"".join(content or b"" for content in batches(path)).splitlines()
    stored = [msgspec.json.decode(line, type=FeedbackRecord) for line in lines]
    assert [one.exchange for one in stored] == ["a", "b", "b"]
    assert all((one.comment or "").startswith("<email:") for one in stored)
    assert (writer.counts.written, writer.counts.waiting, writer.counts.dropped) == (3, 0, {})


def _json_of(run: RunRecord) -> msgspec.Raw:
    """Return the JSON of the first entry of a run's tape, or else of its request."""
    if run.tape:
        return run.tape[0].args
    assert run.request is not None
    return run.request.body


@pytest.mark.parametrize("place", ["tape", "request"])
async def test_long_texts_become_blobs(tmp_path: Path, place: str) -> None:
    """Redacted first, named by their digest, stored once."""
    text = f"{LONG} li.lei@example.com"
    kept = {"image": text, "small": "x"}
    if place == "tape":
        run = spoken("a", tape=(an_entry(args=raw(kept)),))
    else:
        run = spoken("a", request=a_request(kept))
    writer = writer_to(tmp_path)
    for name in ("a", "b"):
        writer.put([msgspec.structs.replace(run, exchange=name)])
    await writer.aclose()
    (blob,) = (tmp_path / "blobs").iterdir()
    content = zstandard.ZstdDecompressor().decompress(blob.read_bytes())
    assert content.startswith(f"{LONG} <email:".encode())
    (found, _) = runs(tmp_path)
    stored = msgspec.json.decode(_json_of(found))
    digest = blake2b(content, digest_size=32).hexdigest()
    assert stored == {"image": {"blob": digest, "bytes": len(content)}, "small": "x"}
    assert blob.name == f"{digest}.zst"


async def test_closing_has_a_deadline(tmp_path: Path, disk: SlowDisk) -> None:
    """A disk that hangs does not keep the process; closing again is fine."""
    writer = writer_to(tmp_path, batch=1)
    writer.put([spoken("a")])
    assert await asyncio.to_thread(disk.busy.wait, PATIENCE_S)
    writer.put([spoken("b")])
    assert await writer.aclose(deadline=0.001) == 2
    assert writer.put([spoken("c")]) == "dropped"
    assert writer.counts.dropped == {"closed": 1}
    disk.go_on.set()
    assert await writer.aclose() == 0
    await writer.flush()
    assert len(runs(tmp_path)) == 2


def test_a_place_nobody_knows_is_refused_at_once() -> None:
    """At the start, not at the first exchange."""
    with pytest.raises(CapturePlaceRefused, match="captures cannot go to 'nowhere://x'"):
        writer_to("nowhere://x")


def test_segments_are_rotated_and_the_oldest_deleted(tmp_path: Path) -> None:
    """The cap holds; what was written last stays."""
    store = store_in(tmp_path, segment=400, disk=4_000)
    for number in range(60):
        store.write("flow=chat/date=2026-11-18", blake2b(str(number).encode()).digest() * 3)
    store.close()
    left = segments(tmp_path)
    assert sum(path.stat().st_size for path in left) <= 4_000
    assert store.deleted > 0
    newest = list(batches(left[-1]))[-1]
    assert newest == blake2b(b"59").digest() * 3


def test_what_is_too_old_goes(tmp_path: Path) -> None:
    """Exchanges by the day they were served, long texts by the day they were last used."""
    now = datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp()
    store = store_in(tmp_path, days=2, wall=lambda: now)
    for day in ("2026-11-18", "2026-11-19", "2026-11-21"):
        store.write(f"flow=chat/date={day}", b"x\n")
        store.write(f"feedback/date={day}", b"x\n")
    old, young = (store.blob(text.encode()) for text in ("old", "young"))
    os.utime(tmp_path / "blobs" / f"{old}.zst", (now - 172_801, now - 172_801))
    os.utime(tmp_path / "blobs" / f"{young}.zst", (now - 172_799, now - 172_799))
    store.expire()
    assert [path.parent.name for path in segments(tmp_path)] == [
        "date=2026-11-19",
        "date=2026-11-21",
    ] * 2
    assert [path.stem for path in (tmp_path / "blobs").iterdir()] == [young]
    assert store.deleted == 3
    store.write("flow=chat/date=2026-11-18", b"late\n")
    store.close()
    assert len(segments(tmp_path)) == 5, "a segment that was removed is not written to"


@pytest.mark.parametrize(("days", "left"), [(0, 1), (1, 0)])
async def test_a_router_deletes_what_is_too_old_without_being_asked(
    tmp_path: Path, days: int, left: int
) -> None:
    """At its start, whether or not anything is captured."""
    store = store_in(tmp_path, 1_000, 8_000)
    store.write("flow=chat/date=2020-01-01", b"x\n")
    store.close()
    writer = writer_to(tmp_path, keep_days=days)
    await writer.aclose()
    assert len(segments(tmp_path)) == left
    assert writer.counts.deleted_files == 1 - left


async def test_a_day_no_clock_knows_ends_no_writer(tmp_path: Path) -> None:
    """What cannot be reckoned with is told in the log, and what is put is stored."""
    writer = writer_to(tmp_path, keep_days=10**18)
    writer.put([spoken("e")])
    assert await writer.aclose() == 0
    assert [run.exchange for run in runs(tmp_path)] == ["e"]


def test_the_cap_counts_what_other_workers_wrote(tmp_path: Path) -> None:
    """Each measures the whole place when it begins a segment, not only what is its own."""
    one, other = (store_in(tmp_path, 1_000, 8_000) for _ in range(2))
    for _ in range(6):
        one.write("flow=chat/date=2026-11-21", random.randbytes(1_000))
    for _ in range(6):
        other.write("flow=chat/date=2026-11-21", random.randbytes(1_000))
    assert sum(path.stat().st_size for path in tmp_path.rglob("*.zst")) <= 8_000
    assert other.deleted > 0
    one.close()
    other.close()


def test_a_new_day_is_a_new_segment(tmp_path: Path) -> None:
    """That of the day before stays open for what ends late; older ones are closed."""
    store = store_in(tmp_path)
    for day in ("18", "19", "18", "19", "20", "19", "18"):
        store.write(f"flow=chat/date=2026-11-{day}", b"x\n")
    store.close()
    assert [path.parent.name[-2:] for path in segments(tmp_path)] == ["18", "18", "19", "20"]


@pytest.mark.parametrize("lost", [1, 10, 60])
def test_a_torn_tail_is_seen_and_the_rest_is_whole(tmp_path: Path, lost: int) -> None:
    """A frame without its end is no batch."""
    store = store_in(tmp_path)
    for number in range(3):
        store.write("flow=chat/date=2026-11-18", blake2b(str(number).encode()).digest())
    store.close()
    (path,) = segments(tmp_path)
    path.write_bytes(path.read_bytes()[:-lost])
    found = list(batches(path))
    assert found[:2] == [blake2b(b"0").digest(), blake2b(b"1").digest()]
    assert found[2] is None


@pytest.mark.slow
def test_kill_minus_nine_loses_the_last_batch_at_most(tmp_path: Path) -> None:
    """Everything that was flushed before is readable afterwards."""
    with forked_module("tests.support.capture_files", str(tmp_path), cwd=ROOT) as writing:
        certain = max(int(writing.stdout.readline()) for _ in range(10))
        writing.send_signal(signal.SIGKILL)
        certain = max([certain, *map(int, writing.stdout.read().split())])
    found = [int(one.exchange) for one in runs(tmp_path)]
    assert found == list(range(len(found)))
    assert len(found) > certain
