"""Redacting an exchange: all its records at once, before any of it is stored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from contract.records import FeedbackRecord, RequestRecord, RunRecord
from contract.wire.dialect import Dialect
from contract.wire.reader import EventDecoder
from router.capture.redaction import halves
from router.capture.redaction.dictionary import Dictionary
from router.capture.redaction.entries import EntryText, play_after, raw_after
from router.capture.redaction.frames import FrameText
from router.capture.redaction.passes import Learn, Pass, Point, Rewrite
from router.capture.redaction.places import Paths, below, parsed
from router.config import Patterns

# Their answers are numbers and made-up ids: nobody's data, and a clock looks like a card number.
_NOBODYS = frozenset({"clock", "ids"})


class Redactor:
    """Replaces personal data by keyed pseudonyms.

    `paths` are dotted and begin with `request.body`, `request.options`, `tape.<port>.<op>.args`,
    `tape.<port>.<op>.items.<number>` or `frames.<event>`; `*` stands for any one step. Equal
    values have equal pseudonyms for as long as the key is the same.
    """

    def __init__(self, patterns: Patterns, paths: Iterable[str], key: bytes) -> None:
        self._patterns = patterns
        self._places = _Places.of(parsed(paths))
        self._key = key

    def exchange(self, records: Sequence[RunRecord], dialect: Dialect) -> list[RunRecord]:
        """Give the records of one exchange without personal data, marked `redacted` if it had some.

        What is not marked says what it said: its replay is compared with the recorded frames.
        """
        runs, possible = self._looked_at(records, dialect)
        dictionary = Dictionary(self._key, possible)
        for run in runs:
            run.show(Learn(dictionary, possible) if possible else Point(dictionary, possible))
        if not dictionary:
            return list(records)
        last = Rewrite(dictionary)
        return [msgspec.structs.replace(run.after(last), redacted=True) for run in runs]

    def at_once(self, records: Sequence[RunRecord], dialect: Dialect) -> list[RunRecord] | None:
        """Do as `exchange` does where that is quick; None where texts would have to be searched.

        It is where no pattern could match, and what paths lead to is said in no frame.
        """
        runs, possible = self._looked_at(records, dialect)
        if possible:
            return None
        dictionary = Dictionary(self._key, possible)
        for run in runs:
            run.show(Point(dictionary, possible))
        if not dictionary:
            return list(records)
        last = Rewrite(dictionary)
        if any(run.concerned(last) for run in runs):
            return None
        return [msgspec.structs.replace(run.after(last), redacted=True) for run in runs]

    def _looked_at(
        self, records: Sequence[RunRecord], dialect: Dialect
    ) -> tuple[list[_Run], Patterns]:
        decoder = EventDecoder(dialect)
        runs = [_Run(record, decoder, self._places) for record in records]
        return runs, self._possible(b"\n".join([part for run in runs for part in run.raw()]))

    def _possible(self, raw: bytes) -> Patterns:
        """Give the patterns that could match; characters may hide in escapes."""
        return self._patterns if b"\\u" in raw else self._patterns.possible(raw)

    def feedback(self, record: FeedbackRecord) -> FeedbackRecord:
        """Give a feedback without personal data in its comment."""
        if not record.comment:
            return record
        dictionary = Dictionary(self._key, self._patterns)
        dictionary.learn(record.comment)
        comment = Rewrite(dictionary).leaf(record.comment, protocol=False)
        return msgspec.structs.replace(record, comment=comment)


class _Places(NamedTuple):
    """Where paths lead to in each part of a record."""

    body: Paths
    options: Paths
    tape: Paths
    frames: Paths

    @classmethod
    def of(cls, paths: Paths) -> _Places:
        request = below(paths, "request")
        return cls(
            below(request, "body"),
            below(request, "options"),
            below(paths, "tape"),
            below(paths, "frames"),
        )


class _Run:
    """One record under redaction."""

    def __init__(self, record: RunRecord, decoder: EventDecoder, places: _Places) -> None:
        self._record = record
        self._places = places
        self._frames = FrameText(record.frames, decoder, places.frames)
        self._entries = [
            EntryText(entry, places.tape)
            for entry in record.tape or ()
            if entry.port not in _NOBODYS
        ]

    def raw(self) -> Iterable[bytes]:
        """Give all bytes in which something could stand, and the texts pieces make."""
        request = self._record.request
        if request is not None:
            yield from (bytes(request.body), bytes(request.options))
        sources: list[FrameText | EntryText] = [self._frames, *self._entries]
        for source in sources:
            yield source.raw
            for text in source.texts:
                yield halves.raw(text)
        for play in self._record.plays:
            if play.args is not None:
                yield bytes(play.args)

    def show(self, treatment: Learn) -> None:
        """Let a pass see everything, and change nothing."""
        self._request_after(treatment)
        self._frames.after(treatment)
        for entry in self._entries:
            entry.after(treatment)
        for play in self._record.plays:
            play_after(play, self._places.tape, treatment)

    def concerned(self, treatment: Pass) -> bool:
        """Whether a pass has something to do in the frames or on the tape."""
        return bool(self._entries) or self._frames.concerned(treatment)

    def after(self, treatment: Pass) -> RunRecord:
        """Give the record after a pass."""
        record = self._record
        treated = iter([entry.after(treatment) for entry in self._entries])
        tape = record.tape and tuple(
            entry if entry.port in _NOBODYS else next(treated) for entry in record.tape
        )
        plays = tuple(play_after(play, self._places.tape, treatment) for play in record.plays)
        return msgspec.structs.replace(
            record,
            request=self._request_after(treatment),
            frames=self._frames.after(treatment),
            tape=tape,
            plays=plays,
        )

    def _request_after(self, treatment: Pass) -> RequestRecord | None:
        request = self._record.request
        if request is None:
            return None
        return msgspec.structs.replace(
            request,
            body=raw_after(request.body, self._places.body, treatment, typed=True),
            options=raw_after(request.options, self._places.options, treatment),
        )
