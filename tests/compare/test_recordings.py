"""Plain streams side by side: pairs, damage, times, rules; and real recordings, spoilt."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from compare.input.recordings import Recordings
from compare.recordings import PlainQuestion, compare_recordings
from compare.rules import rules_of
from compare.tally import Series, Tally
from contract.wire.sse import SseDecoder
from tests.support.recorded_bodies import Story, causes, compared, dialect, found, openai, sse

PROVIDERS = Path(__file__).parents[2].parent / "shared" / "data" / "provider_streams.jsonl"
OPENAI = dialect("openai")

Row = dict[str, object]


def rows(folder: Path, legacy: list[Row], graph: list[Row]) -> Tally:
    """Compare rows of recordings."""
    sides: list[Recordings] = []
    for side, held in (("legacy", legacy), ("graph", graph)):
        path = folder / f"{side}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in held))
        sides.append(Recordings(path))
    old, new = sides
    return compare_recordings(old, new, PlainQuestion(OPENAI))


def body(story: Story | None = None) -> str:
    """Tell a story in chunks."""
    return openai(story or Story()).decode()


def test_what_has_no_partner_or_is_damaged_is_counted(tmp_path: Path) -> None:
    """One finding does not stop the next pair."""
    tally = rows(
        tmp_path,
        [{"id": 1, "body": body()}, {"id": 2, "body": body()}, {"id": 3, "body": 3}, {"id": 4}],
        [{"id": 1, "body": body()}, {"id": 3, "body": ""}, {"id": 5, "body": ""}, {"no": "id"}],
    )
    assert (tally.exchanges, tally.pairs, tally.equal) == (5, 1, 1)
    assert tally.not_comparable == {
        "nothing of that id on the side of graph": 2,
        "nothing of that id on the side of legacy": 1,
        "damaged": 1,
    }
    assert tally.damage == {"broken": 2}


def test_times_give_latencies(tmp_path: Path) -> None:
    """First event, first text, end; a stream without times gives none."""
    chunks = sse({"choices": [{"delta": {"role": "assistant", "content": "x"}}]}).decode()
    timed = {"id": 1, "body": f"{chunks}data: [DONE]\n\n", "times": [20, 70]}
    tally = rows(tmp_path, [timed], [{"id": 1, "body": body()}])
    assert {(series.stack, series.metric): list(at) for series, at in tally.times.items()} == {
        ("legacy", "first"): [20],
        ("legacy", "text"): [20],
        ("legacy", "end"): [70],
    }
    assert Series("openai", "legacy", "serving", "end") in tally.times


def test_other_times_than_events_are_damage(tmp_path: Path) -> None:
    """The sides could not be told apart."""
    tally = rows(tmp_path, [{"id": 1, "body": body(), "times": [1]}], [{"id": 1, "body": body()}])
    assert tally.damage == {"broken": 1}
    assert tally.named[0].detail == "1 times for 12 events"


def test_rules_hold_for_plain_streams_too(tmp_path: Path) -> None:
    """By the dialect's name as flow, by event and path."""
    for side, days in (("a", 2), ("b", 3)):
        story = Story(arguments=(f'{{"city":"北京","days":{days}}}',))
        (tmp_path / f"{side}.sse").write_bytes(openai(story))
    text = '[[ignore]]\nflow = "openai"\nevent = "tool_call"\npath = "arguments.days"\n'
    rules = rules_of(text, "diff.toml")
    sides = Recordings(tmp_path / "a.sse"), Recordings(tmp_path / "b.sse")
    tally = compare_recordings(*sides, PlainQuestion(OPENAI, rules=rules))
    assert (tally.equal, tally.equal_by_rules) == (1, 1)
    assert sum(tally.rule_hits.values()) == 1


def test_many_kinds_of_streams_need_no_more_memory(tmp_path: Path) -> None:
    """Comparers of names met long ago are let go."""
    held: list[Row] = [
        {"id": k, "body": sse({"choices": [], f"k{k}": 1}).decode() + "data: [DONE]\n\n"}
        for k in range(3)
    ]
    odd = dialect("anthropic-messages")
    path = tmp_path / "odd.jsonl"
    path.write_text(
        "".join(
            json.dumps({"id": k, "body": sse({"type": f"k{k}"}).decode()}) + "\n"
            for k in range(300)
        )
    )
    tally = compare_recordings(Recordings(path), Recordings(path), PlainQuestion(odd))
    assert tally.pairs == 300
    assert rows(tmp_path, held, held).equal == 3


