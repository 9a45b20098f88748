"""Packing: finished exchanges become the lines that are stored, without personal data."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING

import msgspec

from contract.blobs import LONGEST, without_blobs
from contract.records import encode_run

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from contract.flow import FlowSpec
    from contract.records import FeedbackRecord, RunRecord
    from router.capture.redaction import (
        Redactor,
    )

_FEEDBACK = "feedback"
_MICROSECONDS = 1_000_000
_DAY = 86_400

_encoder = msgspec.json.Encoder()


class Packed(msgspec.Struct, frozen=True):
    """Lines of one exchange or feedback, and the folder they go to."""

    folder: str
    lines: list[bytes]


class Packing:
    """Packs; `blob` stores a long text and gives its digest."""

    def __init__(
        self, redactor: Redactor, specs: Mapping[str, FlowSpec], blob: Callable[[bytes], str]
    ) -> None:
        self._redactor = redactor
        self._specs = specs
        self._blob = blob

    def exchange(self, records: Sequence[RunRecord]) -> Packed:
        """Pack the records of an exchange; takes as long as what is in them asks for."""
        redacted = self._redactor.exchange(records, self._specs[records[0].flow].dialect)
        return self._packed(records, [without_blobs(one, self._blob) for one in redacted])

    def at_once(self, records: Sequence[RunRecord], weight: int) -> Packed | None:
        """Pack a short exchange of stacks behind addresses, of `weight` bytes; None for any other.

        That is done in less time than it costs to let another thread do it; tapes take longer, and
        so do texts in which something may have to be redacted.
        """
        if weight > LONGEST or any(record.tape for record in records):
            return None
        redacted = self._redactor.at_once(records, self._specs[records[0].flow].dialect)
        return None if redacted is None else self._packed(records, redacted)

    def feedback(self, record: FeedbackRecord) -> Packed:
        """Pack a feedback."""
        line = _encoder.encode(self._redactor.feedback(record)) + b"\n"
        return Packed(f"{_FEEDBACK}/date={_day(record.at)}", [line])

    def _packed(self, records: Sequence[RunRecord], redacted: Sequence[RunRecord]) -> Packed:
        first = records[0]
        folder = f"flow={first.flow}/date={_day(first.began)}"
        return Packed(folder, [encode_run(one) for one in redacted])


def size(record: RunRecord) -> int:
    """Estimate the memory of a record by its texts, in bytes."""
    found = sum([len(text) for _, text in record.frames])
    if record.request is not None:
        found += len(memoryview(record.request.body))
    for entry in record.tape or ():
        found += len(memoryview(entry.args)) + sum(len(memoryview(one)) for one in entry.items)
    return found


def _day(microseconds: int) -> str:
    return _date(microseconds // _MICROSECONDS // _DAY)


@cache
def _date(days: int) -> str:
    return datetime.fromtimestamp(days * _DAY, UTC).strftime("%Y-%m-%d")
