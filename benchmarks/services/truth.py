"""What was ordered, by the shop's table, and what clients and records say of it."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from benchmarks.services.conversations import Asked, Ending
from benchmarks.services.processes import Deployment
from compare.input.damage import Damage
from compare.input.segments import find_segments, read_lines
from contract.external import IN_DOUBT, ExternalUpdate
from contract.records import EntryRecord, RunRecord, decode_run
from effects.stores import SqlWriteJournal

ORDER: Final = "mcp.shop.order"
_BATCH_S: Final = 3.0
"""How long a record waits for its shadow and for its batch, with time to spare."""
_LATER_S: Final = 2 * 86_400.0
"""The next router's clock: nothing of a killed one can still be under way."""

Told = Literal["done", "failed", "in doubt"]
"""What a record says came of an order."""


class _Goods(msgspec.Struct):
    grams: int


class _Call(msgspec.Struct):
    arguments: _Goods


class _Result(msgspec.Struct):
    is_error: bool = msgspec.field(name="isError", default=False)


class _Change(msgspec.Struct):
    what: str
    before: dict[str, str]
    after: dict[str, str]


class _Text(msgspec.Struct):
    text: str = ""


@dataclass(frozen=True, slots=True)
class Truth:
    """All that is known of a run: the shop's rows by order, and what is told of the orders.

    `unnamed` are outcomes that the audit has of exchanges whose client never got their id, and
    which no capture has. The router was `killed_at` these moments.
    """

    asked: Sequence[Asked]
    rows: Mapping[int, Sequence[int]]
    told: Mapping[int, Sequence[Told]]
    unnamed: int
    texts: Mapping[str, str]
    killed_at: Sequence[float]

    @property
    def twice(self) -> list[int]:
        """Orders of which the shop has more than one row."""
        return [grams for grams, rows in self.rows.items() if len(rows) > 1]

    @property
    def untold(self) -> list[int]:
        """Orders that were placed, and of which no record says that they were or may have been.

        One without a record may be one of the `unnamed`.
        """
        silent = self._without_record - self.unrecorded
        named = [one.grams for one in self.asked if one.exchange]
        known = [grams for grams in silent if grams in named or self.told.get(grams)]
        return known + [grams for grams in silent if grams not in known][self.unnamed :]

    @property
    def unrecorded(self) -> set[int]:
        """Orders whose stream ended just before a kill, which cost the last batch of captures.

        Their outcome was known; what is in doubt the journal has.
        """
        ended = {one.grams for one in self.asked if self._was_in_last_batch(one)}
        return {grams for grams in self._without_record & ended if not self.told.get(grams)}

    def _was_in_last_batch(self, one: Asked) -> bool:
        late = any(0 <= killed - one.ended <= _BATCH_S for killed in self.killed_at)
        return late and one.ending in {"complete", "error", "refused"}

    @property
    def _without_record(self) -> set[int]:
        return {
            grams for grams in self.rows if not {"done", "in doubt"} & {*self.told.get(grams, ())}
        }

    @property
    def made_up(self) -> list[int]:
        """Orders that a record, or a client's text, says were placed, and were not."""
        recorded = [grams for grams, told in self.told.items() if "done" in told]
        shown = [one for one in self.asked if set(one.numbers) - {*self.rows.get(one.grams, ())}]
        missing = {grams for grams in recorded if grams not in self.rows}
        return sorted(missing | {one.grams for one in shown})

    @property
    def in_doubt(self) -> list[int]:
        """Orders whose outcome no record knows."""
        return [grams for grams, told in self.told.items() if "in doubt" in told]

    @property
    def silent(self) -> list[Asked]:
        """Streams that ended without a word, or were cut although the router was not killed.

        One that stops may close a connection whose request it has not read: nothing has begun.
        """
        return [
            one
            for one in self.asked
            if one.ending == "silent"
            or (one.ending == "cut" and not one.router_killed and not self._unread(one))
        ]

    @property
    def endings(self) -> Counter[Ending]:
        """How many streams ended in which way."""
        return Counter(one.ending for one in self.asked)

    @property
    def torn(self) -> list[Asked]:
        """Streams with an end of which a piece of the recorded text is missing."""
        return [
            one
            for one in self.asked
            if one.ending == "complete" and self.texts.get(one.exchange, one.text) != one.text
        ]

    @property
    def unchecked(self) -> int:
        """Streams with an end that are in no capture: the router was killed before it wrote."""
        return sum(
            one.ending == "complete" and one.exchange not in self.texts for one in self.asked
        )

    def _unread(self, one: Asked) -> bool:
        return one.router_stopped and not one.exchange and one.grams not in self.rows


