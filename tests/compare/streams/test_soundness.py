"""What is told from bytes is what reading would have told."""

from __future__ import annotations

from typing import Annotated

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compare.clusters import exemplar_of
from compare.comparison import Comparer
from compare.streams.events import EventReader, read_stream, restricted_texts
from compare.streams.soundness import Soundness, times_of
from contract.equality import raw_equal, sent_alike, violation_of
from contract.flows.chat import (
    CHAT,
    Accept,
    ChatEvent,
    End,
    Failed,
    Send,
    StartReply,
    Success,
    ToolFeedback,
)
from contract.grammar import Grammar, many
from contract.records import RunRecord
from contract.wire import Dialect, EventNames, RecordedWire, TextPaths
from cutover.selftest.exchanges import Script, exchange
from cutover.selftest.run_faults import FAULTS, SOUND, RunFault
from tests.compare.pairs import paired, tallied

LONG = "A sentence long enough not to be remembered as it stands, whatever may follow it in time. "
HARD = st.sampled_from(['"', "\\", "\n", "\t", "\x00", "\x7f", "é", "，", "😀", "</", "u0041", ""])
PIECES = st.lists(st.one_of(HARD, st.text(max_size=8)), max_size=12)
CHATS = st.lists(
    st.one_of(
        st.just(Accept()),
        st.just(StartReply()),
        st.builds(Send, st.text(max_size=5)),
        st.builds(lambda text: Send("", tool_call_feedback=ToolFeedback(text, "done")), st.text()),
        st.builds(Success, st.text(max_size=5)),
        st.builds(Failed, st.text(max_size=5)),
        st.just(End()),
    ),
    max_size=8,
)


def events(pieces: list[str], *, shrinks: bool = False) -> list[ChatEvent]:
    """Give a sound stream whose text grows by pieces, or takes the last one back."""
    texts = [LONG + "".join(pieces[:k]) for k in range(len(pieces) + 1)]
    last = texts[0][:-1] if shrinks else texts[-1]
    return [Accept(), StartReply(), *(Send(text) for text in texts), Success(last), End()]


def runs(sent: list[ChatEvent]) -> tuple[RunRecord, RunRecord]:
    """Give an exchange both of whose runs sent these events."""
    script = Script(spoil=lambda _: sent)
    return exchange(script, script)


def checks() -> tuple[EventReader, Soundness]:
    """Make a reader and a check of the chat's streams."""
    reader = EventReader(CHAT)
    return reader, Soundness(reader, CHAT.grammar)


def sound(check: Soundness, exchanged: tuple[RunRecord, RunRecord]) -> bool:
    """Whether the frames of an exchange are sound, told in both ways."""
    frames = exchanged[0].frames
    events = read_stream(EventReader(CHAT), frames).events
    assert check.frames(frames) == check.events(events)
    return check.frames(frames)


@given(PIECES)
def test_streams_that_grow_are_sound_whatever_they_say(pieces: list[str]) -> None:
    """Quotes, escapes, control characters and all; told from bytes and by reading."""
    _, check = checks()
    assert sound(check, runs(events(pieces)))
    assert sound(check, runs(events(pieces))), "what was learnt holds"


@given(PIECES)
def test_a_text_that_takes_back_is_never_sound(pieces: list[str]) -> None:
    """However much was learnt from streams before."""
    _, check = checks()
    sound(check, runs(events(pieces)))
    assert not sound(check, runs(events(pieces, shrinks=True)))


@pytest.mark.untraced
@given(st.lists(CHATS, max_size=4))
def test_what_is_sound_at_a_glance_has_no_violation(streams: list[list[ChatEvent]]) -> None:
    """Skimming may not know; it may not be wrong."""
    _, check = checks()
    for sent in streams:
        control, _ = exchanged = runs(sent)
        stream = read_stream(EventReader(CHAT), control.frames)
        violation = violation_of(CHAT.grammar, control, stream, ends=True)
        assert sound(check, exchanged) == (violation is None)


