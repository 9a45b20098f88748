"""What `differences` finds between two runs of an exchange, and what it takes for the same."""

from __future__ import annotations

import pytest

from compare.difference import Difference
from compare.differences import Comparison, differences
from compare.pair import Pair
from cutover.errors import Completed
from cutover.records import EntryRecord, FrameRecord, PlayRecord, RunRecord, TapeRecord
from tests.support.ask import ASK


def run(
    *frames: tuple[int, str], plays: tuple[PlayRecord, ...] = (), stack: str = "legacy"
) -> RunRecord:
    """Return the line of a run of frames with their stamps in milliseconds."""
    return RunRecord(
        exchange="e",
        flow="ask",
        path="/ask",
        role="serving" if stack == "legacy" else "shadow",
        policy="live" if stack == "legacy" else "play",
        stack=stack,
        assigned="legacy",
        served="legacy",
        at=0,
        outcome=Completed(),
        request="{}",
        options="{}",
        frames=tuple(FrameRecord(at * 1000, f"data: {frame}\n\n") for at, frame in frames),
        plays=plays,
    )


def compared(
    legacy: RunRecord, graph: RunRecord, *entries: tuple[str, str], writes: bool = False
) -> Comparison:
    """Compare runs on a tape of calls, each a name and what was asked."""
    tape = tuple(
        EntryRecord(name, f"{place:032x}", canonical, place * 1000, writes)
        for place, (name, canonical) in enumerate(entries)
    )
    return differences(Pair(legacy, graph, TapeRecord(tape)), ASK)


SAID, DONE = '{"type":"said","text":"%s"}', '{"type":"done"}'


@pytest.mark.parametrize(
    ("legacy", "graph", "expected"),
    [
        ([(1, SAID % "a b"), (2, DONE)], [(1, SAID % "a "), (1, SAID % "b"), (2, DONE)], ()),
        (
            [(1, SAID % "a b"), (2, DONE)],
            [(1, SAID % "a c"), (2, DONE)],
            [("text", "text", '"a b"', '"a c"')],
        ),
        (
            [(1, SAID % "a"), (4000, SAID % "b"), (4000, DONE)],
            [(4000, SAID % "ab"), (4000, DONE)],
            [("held_back", "text", "0.0", "3.999")],
        ),
    ],
)
def test_text_counts_and_its_cuts_do_not(
    legacy: list[tuple[int, str]],
    graph: list[tuple[int, str]],
    expected: list[tuple[str, str, str, str]],
) -> None:
    """But a text that is sent much later than it could is held back."""
    found = compared(run(*legacy), run(*graph, stack="graph"))
    assert [(one.kind, one.name, one.legacy, one.graph) for one in found.differences] == [*expected]
    assert found.equal == (not expected)


def test_a_call_that_differs_is_shown_at_its_place() -> None:
    """Numbers are numbers."""
    legacy = run((1, DONE), plays=(PlayRecord("model.chat", "live", 0),))
    asked = '{"messages":[{"content":"you"}],"n":1.0}'
    play = PlayRecord("model.chat", "nearest", 0, asked)
    found = compared(
        legacy,
        run((1, DONE), plays=(play,), stack="graph"),
        ("model.chat", '{"messages":[{"content":"me"}],"n":1}'),
    )
    expected = Difference("call_changed", "model.chat", "messages[].content", '"me"', '"you"', 0)
    assert found.differences == (expected,)
