"""Captures on an object store: few objects, each whole, and what is refused is tried again."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from compare.input.blobs import BlobFolder
from compare.input.damage import CapturesUnreadable, Damage
from compare.input.segments import (
    CapturedLine,
    CaptureSegment,
    find_segments,
    read_lines,
    stretches,
)
from contract.errors import MissingExtra
from contract.records import FeedbackRecord, RunRecord, decode_run
from effects import places
from effects.places import Place
from router.capture.objects import HELD_OBJECTS, ObjectStore
from router.capture.redaction import ExchangeValues
from router.capture.segments import Batch, ForgottenLists, Settled
from router.capture.writer import CaptureWriter
from router.config.schema import CaptureSettings
from tests.support.capture_files import BEGAN, SPECS, spoken
from tests.support.clocks import Clock
from tests.support.deployment import until
from tests.support.object_server import Fault, ObjectServer
from tests.support.records import a_request

pytestmark = pytest.mark.sockets

FOLDER = "flow=chat/date=2026-11-18"
LONG = "ab" * 40_000


def writer_to(place: str, **changes: object) -> CaptureWriter:
    """Return a writer of batches of one exchange, whose objects are put when they are asked for."""
    fields = {"batch": 1, "object_seconds": 3_600.0, **changes}
    captures = CaptureSettings(path=place).model_copy(update=fields)
    return CaptureWriter(captures, SPECS, salt="salt", key=b"key")


def store_at(
    place: str, clock: Callable[[], float] = lambda: 0.0, **changes: object
) -> ObjectStore:
    """Return a store with a clock of its own."""
    captures = CaptureSettings(path=place).model_copy(update=changes)
    return ObjectStore(captures, clock=clock)


def gathered(store: ObjectStore, *exchanges: str, folder: str = FOLDER) -> list[Settled]:
    """Give a store a batch of each exchange, and return what has become of any."""
    found: list[Settled] = []
    for exchange in exchanges:
        batch = Batch()
        batch.add([msgspec.json.encode(spoken(exchange)) + b"\n"], exchange, later=False)
        found += store.store({folder: batch})
    return found


def objects(place: str) -> list[str]:
    """Return the paths of all segments at a place."""
    at = Place(place)
    return sorted(path for path in at.below(at.root) if path.endswith(".jsonl.zst"))


def exchanges(place: str) -> list[str]:
    """Read all exchanges at a place; nothing may be damaged."""
    return [run.exchange for run in read(place)]


def read(place: str) -> Iterator[RunRecord]:
    """Read all runs at a place; nothing may be damaged."""
    for segment in find_segments(place):
        for line in read_lines(segment):
            assert not isinstance(line, Damage), line
            yield decode_run(line.data)


async def test_batches_become_one_object(object_place: str) -> None:
    """It appears whole when the writer is asked for it, and is counted then."""
    writer = writer_to(object_place)
    for number in range(20):
        writer.put([spoken(f"{number:02}"), spoken(f"{number:02}", role="shadow")])
    await writer.flush()
    (path,) = objects(object_place)
    assert f"/{FOLDER}/" in path
    assert exchanges(object_place) == [f"{number:02}" for number in range(20) for _ in "ab"]
    counts = writer.counts
    assert (counts.written, counts.lines, counts.batches, counts.waiting) == (20, 40, 20, 0)
    assert counts.bytes == Place(object_place).info(path)["size"]
    await writer.aclose()


def test_an_object_is_put_when_it_has_its_size(object_place: str) -> None:
    """Not before, and the next one begins."""
    store = store_at(object_place, object_bytes=1_000)
    sizes = [len(gathered(store, f"{number:02}" * 50)) for number in range(20)]
    assert sum(sizes) == len(objects(object_place))
    assert 2 <= sum(sizes) <= 5
    assert all(Place(object_place).info(path)["size"] >= 1_000 for path in objects(object_place))
    store.close()
    assert len(exchanges(object_place)) == 20


def test_an_object_is_put_when_it_is_old(object_place: str) -> None:
    """So that what a quiet flow captures appears, and a kill costs no more."""
    clock = Clock(0.0)
    store = store_at(object_place, clock, object_seconds=60.0)
    gathered(store, "a")
    clock.now += 59.0
    gathered(store, "b")
    assert not objects(object_place)
    assert store.due == pytest.approx(60.0)
    clock.now += 1.0
    (settled,) = store.tend()
    assert (settled.exchanges, settled.batches, settled.error) == (2, 2, None)
    assert exchanges(object_place) == ["a", "b"]
    assert store.due == float("inf")


def test_a_new_day_ends_the_object_of_the_day_before(object_place: str) -> None:
    """What ends late gets an object of its own; other flows are not concerned."""
    store = store_at(object_place)
    for number, day in enumerate(("18", "19", "18", "19")):
        gathered(store, str(number), folder=f"flow=chat/date=2026-11-{day}")
    gathered(store, "x", folder="flow=other/date=2026-11-20")
    assert [path.rpartition("/")[0][-2:] for path in objects(object_place)] == ["18"]
    store.close()
    days = [path.rpartition("/")[0][-2:] for path in objects(object_place)]
    assert sorted(days) == ["18", "18", "19", "20"]


@pytest.mark.parametrize("fault", ["refuse", "deny", pytest.param("cut", marks=pytest.mark.slow)])
def test_a_refused_object_is_put_again(s3: ObjectServer, fault: Fault) -> None:
    """After a pause, in its place; meanwhile nothing of it can be read, and readiness says so."""
    clock = Clock(0.0)
    store = store_at(s3.bucket, clock)
    s3.fault = fault
    assert not gathered(store, "a")
    assert not store.flush()
    assert not objects(s3.bucket)
    assert "1 wait in memory" in (store.fault or "")
    s3.fault = None
    assert not gathered(store, "b"), "before the pause is over nothing is tried"
    clock.now = store.due
    assert [one.exchanges for one in gathered(store, "c")] == [1]
    assert not store.fault
    assert exchanges(s3.bucket) == ["a"]
    assert [one.exchanges for one in store.close()] == [2]
    assert exchanges(s3.bucket) == ["a", "b", "c"]


def test_an_answer_that_is_lost_makes_no_second_object(s3: ObjectServer) -> None:
    """The server stored it, and the writer does not know: it is put again in the same place."""
    clock = Clock(0.0)
    store = store_at(s3.bucket, clock)
    s3.fault = "lose"
    assert not gathered(store, "a")
    assert not store.flush()
    assert exchanges(s3.bucket) == ["a"]
    s3.fault = None
    clock.now = store.due
    assert [one.exchanges for one in store.tend()] == [1]
    assert exchanges(s3.bucket) == ["a"]


def test_memory_is_bounded_while_a_store_refuses(s3: ObjectServer) -> None:
    """Beyond four objects the oldest is lost, and counted; the others are put in the end."""
    store = store_at(s3.bucket, object_bytes=1_000)
    s3.fault = "refuse"
    found = gathered(store, *(f"{number:03}" * 60 for number in range(80)))
    lost = sum(one.exchanges for one in found)
    assert {type(one.error) for one in found} == {OSError}
    assert 80 - lost <= HELD_OBJECTS * 1_000 // 100
    s3.fault = None
    kept = store.close()
    assert lost + sum(one.exchanges for one in kept) == 80
    assert exchanges(s3.bucket) == [f"{number:03}" * 60 for number in range(lost, 80)]


@pytest.mark.slow
def test_many_quiet_flows_are_put_before_they_fill_the_memory(object_place: str) -> None:
    """None of their objects has its size."""
    store = store_at(object_place, object_bytes=2_000)
    for number in range(80):
        gathered(store, "x", folder=f"flow=f{number}/date=2026-11-18")
    assert objects(object_place)


async def test_what_is_refused_to_the_end_is_lost_and_counted(s3: ObjectServer) -> None:
    """The writer reports the store's refusal while there is hope, and the loss afterwards."""
    writer = writer_to(s3.bucket)
    writer.put([spoken("a")])
    s3.fault = "deny"
    assert not await writer.flush()
    assert "refuses objects (PermissionError): 1 wait" in (writer.fault or "")
    assert (writer.counts.waiting, writer.counts.dropped) == (1, {})
    assert await writer.aclose() == 0
    assert await writer.flush(), "nothing waits any more"
    assert (writer.counts.written, writer.counts.dropped) == (0, {"disk": 1})
    assert (writer.fault or "").endswith("1 disk")


