"""Blobs: long texts leave the records and become files named by their digest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from contract.records import EntryRecord, PlayRecord, RequestRecord, RunRecord

LONGEST = 65_536

Json: TypeAlias = Any
Store = Callable[[bytes], str]
"""Stores a content and returns its digest."""


def without_blobs(record: RunRecord, store: Store) -> RunRecord:
    """Give the record with every text over 64 KiB in its JSON as `{"blob": digest, "bytes": n}`."""
    request = record.request and _request(record.request, store)
    tape = record.tape and tuple(_entry(entry, store) for entry in record.tape)
    plays = tuple(_play(play, store) for play in record.plays)
    return msgspec.structs.replace(record, request=request, tape=tape, plays=plays)


def _request(request: RequestRecord, store: Store) -> RequestRecord:
    body = _raw(request.body, store)
    return request if body is request.body else RequestRecord(body, request.options)


def _entry(entry: EntryRecord, store: Store) -> EntryRecord:
    args = _raw(entry.args, store)
    if args is entry.args and all(len(memoryview(item)) <= LONGEST for item in entry.items):
        return entry
    items = tuple(_raw(item, store) for item in entry.items)
    return msgspec.structs.replace(entry, args=args, items=items)


def _play(play: PlayRecord, store: Store) -> PlayRecord:
    args = play.args and _raw(play.args, store)
    return play if args is play.args else msgspec.structs.replace(play, args=args)


def _raw(raw: msgspec.Raw, store: Store) -> msgspec.Raw:
    if len(memoryview(raw)) <= LONGEST:
        return raw
    return msgspec.Raw(msgspec.json.encode(_tree(msgspec.json.decode(raw), store)))


def _tree(value: Json, store: Store) -> Json:
    if isinstance(value, str) and len(value) * 4 > LONGEST:
        content = value.encode()
        if len(content) > LONGEST:
            return {"blob": store(content), "bytes": len(content)}
    if isinstance(value, dict):
        return {key: _tree(child, store) for key, child in value.items()}
    if isinstance(value, list):
        return [_tree(child, store) for child in value]
    return value
