"""What a successor may say: the client's beginning, however it is cut, and then its own end."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutover.flow import Event, Texts
from cutover.flow_spec import Framer
from router.takeover import Due, PrefixMismatch, Sent
from rules.flows import CHAT, COMPANION
from rules.flows.chat import ChatAccept, ChatSend, ChatStartReply, ChatSuccess, ToolFeedback
from rules.flows.companion import (
    CompanionDone,
    CompanionEmotion,
    CompanionText,
    CompanionToolResult,
)

Stream = list[Event]
RUNNING = ToolFeedback("calculate", "running")


@st.composite
def companions(draw: st.DrawFn) -> tuple[Stream, Stream]:
    """Draw the same companion stream twice, its text cut differently."""
    said = draw(st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=4))
    one: Stream = [CompanionEmotion("joy", 0.5, 0.5)]
    other: Stream = [CompanionEmotion("joy", 0.5, 0.5)]
    for number, text in enumerate(said):
        for stream in (one, other):
            cuts = sorted(draw(st.sets(st.integers(1, len(text)), max_size=3)) | {len(text)})
            stream += [CompanionText(text[a:b]) for a, b in zip((0, *cuts), cuts, strict=False)]
            if number % 2:
                stream.append(CompanionToolResult("calculate", ok=True, content=str(number)))
    return [*one, CompanionDone("completed")], [*other, CompanionDone("completed")]


def sent_by(stream: Sequence[Event]) -> Sent:
    """Return what a client has after a beginning of a stream."""
    sent, framer = Sent(), Framer(COMPANION)
    for event in stream:
        sent.add(framer.frame(event))
    return sent


def follow(sent: Sent, stream: Sequence[Event], framer: Framer) -> bytes:
    """Let a successor follow; return what goes out."""
    due, out = Due(sent, framer), b""
    for event in stream:
        new = due.feed(framer.frame(event))
        if new is not None:
            sent.add(new)
            out += new.raw
    assert not due.behind
    return out


@given(companions(), st.data())
def test_a_successor_goes_on_where_the_client_is(
    pair: tuple[Stream, Stream], data: st.DataObject
) -> None:
    """After any beginning: what goes out makes exactly the whole stream, nothing of it twice."""
    one, other = pair
    whole = sent_by(one)
    beginning = one[: data.draw(st.integers(0, len(one) - 1))]
    sent = sent_by(beginning)
    assert follow(sent, other, Framer(COMPANION))
    assert (sent.marks, dict(sent.texts)) == (whole.marks, dict(whole.texts))


@given(companions(), st.data())
def test_a_successor_that_says_something_else_is_stopped(
    pair: tuple[Stream, Stream], data: st.DataObject
) -> None:
    """A changed character or event within what the client has is never passed over."""
    one, other = pair
    place = data.draw(st.integers(1, len(other) - 1))
    changed: Stream = list(other)
    event = changed[place]
    if isinstance(event, CompanionText):
        changed[place] = CompanionText(
            ("x" if event.content[0] != "x" else "y") + event.content[1:]
        )
    elif isinstance(event, CompanionToolResult):
        changed[place] = CompanionToolResult("other", ok=True, content=event.content)
    else:
        return
    with pytest.raises(PrefixMismatch):
        follow(sent_by(one[:-1]), changed, Framer(COMPANION))


def test_a_stream_that_only_grows_is_never_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    """To read all that was said at each frame takes time that is quadratic."""

    def joined(_: Texts, channel: str) -> str:
        pytest.fail(f"{channel} is joined")

    events = [CompanionEmotion("joy", 0.5, 0.5), *[CompanionText("word ")] * 5]
    stream: Stream = [*events, CompanionToolResult("calculate", ok=True, content="1"), *events[1:]]
    with monkeypatch.context() as patched:
        patched.setattr(Texts, "__getitem__", joined)
        sent = Sent()
        follow(sent, stream, Framer(COMPANION))
    assert sent.texts == {"text": "word " * 10}


CASES: dict[str, tuple[Stream, Stream]] = {
    "less text before an event": (
        [ChatSend("ab"), ChatSend("ab", tool_call_feedback=RUNNING)],
        [ChatSend("a"), ChatSend("a", tool_call_feedback=RUNNING)],
    ),
    "more text before an event": (
        [ChatSend("a"), ChatSend("a", tool_call_feedback=RUNNING)],
        [ChatSend("ab"), ChatSend("ab", tool_call_feedback=RUNNING)],
    ),
    "success before the text": ([ChatSend("ab")], [ChatSuccess("a")]),
    "another tool": (
        [ChatSend("", tool_call_feedback=RUNNING)],
        [ChatSend("", tool_call_feedback=ToolFeedback("search", "running"))],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_contradiction_is_named(case: str) -> None:
    """The error says where, what the client has, and what the successor says."""
    has, says = CASES[case]
    framer, sent = Framer(CHAT), Sent()
    for event in (ChatAccept(), ChatStartReply(), *has):
        sent.add(framer.frame(event))
    with pytest.raises(PrefixMismatch, match="the client has"):
        follow(sent, [ChatAccept(), ChatStartReply(), *says], Framer(CHAT))
