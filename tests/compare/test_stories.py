"""Findings tell what happened: which stack ended, what was taken back, what was not set."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from compare.findings import FrameChanged, kind_of
from compare.report import report_of
from compare.report.document import title_of
from contract import operations as ops
from contract.flows.chat import CHAT, Accept, End, Failed, Send, StartReply
from contract.flows.pipeline import PIPELINE, PipelineMessage, PipelineToken, TokenInfo
from contract.model import ModelCall, NoArguments
from contract.operations import Operation
from contract.records import ErrorRecord, Outcome, RunRecord
from contract.stores import Recall
from cutover.selftest.exchanges import Events, Script, ScriptedCall, exchange
from cutover.selftest.run_faults import SOUND, put
from tests.compare.pairs import causes, findings, tallied

MISSED = ErrorRecord("tape_miss", "EffectFailed")


def ended(outcome: Outcome, code: str, *, calls: int, sent: Events | None = None) -> Script:
    """Return a legacy that ends by itself after its first calls."""
    return SOUND.but(
        outcome=outcome,
        error=ErrorRecord(code),
        spoil=lambda _: sent or [],
        upset=lambda asked: asked[:calls],
    )


GOING_ON = SOUND.but(
    outcome="failed", error=MISSED, spoil=lambda _: [Accept(), StartReply(), Failed(), End()]
)


def test_a_refusal_that_graph_did_not_give_is_told_as_that() -> None:
    """Legacy's tape answers no further call: that graph makes them follows from its going on."""
    runs = exchange(ended("refused", "session_busy", calls=2), GOING_ON)
    found = findings(*runs)
    assert causes(found) == [("outcome", "outcome_changed")]
    [cluster] = report_of(tallied(runs), "captures", "ignore").clusters
    assert cluster.title == "legacy refused `session_busy`, graph went on"


def test_an_error_that_graph_swallows_is_told_as_that() -> None:
    """Legacy failed as its store did; graph asks the model all the same."""
    legacy = ended(
        "failed", "store_failed", calls=3, sent=[Accept(), StartReply(), Failed(), End()]
    )
    found = findings(*exchange(legacy, GOING_ON))
    assert [(f.path, f.after) for f in found if f.after is None] == [
        ("failed.store_failed→went on", None)
    ]


def test_a_call_before_the_other_run_ended_is_a_cause_of_its_own() -> None:
    """A graph that misses a call on the way has not come to where legacy ended."""

    def other_way(asked: list[ScriptedCall]) -> list[ScriptedCall]:
        return [ScriptedCall(ops.TOOLS_LIST, "tools", NoArguments()), *asked]

    graph = GOING_ON.but(upset=lambda asked: other_way(asked)[:1])
    found = findings(*exchange(ended("failed", "store_failed", calls=4), graph))
    assert ("effects", "call_extra") in causes(found)


@pytest.mark.parametrize(
    ("path", "title"),
    [
        ("→failed.crash", "graph failed `crash`, legacy did not"),
        ("→truncated", "graph broke off, legacy did not"),
        ("paused→went on", "legacy paused for an answer, graph went on"),
    ],
)
def test_the_title_of_an_outcome_says_which_stack_ended_how(path: str, title: str) -> None:
    """The outcome first."""
    assert title_of("outcome_changed", ("legacy", "graph"), path) == title


def test_a_crash_is_one_cause_however_legacy_ended() -> None:
    """One fault, over chats that legacy answered, refused and failed."""
    crash = Script(outcome="failed", error=ErrorRecord("crash", "KeyError"), spoil=lambda _: [])
    legacies = (
        Script(),
        Script(outcome="refused", error=ErrorRecord("busy"), spoil=lambda _: []),
        Script(outcome="failed", error=ErrorRecord("store_failed"), spoil=lambda _: []),
    )
    pairs = [exchange(legacy, crash, number=k) for k, legacy in enumerate(legacies)]
    [cluster] = tallied(*pairs).clusters.ordered()
    assert (cluster.path, cluster.exchanges) == ("→failed.crash", 3)


