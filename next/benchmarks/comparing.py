"""What a comparison takes: pairs a second and core, beside DeepDiff on whole streams."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from deepdiff import DeepDiff

from compare.differences import differences
from compare.pair import Pair
from cutover.errors import Completed
from cutover.records import EntryRecord, FrameRecord, PlayRecord, RunRecord, TapeRecord
from rules.flows import FLOWS

SECONDS = 2.0
FLOW = FLOWS["chat"]
WORDS = [f"word{number} " for number in range(40)]
PROMPT = "You are a helpful assistant who answers in short sentences. " * 20
ASKED = {"messages": [{"content": PROMPT, "role": "system"}], "temperature": 0.7}


def stream(words: Sequence[str], cut: int) -> tuple[FrameRecord, ...]:
    """Return a chat's frames; a frame of text comes every `cut` words."""
    ends = [*range(cut, len(words), cut), len(words)]
    events: list[dict[str, Any]] = [{"step": "ACCEPT"}, {"step": "START_REPLY"}]
    events += [{"step": "SEND", "content": "".join(words[:end])} for end in ends]
    events += [{"step": "SUCCESS", "content": "".join(words)}, {"step": "END"}]
    return tuple(
        FrameRecord(place * 30_000, f"data: {msgspec.json.encode(event).decode()}\n\n")
        for place, event in enumerate(events)
    )


def line(stack: str, frames: tuple[FrameRecord, ...], asked: str | None = None) -> RunRecord:
    """Return the line of a run that reads a conversation, asks a model and stores the reply."""
    plays = [PlayRecord("conversations.history", "tape", 0), PlayRecord("clock.now", "tape", 1)]
    plays += [PlayRecord("model.chat", "nearest" if asked else "tape", 2, asked)]
    plays += [PlayRecord("conversations.add", "tape", 3)]
    run = {"role": "serving", "policy": "live", "stack": stack, "assigned": "legacy"}
    return msgspec.convert(
        {"exchange": "e", "flow": "chat", "path": FLOW.path, "served": "legacy", "at": 0, **run}
        | {"outcome": Completed(), "request": "{}", "options": "{}"}
        | {"frames": frames, "plays": tuple(plays)},
        RunRecord,
    )


def per_second(work: Callable[[], object]) -> float:
    """Return how often a piece of work is done in a second of this core."""
    done, began = 0, time.process_time()
    while time.process_time() - began < SECONDS:
        work()
        done += 1
    return done / (time.process_time() - began)


def figures(say: Callable[[str], None] = print) -> None:
    """Measure and print; goals: equal 3 000, differing 500."""
    asked = dict.fromkeys(("conversations.history", "clock.now"), "{}")
    asked |= {"model.chat": msgspec.json.encode(ASKED).decode(), "conversations.add": "{}"}
    tape = TapeRecord(tuple(EntryRecord(name, "00", text, 0) for name, text in asked.items()))
    other = asked["model.chat"].replace("short", "long", 1)
    legacy, said = stream(WORDS, 1), [*WORDS[:30], "another ", *WORDS[31:]]
    rows = {
        "equal": line("graph", legacy),
        "equal, cut otherwise": line("graph", stream(WORDS, 2)),
        "another text": line("graph", stream(said, 1)),
        "another prompt": line("graph", legacy, other),
    }
    for name, graph in rows.items():
        pair = Pair(line("legacy", legacy), graph, tape)
        whole = [msgspec.to_builtins((run.frames, run.plays)) for run in (pair.served, graph)]
        ours = per_second(lambda pair=pair: differences(pair, FLOW))  # type: ignore[misc]
        theirs = per_second(lambda whole=whole: DeepDiff(*whole))  # type: ignore[misc]
        say(f"{name}: {ours:,.0f} pairs a second and core; DeepDiff alone {theirs:,.0f}")


if __name__ == "__main__":
    figures()
