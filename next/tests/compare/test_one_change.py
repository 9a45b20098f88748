"""Two runs of one stream, told differently, are equal; one change in it is found, and no other."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compare.differences import Comparison
from cutover.errors import Completed, Failed, Outcome
from cutover.records import EntryRecord, PlayRecord, TapeRecord
from tests.compare.test_differences import compared, run


@dataclass(frozen=True)
class Call:
    """A call; `§3` in what it asks is a generated id, `§t` the time."""

    name: str
    asked: dict[str, Any]

    @property
    def writes(self) -> bool:
        """Whether it changes the world."""
        return self.name == "write"


@dataclass(frozen=True)
class Script:
    """What a run says, texts and notes in order, and what it asks; with ids as in calls.

    `places` are those of its calls on the tape.
    """

    said: tuple[str | dict[str, Any], ...]
    calls: tuple[Call, ...]
    places: tuple[int | None, ...]
    outcome: Outcome = field(default_factory=Completed)


class Telling:
    """How one run tells a script: its ids, its cuts, its times; and its own moment in prompts."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.ids = {f"§{number}": str(UUID(int=self.random.getrandbits(128))) for number in "123"}
        self.moment = self.random.choice(["2026-03-01T10:00:00Z", "2027-12-31T23:59:59Z"])

    def json(self, value: object, name: str = "") -> str:
        """Return JSON with this run's ids, and its moment where a model is asked."""
        text = json.dumps(value, sort_keys=True, ensure_ascii=False)
        moment = self.moment if name.startswith("model.") else "2026-03-01T10:00:00Z"
        return re.sub("§.", lambda at: self.ids.get(at[0], moment), text)

    def frames(self, script: Script) -> list[tuple[int, str]]:
        """Return events, the text cut anywhere, with stamps that are close to each other."""
        said = ""
        events: list[dict[str, Any]] = []
        for one in (*script.said, {"n": "the end"}):
            if isinstance(one, str):
                said += one
                continue
            while said:
                cut = self.random.randint(1, len(said))
                events.append({"type": "said", "text": said[:cut]})
                said = said[cut:]
            events.append({"type": "noted", "note": one})
        events.append({"type": "done"})
        at = 1_000 + self.random.randrange(400)
        return [
            (at + place * self.random.randrange(9), self.json(e)) for place, e in enumerate(events)
        ]

    def plays(self, script: Script) -> tuple[PlayRecord, ...]:
        """Return plays, reads in any order."""
        plays = [
            PlayRecord(call.name, "nearest", place, self.json(call.asked, call.name))
            for call, place in zip(script.calls, script.places, strict=True)
        ]
        reads = [one for one in plays if one.name != "write"]
        self.random.shuffle(reads)
        return tuple(one if one.name == "write" else reads.pop() for one in plays)


def compare(script: Script, other: Script, seed: int) -> Comparison:
    """Compare two tellings on the tape of the first."""
    legacy, graph = Telling(seed), Telling(seed + 1)
    entries = tuple(
        EntryRecord(call.name, "00", legacy.json(call.asked, call.name), place, call.writes)
        for place, call in enumerate(script.calls)
    )
    live = tuple(PlayRecord(one.name, "live", place) for place, one in enumerate(entries))
    served = run(*legacy.frames(script), plays=live, outcome=script.outcome)
    played = run(*graph.frames(other), plays=graph.plays(other), outcome=other.outcome)
    return compared(served, played, TapeRecord(entries))


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
    said: list[str | dict[str, Any]] = [
        {"n": number, "v": draw(VALUES)} if draw(st.booleans()) else draw(WORDS)
        for number in range(draw(st.integers(1, 8)))
    ]
    calls = [
        Call(draw(st.sampled_from(["read", "write", "model.chat"])), {"k": n, "v": draw(VALUES)})
        for n in range(draw(st.integers(1, 6)))
    ]
    return Script(tuple(said), tuple(calls), tuple(range(len(calls))))


@given(scripts(), st.integers(0, 1 << 30))
def test_a_stream_told_in_another_way_is_equal(script: Script, seed: int) -> None:
    """Cut anywhere, with other ids and dates, its reads in another order, at other times."""
    found = compare(script, script, seed)
    assert (found.differences, found.left_out, found.damage) == ((), (), "")


def _put(items: Sequence[Any], place: int, *instead: Any, taken: int = 1) -> tuple[Any, ...]:
    return (*items[:place], *instead, *items[place + taken :])


def _said(kind: type, *instead: Callable[[Any], Any]) -> Callable[[Script, random.Random], Script]:
    """Return a change of one text or note."""

    def change(script: Script, rng: random.Random) -> Script:
        if not (places := [n for n, one in enumerate(script.said) if isinstance(one, kind)]):
            return script
        place = rng.choice(places)
        new = [one(script.said[place]) for one in instead]
        return replace(script, said=_put(script.said, place, *new))

    return change


def _one_note_more(script: Script, rng: random.Random) -> Script:
    place = rng.randint(0, len(script.said))
    return replace(script, said=_put(script.said, place, {"n": "more"}, taken=0))


def _without_a_call(script: Script, rng: random.Random) -> Script:
    place = rng.randrange(len(script.calls))
    return replace(script, calls=_put(script.calls, place), places=_put(script.places, place))


def _one_call_more(script: Script, rng: random.Random) -> Script:
    place = rng.randint(0, len(script.calls))
    calls = _put(script.calls, place, Call("more", {}), taken=0)
    return replace(script, calls=calls, places=_put(script.places, place, None, taken=0))


def _another_call(script: Script, rng: random.Random) -> Script:
    place = rng.randrange(len(script.calls))
    one = script.calls[place]
    other = replace(one, asked={**one.asked, "k": "another"})
    return replace(script, calls=_put(script.calls, place, other))


def _writes_swapped(script: Script, _: random.Random) -> Script:
    writes = [place for place, one in enumerate(script.calls) if one.writes]
    order = list(range(len(script.calls)))
    if len(writes) > 1:
        order[writes[0]], order[writes[1]] = writes[1], writes[0]
    return replace(script, calls=tuple(script.calls[n] for n in order), places=tuple(order))


CHANGES: dict[str, tuple[Callable[[Script, random.Random], Script], str, str]] = {
    "event_missing": (_said(dict), "noted", ""),
    "event_added": (_one_note_more, "noted", ""),
    "event_changed": (_said(dict, lambda note: {**note, "n": "another"}), "noted", "note.n"),
    "text": (_said(str, lambda text: f"X{text[1:]}"), "text", ""),
    "call_missing": (_without_a_call, "", ""),
    "call_added": (_one_call_more, "more", ""),
    "call_changed": (_another_call, "", "k"),
    "writes_moved": (_writes_swapped, "write", ""),
    "outcome": (lambda script, _: replace(script, outcome=Failed("broken")), "", ""),
}


@pytest.mark.parametrize("kind", CHANGES)
@given(script=scripts(), seed=st.integers(0, 1 << 30))
def test_one_change_is_found_and_no_other(kind: str, script: Script, seed: int) -> None:
    """Wherever it is: the one cause, of its kind, at its path."""
    change, name, path = CHANGES[kind]
    other = change(script, random.Random(seed))
    found = compare(script, other, seed)
    causes = [one for one in found.differences if not one.because]
    assert [(one.kind, one.path) for one in causes] == [(kind, path)] * (other != script)
    assert all(one.name == name or not name for one in causes)
    assert found.equal == (other == script)