def provider_streams() -> list[str]:
    """Give the real recordings beside the project."""
    if not PROVIDERS.exists():
        return []
    lines = PROVIDERS.read_text("utf-8").splitlines()
    return [str(msgspec.json.decode(line)["sse"]) for line in lines]


RECORDED = provider_streams()
recorded = pytest.mark.skipif(not RECORDED, reason="no provider recordings beside the project")


def remade(stream: bytes, change: Callable[[dict[str, object]], object]) -> bytes:
    """Write a stream again, chunk by chunk; other ids and times, and what `change` does."""
    made: list[bytes] = []
    for event in SseDecoder().feed(stream):
        if event.data == b"[DONE]":
            made.append(b"data: [DONE]\n\n")
            continue
        value = msgspec.json.decode(event.data)
        value |= {"id": "other", "created": 1}
        change(value)
        made.append(sse(value, event.event))
    return b"".join(made)


def with_an_illegible_chunk(stream: bytes) -> bytes:
    """Cut a chunk in the middle."""
    frames = stream.split(b"\n\n")
    later = range(len(frames) // 2, len(frames))
    at = next(k for k in later if frames[k].startswith(b"data: {"))
    frames[at] = frames[at][: len(frames[at]) // 2]
    return b"\n\n".join(frames)


RETOLD: dict[str, tuple[Callable[[bytes], bytes], list[tuple[str, str]]]] = {
    "itself": (lambda stream: stream, []),
    "other ids, times and comments": (
        lambda stream: (
            b": keep-alive\n\n" + remade(stream, lambda _: None).replace(b"data: ", b"data:")
        ),
        [],
    ),
    "half of its bytes": (
        lambda stream: stream[: len(stream) // 2],
        [("outcome", "outcome_changed")],
    ),
    "an illegible chunk": (with_an_illegible_chunk, [("grammar", "grammar_broken")]),
}


@recorded
@pytest.mark.parametrize("how", RETOLD)
@pytest.mark.parametrize("number", range(len(RECORDED)))
def test_a_real_recording_beside_itself_has_the_causes_due(
    tmp_path: Path, number: int, how: str
) -> None:
    """Of seven providers: what says nothing is equal, what is lost is one cause."""
    stream = RECORDED[number].encode()
    retell, due = RETOLD[how]
    tally = compared(tmp_path, OPENAI, stream, retell(stream))
    assert (tally.pairs, tally.equal) == (1, int(not due))
    assert [(layer, kind) for layer, kind, _ in causes(tally)] == due
    assert due or not found(tally)


def places(value: Any) -> list[dict[str, Any]]:
    """List the deltas of a chunk and the functions they call."""
    deltas = [choice["delta"] for choice in value.get("choices", ())]
    calls = [call for delta in deltas for call in delta.get("tool_calls") or ()]
    return [*deltas, *(call["function"] for call in calls)]


def spoil(key: str) -> Callable[[dict[str, object]], object]:
    """Change the first text of that name."""
    done: list[bool] = []

    def change(value: dict[str, object]) -> None:
        for place in places(value):
            text = place.get(key)
            if isinstance(text, str) and text.strip(' {}"') and not done:
                place[key] = text.replace(text.strip(' {}"')[0], "☃", 1)
                done.append(True)

    return change


LAYERS = {
    "content": ("text", "text_changed"),
    "reasoning": ("text", "reasoning_changed"),
    "reasoning_content": ("text", "reasoning_changed"),
    "arguments": ("frames", "frame_changed"),
}


@pytest.mark.untraced
@recorded
@pytest.mark.parametrize("key", LAYERS)
def test_a_real_recording_spoilt_is_found_once_on_its_layer(tmp_path: Path, key: str) -> None:
    """Every recording that has such a text."""
    tried = 0
    for stream in map(str.encode, RECORDED):
        other = remade(stream, spoil(key))
        if "☃".encode() in other:
            tried += 1
            tally = compared(tmp_path, OPENAI, stream, other)
            assert [(layer, kind) for layer, kind, _ in causes(tally)] == [LAYERS[key]]
    assert tried
