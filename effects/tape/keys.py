"""Keys: what a call is known by on the tape."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from contract.errors import CutoverError
from contract.operations import OPERATIONS

if TYPE_CHECKING:
    from contract.operations import Operation
    from contract.records import EntryRecord

Key = tuple[str, str, bytes]
"""What a call is known by: `port.name`, site, canonical arguments."""

_canonical = msgspec.json.Encoder(order="sorted")


def canonical(arguments: msgspec.Struct) -> bytes:
    """Encode arguments once: defaults omitted, keys sorted; snapshot and key in one."""
    return _canonical.encode(arguments)


def label(operation: Operation, site: str, args: bytes) -> str:
    """Name a call, its arguments shortened, for messages to people."""
    return f"{operation.label}({site!r}) {args[:200].decode('utf-8', 'replace')}"


class UnknownOperation(CutoverError, msgspec.ValidationError):
    """A tape holds a call of an operation that this version does not know."""

    def __init__(self, record: EntryRecord) -> None:
        super().__init__(f"entry {record.seq}: no operation {record.port!r}.{record.op!r}")


def known(record: EntryRecord) -> Operation:
    """Give the operation of a recorded call; raises `UnknownOperation`."""
    operation = OPERATIONS.get((record.port, record.op))
    if operation is None:
        raise UnknownOperation(record)
    return operation
