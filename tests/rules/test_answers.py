"""Tool calls put together from the pieces a model streams."""

from __future__ import annotations

from collections.abc import Collection
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.model import AssistantMessage, Chunk, ModelCall, ToolCall, ToolCallDelta
from rules.conversation import EARLY_ENDINGS, ModelAnswer

D, C = ToolCallDelta, ToolCall


def assembled(*deltas: ToolCallDelta, earlier: tuple[str, ...] = ()) -> tuple[ToolCall, ...]:
    """Put pieces together, one chunk each, behind earlier rounds of a call each."""
    answer = ModelAnswer()
    for delta in deltas:
        answer.add(Chunk(tool_calls=(delta,)))
    return answer.calls(asked(earlier))


def asked(earlier: Collection[str] = ()) -> ModelCall:
    """Ask with tools, behind rounds that called with these ids."""
    rounds = tuple(AssistantMessage(None, (C(call_id, "t", "{}"),)) for call_id in earlier)
    return ModelCall(model_id="m", messages=rounds, tool_choice="auto")


@pytest.mark.parametrize(
    ("deltas", "calls"),
    [
        pytest.param((), (), id="a plain answer"),
        pytest.param(
            (D(0, "c1", "dice", '{"n":1}'),), (C("c1", "dice", '{"n":1}'),), id="in one piece"
        ),
        pytest.param(
            (D(0, "c1", "di"), D(0, "", "ce", '{"n"'), D(0, arguments=":1}")),
            (C("c1", "dice", '{"n":1}'),),
            id="pieces of one index add up",
        ),
        pytest.param(
            (D(0, "c1", "dice", "{"), D(0, "c1", "", "}")),
            (C("c1", "dice", "{}"),),
            id="an id repeated with every piece counts once",
        ),
        pytest.param(
            (
                D(3, "c3", "late"),
                D(0, "c0", "early"),
                D(3, arguments="{}"),
                D(0, arguments="[]"),
            ),
            (C("c0", "early", "[]"), C("c3", "late", "{}")),
            id="in index order, with a gap",
        ),
        pytest.param(
            (D(0, "a", "x", '{"n":'), D(1, "b", "y")),
            (C("a", "x", '{"n":'), C("b", "y", "")),
            id="broken arguments are the tool's to refuse",
        ),
    ],
)
def test_pieces_are_put_together(
    deltas: tuple[ToolCallDelta, ...], calls: tuple[ToolCall, ...]
) -> None:
    """Each index is one call, as the model wrote it."""
    assert assembled(*deltas) == calls


@pytest.mark.parametrize(
    ("given_ids", "earlier", "ids"),
    [
        pytest.param(("", ""), ("a", "b"), ["call_2_0", "call_2_1"], id="missing"),
        pytest.param(("same", "same"), (), ["same", "call_0_1"], id="twice in a round"),
        pytest.param(("same",), ("same",), ["call_1_0"], id="of an earlier round"),
        pytest.param(("call_0_1", ""), (), ["call_0_1", "call_0_1_"], id="our own form"),
    ],
)
def test_every_call_has_an_id_of_its_own(
    given_ids: tuple[str, ...], earlier: tuple[str, ...], ids: list[str]
) -> None:
    """Made of round and index: the same on both stacks and on every replay."""
    deltas = [D(index, call_id, "a") for index, call_id in enumerate(given_ids)]
    assert [call.id for call in assembled(*deltas, earlier=earlier)] == ids


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
    shreds = {index: list(arguments) for index, (_, arguments) in wanted.items()}
    pieces = [D(index, call_id, "tool") for index, (call_id, _) in wanted.items()]
    whole = [D(index, call_id, "tool", rest) for index, (call_id, rest) in wanted.items()]
    while left := [index for index, shred in shreds.items() if shred]:
        index = order.choice(left)
        pieces.append(D(index, arguments=shreds[index].pop(0)))
    earlier = tuple(sorted(taken))
    calls = assembled(*pieces, earlier=earlier)
    assert calls == assembled(*whole, earlier=earlier)
    ids = [call.id for call in calls]
    assert len(set(ids)) == len(ids)
    assert not taken & set(ids)
    assert [call.arguments for call in calls] == [wanted[index][1] for index in sorted(wanted)]


def test_calls_cut_short_are_not_run() -> None:
    """After these endings the arguments are only a beginning."""
    assert {"length", "content_filter"} == EARLY_ENDINGS
