"""Two runs of one stream, told differently, are equal; one change in it is found, and no other."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compare.differences import Comparison, differences
from compare.pair import Pair
from cutover.errors import Completed, Failed, Outcome
from cutover.records import EntryRecord, FrameRecord, PlayRecord, RunRecord, TapeRecord
from tests.support.ask import ASK


@dataclass(frozen=True)
class Note:
    """An event; `§3` in it is a generated id, `§t` the time."""

    value: object


@dataclass(frozen=True)
class Asks:
    """A call, with ids as in notes."""

    name: str
    asked: object
    writes: bool = False


@dataclass(frozen=True)
class Script:
    """What a run says, in order, and what it asks."""

    said: tuple[str | Note, ...]
    asks: tuple[Asks, ...]
    outcome: Outcome = field(default_factory=Completed)


def told(text: str, run: random.Random) -> str:
    """Return a text with one run's ids and times."""
    day = run.choice(["2026-03-01", "2027-12-31"])
    return re.sub(
        "§(.)",
        lambda at: f"{day}T10:00:00Z" if at[1] == "t" else str(UUID(int=run.getrandbits(128))),
        text,
    )


class Telling:
    """How one run tells a script: its ids, its cuts, its times."""

    def __init__(self, seed: int, stack: str) -> None:
        self.random = random.Random(seed)
        self.stack = stack
        self.ids: dict[str, str] = {}

    def text(self, text: str) -> str:
        """Return a text with this run's ids and its time."""
        for mark in re.findall("§.", text):
            self.ids.setdefault(mark, told(mark, self.random))
        return re.sub("§.", lambda at: self.ids[at[0]], text)

    def frames(self, script: Script) -> tuple[FrameRecord, ...]:
        """Return frames, the text cut anywhere, with stamps that are close to each other."""
        at, frames = 1_000_000 + self.random.randrange(400_000), []
        events: list[dict[str, object]] = []
        said = ""
        for one in (*script.said, Note("the end")):
            if isinstance(one, str):
                said += self.text(one)
                continue
            while said:
                cut = self.random.randint(1, len(said))
                events.append({"type": "said", "text": said[:cut]})
                said = said[cut:]
            value = json.loads(self.text(json.dumps(one.value, ensure_ascii=False)))
            events.append({"type": "noted", "note": value})
        ends: dict[str, object] | None = (
            {"type": "done"} if isinstance(script.outcome, Completed) else None
        )
        events += [ends or {"type": "broke", "code": getattr(script.outcome, "code", "")}]
        for event in events:
            at += self.random.randrange(20_000)
            frames.append(FrameRecord(at, f"data: {json.dumps(event)}\n\n"))
        return tuple(frames)

    def asked(self, script: Script) -> list[str]:
        """Return what is asked, as the tape has it."""
        return [
            self.text(json.dumps(one.asked, sort_keys=True, ensure_ascii=False))
            for one in script.asks
        ]

    def line(self, script: Script, plays: Sequence[PlayRecord]) -> RunRecord:
        """Return the line of this run."""
        served = self.stack == "legacy"
        return RunRecord(
            exchange="e",
            flow="ask",
            path="/ask",
            role="serving" if served else "shadow",
            policy="live" if served else "play",
            stack=self.stack,
            assigned="legacy",
            served="legacy",
            at=0,
            outcome=script.outcome,
            request="{}",
            options="{}",
            frames=self.frames(script),
            plays=tuple(plays),
        )


def compared(
    script: Script, other: Script, seed: int, places: Sequence[int | None] | None = None
) -> Comparison:
    """Compare two tellings; `places` are those of the other's calls on the script's tape."""
    legacy, graph = Telling(seed, "legacy"), Telling(seed + 1, "graph")
    entries = [
        EntryRecord(one.name, f"{place:032x}", asked, place, one.writes)
        for place, (one, asked) in enumerate(zip(script.asks, legacy.asked(script), strict=True))
    ]
    served = legacy.line(script, [PlayRecord(one.name, "live", n) for n, one in enumerate(entries)])
    at = range(len(other.asks)) if places is None else places
    plays = [
        PlayRecord(one.name, "nearest", place, asked)
        for one, asked, place in zip(other.asks, graph.asked(other), at, strict=True)
    ]
    reads = [one for one, call in zip(plays, other.asks, strict=True) if not call.writes]
    graph.random.shuffle(reads)
    shuffled = [
        one if call.writes else reads.pop() for one, call in zip(plays, other.asks, strict=True)
    ]
    return differences(Pair(served, graph.line(other, shuffled), TapeRecord(tuple(entries))), ASK)


WORDS = st.text("ab é\n中", min_size=1, max_size=8)
VALUES = st.recursive(
    st.one_of(WORDS, st.sampled_from(["§1", "id-§2", "at §t"]), st.integers(), st.booleans()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("pqr"), inner, max_size=3)
    ),
    max_leaves=5,
)


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    """Scripts whose notes and calls are all different."""
    said: list[str | Note] = [
        Note({"n": number, "v": draw(VALUES)}) if draw(st.booleans()) else draw(WORDS)
        for number in range(draw(st.integers(1, 8)))
    ]
    asks = [
        Asks(
            draw(st.sampled_from(["read", "write", "model.chat"])), {"k": number, "v": draw(VALUES)}
        )
        for number in range(draw(st.integers(1, 6)))
    ]
    return Script(tuple(said), tuple(replace(one, writes=one.name == "write") for one in asks))


