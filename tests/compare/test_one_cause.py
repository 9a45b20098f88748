"""One fault is one cause: over many exchanges, fields, tools, roles and settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest

from compare.content import content_class, recurs
from compare.findings import FrameChanged, signature_of
from compare.layers.groups import grouped
from contract import operations as ops
from contract.flows.chat import Send, ToolFeedback
from contract.flows.companion import COMPANION, Hitl, encode
from contract.human import Form, FormField, OpenQuestion
from contract.model import LookUp, ModelCall, ToolCall
from contract.records import PlayRecord, RunRecord
from cutover.selftest.exchanges import Script, ScriptedCall, exchange, tool
from cutover.selftest.run_faults import SOUND, put
from tests.compare.pairs import causes, findings, tallied


def causes_over(*pairs: tuple[Script, Script]) -> list[tuple[str, str, int]]:
    """Compare exchanges; list path, kind and number of exchanges of each cause."""
    tally = tallied(*(exchange(a, b, number=k) for k, (a, b) in enumerate(pairs)))
    return [(c.path, c.kind, c.exchanges) for c in tally.clusters.ordered()]


def asking(**settings: object) -> Callable[[list[ScriptedCall]], list[ScriptedCall]]:
    """Change the model call of every round."""
    return lambda asked: [
        replace(call, arguments=msgspec.structs.replace(call.arguments, **settings))
        if isinstance(call.arguments, ModelCall)
        else call
        for call in asked
    ]


def test_arguments_of_any_tool_are_one_place() -> None:
    """A fault in how arguments are written shows in every tool."""
    weather, clock = tool(0), tool(0, '{"place":"上海"}', name="get_time")
    wrong = tool(0, '{"city":"天津"}'), tool(0, '{"place":"天津"}', name="get_time")
    found = causes_over(
        (Script(tools=(weather,)), Script(tools=(wrong[0],))),
        (Script(tools=(clock,)), Script(tools=(wrong[1],))),
    )
    assert found == [("tools.run@tool[]", "tool_arguments", 2)]


def test_tools_that_are_not_called_are_one_cause() -> None:
    """Whichever they are."""
    clock = tool(0, name="get_time")
    found = causes_over(
        (Script(tools=(tool(0), tool(1))), Script(tools=(tool(0),))),
        (Script(tools=(tool(0), replace_id(clock))), Script(tools=(tool(0),))),
    )
    assert [(kind, count) for _, kind, count in found] == [("tool_dropped", 2)]


def replace_id(call: ToolCall) -> ToolCall:
    """Return a call under the id of a second one."""
    return msgspec.structs.replace(call, id="call_0_1")


def test_prompts_are_one_cause_whatever_roles_differ_beside() -> None:
    """Sets of roles are a detail of the first message that differs."""
    found = causes_over((Script(), Script(system="冷")), (Script(), Script(system="冷", user="?")))
    assert found == [("model.stream@reply[].messages[].system", "prompt_changed", 2)]


def test_settings_that_are_ignored_are_one_cause() -> None:
    """Whichever of them a request sets."""
    found = causes_over(
        (Script(upset=asking(max_tokens=5)), Script(upset=asking(temperature=None))),
        (Script(), Script(upset=asking(temperature=None))),
    )
    assert found == [("model.stream@reply[].parameters", "parameter_changed", 2)]


def test_a_setting_and_its_consequences_are_one_cause() -> None:
    """Another model is looked up, and asked."""

    def other(asked: list[ScriptedCall]) -> list[ScriptedCall]:
        looked_up = [
            replace(call, arguments=LookUp("gpt-4o"))
            if call.operation is ops.MODEL_LOOKUP
            else call
            for call in asked
        ]
        return asking(model_id="gpt-4o", max_tokens=9)(looked_up)

    assert causes_over((Script(), Script(upset=other))) == [
        ("model.lookup@model[].model_id", "call_changed", 1)
    ]


def test_a_value_that_is_shown_and_stored_is_one_cause() -> None:
    """What the user saw differs; that it is stored so follows, whatever stands around it."""
    wrong = SOUND.pieces[0].replace("晴", "有大雪")
    graph = SOUND.but(pieces=(wrong, *SOUND.pieces[1:]))
    graph = graph.but(stored=f"{graph.text}\n")
    legacy = SOUND.but(stored=f"{SOUND.text}\n")
    assert causes(findings(*exchange(legacy, graph))) == [("text", "text_changed")]


def test_a_setting_of_a_frame_is_a_finding_by_the_event_and_field() -> None:
    """Several fields of one frame are one cause, at what they have in common."""
    graph = SOUND.but(spoil=put(4, Send("", tool_call_feedback=ToolFeedback("other", "error"))))
    [cause, follows] = findings(*exchange(SOUND, graph))
    assert cause.path == "frames[4].SEND.tool_call_feedback"
    assert len(cause.detail.split()) == len((cause, follows))
    assert follows.after == signature_of(cause)


FORM = Form(
    "Book a table?",
    (
        FormField("when", "When", "text", required=True),
        FormField("n", "People", "number", required=True),
    ),
)
LOUD = Form(
    "BOOK A TABLE?",
    (
        FormField("when", "WHEN", "text", required=True),
        FormField("n", "PEOPLE", "number", required=True),
    ),
)


def asked_by(form: Form) -> tuple[tuple[int, str], PlayRecord]:
    """Return a frame and a call that put a form to the user."""
    frame = 900_000, encode(Hitl("h-1", "s-1", "booking", form)).decode()
    question = msgspec.json.encode(OpenQuestion(form, "booking", "s-1"), order="sorted")
    play = PlayRecord(
        port="human", op="open", site="ask", how="nearest", entry=99, args=msgspec.Raw(question)
    )
    return frame, play


def paused(run: RunRecord, form: Form) -> RunRecord:
    """Let a run end with a question."""
    frame, play = asked_by(form)
    return msgspec.structs.replace(
        run, flow="companion", frames=(frame,), plays=(play,), outcome="paused", tape=()
    )


def test_a_changed_form_is_one_cause() -> None:
    """Its frame and the call that opened the question, title, labels and all."""
    control, candidate = exchange()
    found = findings(paused(control, FORM), paused(candidate, LOUD), wire=COMPANION)
    assert len(found) == 6
    [own] = [f for f in found if f.after is None]
    assert own.path == "frames[0].hitl.form"
    one_label = Form(FORM.title, (FORM.fields[0], LOUD.fields[1]))
    [other] = [
        f
        for f in findings(paused(control, FORM), paused(candidate, one_label), wire=COMPANION)
        if f.after is None
    ]
    assert signature_of(other) == signature_of(own)


def test_numbers_of_usage_are_one_cause() -> None:
    """However many of them differ."""
    made = [
        FrameChanged(path=f"frames[2].done.usage.{name}", exchange="x", at_legacy=2, at_graph=2)
        for name in ("completion_tokens", "total_tokens")
    ]
    for some in (made, made[:1]):
        cause, *others = grouped(some, "frames[2].done")
        assert cause.path == "frames[2].done.usage"
        assert all(other.after for other in others)


@pytest.mark.parametrize(
    ("legacy", "graph", "due"),
    [
        ("a b", "a  b", "white space"),
        ("a b", "a\u00a0b", "white space"),
        ("a b ", "a b", "white space"),
        ("❤", "❤\ufe0f", "white space"),
        ("now 10:00:00, Monday", "now 18:00:00, Tuesday", "date"),
        ("2026-11-21 UTC", "2026-11-22 CET", "date"),
        ("21 degrees", "-3.5 degrees", "number"),
        ("you fool", "you ****", "wording"),
        ("a long answer", "a answer", "wording"),
        ("an answer", "an honest answer", "wording"),
        (None, "x", "added"),
        ("x", None, "missing"),
        ("", "x", "added"),
        ("not set (default 5)", "4", "added"),
    ],
)
def test_classes_of_change(legacy: str | None, graph: str | None, due: str) -> None:
    """Coarse enough to recur, fine enough that one accepted says nothing of another."""
    assert content_class(legacy, graph) == due


def test_a_short_change_is_known_again_only_as_a_whole() -> None:
    """A digit or a comma turns up anywhere."""
    assert recurs(("4", "5"), "4", "5")
    assert not recurs(("4", "5"), "14", "15")
    assert recurs(("晴天了", "阴天了"), "问：晴天了？答：晴天了。", "问：阴天了？答：阴天了。")
    assert recurs(("sunny", "snow"), "it is sunny.", "it is snow.")
