"""Tool calls put together from the pieces a model streams."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from contract.model import ToolCall, ToolCallDelta
from rules.answers import EARLY_ENDINGS, ToolCallAssembly


def assembled(
    *deltas: ToolCallDelta, round_number: int = 0, taken: tuple[str, ...] = ()
) -> tuple[ToolCall, ...]:
    """Put pieces together, one chunk each."""
    assembly = ToolCallAssembly()
    for delta in deltas:
        assembly.add((delta,))
    return assembly.calls(round_number, taken)


def test_a_call_in_one_piece() -> None:
    """As small models send it."""
    assert assembled(ToolCallDelta(0, "c1", "dice", '{"n":1}')) == (
        ToolCall("c1", "dice", '{"n":1}'),
    )


def test_no_pieces_are_no_calls() -> None:
    """A plain answer."""
    assert assembled() == ()


def test_pieces_of_one_index_add_up() -> None:
    """Id and name come first, the arguments in shreds."""
    assert assembled(
        ToolCallDelta(0, "c1", "di"),
        ToolCallDelta(0, "", "ce", '{"n"'),
        ToolCallDelta(0, arguments=":1}"),
    ) == (ToolCall("c1", "dice", '{"n":1}'),)


def test_an_id_repeated_with_every_piece_counts_once() -> None:
    """Some providers send it again and again."""
    assert assembled(ToolCallDelta(0, "c1", "dice", "{"), ToolCallDelta(0, "c1", "", "}")) == (
        ToolCall("c1", "dice", "{}"),
    )


def test_calls_come_in_index_order_whatever_came_first() -> None:
    """Interleaved, backwards, with a gap."""
    assert assembled(
        ToolCallDelta(3, "c3", "late"),
        ToolCallDelta(0, "c0", "early"),
        ToolCallDelta(3, arguments="{}"),
        ToolCallDelta(0, arguments="[]"),
    ) == (ToolCall("c0", "early", "[]"), ToolCall("c3", "late", "{}"))


def test_a_missing_id_is_made_of_round_and_index() -> None:
    """The same on both stacks and on every replay."""
    calls = assembled(ToolCallDelta(0, "", "a"), ToolCallDelta(1, "", "b"), round_number=2)
    assert [call.id for call in calls] == ["call_2_0", "call_2_1"]


def test_a_duplicate_id_is_replaced() -> None:
    """Two calls of one round, or a call of an earlier round."""
    calls = assembled(ToolCallDelta(0, "same", "a"), ToolCallDelta(1, "same", "b"))
    assert [call.id for call in calls] == ["same", "call_0_1"]
    calls = assembled(ToolCallDelta(0, "same", "a"), round_number=1, taken=("same",))
    assert [call.id for call in calls] == ["call_1_0"]


def test_an_id_of_our_own_form_from_the_model_does_not_clash() -> None:
    """A provider that numbers its calls as we do must not make two of one id."""
    calls = assembled(ToolCallDelta(0, "call_0_1", "a"), ToolCallDelta(1, "", "b"))
    assert len({call.id for call in calls}) == 2


def test_arguments_stay_as_the_model_wrote_them() -> None:
    """Broken JSON and none at all is for the tool to refuse."""
    calls = assembled(ToolCallDelta(0, "a", "x", '{"n":'), ToolCallDelta(1, "b", "y"))
    assert [call.arguments for call in calls] == ['{"n":', ""]


IDS = st.sampled_from(["", "a", "b", "call_0_0", "call_0_1", "call_0_1_"])


@given(
    st.dictionaries(st.integers(0, 5), st.tuples(IDS, st.text("xyz", max_size=6)), max_size=5),
    st.sets(IDS.filter(bool)),
    st.randoms(use_true_random=False),
)
def test_any_interleaving_gives_the_same_calls_with_ids_of_their_own(
    wanted: dict[int, tuple[str, str]], taken: set[str], order: Random
) -> None:
    """Arguments cut into characters and dealt out in any order of indices."""
    assembly, whole = ToolCallAssembly(), ToolCallAssembly()
    shreds = {index: list(arguments) for index, (_, arguments) in wanted.items()}
    for index, (call_id, arguments) in wanted.items():
        assembly.add((ToolCallDelta(index, call_id, "tool"),))
        whole.add((ToolCallDelta(index, call_id, "tool", arguments),))
    while left := [index for index, pieces in shreds.items() if pieces]:
        index = order.choice(left)
        assembly.add((ToolCallDelta(index, arguments=shreds[index].pop(0)),))
    calls = assembly.calls(0, taken)
    assert calls == whole.calls(0, taken)
    ids = [call.id for call in calls]
    assert len(set(ids)) == len(ids)
    assert not taken & set(ids)
    assert [call.arguments for call in calls] == [wanted[index][1] for index in sorted(wanted)]


def test_calls_cut_short_are_not_run() -> None:
    """After these endings the arguments are only a beginning."""
    assert {"length", "content_filter"} == EARLY_ENDINGS
