"""Damaged lines: never a wrong verdict, never a traceback, "equal" of what was compared alone."""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any, Literal

import pytest
from msgspec.structs import replace

from compare.differences import Pair, differences
from compare.pairs import rows_of
from compare.rows import PairRow
from cutover.flow import Flow
from cutover.records import Binary, EntryRecord, FrameRecord, TapeRecord, encode
from router.captures import CaptureReader, Store
from rules.flows import FLOWS
from tests.compare.exchanges import SERVICES, run
from tests.compare.planted import ROWS
from tests.compare.variations import line_pair
from tests.support.mutations import mutated

pytestmark = [pytest.mark.virtual, pytest.mark.slow]

Change = Callable[[Pair], Pair]
Frames = Sequence[FrameRecord]
Right = Literal["damaged", "different", "left_out", "equal"]
KNOWN: Mapping[str, Flow] = {**FLOWS, **SERVICES}
DIFFERENT = "ops, plain: graph tells no result"
_pairs: dict[str, Pair] = {}


async def recorded(exchange: str) -> Pair:
    """Return an exchange's pair, served by legacy; its id is its name."""
    if exchange not in _pairs:
        pair = (await run(exchange)).pair
        served, played = line_pair(pair)
        _pairs[exchange] = Pair(
            replace(served, exchange=exchange, tape=None),
            replace(played, exchange=exchange),
            pair.tape,
        )
    return _pairs[exchange]


# One pair


def played(**fields: Any) -> Change:
    """Return a change of the line that was played."""
    return lambda pair: Pair(pair.served, replace(pair.played, **fields), pair.tape)


def frames(change: Callable[[Frames], Frames]) -> Change:
    """Return a change of its frames."""
    return lambda pair: played(frames=tuple(change(pair.played.frames)))(pair)


def frame(content: str | Binary) -> Change:
    """Return a change of one frame's bytes."""
    return frames(lambda all_: [*all_[:3], FrameRecord(0, content), *all_[4:]])


def play(**fields: Any) -> Change:
    """Return a change of one call."""

    def change(pair: Pair) -> Pair:
        first, second, third, *rest = pair.played.plays
        return played(plays=(first, second, replace(third, **fields), *rest))(pair)

    return change


def tape(change: Callable[[TapeRecord], TapeRecord]) -> Change:
    """Return a change of the tape."""
    return lambda pair: Pair(pair.served, pair.played, change(pair.tape))


def both(change: Change) -> Change:
    """Return a change of both lines alike."""

    def changed(pair: Pair) -> Pair:
        other = change(Pair(pair.played, pair.served, pair.tape))
        return Pair(other.played, change(pair).played, pair.tape)

    return changed


DEEP = "[" * 50_000
OPEN = EntryRecord("x", "", "{}", 0, end="open")
# fmt: off
DAMAGES: dict[str, tuple[Change, Right]] = {
    "nothing": (lambda pair: pair, "equal"),
    "a frame that is no JSON": (frame("data: {broken\n\n"), "damaged"),
    "a frame that is no event": (frame('data: {"type":"nothing"}\n\n'), "damaged"),
    "a frame of another flow": (frame('data: {"step":"ACCEPT"}\n\n'), "damaged"),
    "NaN in a frame": (frame('data: {"type":"text","data":{"content":NaN}}\n\n'), "damaged"),
    "a frame that is no UTF-8": (frame(Binary(b"data: \xff\xfe\n\n")), "damaged"),
    "a frame without an end of its nesting": (frame(f"data: {DEEP}\n\n"), "damaged"),
    "a raw line end in a frame": (frame('data: {"type":\n"text"}\n\n'), "damaged"),
    "half of a frame": (
        frames(lambda all_: [*all_[:-1], FrameRecord.of(0, all_[-1].data[:20])]), "damaged"),
    "half of the frames": (frames(lambda all_: all_[: len(all_) // 2]), "damaged"),
    "no frame": (frames(lambda _: ()), "damaged"),
    "no frame in either": (both(frames(lambda _: ())), "damaged"),
    "half of the frames in both": (both(frames(lambda all_: all_[:3])), "damaged"),
    "frames in another order": (frames(lambda all_: all_[::-1]), "different"),
    "frames that are there twice": (
        frames(lambda all_: [one for one in all_ for _ in range(2)]), "damaged"),
    "a call behind the end of the tape": (play(entry=999), "damaged"),
    "a call before its beginning": (play(entry=-1), "damaged"),
    "a call of an entry of another name": (play(entry=0), "damaged"),
    "a call that is not stored": (play(entry=None), "left_out"),
    "a call that is not JSON": (play(canonical="{broken"), "different"),
    "a call with NaN": (play(canonical='{"kind":NaN}'), "different"),
    "a call that is nested too deep": (play(canonical=DEEP), "different"),
    "no calls": (played(plays=()), "different"),
    "a tape without entries": (tape(lambda _: TapeRecord()), "damaged"),
    "neither calls nor tape": (
        lambda pair: tape(lambda _: TapeRecord())(both(played(plays=()))(pair)), "left_out"),
    "an effect that is not on the tape": (
        tape(lambda one: TapeRecord(one.entries, ("store.put",))), "left_out"),
    "an entry that is not read": (
        tape(lambda one: TapeRecord((*one.entries, OPEN))), "equal"),
}
# fmt: on
"""By what is damaged in an equal pair: what may be said of it."""


@pytest.mark.parametrize("name", DAMAGES)
async def test_a_damaged_line_is_never_called_equal(name: str) -> None:
    """And nothing is called damaged, or different, that is not."""
    change, right = DAMAGES[name]
    pair = change(await recorded("session, plain"))
    found, [row] = (
        differences(pair, FLOWS["session"]),
        rows_of(line_pair(pair), KNOWN, differences).pairs,
    )
    said: Right = "equal" if found.equal else "different"
    said = "damaged" if found.damage else "left_out" if found.equal and found.left_out else said
    assert said == right, found
    assert row.state == {"damaged": "not_compared", "left_out": "equal"}.get(said, said)
    assert row.left_out == found.left_out


# Files


def reading(folder: Path, data: bytes) -> tuple[dict[str, PairRow], Counter[str]]:
    """Return the rows of a file of captures by their exchange, and what of it was damaged."""
    store = Store(str(folder))
    store.add("session", date(2026, 11, 28), data)
    reader = CaptureReader(store)
    rows = rows_of(reader, KNOWN, differences)
    return {row.exchange: row for row in rows.pairs}, reader.damage


@pytest.mark.parametrize("seeds", [200, pytest.param(5_000, marks=pytest.mark.nightly)])
async def test_no_byte_makes_a_difference_vanish(
    seeds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever happens to its lines, a pair that differs is not called equal, nor does it raise."""
    ROWS[DIFFERENT].plant(monkeypatch)
    serving, shadow = map(encode, line_pair(await recorded(ROWS[DIFFERENT].exchange)))
    states: Counter[str] = Counter()
    for seed in range(seeds):
        drawn = random.Random(seed)
        data = mutated(drawn, [serving + b"\n" + shadow + b"\n"], most=2)
        rows, _ = reading(tmp_path / str(seed), data)
        states.update(row.state for row in rows.values())
        assert not [row for row in rows.values() if row.state == "equal" and not row.left_out], seed
    assert states["different"] >= seeds // 20