async def test_a_close_that_takes_too_long_reports_what_is_left(s3: ObjectServer) -> None:
    """A server that holds an upload holds neither the loop nor the end of the process."""
    writer = writer_to(s3.bucket)
    writer.put([spoken("a")])
    s3.fault = "hold"
    closing = asyncio.create_task(writer.aclose(deadline=0.01))
    assert await closing == 1
    assert writer.put([spoken("b")]) == "dropped"
    assert not objects(s3.bucket)
    s3.fault = None
    s3.go_on.set()
    await writer.flush()  # the client tries again by itself
    assert exchanges(s3.bucket) == ["a"]


async def test_a_long_text_is_stored_with_what_names_it(object_place: str) -> None:
    """Just before, each time anew, and with nothing else."""
    writer = writer_to(object_place)
    for number in range(2):
        writer.put([spoken("a", request=a_request({"image": LONG}))])
        await writer.flush()
        assert len(Place(object_place).below(f"{Place(object_place).root}/blobs")) == 1
        assert len(objects(object_place)) == number + 1
    writer.put([spoken("b")])
    await writer.aclose()
    run = next(read(object_place))
    assert run.request is not None
    reference = msgspec.json.decode(run.request.body)["image"]
    blobs = BlobFolder(find_segments(object_place)[0].url)
    assert blobs.fetch(reference["blob"]).decode() == LONG


