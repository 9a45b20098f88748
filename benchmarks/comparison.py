"""What a comparison takes: pairs a second and core, beside DeepDiff on whole streams."""

import time
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any

import msgspec
from deepdiff import DeepDiff

from compare.differences import Pair, differences
from cutover.errors import Completed
from cutover.records import EntryRecord, FrameRecord, PlayRecord, RunRecord, TapeRecord
from rules.flows import FLOWS

Frames = tuple[FrameRecord, ...]
SECONDS = 2.0
FLOW = FLOWS["chat"]
WORDS = [f"word{number} " for number in range(40)]
CALLS = ("conversations.history", "clock.now", "model.chat", "conversations.add")
PROMPT = "You are a helpful assistant who answers in short sentences. " * 20
ASKED = f'{{"messages":[{{"content":"{PROMPT}","role":"system"}}],"temperature":0.7}}'


def stream(words: Sequence[str], cut: int) -> Frames:
    """Return a chat's frames, 30 ms apart; a frame of text comes every `cut` words."""
    ends = [*range(cut, len(words), cut), len(words)]
    events: list[dict[str, Any]] = [{"step": "ACCEPT"}, {"step": "START_REPLY"}]
    events += [{"step": "SEND", "content": "".join(words[:end])} for end in ends]
    events += [{"step": "SUCCESS", "content": "".join(words)}, {"step": "END"}]
    texts = (f"data: {msgspec.json.encode(event).decode()}\n\n" for event in events)
    return tuple(FrameRecord(place * 30_000, text) for place, text in enumerate(texts))


def line(stack: str, frames: Frames, asked: str | None = None) -> RunRecord:
    """Return the line of a run that reads a conversation, asks a model and stores the reply."""
    plays = [PlayRecord(name, "tape", place) for place, name in enumerate(CALLS)]
    plays[2] = PlayRecord("model.chat", "nearest" if asked else "tape", 2, asked)
    names = ("exchange", "flow", "path", "assigned", "served", "request", "options")
    texts: dict[str, Any] = {**dict.fromkeys(names, ""), "role": "serving", "policy": "live"}
    texts |= {"stack": stack, "at": 0, "outcome": Completed()}
    return RunRecord(**texts, frames=frames, plays=tuple(plays))


def per_second(work: Callable[[], object]) -> float:
    """Return how often a piece of work is done in a second of this core."""
    done, began = 0, time.process_time()
    while time.process_time() - began < SECONDS:
        work()
        done += 1
    return done / (time.process_time() - began)


async def figures() -> AsyncIterator[str]:
    """Measure pairs of several kinds; goals: equal 3 000, differing 500."""
    asked = dict.fromkeys(CALLS, "{}") | {"model.chat": ASKED}
    tape = TapeRecord(tuple(EntryRecord(name, "00", text, 0) for name, text in asked.items()))
    legacy, said = stream(WORDS, 1), [*WORDS[:30], "another ", *WORDS[31:]]
    rows: dict[str, tuple[Frames, str | None]] = {
        "equal": (legacy, None),
        "equal, cut otherwise": (stream(WORDS, 2), None),
        "another text": (stream(said, 1), None),
        "another prompt": (legacy, ASKED.replace("short", "long", 1)),
    }
    for name, (its, prompt) in rows.items():
        pair = Pair(line("legacy", legacy), line("graph", its, prompt), tape)
        whole = [msgspec.to_builtins((run.frames, run.plays)) for run in (pair.served, pair.played)]
        ours = per_second(partial(differences, pair, FLOW))
        theirs = per_second(partial(DeepDiff, *whole))
        yield f"{name}: {ours:,.0f} pairs a second and core; DeepDiff alone {theirs:,.0f}"