def test_a_field_more_is_a_changed_frame_not_a_frame_more() -> None:
    """A frame of text with something beside it is no longer bare, but stands for the same text."""
    control, candidate = exchange()
    frames = tuple(
        (at, text.replace('{"step":"SEND"', '{"step":"SEND","mood":1', 1))
        for at, text in candidate.frames
    )
    assert frames != candidate.frames
    found = findings(control, msgspec.structs.replace(candidate, frames=frames))
    changed = [f for f in found if isinstance(f, FrameChanged)]
    assert changed
    assert not {kind_of(f) for f in found} & {"frame_added", "frame_dropped"}
    assert {(f.legacy, f.graph, f.path.rpartition("].")[2]) for f in changed} == {
        (None, "1", "SEND.mood")
    }


def _setting(**settings: object) -> Script:
    def upset(asked: list[ScriptedCall]) -> list[ScriptedCall]:
        return [
            replace(call, arguments=msgspec.structs.replace(call.arguments, **settings))
            if isinstance(call.arguments, ModelCall)
            else call
            for call in asked
        ]

    return Script(upset=upset)


@pytest.mark.parametrize(
    ("settings", "shown"),
    [
        ({"max_tokens": 4}, ("not set", "4")),
        ({"json_object": True}, ("not set (default false)", "true")),
    ],
)
def test_a_default_is_named_where_one_side_sets_a_value(
    settings: dict[str, object], shown: tuple[str, str]
) -> None:
    """Nothing is no value of a parameter."""
    [finding] = findings(*exchange(Script(), _setting(**settings)))
    assert (finding.legacy, finding.graph) == shown


def test_a_default_of_a_call_is_named() -> None:
    """Arguments that are left out are those of the operation."""

    def reading(operation: Operation, arguments: msgspec.Struct) -> Script:
        call = ScriptedCall(operation, "past", arguments)
        return Script(upset=lambda asked: [*asked[:3], call, *asked[3:]])

    legacy = reading(ops.MEMORY_RECALL, Recall(user_id="u-1", query="q"))
    graph = reading(ops.MEMORY_RECALL, Recall(user_id="u-1", query="q", limit=4))
    [finding] = findings(*exchange(legacy, graph))
    assert finding.legacy is not None
    assert finding.legacy.startswith("not set (default")
    assert finding.graph == "4"


def test_a_text_that_was_taken_back_is_shown() -> None:
    """Where the grammar does not watch over it: what stood there, and what was left of it."""
    wire = replace(CHAT, grammar=replace(CHAT.grammar, growing={}))
    pieces = SOUND.pieces
    short = SOUND.but(spoil=put(7, Send(pieces[0][:4])))
    [finding] = [
        f for f in findings(*exchange(SOUND, short), wire=wire) if kind_of(f) == "text_shrank"
    ]
    assert finding.legacy == "kept what it had shown"
    assert finding.graph == f"{pieces[0]!r} became {pieces[0][:4]!r}"


def test_all_pieces_that_the_whole_text_takes_back_are_shown() -> None:
    """Of a wire that sends pieces, and the whole at its end."""
    control, candidate = exchange()
    runs = _in_pieces(control, *"abc"), _in_pieces(candidate, *"axc")
    taken_back = [it for it in findings(*runs, wire=PIPELINE) if it.layer == "text"]
    assert [(kind_of(it), it.graph) for it in taken_back] == [
        ("text_shrank", "'axc' became 'abc'"),
    ]


def _in_pieces(run: RunRecord, *pieces: str) -> RunRecord:
    """Return a run of the pipeline that sends these, and another whole."""
    whole = PipelineMessage(
        success=True,
        message="abc",
        token_info=TokenInfo(1, 9, "continue"),
        end_intent=False,
        memories=(),
        errors=(),
    )
    events = (*map(PipelineToken, pieces), whole)
    frames = tuple((at, PIPELINE.encode(event).decode()) for at, event in enumerate(events))
    return msgspec.structs.replace(run, flow="pipeline", frames=frames)
