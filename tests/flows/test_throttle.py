"""When a SEND is due: exact stamps, in seconds, on both stacks.

All times are sums of quarters and eighths, which floats hold exactly.
"""

import pytest

from contract.errors import Fault
from contract.flows.chat import ChatOptions, ChatRequest
from contract.model import Chunk, ToolCallDelta, Usage
from effects.model import Fail, Step, Wait
from tests.flows.playing import Case, play

pytestmark = pytest.mark.virtual

BODY = ChatRequest(message_id="m", content="hi")
END: list[Step] = [Chunk(finish="stop"), Chunk(usage=Usage(1, 1, 2))]
QUARTER = Wait(0.25)


def said(*texts: str) -> list[Step]:
    """Say texts, the first at once, then one each quarter of a second."""
    steps: list[Step] = []
    for text in texts:
        steps += [Chunk(text=text), QUARTER]
    return steps[:-1]


def calls(*names: str) -> Chunk:
    """Call tools by name, without arguments."""
    deltas = [ToolCallDelta(at, f"c{at}", name, "{}") for at, name in enumerate(names)]
    return Chunk(tool_calls=tuple(deltas))


def answered(*answers: list[Step], options: ChatOptions | None = None, **slow: float) -> Case:
    """Build a case whose tools answer after `slow` seconds."""
    return Case(
        BODY,
        options or ChatOptions(),
        tuple(tuple(answer) for answer in answers),
        tools=dict.fromkeys(("a", "b", "c"), "ok"),
        slow=slow,
    )


async def test_the_first_text_goes_out_at_once_and_then_one_send_an_interval(stack: str) -> None:
    """However late the first text is; what is left goes out before SUCCESS."""
    steps = [Wait(1.0), Chunk(), Wait(0.125), *said("a", "b", "c", "d"), *END]
    played = await play(stack, answered(steps))
    assert played.sends == [(1.125, "a", ""), (1.625, "abc", ""), (1.875, "abcd", "")]
    assert played.events[-2] == {"step": "SUCCESS", "content": "abcd"}


async def test_just_under_the_interval_is_not_the_interval(stack: str) -> None:
    """A stamp one microsecond short waits for the next item."""
    steps = [Chunk(text="a"), Wait(0.499999), Chunk(text="b"), QUARTER, Chunk(text="c"), *END]
    played = await play(stack, answered(steps))
    assert [text for _, text, _ in played.sends] == ["a", "abc"]


async def test_time_alone_sends_nothing(stack: str) -> None:
    """Unsent text waits for the next item, which need not carry text."""
    steps = [*said("a", "b"), Wait(4.0), Chunk(finish="stop"), Wait(1.0), Chunk(usage=Usage())]
    played = await play(stack, answered(steps))
    assert played.sends == [(0.0, "a", ""), (4.25, "ab", "")]


async def test_without_an_interval_every_piece_goes_out(stack: str) -> None:
    """Even several of the same moment; pieces without text send nothing."""
    steps = [Chunk(text="a"), Chunk(text=""), Chunk(text="b"), Chunk(), *END]
    played = await play(stack, answered(steps, options=ChatOptions(yield_interval=0)))
    assert [text for _, text, _ in played.sends] == ["a", "ab"]


async def test_unsent_text_goes_out_before_feedback(stack: str) -> None:
    """As a SEND of its own, at the stamp of the last item."""
    steps = [*said("a", "b"), calls("a"), Chunk(finish="tool_calls")]
    played = await play(stack, answered(steps, [*said("z"), *END], a=0.125))
    assert played.sends == [
        (0.0, "a", ""),
        (0.25, "ab", ""),
        (0.25, "ab", "a running"),
        (0.375, "ab", "a done"),
        (0.375, "abz", ""),
    ]


async def test_unsent_text_goes_out_before_failed(stack: str) -> None:
    """What the model had said is not lost when it breaks."""
    steps = [*said("a", "b"), Fail(Fault("model_unavailable"))]
    played = await play(stack, answered(steps))
    assert played.sends == [(0.0, "a", ""), (0.25, "ab", "")]
    assert played.events[-2:] == [{"step": "FAILED"}, {"step": "END"}]


async def test_running_comes_in_index_order_and_done_waits_for_those_below(stack: str) -> None:
    """A fast tool behind a slow one is shown when the slow one is done; they ran side by side."""
    steps: list[Step] = [calls("a", "b", "c"), Chunk(finish="tool_calls")]
    played = await play(stack, answered(steps, END, a=0.5, b=0.25, c=1.0))
    assert played.sends == [
        (0.0, "", "a running"),
        (0.0, "", "b running"),
        (0.0, "", "c running"),
        (0.5, "", "a done"),
        (0.5, "", "b done"),
        (1.0, "", "c done"),
    ]


async def test_calls_are_assembled_by_index_not_by_arrival(stack: str) -> None:
    """The second call's pieces may come first."""
    pieces = (ToolCallDelta(1, "y", "b", "{}"), ToolCallDelta(0, "x", "a", "{}"))
    steps: list[Step] = [Chunk(tool_calls=(piece,)) for piece in pieces]
    played = await play(stack, answered([*steps, Chunk(finish="tool_calls")], END))
    shown = [news for _, _, news in played.sends]
    assert shown == ["a running", "b running", "a done", "b done"]


async def test_no_send_equals_the_one_before(stack: str) -> None:
    """The same tool twice in a round shows one running and one done."""
    steps: list[Step] = [calls("a", "a"), Chunk(finish="tool_calls")]
    played = await play(stack, answered(steps, END))
    assert [news for _, _, news in played.sends] == ["a running", "a done"]
    assert len(played.world.tools.calls) == 2


async def test_the_first_text_after_feedback_alone_goes_out_at_once(stack: str) -> None:
    """Nothing of the reply was seen before it."""
    steps: list[Step] = [calls("a"), Chunk(finish="tool_calls")]
    played = await play(stack, answered(steps, [*said("x", "y"), *END]))
    assert played.sends[2:] == [(0.0, "x", ""), (0.25, "xy", "")]


async def test_feedback_counts_as_the_last_send(stack: str) -> None:
    """The interval runs from it."""
    steps: list[Step] = [*said("x"), calls("a"), Chunk(finish="tool_calls")]
    later = [QUARTER, *said("p", "q"), *END]
    played = await play(stack, answered(steps, later, a=1.0))
    assert played.sends[2:] == [(1.0, "x", "a done"), (1.5, "xpq", "")]


async def test_reasoning_is_seen_on_the_extended_wire_only(stack: str) -> None:
    """Cumulative, before the feedback, the first of it at once."""
    steps: list[Step] = [
        Chunk(reasoning="h"),
        QUARTER,
        Chunk(reasoning="m", text="t"),
        QUARTER,
        calls("a"),
        Chunk(finish="tool_calls"),
    ]
    strict = await play(stack, answered(steps, END))
    assert [event["content"] for event in strict.events[2:-2]] == ["t", "t", "t"]
    assert "hm" not in strict.wire
    extended = await play(stack, answered(steps, END, options=ChatOptions(wire="extended")))
    assert extended.events[2:4] == [
        {"step": "SEND", "content": "", "reason_content": "h"},
        {"step": "SEND", "content": "t", "reason_content": "hm"},
    ]
    feedback = '"tool_call_feedback":{"tool":"a","status":"running"}'
    whole = f'data: {{"step":"SEND","content":"t","reason_content":"hm",{feedback}}}\n\n'
    assert extended.frames[4].decode() == whole
    assert extended.frames[5].decode() == whole.replace("running", "done")
    assert len(extended.frames) == 8
