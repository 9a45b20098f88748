"""Records: a tape and its run, written down and read again, are the same and play the same."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract import operations as ops
from contract.errors import CutoverError, EffectFailed, Fault, TapeCut, TapeMiss
from contract.model import NoArguments
from contract.operations import OPERATIONS
from contract.records import EntryRecord, FeedbackRecord, RunRecord, decode_run, encode_run
from contract.stores import NewId
from effects.tape import Tape, canonical
from effects.testing import VirtualLoop, World
from tests.support.records import a_run, an_entry
from tests.support.struct_values import values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypothesis.strategies import SearchStrategy

    from contract.operations import Operation
    from contract.records import EntryEnd
    from effects.tape import TapeSession

Made = tuple["Operation", str, msgspec.Struct, list[Any], "EntryEnd", "Fault | None"]
"""A call on a generated tape: operation, site, arguments, items, how it ended, why."""


def calls() -> SearchStrategy[Made]:
    """Draw any call of any operation with items and an end that can be."""
    return st.sampled_from(list(OPERATIONS.values())).flatmap(_calls)


def _calls(operation: Operation) -> SearchStrategy[Made]:
    item = values(operation.item)
    many = st.lists(item, max_size=4) if operation.streams else st.tuples(item).map(list)
    ends = st.one_of(
        st.tuples(many, st.just("complete"), st.none()),
        st.tuples(many if operation.streams else st.just([]), st.just("cut"), st.none()),
        st.tuples(many if operation.streams else st.just([]), st.just("error"), values(Fault)),
    )
    return st.tuples(
        st.just(operation), st.sampled_from("ab"), values(operation.arguments), ends
    ).map(lambda made: (*made[:3], *made[3]))


def tape_of(made: Sequence[Made]) -> Tape:
    """Put calls on a tape."""
    tape = Tape()
    for number, (operation, site, arguments, items, end, fault) in enumerate(made):
        entry = tape.add(operation, site, canonical(arguments), number)
        for item in items:
            entry.append(item)
        entry.close(end, number + 1, fault)
    tape.stop_recording()
    return tape


@pytest.mark.untraced
@pytest.mark.slow
@given(values(EntryRecord), values(RunRecord))
def test_every_run_record_survives_its_line(entry: EntryRecord, run: RunRecord) -> None:
    """One run, one line; what is read is what was written."""
    run = msgspec.structs.replace(run, tape=(entry,))
    line = encode_run(run)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert decode_run(line) == run


@pytest.mark.untraced
@pytest.mark.slow
@given(st.lists(calls(), max_size=6))
def test_a_tape_survives_being_written_down_and_loaded(made: list[Made]) -> None:
    """Entries, numbers, occurrences, stamps, ends: all of it."""
    record = tape_of(made).record()
    read = decode_run(encode_run(a_run(tape=record))).tape
    assert read is not None
    loaded = Tape.load(read)
    assert loaded.record() == record
    assert not loaded.recording
    assert [entry.items for entry in loaded.entries] == [items for *_, items, _, _ in made]


@pytest.mark.untraced
@pytest.mark.slow
@given(st.lists(calls(), max_size=6), st.randoms(use_true_random=False))
def test_a_loaded_tape_plays_what_was_recorded(made: list[Made], order: Any) -> None:
    """Every call gets its own items and its own end, whatever order keys are asked in."""
    tape = Tape.load(tape_of(made).record())
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(_play_all(tape, made, order))


async def _play_all(tape: Tape, made: list[Made], order: Any) -> None:
    run = World().run(World().exchange(tape), "fail")
    by_key: dict[tuple[str, str, bytes], list[Made]] = {}
    for call in made:
        by_key.setdefault((call[0].label, call[1], canonical(call[2])), []).append(call)
    keys = [key for key, same in by_key.items() for _ in same]
    order.shuffle(keys)
    for key in keys:
        call = by_key[key].pop(0)
        assert await _played(run, call) == call[3:]
    assert {play.how for play in run.plays} <= {"exact"}


async def _played(run: TapeSession, call: Made) -> tuple[list[Any], str, Fault | None]:
    operation, site, arguments = call[:3]
    items: list[Any] = []
    try:
        if operation.streams:
            async for item in run.stream(operation, site, arguments):
                items.append(item)  # noqa: PERF401 - what came before an error counts
        else:
            items.append(await run.call(operation, site, arguments))
    except EffectFailed as failure:
        return items, "error", failure.fault
    except TapeCut:
        return items, "cut", None
    return items, "complete", None


def test_a_call_still_open_when_it_was_written_down_is_cut_when_it_is_read() -> None:
    """Nothing will be added to it: its readers must not wait."""
    tape = Tape()
    tape.add(ops.IDS_NEW, "reply", b"{}", 7)
    (record,) = tape.record()
    assert record.end == "open"
    (entry,) = Tape.load([record]).entries
    assert (entry.end, entry.ended) == ("cut", 7)


@pytest.mark.parametrize(
    "line",
    [
        *(b"", b"\n", b"{", b"[]", b"{}", b'{"v":1}', b"\xff\xfe"),
        encode_run(a_run())[:-2],
        encode_run(a_run()).replace(b'"v":1', b'"v":2'),
        encode_run(a_run()).replace(b'"v":1', b'"v":"1"'),
        encode_run(a_run()).replace(b'"completed"', b'"fine"'),
        encode_run(a_run()) * 2,
    ],
)
def test_what_is_not_a_run_of_this_version_is_refused(line: bytes) -> None:
    """Torn, foreign or garbage: an error of msgspec's, never half a record."""
    with pytest.raises((msgspec.DecodeError, UnicodeDecodeError)):
        decode_run(line)


def test_fields_of_a_later_minor_change_are_passed_over() -> None:
    """An added field does not make old readers stumble."""
    assert decode_run(encode_run(a_run()).replace(b'"v":1', b'"v":1,"news":[1]')) == a_run()


def test_an_unknown_operation_is_named() -> None:
    """A tape from elsewhere is refused with what it holds; it is one of our errors, too."""
    record = an_entry(seq=3, port="fax", op="send")
    with pytest.raises(msgspec.ValidationError, match=r"entry 3: no operation 'fax'\.'send'") as it:
        Tape.load([record])
    assert isinstance(it.value, CutoverError)


def test_an_item_of_another_shape_is_refused() -> None:
    """Items are checked against their operation when a tape is loaded."""
    record = an_entry(msgspec.Raw(b'{"id":7}'), port="ids", op="new")
    with pytest.raises(msgspec.ValidationError):
        Tape.load([record])


@given(values(FeedbackRecord))
def test_feedback_survives_its_line(record: FeedbackRecord) -> None:
    """What users thought is read as it was written."""
    assert msgspec.json.decode(msgspec.json.encode(record), type=FeedbackRecord) == record


@pytest.mark.virtual
async def test_a_play_carries_arguments_only_where_they_differ() -> None:
    """The tape has them already; a miss keeps what was asked."""
    tape = tape_of([(ops.IDS_NEW, "reply", NoArguments(), [NewId("x")], "complete", None)])
    world = World()
    run = world.run(world.exchange(tape), "nearest")
    await run.effects().ids.new("reply")
    with pytest.raises(TapeMiss):
        await run.effects().conversations.find("message", "m-1")
    exact, missed = (play.record() for play in run.plays)
    assert (exact.how, exact.entry, exact.args) == ("exact", 0, None)
    assert (missed.how, missed.entry) == ("missed", None)
    assert missed.args == msgspec.Raw(b'{"message_id":"m-1"}')