@given(scripts(), st.integers(0, 1 << 30))
def test_a_stream_told_in_another_way_is_equal(script: Script, seed: int) -> None:
    """Cut anywhere, with other ids and dates, its reads in another order, at other times."""
    found = compared(script, script, seed)
    assert (found.differences, found.left_out, found.damage) == ((), (), "")


Change = Callable[[Script, random.Random], tuple[Script, list[int | None]] | None]


def _notes(script: Script) -> list[int]:
    return [place for place, one in enumerate(script.said) if isinstance(one, Note)]


def _places(script: Script) -> list[int | None]:
    return list(range(len(script.asks)))


def _without_a_note(script: Script, rng: random.Random) -> tuple[Script, list[int | None]] | None:
    if not (notes := _notes(script)):
        return None
    place = rng.choice(notes)
    said = (*script.said[:place], *script.said[place + 1 :])
    return replace(script, said=said), _places(script)


def _one_note_more(script: Script, rng: random.Random) -> tuple[Script, list[int | None]]:
    place = rng.randint(0, len(script.said))
    said = (*script.said[:place], Note({"n": "more"}), *script.said[place:])
    return replace(script, said=said), _places(script)


def _another_note(script: Script, rng: random.Random) -> tuple[Script, list[int | None]] | None:
    if not (notes := _notes(script)):
        return None
    said = list(script.said)
    place = rng.choice(notes)
    note = said[place]
    assert isinstance(note, Note)
    assert isinstance(note.value, dict)
    said[place] = Note({**note.value, "n": "another"})
    return replace(script, said=tuple(said)), _places(script)


def _another_word(script: Script, rng: random.Random) -> tuple[Script, list[int | None]] | None:
    if not (texts := [n for n, one in enumerate(script.said) if isinstance(one, str)]):
        return None
    said = list(script.said)
    place = rng.choice(texts)
    text = said[place]
    assert isinstance(text, str)
    at = rng.randrange(len(text))
    said[place] = f"{text[:at]}X{text[at + 1 :]}"
    return replace(script, said=tuple(said)), _places(script)


def _without_a_call(script: Script, rng: random.Random) -> tuple[Script, list[int | None]]:
    place = rng.randrange(len(script.asks))
    asks = (*script.asks[:place], *script.asks[place + 1 :])
    return replace(script, asks=asks), [n for n in _places(script) if n != place]


def _one_call_more(script: Script, rng: random.Random) -> tuple[Script, list[int | None]]:
    place = rng.randint(0, len(script.asks))
    asks = (*script.asks[:place], Asks("more", {}), *script.asks[place:])
    places = _places(script)
    return replace(script, asks=asks), [*places[:place], None, *places[place:]]


def _another_call(script: Script, rng: random.Random) -> tuple[Script, list[int | None]]:
    asks = list(script.asks)
    place = rng.randrange(len(asks))
    one = asks[place]
    assert isinstance(one.asked, dict)
    asks[place] = replace(one, asked={**one.asked, "k": "another"})
    return replace(script, asks=tuple(asks)), _places(script)


def _writes_swapped(script: Script, _: random.Random) -> tuple[Script, list[int | None]] | None:
    writes = [place for place, one in enumerate(script.asks) if one.writes]
    if len(writes) < 2:
        return None
    asks, places = list(script.asks), _places(script)
    one, other = writes[:2]
    asks[one], asks[other] = asks[other], asks[one]
    places[one], places[other] = places[other], places[one]
    return replace(script, asks=tuple(asks)), places


def _breaks(script: Script, _: random.Random) -> tuple[Script, list[int | None]]:
    return replace(script, outcome=Failed("broken")), _places(script)


CHANGES: dict[str, tuple[Change, str, str]] = {
    "event_missing": (_without_a_note, "noted", ""),
    "event_added": (_one_note_more, "noted", ""),
    "event_changed": (_another_note, "noted", "note.n"),
    "text": (_another_word, "text", ""),
    "call_missing": (_without_a_call, "", ""),
    "call_added": (_one_call_more, "more", ""),
    "call_changed": (_another_call, "", "k"),
    "writes_moved": (_writes_swapped, "write", ""),
    "outcome": (_breaks, "", ""),
}


@pytest.mark.parametrize("kind", CHANGES)
@given(script=scripts(), seed=st.integers(0, 1 << 30))
def test_one_change_is_found_and_no_other(kind: str, script: Script, seed: int) -> None:
    """Wherever it is: the one cause, of its kind, at its path."""
    change, name, path = CHANGES[kind]
    if (changed := change(script, random.Random(seed))) is None:
        return
    found = compared(script, changed[0], seed, changed[1])
    causes = [one for one in found.differences if not one.because]
    assert [(one.kind, one.path) for one in causes] == [(kind, path)]
    assert causes[0].name == name or not name
    assert not found.equal