@pytest.mark.parametrize("frame", ["", "\0", "\0data", ": comment\n\n"])
def test_a_stream_of_odd_frames_is_not_sound(frame: str) -> None:
    """Captures may hold anything."""
    _, check = checks()
    assert not check.frames([(0, frame), (1, frame)])


@pytest.mark.untraced
@given(PIECES, st.text(max_size=20))
def test_frames_like_the_one_before_are_read_as_if_alone(pieces: list[str], odd: str) -> None:
    """A reader that has learnt reads what a new one reads, spoilt frames too."""
    learnt = EventReader(CHAT)
    frames = [frame for _, frame in runs(events(pieces))[0].frames]
    frames += [frame[:-6] + odd + frame[-6:] for frame in frames] + [f + odd for f in frames]
    for frame in frames:
        assert learnt.read(frame) == EventReader(CHAT).read(frame)


def test_times_are_those_of_the_first_event_the_first_text_and_the_end() -> None:
    """Comments are no events."""
    control, _ = exchange()
    commented = msgspec.structs.replace(
        control, frames=((1, ": hello\n\n"), *control.frames, (9_999_999, ": bye\n\n"))
    )
    times = times_of(commented.frames, EventReader(CHAT))
    assert times is not None
    assert times.first == control.frames[0][0]
    assert times.text == control.frames[2][0]
    assert times.end == control.frames[-1][0]


def test_raw_equal_is_equal() -> None:
    """And what differs never is."""
    same, cold = exchange(), exchange(graph=Script(system="冷"))
    for runs_, equal in ((same, True), (cold, False)):
        pair = paired(*runs_)
        assert sent_alike(pair)
        assert raw_equal(pair) is equal
        assert (Comparer(CHAT).compare(pair) == ()) is equal


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_runs_told_by_their_calls_alone_are_told_as_if_read_whole(fault: RunFault) -> None:
    """Findings, and the streams that are shown with them."""
    runs_ = exchange(SOUND, fault.script)
    pair = paired(*runs_)
    findings = Comparer(CHAT).compare(pair)
    tally = tallied(runs_)
    [exemplar] = {id(x): x for c in tally.clusters.ordered() for x in c.exemplars}.values()
    assert exemplar == exemplar_of(pair, findings, EventReader(CHAT))


class Short(msgspec.Struct, tag="SHORT", tag_field="step"):
    """An event whose text may not be long."""

    text: Annotated[str, msgspec.Meta(max_length=100)]


class Free(msgspec.Struct, tag="FREE", tag_field="step"):
    """An event whose text may be anything."""

    text: str | None = None


def test_a_text_with_conditions_is_always_read() -> None:
    """That one text is allowed does not say that a longer one is."""
    field = TextPaths(path="text", growth="cumulative")
    wire = RecordedWire(
        Dialect(event=EventNames(path="step"), text={"SHORT": field, "FREE": field}),
        Grammar((many("SHORT", "FREE"),)),
        Short | Free,
    )
    assert restricted_texts(wire) == {"SHORT"}
    reader = EventReader(wire)
    frame = 'data: {"step":"SHORT","text":"%s"}\n\n'
    read = [reader.read(frame % ("x" * size)) for size in (90, 95, 101)]
    assert [event is not None and event.fault is not None for event in read] == [False, False, True]


def test_a_wire_that_names_every_stream_anew_is_still_learnt() -> None:
    """A template is learnt per stream where frames bear its id, and goes on paying."""
    field = "delta"
    wire = RecordedWire(
        Dialect(event=EventNames(path="step"), text={"SEND": field}), Grammar((many("SEND"),))
    )
    reader, seen = EventReader(wire), 0
    for stream in range(200):
        frame = f'data: {{"step":"SEND","id":"stream-{stream}-{"x" * 99}","delta":"%s"}}\n\n'
        read = reader.read_all([(0, frame % text) for text in ("one", "two", "three")])
        seen += sum(event == EventReader(wire).read(frame % "two") for event in read)
    assert seen == 200
    assert reader.learns
