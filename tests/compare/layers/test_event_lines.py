"""`event:` lines: what clients dispatch on is compared beside what the payload says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from compare.comparison import Comparer, DialectComparers
from compare.findings import general_path, kind_of
from compare.rules import NO_RULES
from compare.streams.dialects import RecordedDialect
from contract.flows.chat import CHAT
from contract.wire import built_in
from cutover.selftest.exchanges import exchange
from tests.compare.pairs import paired

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from compare.findings import Finding
    from contract.wire import Dialect

ANTHROPIC = built_in()["anthropic-messages"]
PAYLOADS = (
    '{"type":"message_start","message":{"role":"assistant"}}',
    '{"type":"content_block_start","content_block":{"type":"text","text":""}}',
    '{"type":"content_block_delta","delta":{"type":"text_delta","text":"He"}}',
    '{"type":"content_block_delta","delta":{"type":"text_delta","text":"llo"}}',
    '{"type":"content_block_start","content_block":{"type":"tool_use","id":"t","name":"f"}}',
    '{"type":"content_block_delta","delta":{"type":"input_json_delta","partial_json":"{"}}',
    '{"type":"content_block_delta","delta":{"type":"input_json_delta","partial_json":"}"}}',
    '{"type":"message_delta","delta":{"stop_reason":"end_turn"}}',
    '{"type":"message_stop"}',
)


def frame(payload: str, line: str | None = None) -> str:
    """Frame a payload as the API does: its type is its `event:` line, too."""
    name = msgspec.json.decode(payload)["type"] if line is None else line
    return f"event: {name}\ndata: {payload}\n\n" if name else f"data: {payload}\n\n"


SOUND = list(map(frame, PAYLOADS))


def put(index: int, line: str) -> list[str]:
    """Give one frame another line."""
    return [*SOUND[:index], frame(PAYLOADS[index], line), *SOUND[index + 1 :]]


def compared(dialect: Dialect, legacy: Sequence[str], graph: Sequence[str]) -> tuple[Finding, ...]:
    """Compare two streams of a dialect."""
    runs = [
        msgspec.structs.replace(run, frames=tuple(enumerate(frames)), plays=(), tape=None)
        for run, frames in zip(exchange(), (legacy, graph), strict=True)
    ]
    comparers = DialectComparers(RecordedDialect(dialect), "ignore", NO_RULES)
    pair, comparer = comparers.in_normal_form(paired(*runs))
    return comparer.compare(pair)


def places(found: Sequence[Finding]) -> list[str]:
    """List the kinds and places of causes."""
    assert all(one.after is None for one in found)
    return [f"{kind_of(one)} {general_path(one.path)}" for one in found]


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        ([frame(it, "") for it in PAYLOADS], "frames[].*.event: missing"),
        (put(0, ""), "frames[].message_start.event: missing"),
        (put(3, ""), "frames[].content_block_delta.event: renamed"),
        (put(7, "delta"), "frames[].message_delta.event: renamed"),
        (put(6, ""), "frames[].tool_call.event: renamed"),
    ],
    ids=["all missing", "one missing", "one of many", "renamed", "a tool call's piece"],
)
def test_another_line_is_one_cause(graph: list[str], expected: str) -> None:
    """The SDK of this API dispatches on the line, and passes over what it does not know."""
    assert places(compared(ANTHROPIC, SOUND, graph)) == [f"event_line_changed {expected}"]


def test_an_added_line_is_a_difference() -> None:
    """`EventSource` dispatches it elsewhere; `message` is what it has without one."""
    bare = [frame(it, "") for it in PAYLOADS]
    assert places(compared(ANTHROPIC, bare, SOUND)) == [
        "event_line_changed frames[].*.event: added"
    ]
    assert not compared(ANTHROPIC, bare, [frame(it, "message") for it in PAYLOADS])


def test_text_cut_elsewhere_is_no_difference() -> None:
    """Every piece has its line, however many there are."""
    whole = frame(PAYLOADS[2].replace('"He"', '"Hello"'))
    assert not compared(ANTHROPIC, SOUND, [*SOUND[:2], whole, *SOUND[4:]])


def test_lines_count_unless_the_dialect_says_otherwise() -> None:
    """Clients that read the stream themselves may not look at them."""
    event = msgspec.structs.replace(ANTHROPIC.event, line="ignore")
    dialect = msgspec.structs.replace(ANTHROPIC, event=event)
    assert not compared(dialect, SOUND, put(0, ""))


@pytest.mark.parametrize(
    ("change", "how"),
    [(lambda text: f"event: step\n{text}", "added"), (lambda text: f"event: message\n{text}", "")],
    ids=["another type", "the default"],
)
def test_a_flow_of_ours_has_no_lines(change: Callable[[str], str], how: str) -> None:
    """Its events are named in the payload; a line takes them away from `onmessage`."""
    control, candidate = exchange()
    frames = tuple((at, change(text)) for at, text in candidate.frames)
    candidate = msgspec.structs.replace(candidate, frames=frames)
    found = Comparer(CHAT).compare(paired(control, candidate))
    assert places(found) == ([f"event_line_changed frames[].*.event: {how}"] if how else [])


OPENAI = built_in()["openai"]
CHUNKS = (
    '{"choices":[{"delta":{"content":"Hello"}}]}',
    '{"choices":[{"delta":{},"finish_reason":"stop"}]}',
    '{"choices":[],"usage":{"prompt_tokens":5}}',
    "[DONE]",
)


@pytest.mark.parametrize("index", [1, 2, 3], ids=["finish", "usage", "done"])
def test_a_line_before_a_part_of_a_chunk_is_a_difference(index: int) -> None:
    """Its name is that of the part, or its payload: what `event:` says is said beside it."""
    plain = [f"data: {it}\n\n" for it in CHUNKS]
    lined = [*plain[:index], f"event: step\n{plain[index]}", *plain[index + 1 :]]
    [place] = places(compared(OPENAI, plain, lined))
    assert place.startswith("event_line_changed")
    assert place.endswith(".event: added")
    assert not compared(OPENAI, lined, lined)
    event = msgspec.structs.replace(OPENAI.event, line="ignore")
    assert not compared(msgspec.structs.replace(OPENAI, event=event), plain, lined)
