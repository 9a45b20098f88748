"""When a SEND is due: exact stamps, in seconds, on both stacks.

All times are sums of quarters and eighths, which floats hold exactly.
"""

from __future__ import annotations

import pytest

from contract.errors import Fault
from contract.flows.chat import ChatOptions, ChatRequest
from contract.model import Chunk, ToolCallDelta, Usage
from effects.model import Fail, Step, Wait
from tests.support.flow_runs import Case, play

pytestmark = pytest.mark.virtual

END = (Chunk(finish="stop"), Chunk(usage=Usage(1, 1, 2)))
CALLED = Chunk(finish="tool_calls")
QUARTER = Wait(0.25)

Sends = list[tuple[float, str, str]]


def said(*texts: str) -> tuple[Step, ...]:
    """Say texts, the first at once, then one each quarter of a second."""
    steps = [step for text in texts for step in (Chunk(text=text), QUARTER)]
    return tuple(steps[:-1])


def calls(*names: str) -> Chunk:
    """Call tools by name, without arguments."""
    deltas = [ToolCallDelta(at, f"c{at}", name, "{}") for at, name in enumerate(names)]
    return Chunk(tool_calls=tuple(deltas))


def answered(*answers: tuple[Step, ...], options: ChatOptions | None = None, **slow: float) -> Case:
    """Build a case whose tools answer after `slow` seconds."""
    return Case(
        ChatRequest(message_id="m", content="hi"),
        options or ChatOptions(),
        answers,
        tools=dict.fromkeys(("a", "b", "c"), "ok"),
        slow=slow,
    )


DUE: dict[str, tuple[Case, Sends]] = {
    # However late the first text is; what is left goes out before SUCCESS.
    "the first text at once, then one an interval": (
        answered((Wait(1.0), Chunk(), Wait(0.125), *said("a", "b", "c", "d"), *END)),
        [(1.125, "a", ""), (1.625, "abc", ""), (1.875, "abcd", "")],
    ),
    "a stamp one microsecond short waits for the next item": (
        answered(
            (Chunk(text="a"), Wait(0.499999), Chunk(text="b"), QUARTER, Chunk(text="c"), *END)
        ),
        [(0.0, "a", ""), (0.749999, "abc", "")],
    ),
    # Unsent text waits for the next item, which need not carry text.
    "time alone sends nothing": (
        answered(
            (*said("a", "b"), Wait(4.0), Chunk(finish="stop"), Wait(1.0), Chunk(usage=Usage()))
        ),
        [(0.0, "a", ""), (4.25, "ab", "")],
    ),
    # Even several of the same moment; pieces without text send nothing.
    "without an interval every piece goes out": (
        answered(
            (Chunk(text="a"), Chunk(text=""), Chunk(text="b"), Chunk(), *END),
            options=ChatOptions(yield_interval=0),
        ),
        [(0.0, "a", ""), (0.0, "ab", "")],
    ),
    "unsent text goes out before feedback, at the last item's stamp": (
        answered((*said("a", "b"), calls("a"), CALLED), (*said("z"), *END), a=0.125),
        [
            (0.0, "a", ""),
            (0.25, "ab", ""),
            (0.25, "ab", "a running"),
            (0.375, "ab", "a done"),
            (0.375, "abz", ""),
        ],
    ),
    # A fast tool behind a slow one is shown when the slow one is done; they ran side by side.
    "running comes in index order, and done waits for those below": (
        answered((calls("a", "b", "c"), CALLED), END, a=0.5, b=0.25, c=1.0),
        [
            (0.0, "", "a running"),
            (0.0, "", "b running"),
            (0.0, "", "c running"),
            (0.5, "", "a done"),
            (0.5, "", "b done"),
            (1.0, "", "c done"),
        ],
    ),
    # The second call's pieces come first.
    "calls are assembled by index, not by arrival": (
        answered(
            (
                Chunk(tool_calls=(ToolCallDelta(1, "y", "b", "{}"),)),
                Chunk(tool_calls=(ToolCallDelta(0, "x", "a", "{}"),)),
                CALLED,
            ),
            END,
        ),
        [(0.0, "", news) for news in ("a running", "b running", "a done", "b done")],
    ),
    "the first text after feedback alone goes out at once": (
        answered((calls("a"), CALLED), (*said("x", "y"), *END)),
        [(0.0, "", "a running"), (0.0, "", "a done"), (0.0, "x", ""), (0.25, "xy", "")],
    ),
    "feedback counts as the last send": (
        answered((*said("x"), calls("a"), CALLED), (QUARTER, *said("p", "q"), *END), a=1.0),
        [(0.0, "x", ""), (0.0, "x", "a running"), (1.0, "x", "a done"), (1.5, "xpq", "")],
    ),
}


@pytest.mark.parametrize("due", DUE)
async def test_a_send_is_due(stack: str, due: str) -> None:
    """Whatever is sent last is what SUCCESS has."""
    case, sends = DUE[due]
    played = await play(stack, case)
    assert played.sends == sends
    assert played.events[-2] == {"step": "SUCCESS", "content": sends[-1][1]}


async def test_unsent_text_goes_out_before_failed(stack: str) -> None:
    """What the model had said is not lost when it breaks."""
    steps = (*said("a", "b"), Fail(Fault("model_unavailable")))
    played = await play(stack, answered(steps))
    assert played.sends == [(0.0, "a", ""), (0.25, "ab", "")]
    assert played.events[-2:] == [{"step": "FAILED"}, {"step": "END"}]


async def test_no_send_equals_the_one_before(stack: str) -> None:
    """The same tool twice in a round shows one running and one done."""
    played = await play(stack, answered((calls("a", "a"), CALLED), END))
    assert [news for _, _, news in played.sends] == ["a running", "a done"]
    assert len(played.world.tools.calls) == 2


async def test_reasoning_is_seen_on_the_extended_wire_only(stack: str) -> None:
    """Cumulative, before the feedback, the first of it at once."""
    steps = (
        Chunk(reasoning="h"),
        QUARTER,
        Chunk(reasoning="m", text="t"),
        QUARTER,
        calls("a"),
        CALLED,
    )
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
