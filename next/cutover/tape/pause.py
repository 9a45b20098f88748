"""A tape as it is stored: the body of a pause, and of a record."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from cutover.errors import TapeOverflowed
from cutover.records import EntryRecord, ErrorRecord, ItemRecord, TapeRecord
from cutover.tape.entry import Call, Entry, Fault
from cutover.tape.exchange import Exchange

OUTCOME_UNKNOWN = "OutcomeUnknown"
"""The kind of a write that was begun in a process that ended before its result came."""


def entry_record(entry: Entry) -> EntryRecord:
    """Return an entry as it is stored; items that cannot be encoded are left out."""
    call, fault = entry.call, entry.fault
    items = tuple(ItemRecord.of(at, item) for at, item in entry.items if isinstance(item, bytes))
    error = None
    if fault is not None:
        error = ErrorRecord(fault.kind, fault.message, bytes(fault.args).decode())
    canonical = call.canonical.decode("utf-8", "replace")
    return EntryRecord(
        call.name, call.key.hex(), canonical, entry.at, call.writes, items, entry.end, error
    )


def tape_record(exchange: Exchange) -> TapeRecord:
    """Return an exchange's tape as it is stored; a read that the pause has dropped is open.

    Raises `TapeOverflowed`.
    """
    if exchange.overflowed:
        raise TapeOverflowed
    entries = [entry_record(entry) for entry in exchange.entries]
    for entry in exchange.dropped:
        open_again = Entry(entry.call, entry.at)
        entries.append(entry_record(open_again))
    return TapeRecord(tuple(entries), tuple(exchange.incomplete), exchange.question)


def entry_of(record: EntryRecord) -> Entry:
    """Return a stored entry; a write that was begun and never ended has an unknown outcome."""
    call = Call(
        record.name,
        bytes.fromhex(record.key),
        record.canonical.encode(),
        record.writes,
        record.name.startswith("model."),
    )
    entry = Entry(call, record.at, [(item.at, item.data) for item in record.items], record.end)
    if record.error is not None:
        args = msgspec.Raw(record.error.args.encode())
        entry.fault = Fault(record.error.kind, record.error.message, args)
    if record.end == "open":
        entry.end, entry.fault = "failed", Fault(OUTCOME_UNKNOWN)
    return entry


def load(exchange: Exchange, tape: TapeRecord, writes: Iterable[EntryRecord] = ()) -> None:
    """Put a stored tape on a new exchange, and the `writes` that were made after its pause."""
    records = (*tape.entries, *writes)
    dropped = [one for one in records if one.end == "open" and not one.writes]
    exchange.go_on(entry_of(record) for record in records if record not in dropped)
    exchange.dropped += [entry_of(record) for record in dropped]
    exchange.incomplete.update(dict.fromkeys(tape.incomplete, "stored without it"))
    exchange.question = tape.question