async def truth(deployed: Deployment, asked: Sequence[Asked]) -> Truth:
    """Read all of it, of a router that has ended."""
    runs: defaultdict[str, list[RunRecord]] = defaultdict(list)
    for run in await asyncio.to_thread(lambda: list(_runs(deployed))):
        runs[run.exchange].append(run)
    told: defaultdict[int, list[Told]] = defaultdict(list)
    texts = dict[str, str]()
    for exchange, of_exchange in runs.items():
        tape = next((run.tape for run in of_exchange if run.tape is not None), ())
        for entry in tape:
            if (entry.port, entry.op, entry.site) == ("external", "run", ORDER):
                grams = msgspec.json.decode(entry.args, type=_Call).arguments.grams
                told[grams].append(_told(entry))
        served = [run for run in of_exchange if run.role != "shadow" and run.outcome == "completed"]
        if served:
            texts[exchange] = _text(served[-1], tape)
    orders = {one.exchange: one.grams for one in asked if one.exchange}
    unnamed = 0
    for exchange, outcome in await _journalled(deployed):
        if exchange in orders:
            told[orders[exchange]].append(outcome)
        elif exchange not in runs:
            unnamed += outcome != "failed"
    return Truth(asked, _rows(deployed), told, unnamed, texts, deployed.router.killed_at)


def _runs(deployed: Deployment) -> Iterator[RunRecord]:
    """Yield the captured runs; a killed router leaves a torn end."""
    for segment in find_segments(deployed.captures):
        for line in read_lines(segment):
            if not isinstance(line, Damage) and line.ended:
                yield decode_run(line.data)


def _told(entry: EntryRecord) -> Told:
    if entry.end == "complete" and entry.items:
        update = msgspec.json.decode(entry.items[-1], type=ExternalUpdate)
        result = update.result
        if result is None or (result.error is not None and result.error.type == IN_DOUBT):
            return "in doubt"
        refused = result.error is not None or msgspec.convert(result.value, _Result).is_error
        return "failed" if refused else "done"
    return "in doubt"


def _text(run: RunRecord, tape: Sequence[EntryRecord]) -> str:
    """Return the text of the model's answers that a run read, in order."""
    entries = {entry.seq: entry for entry in tape}
    read = [entries[play.entry] for play in run.plays if play.entry in entries]
    items = [item for entry in read if entry.port == "model" for item in entry.items]
    return "".join(msgspec.json.decode(item, type=_Text).text for item in items)


def _rows(deployed: Deployment) -> dict[int, list[int]]:
    rows: defaultdict[int, list[int]] = defaultdict(list)
    with closing(sqlite3.connect(deployed.orders)) as shop:
        for number, grams in shop.execute("SELECT id, grams FROM orders"):
            rows[grams].append(number)
    return dict(rows)


async def _journalled(deployed: Deployment) -> list[tuple[str, Told]]:
    """Return what killed routers did: of the audit, and what the next router would write there."""
    found = list[tuple[str, Told]]()
    if deployed.audit.exists():
        for line in deployed.audit.read_bytes().splitlines():
            change = msgspec.json.decode(line, type=_Change)
            if "exchange" in change.before:
                after: Mapping[str, Told] = {
                    "outcome_unknown": "in doubt",
                    "done": "done",
                    "failed": "failed",
                }
                found += [
                    (change.before["exchange"], after[state])
                    for what, state in change.after.items()
                    if ORDER in what
                ]
    states: Mapping[str, Told] = {
        "begun": "in doubt",
        "in_doubt": "in doubt",
        "done": "done",
        "failed": "failed",
    }
    async with SqlWriteJournal.open(deployed.journal) as journal:
        left = await journal.abandoned(time.time() + _LATER_S)
    found += [(one.exchange, states[one.state]) for one in left if ORDER in one.what]
    return found
