"""Erasure on object stores: objects are replaced whole, also beside writers and other erasures."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

import msgspec
import pytest

from compare.input.damage import Damage
from compare.input.segments import find_segments, read_lines
from contract.capture_files import read_seek_table
from contract.records import FeedbackRecord, RunRecord, decode_run, encode_run
from contract.stores import DataSubject
from cutover.erasure import SubjectMatcher, erase_captures
from effects.places import Place
from router.capture.objects import ObjectStore
from router.capture.redaction import ExchangeValues
from router.capture.segments import Batch, ForgottenLists
from router.capture.writer import CaptureWriter
from router.config.schema import CaptureSettings
from tests.support.capture_files import SPECS, spoken
from tests.support.deployment import until
from tests.support.object_server import Fault, ObjectServer
from tests.support.records import a_request

pytestmark = pytest.mark.sockets

ANN = SubjectMatcher(DataSubject("user", "ann"), b"key")
BEN = SubjectMatcher(DataSubject("user", "ben"), b"key")
LONG = "ab" * 40_000


def asked(exchange: str, user: str, content: str = "hello") -> Sequence[RunRecord]:
    """Build the records of an exchange: its serving run, and a shadow without a user."""
    body = {"message_id": exchange, "user_id": user, "content": content}
    return [spoken(exchange, request=a_request(body)), spoken(exchange, role="shadow")]


def writer_at(place: str) -> CaptureWriter:
    """Return a writer of a batch for each exchange; objects are put when it is flushed."""
    captures = CaptureSettings(path=place, batch=1, object_seconds=3_600.0)
    return CaptureWriter(captures, SPECS, salt="s", key=b"key")


async def written(place: str, *exchanges: Sequence[RunRecord]) -> None:
    """Write exchanges and a score for each into an object, and one of feedback."""
    writer = writer_at(place)
    for records in exchanges:
        name, began = records[0].exchange, records[0].began
        writer.put(records)
        writer.feedback(FeedbackRecord(v=1, exchange=name, score=1, at=began))
    await writer.aclose()


def lines(place: str, *, feedback: bool = False) -> Iterator[bytes]:
    """Read all lines at a place; nothing may be damaged."""
    for segment in find_segments(place, feedback=feedback):
        for line in read_lines(segment):
            assert not isinstance(line, Damage), line
            yield line.data


def exchanges(place: str) -> list[str]:
    """Return the exchange of every run that is left."""
    return [decode_run(line).exchange for line in lines(place)]


def everything(place: str) -> dict[str, bytes]:
    """Return all objects at a place."""
    at = Place(place)
    return {path: at.read(path) for path in at.below(at.root)}


@pytest.mark.slow
async def test_objects_are_replaced_without_what_is_forgotten(object_place: str) -> None:
    """What is left of them is read as before, their table included; twice is once."""
    await written(object_place, asked("1", "ben"), asked("2", "ann"), asked("3", "ben"))
    erased = erase_captures(object_place, ANN)
    assert (erased.exchanges, erased.feedbacks) == (frozenset({"2"}), 1)
    assert exchanges(object_place) == ["1", "1", "3", "3"]
    assert sum(b'"exchange":"2"' in one for one in lines(object_place, feedback=True)) == 0
    left = everything(object_place)
    for path, content in left.items():
        if path.endswith(".jsonl.zst"):
            assert read_seek_table(content, len(content)) is not None
    assert not erase_captures(object_place, ANN).exchanges
    assert everything(object_place) == left


@pytest.mark.slow
async def test_an_object_that_held_nothing_else_is_removed(object_place: str) -> None:
    """Its long texts, too; those that others name stay until the last of them goes."""
    hers, both = "c" + LONG, "d" + LONG
    await written(object_place, asked("1", "ben", both))
    await written(object_place, asked("2", "ann", both), asked("3", "ann", hers))
    assert sum("/blobs/" in path for path in everything(object_place)) == 2
    erased = erase_captures(object_place, ANN)
    assert (erased.exchanges, erased.blobs) == (frozenset({"2", "3"}), 1)
    assert exchanges(object_place) == ["1", "1"]
    assert sum("/blobs/" in path for path in everything(object_place)) == 1
    assert erase_captures(object_place, BEN).blobs == 1
    assert [path.split("/")[-2] for path in everything(object_place)] == ["forgotten"] * 2


async def test_what_a_router_holds_of_a_forgotten_exchange_is_never_stored(
    object_place: str,
) -> None:
    """Its second run was in memory when the first was forgotten; others are stored."""
    writer = writer_at(object_place)
    values = {"1": ExchangeValues(), "2": ExchangeValues()}
    runs = {"1": asked("1", "ben"), "2": asked("2", "ann")}
    for name, (serving, _) in runs.items():
        writer.put([msgspec.structs.replace(serving, shadow="due")], values[name])
    await writer.flush()
    for name, (_, shadow) in runs.items():
        writer.put_later(shadow, values[name])
    assert erase_captures(object_place, ANN).exchanges == {"2"}
    await writer.aclose()
    assert exchanges(object_place) == ["1", "1"]
    assert not [path for path, content in everything(object_place).items() if b"ann" in content]


async def test_what_is_stored_while_objects_are_read_goes_too(
    object_place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A router put the second run after the listing, and before it could know."""
    serving, shadow = asked("2", "ann")
    writer = writer_at(object_place)
    writer.put([msgspec.structs.replace(serving, shadow="due")], ExchangeValues())
    await writer.aclose()
    router, late = ObjectStore(CaptureSettings(path=object_place)), Batch()
    late.add([encode_run(shadow)], "2", later=True)
    assert not list(router.store({"flow=chat/date=2026-11-18": late}))
    add = ForgottenLists.add

    def add_after_the_router(lists: ForgottenLists, gone: Collection[str]) -> None:
        assert router.flush()
        assert exchanges(object_place) == ["2", "2"]
        add(lists, gone)

    monkeypatch.setattr(ForgottenLists, "add", add_after_the_router)
    assert erase_captures(object_place, ANN).exchanges == {"2"}
    assert exchanges(object_place) == []


