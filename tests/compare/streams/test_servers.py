"""Streams as servers send them: what the built-in dialects read in them.

`tests/data/streams` has one conversation twice for each wire, with other ids, times and pieces: of
LangGraph from a graph in the modes `messages`, `updates` and `values`, framed as its server frames
them; of the AI SDK (reasoning, a tool, a second step) and of Ollama (thinking, a tool) as their
documentation shows them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from compare.streams.events import NAME, REASONING, TEXT
from contract.wire import FrameReader, FrameSplitter
from tests.support.recorded_bodies import causes, compared, dialect, line, sse

FOLDER = Path(__file__).parents[2] / "data" / "streams"
WIRES = ("ai-sdk", "langgraph", "ndjson", "text")
SAID = "It is sunny in Ulm."


def recorded(wire: str, which: str) -> bytes:
    """Return one of the two recordings of a wire."""
    [path] = FOLDER.glob(f"{wire}.{which}.*")
    return path.read_bytes()


def events(wire: str, body: bytes) -> list[dict[str, Any]]:
    """Return the events of a body in normal form."""
    return [msgspec.json.decode(frame) for _, frame in dialect(wire).normaliser.stream(body).frames]


@pytest.mark.parametrize("wire", WIRES)
def test_one_conversation_recorded_twice_is_equal(tmp_path: Path, wire: str) -> None:
    """Nothing that servers make up counts: ids, times, signatures, pieces."""
    first, other = (recorded(wire, which) for which in ("one", "other"))
    tally = compared(tmp_path, dialect(wire), first, other)
    assert (tally.equal, causes(tally)) == (1, [])


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("which", ["one", "other"])
def test_the_answer_is_the_models_alone(wire: str, which: str) -> None:
    """No thought, no tool's result, no state of the graph is a part of it."""
    body = recorded(wire, which)
    read = events(wire, body)
    said = "".join(event.get(TEXT, "") for event in read)
    assert said.strip("\r\n☀️") == SAID
    if wire in {"ai-sdk", "ndjson"}:
        assert "".join(event.get(REASONING, "") for event in read) == "Look outside."
    if wire != "text":
        [call] = [event for event in read if event[NAME] == "tool_call"]
        assert (call["name"], call["arguments"]) == ("get_weather", {"city": "Ulm"})
    assert dialect(wire).normaliser.stream(body).outcome == "completed"


@pytest.mark.parametrize("wire", WIRES)
def test_passed_on_the_frames_are_the_bytes(wire: str) -> None:
    """In pieces of seven bytes; the end is seen where there is one."""
    body, declared = recorded(wire, "one"), dialect(wire).dialect
    splitter, reader = FrameSplitter(declared), FrameReader(declared)
    pieces = [body[at : at + 7] for at in range(0, len(body), 7)]
    frames = [frame for piece in pieces for frame in splitter.feed(piece)]
    assert b"".join(frames) + splitter.flush() == body
    found = [reader.notable(frames[at]) for at in reader.suspects(frames)]
    assert [name for name in found if name] == list(declared.terminal)


@pytest.mark.parametrize(
    ("wire", "old", "new", "place"),
    [
        ("ai-sdk", '"sky":"sunny"', '"sky":"grey"', "tool-output-available.output.sky"),
        ("ai-sdk", ".com/ulm", ".com/bonn", "source-url.url"),
        ("langgraph", '"content":"sunny"', '"content":"grey"', "messages.tool.value[0].content"),
        ("ndjson", '"done_reason":"stop"', '"done_reason":"length"', "done.done_reason"),
    ],
)
def test_what_users_or_programs_see_is_found(
    tmp_path: Path, wire: str, old: str, new: str, place: str
) -> None:
    """Results of tools, sources, why an answer ended; once, wherever a state repeats them."""
    body = recorded(wire, "one")
    changed = body.replace(old.encode(), new.encode())
    assert changed != body
    [(layer, kind, path)] = causes(compared(tmp_path, dialect(wire), body, changed))
    assert (layer, kind) == ("frames", "frame_changed")
    assert path.endswith(place)


def test_langgraphs_older_mode_is_read_as_well() -> None:
    """`messages`: each event has a message as far as it has come, and whole ones follow."""

    def message(content: str, kind: str = "ai", name: str = "run-1") -> dict[str, object]:
        return {"content": content, "type": kind, "id": name, "tool_calls": []}

    body = b"".join(
        [
            sse({"run_id": "1", "attempt": 1}, "metadata"),
            sse([message("Weather?", "human")], "messages/complete"),
            sse({"run-1": {"metadata": {"langgraph_node": "agent"}}}, "messages/metadata"),
            sse([message("It is")], "messages/partial"),
            sse([message("It is sunny")], "messages/partial"),
            sse([message("It is sunny in Ulm.")], "messages/partial"),
            sse([message("It is sunny in Ulm.")], "messages/complete"),
            sse(None, "end"),
        ]
    )
    read = events("langgraph", body)
    assert [event[TEXT] for event in read if TEXT in event][-1] == SAID
    assert [event[NAME] for event in read] == [
        "metadata",
        "messages/complete.human",
        "messages/metadata",
        *["messages/partial.ai"] * 3,
        "messages/complete.ai",
    ]


def test_what_a_tool_is_called_with_may_come_whole() -> None:
    """A service of the AI SDK need not stream the input of a tool."""
    called = {"toolCallId": "a", "toolName": "f", "input": {"x": [1]}, "dynamic": True}
    read = events("ai-sdk", sse({"type": "tool-input-available", **called}))
    assert [event[NAME] for event in read] == ["tool-input-available", "tool_call"]
    assert read[1]["arguments"] == {"x": [1]}
    denied = sse({"type": "tool-output-denied", "toolCallId": "a"})
    assert [event[NAME] for event in events("ai-sdk", denied)] == ["tool-output-denied"]


@pytest.mark.parametrize(
    ("wire", "body"),
    [
        ("ai-sdk", sse({"type": "abort", "reason": "stopped"}) + b"data: [DONE]\n\n"),
        ("ai-sdk", sse({"type": "error", "errorText": "An error occurred."})),
        ("langgraph", sse({"error": "ValueError", "message": "no"}, "error")),
        ("ndjson", line({"error": "model runner has unexpectedly stopped"})),
    ],
)
def test_what_servers_report_is_a_failure(wire: str, body: bytes) -> None:
    """Also where nothing follows."""
    assert dialect(wire).normaliser.stream(body).outcome == "failed"
    frames = FrameSplitter(dialect(wire).dialect).feed(body)
    reader = FrameReader(dialect(wire).dialect)
    assert next(reader.notable(frames[at]) for at in reader.suspects(frames)) in reader.failures
