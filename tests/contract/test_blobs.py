"""Blobs: what is long leaves the record, wherever in it it stands."""

from hashlib import blake2b

import msgspec

from contract.blobs import LONGEST, with_blobs, without_blobs
from contract.records import PlayRecord
from tests.support.records import a_request, a_run, an_entry, raw

LONG = "图" * LONGEST


def test_long_texts_leave_every_place() -> None:
    """Body, arguments, items, other arguments; at any depth, each by its digest."""
    stored: list[bytes] = []

    def store(content: bytes) -> str:
        stored.append(content)
        return "digest"

    tree = raw({"a": [1, {"b": LONG}], "c": "short", "d": "x" * LONGEST})
    entry = an_entry(tree)
    record = a_run(
        request=a_request(tree),
        tape=(entry, msgspec.structs.replace(entry, items=())),
        plays=(
            PlayRecord(port="p", op="o", site="s", how="nearest", args=tree),
            PlayRecord(port="p", op="o", site="s", how="exact", entry=0),
        ),
    )
    found = without_blobs(record, store)
    short = {
        "a": [1, {"b": {"blob": "digest", "bytes": len(LONG.encode())}}],
        "c": "short",
        "d": "x" * LONGEST,
    }
    assert found.request is not None
    assert found.tape is not None
    places = (found.request.body, found.tape[0].items[0], found.plays[0].args)
    assert [msgspec.json.decode(place or b"") for place in places] == [short] * 3
    assert found.tape[1] == (record.tape or ())[1]
    assert found.plays[1] is record.plays[1]
    assert stored == [LONG.encode()] * 3


def test_a_record_without_long_texts_is_left_alone() -> None:
    """Nothing is decoded, nothing changes."""
    record = a_run(request=a_request({"a": "b"}))
    assert without_blobs(record, lambda _: "never") == record


def test_long_texts_come_back_into_every_place() -> None:
    """What was put away is put back as it was, and what only looks like a blob stays."""
    stored: dict[str, bytes] = {}

    def store(content: bytes) -> str:
        digest = blake2b(content, digest_size=32).hexdigest()
        stored[digest] = content
        return digest

    lookalike = {"blob": "../" + "x" * 61, "bytes": 70_000}
    tree = raw({"a": [1, {"b": LONG}], "c": lookalike, "d": "x" * LONGEST, "n": 0.5})
    record = a_run(
        request=a_request(tree),
        tape=(an_entry(tree, args=tree),),
        plays=(PlayRecord(port="p", op="o", site="s", how="nearest", args=tree),),
    )
    without = without_blobs(record, store)
    assert without != record
    assert with_blobs(without, stored.__getitem__) == record