@pytest.mark.slow
async def test_two_erasures_at_once_undo_nothing_of_each_other(
    s3: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The object was replaced since it was read: it is read again."""
    await written(s3.bucket, asked("1", "ben"), asked("2", "ann"), asked("3", "cleo"))
    put = Place.put
    others: list[frozenset[str]] = []

    def put_after_another(at: Place, path: str, content: bytes, *, tag: str | None = None) -> None:
        if tag is not None and not others:
            others.append(frozenset())  # once
            others.append(erase_captures(s3.bucket, BEN).exchanges)
        put(at, path, content, tag=tag)

    monkeypatch.setattr(Place, "put", put_after_another)
    assert erase_captures(s3.bucket, ANN).exchanges == {"2"}
    assert others[1] == {"1"}
    assert exchanges(s3.bucket) == ["3", "3"]
    assert sum(b'"exchange":"3"' in one for one in lines(s3.bucket, feedback=True)) == 1


@pytest.mark.slow
async def test_erasures_beside_a_router_that_writes(s3: ObjectServer) -> None:
    """What one has found is nowhere afterwards, whenever its second run came; others are whole."""
    captures = CaptureSettings(path=s3.bucket, batch=4, flush_seconds=0.01, object_seconds=0.02)
    writer = CaptureWriter(captures, SPECS, salt="s", key=b"key")
    erasing: list[asyncio.Task[frozenset[str]]] = []

    async def erase(number: int) -> frozenset[str]:
        await until(lambda: writer.counts.written > 20 * number)
        return (await asyncio.to_thread(erase_captures, s3.bucket, ANN)).exchanges

    erasing += [asyncio.create_task(erase(number)) for number in range(3)]
    late: list[tuple[RunRecord, ExchangeValues]] = []
    for number in range(80):
        serving, shadow = asked(str(number), "ann" if number % 2 else "ben")
        late.append((shadow, ExchangeValues()))
        writer.put([msgspec.structs.replace(serving, shadow="due")], late[-1][1])
        if number >= 20:
            writer.put_later(*late[number - 20])
        await until(lambda: writer.counts.waiting < 8)
    for pair in late[-20:]:
        writer.put_later(*pair)
    gone = frozenset[str]().union(*await asyncio.gather(*erasing))
    await writer.aclose()
    left = Counter(exchanges(s3.bucket))
    assert gone
    assert gone.isdisjoint(left)
    assert {left[str(number)] for number in range(0, 80, 2)} == {2}
    erase_captures(s3.bucket, ANN)
    assert set(exchanges(s3.bucket)) == {str(number) for number in range(0, 80, 2)}
    assert writer.counts.dropped == {}


async def test_an_object_that_is_gone_meanwhile_holds_nothing(
    object_place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was too old, and a router deleted it between the listing and the reading."""
    await written(object_place, asked("1", "ben"))
    await written(object_place, asked("2", "ann"))
    at = Place(object_place)
    (gone, *_) = (path for path in at.below(at.root) if "/flow=" in path)
    pieces = Place.pieces

    def pieces_after_deletion(at: Place, path: str, *, size: int) -> Iterator[bytes]:
        at.remove(gone)
        return pieces(at, path, size=size)

    monkeypatch.setattr(Place, "pieces", pieces_after_deletion)
    erase_captures(object_place, ANN)
    monkeypatch.undo()
    assert not at.exists(gone)


async def test_an_object_that_is_gone_before_it_is_replaced_is_not_put_again(
    object_place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was read, and was too old by then: neither a fault nor an object."""
    await written(object_place, asked("2", "ann"), asked("3", "ben"))
    add, at = ForgottenLists.add, Place(object_place)
    (old,) = (path for path in at.below(at.root) if "/flow=" in path)

    def add_after_deletion(lists: ForgottenLists, gone: Collection[str]) -> None:
        at.remove(old)
        add(lists, gone)

    monkeypatch.setattr(ForgottenLists, "add", add_after_deletion)
    assert erase_captures(object_place, ANN).exchanges == {"2"}
    assert not at.exists(old)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["refuse", "deny"])
async def test_an_erasure_that_fails_leaves_every_object_whole(
    s3: ObjectServer, fault: Fault
) -> None:
    """It raises, and can be repeated: nothing is lost of others."""
    await written(s3.bucket, asked("1", "ben"), asked("2", "ann"))
    before = everything(s3.bucket)
    s3.fault = fault
    with pytest.raises(OSError, match="as told"):
        erase_captures(s3.bucket, ANN)
    s3.fault = None
    assert everything(s3.bucket) == before
    assert erase_captures(s3.bucket, ANN).exchanges == {"2"}