async def test_long_texts_end_a_batch_before_they_fill_the_memory(object_place: str) -> None:
    """Exchanges with pictures are large, and a batch holds many."""
    writer = writer_to(object_place, batch=64, flush_seconds=3_600.0, object_bytes=60_000)
    for number in range(4):
        picture = random.Random(number).randbytes(40_000).hex()
        writer.put([spoken(str(number), request=a_request({"image": picture}))])
    await until(lambda: writer.counts.written == 4)
    await writer.aclose()
    assert len(objects(object_place)) == 2
    assert writer.counts.batches == 2


@pytest.mark.slow
def test_the_client_is_made_before_anything_is_served(
    s3: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes the interpreter for 0.2 s; made later it would hold every stream."""
    clients = Place(s3.bucket).system
    clients.clear_instance_cache()
    store = store_at(s3.bucket)
    monkeypatch.delenv("AWS_ENDPOINT_URL")  # which a client reads when it is made
    assert not gathered(store, "a")
    assert [one.error for one in store.close()] == [None]
    monkeypatch.undo()
    clients.clear_instance_cache()
    assert s3.counts() == {"LIST": 2, "PUT": 1}


async def test_what_was_forgotten_meanwhile_is_never_stored(object_place: str) -> None:
    """Second runs, long texts and feedback waited in memory; others are stored as they were."""
    writer = writer_to(object_place)
    values = {name: ExchangeValues() for name in ("gone", "stays")}
    for name, value in values.items():
        writer.put([spoken(name, shadow="due")], value)
    await writer.flush()
    for name, value in values.items():
        shadow = spoken(name, role="shadow", request=a_request({"image": f"{name}{LONG}"}))
        writer.put_later(shadow, value)
        writer.feedback(FeedbackRecord(v=1, exchange=name, score=1, at=BEGAN))
    ForgottenLists(Place(object_place)).add(["gone"])
    await writer.aclose()
    stored = [(run.exchange, run.role) for run in read(object_place)]
    assert sorted(stored) == [("gone", "serving"), ("stays", "serving"), ("stays", "shadow")]
    (feedback,) = find_segments(object_place, feedback=True)
    (line,) = read_lines(feedback)
    assert isinstance(line, CapturedLine)
    assert b'"stays"' in line.data
    assert len(Place(object_place).below(f"{Place(object_place).root}/blobs")) == 1
    assert (writer.counts.waiting, writer.counts.dropped) == (0, {})


@pytest.mark.parametrize("others", [0, 1])
async def test_what_is_forgotten_during_its_put_is_removed(
    object_place: str, monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    """The erasure has listed before the object was there: the router looks once more."""
    put = Place.put

    def put_and_forget(at: Place, path: str, content: bytes, **how: Any) -> None:
        put(at, path, content, **how)
        if path.endswith("-000001.jsonl.zst"):
            monkeypatch.setattr(Place, "put", put)
            ForgottenLists(Place(object_place)).add(["gone"])

    monkeypatch.setattr(Place, "put", put_and_forget)
    writer = writer_to(object_place)
    for name in ("gone", *["stays"] * others):
        writer.put([spoken(name)])
    await writer.aclose()
    assert exchanges(object_place) == ["stays"] * others
    assert (writer.counts.written, writer.counts.waiting) == (others, 0)


def aged(place: str, days: int) -> ObjectStore:
    """Return a store that keeps some days, on the 21st."""
    captures = CaptureSettings(path=place).model_copy(update={"keep_days": days})
    return ObjectStore(captures, wall=datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp)


@pytest.mark.slow
def test_what_is_too_old_goes(object_place: str) -> None:
    """Whole days of all flows, and of feedback; twice is harmless, and nothing else goes."""
    store = aged(object_place, 2)
    for day in ("17", "18", "19", "21"):
        for flow in ("flow=chat", "flow=other", "feedback"):
            gathered(store, day, folder=f"{flow}/date=2026-11-{day}")
    store.close()
    at = Place(object_place)
    at.put(f"{at.root}/exchange.key", b"key")
    at.put(f"{at.root}/notes/date=2026-11-01/mine.txt", b"mine")
    for _ in range(2):
        aged(object_place, 2).expire()
    days = [path.rpartition("/")[0][-2:] for path in objects(object_place)]
    assert sorted(days) == ["19", "19", "19", "21", "21", "21"]
    assert len(at.below(at.root)) == 8
    aged(object_place, 0).expire()
    assert len(at.below(at.root)) == 8


def test_long_texts_go_by_their_last_use(object_place: str) -> None:
    """That is when they were put last."""
    at = Place(object_place)
    at.put(f"{at.root}/blobs/a.zst", b"x")
    young = ObjectStore(CaptureSettings(path=object_place, keep_days=1))
    young.expire()
    assert len(at.below(at.root)) == 1
    old = CaptureSettings(path=object_place, keep_days=1)
    ObjectStore(old, wall=lambda: datetime.now(UTC).timestamp() + 3 * 86_400).expire()
    assert not at.below(at.root)


async def test_objects_that_may_not_be_deleted_are_reported(
    s3: ObjectServer, caplog: pytest.LogCaptureFixture
) -> None:
    """A store answers a deletion of many with success, whatever became of each."""
    gone = aged(s3.bucket, 2)
    gathered(gone, "a", folder="flow=chat/date=2020-01-01")
    gone.close()
    s3.fault, s3.failing = "ignore", "POST"
    writer = writer_to(s3.bucket, keep_days=1)
    await writer.aclose()
    assert "old files stay: PermissionError" in caplog.text
    assert writer.counts.deleted_files == 0


def long_object(place: str) -> CaptureSegment:
    """Store an object of five megabytes, in batches of a tenth of one."""
    store = store_at(place, object_bytes=1 << 26)
    for number in range(60):
        text = random.Random(number).randbytes(100_000).hex()
        batch = Batch()
        line = msgspec.json.encode(spoken(f"{number:02}", text)) + b"\n"
        batch.add([line], f"{number:02}", later=False)
        assert not list(store.store({FOLDER: batch}))
    store.close()
    (segment,) = find_segments(place)
    return segment


@pytest.mark.slow
def test_a_long_object_is_cut_where_its_table_says(object_place: str) -> None:
    """Its stretches are what it holds."""
    segment = long_object(object_place)
    parts = stretches(segment, stretch=1 << 20)
    assert 8 <= len(parts) <= 12
    assert [part.ends for part in parts[:-1]] == [part.begins for part in parts[1:]]
    assert sum(part.size for part in parts) == segment.size
    found = [line for part in parts for line in read_lines(part)]
    assert found == list(read_lines(segment))
    assert len(found) == 60
    without = replace(segment, size=segment.size - 1)
    assert stretches(without, stretch=1 << 20) == [without], "the table is of another object"


@pytest.mark.slow
def test_an_object_that_was_copied_to_a_disk_is_read_as_it_was(
    object_place: str, tmp_path: Path
) -> None:
    """Its table is skipped there, and its frames are walked."""
    segment = long_object(object_place)
    folder = tmp_path / FOLDER
    folder.mkdir(parents=True)
    (folder / "copied.jsonl.zst").write_bytes(Place(segment.url).read(Place(segment.url).root))
    (copied,) = find_segments(str(tmp_path))
    parts = stretches(copied, stretch=1 << 20)
    assert len(parts) == len(stretches(segment, stretch=1 << 20))
    assert [line for part in parts for line in read_lines(part)] == list(read_lines(segment))


@pytest.mark.slow
def test_a_stretch_is_requested_by_its_range(
    s3: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And so much at once as a reader may hold."""
    monkeypatch.setattr(places, "FETCHED", 1 << 18)
    parts = stretches(long_object(s3.bucket), stretch=1 << 20)
    s3.requests.clear()
    assert list(read_lines(parts[3]))
    ranges = [one.range.removeprefix("bytes=").split("-") for one in s3.requests if one.range]
    asked = [(int(first), int(last) + 1) for first, last in ranges]
    assert asked[0][0] == parts[3].begins
    assert asked[-1][1] == parts[3].ends
    assert [last for _, last in asked[:-1]] == [first for first, _ in asked[1:]]
    assert max(last - first for first, last in asked) <= 1 << 18
    assert s3.counts() == {"HEAD": 1, "GET": len(asked)}


@pytest.mark.slow
def test_an_object_that_is_replaced_while_it_is_read_is_no_half_of_each(
    s3: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader reports that it cannot be read; it may try again."""
    monkeypatch.setattr(places, "FETCHED", 1 << 18)
    segment = long_object(s3.bucket)
    lines = read_lines(segment)
    next(lines)
    at = Place(segment.url)
    at.put(at.root, b"x" * segment.size)
    with pytest.raises(CapturesUnreadable):
        list(lines)


def test_a_store_whose_library_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the extra to install."""
    monkeypatch.setitem(sys.modules, "s3fs", None)
    place = "s3a://bucket/x"  # by which no other test has imported it
    with pytest.raises(MissingExtra, match=rf"'{place}' needs the extra 's3'.*cutover\[s3\]"):
        writer_to(place)
