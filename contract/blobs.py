"""Blobs: long texts leave the records, become files named by their digest, and are put back."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import replace

from contract.records import RunRecord

LONGEST = 65_536
"""Bytes of a text that stays in its record."""
_DIGEST = re.compile(r"[0-9a-f]{64}")
_SHORTEST_REFERENCE = 89

Json: TypeAlias = Any
Store = Callable[[bytes], str]
"""Stores a content and returns its digest."""
Fetch = Callable[[str], bytes | None]
"""Returns the content of a digest; None leaves the reference where it is."""


def without_blobs(record: RunRecord, store: Store) -> RunRecord:
    """Replace every text over 64 KiB in a record's JSON by `{"blob": digest, "bytes": n}`."""

    def change(raw: msgspec.Raw) -> msgspec.Raw:
        if len(memoryview(raw)) <= LONGEST:
            return raw
        return msgspec.Raw(msgspec.json.encode(_taken_out(msgspec.json.decode(raw), store)))

    return _changed(record, change)


def with_blobs(record: RunRecord, fetch: Fetch) -> RunRecord:
    """Put every blob's text back in its place; raises what `fetch` raises."""
    return _changed(record, lambda raw: put_back(raw, fetch))


def put_back(raw: msgspec.Raw, fetch: Fetch) -> msgspec.Raw:
    """Put every blob's text back into one value; raises what `fetch` raises."""
    if len(memoryview(raw)) < _SHORTEST_REFERENCE or b'{"blob":"' not in bytes(raw):
        return raw
    return msgspec.Raw(msgspec.json.encode(_put_back(msgspec.json.decode(raw), fetch)))


def _changed(record: RunRecord, change: Callable[[msgspec.Raw], msgspec.Raw]) -> RunRecord:
    """Change every value of a record that may be long."""
    request, tape = record.request, record.tape
    return replace(
        record,
        request=request and replace(request, body=change(request.body)),
        tape=tape
        and tuple(
            replace(entry, args=change(entry.args), items=tuple(map(change, entry.items)))
            for entry in tape
        ),
        plays=tuple(
            play if play.args is None else replace(play, args=change(play.args))
            for play in record.plays
        ),
    )


def _taken_out(value: Json, store: Store) -> Json:
    if isinstance(value, str) and len(value) * 4 > LONGEST:
        content = value.encode()
        if len(content) > LONGEST:
            return {"blob": store(content), "bytes": len(content)}
    if isinstance(value, dict):
        return {key: _taken_out(child, store) for key, child in value.items()}
    if isinstance(value, list):
        return [_taken_out(child, store) for child in value]
    return value


def _put_back(value: Json, fetch: Fetch) -> Json:
    if isinstance(value, dict):
        if _is_reference(value):
            content = fetch(value["blob"])
            return value if content is None else content.decode("utf-8", "replace")
        return {key: _put_back(child, fetch) for key, child in value.items()}
    if isinstance(value, list):
        return [_put_back(child, fetch) for child in value]
    return value


def _is_reference(value: dict[str, Json]) -> bool:
    """Whether a value is a reference of ours: a client may send one alike, with a smaller size."""
    if value.keys() != {"blob", "bytes"}:
        return False
    digest, size = value["blob"], value["bytes"]
    named = isinstance(digest, str) and _DIGEST.fullmatch(digest) is not None
    return named and isinstance(size, int) and size > LONGEST
