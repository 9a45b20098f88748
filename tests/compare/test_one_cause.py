"""One fault is one cause: over many exchanges, fields, tools, roles and settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import cast

import msgspec
import pytest

from compare.content import content_class, recurs
from compare.findings import FrameChanged, kind_of, signature_of
from compare.layers.groups import grouped
from contract import operations as ops
from contract.flows.chat import CHAT, End, Send, ToolFeedback
from contract.flows.companion import COMPANION, Hitl
from contract.human import Form, FormField, OpenQuestion
from contract.model import LookUp, ModelCall, ToolCall
from contract.records import ErrorRecord, PlayRecord, RunRecord
from contract.stores import Memories, MemoryEntry, PutTurn, Recall, Turn
from contract.wire import Wire
from cutover.selftest.exchanges import Script, ScriptedCall, exchange, tool
from cutover.selftest.run_faults import SOUND, add, put
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


def test_a_role_is_one_cause_whatever_roles_differ_beside() -> None:
    """Each role that differs has its own, in as many exchanges as it differs in."""
    found = causes_over((Script(), Script(system="冷")), (Script(), Script(system="冷", user="?")))
    assert found == [
        ("model.stream@reply[].messages[].system", "prompt_changed", 2),
        ("model.stream@reply[].messages[].user", "prompt_changed", 1),
    ]


@pytest.mark.parametrize("missing", [slice(0, 1), slice(1, 2), slice(0, 2), slice(2, 4)])
def test_messages_that_graph_does_not_send_are_one_cause(missing: slice) -> None:
    """Whatever their roles are: system, user, both, or the turns of a tool."""

    def shorter(asked: list[ScriptedCall]) -> list[ScriptedCall]:
        last = max(k for k, call in enumerate(asked) if isinstance(call.arguments, ModelCall))
        call = cast("ModelCall", asked[last].arguments)
        lost = call.messages[missing]
        messages = tuple(message for message in call.messages if message not in lost)
        less = msgspec.structs.replace(call, messages=messages)
        return [*asked[:last], replace(asked[last], arguments=less), *asked[last + 1 :]]

    whole = Script(tools=(tool(0),))
    [(path, kind, _)] = causes_over((whole, whole.but(upset=shorter)))
    assert (path, kind) == ("model.stream@reply[].messages[]", "prompt_changed")


def test_settings_that_change_are_a_cause_each() -> None:
    """A request that sets both shows two faults."""
    found = causes_over(
        (Script(upset=asking(max_tokens=5)), Script(upset=asking(max_tokens=6, temperature=0.1)))
    )
    assert [path for path, _, _ in found] == [
        "model.stream@reply[].max_tokens",
        "model.stream@reply[].temperature",
    ]


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
    frame = 900_000, COMPANION.encode(Hitl("h-1", "s-1", "booking", form)).decode()
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


# What follows from what, one test a rule; and that two faults in one pair stay two causes.


def kinds(*runs: RunRecord, wire: Wire = CHAT) -> list[str]:
    """List the kinds of causes."""
    return sorted(kind_of(one) for one in findings(*runs, wire=wire) if one.after is None)


def at(label: str, asked: list[ScriptedCall], site: str = "") -> int:
    """Return where a call stands."""
    return next(
        k for k, it in enumerate(asked) if it.operation.label == label and site in {"", it.site}
    )


def moved(asked: list[ScriptedCall], label: str, before: str) -> list[ScriptedCall]:
    """Make a call before another one."""
    call = asked[at(label, asked)]
    others = [it for it in asked if it is not call]
    to = at(before, others)
    return [*others[:to], call, *others[to:]]


def ended(error: str, upset: Callable[[list[ScriptedCall]], list[ScriptedCall]]) -> Script:
    """Return a script that fails without a word."""
    return Script(outcome="failed", error=ErrorRecord(error), spoil=lambda _: [], upset=upset)


RELEASE, STREAM = ops.LOCK_RELEASE.label, ops.MODEL_STREAM.label


def released_early(asked: list[ScriptedCall]) -> list[ScriptedCall]:
    """Release the lock before the model is asked."""
    return moved(asked, RELEASE, STREAM)


def test_a_lock_released_early_is_one_cause_also_where_legacy_held_it_to_its_end() -> None:
    """What a run does not release is released behind it; no tape answers graph's own release."""
    held = ended("model_unavailable", lambda asked: asked[: at(STREAM, asked) + 1])
    missed = ended(
        "tape_miss", lambda asked: moved(asked, RELEASE, STREAM)[: at(STREAM, asked) + 1]
    )
    assert causes_over((Script(), Script(upset=released_early)), (held, missed)) == [
        ("order.release", "write_order", 2)
    ]


def test_a_release_at_the_end_of_a_failed_run_is_an_extra_call() -> None:
    """Nothing came behind it that a lock protects."""
    legacy = ended("store_failed", lambda asked: asked[: at(STREAM, asked) + 1])
    graph = ended(
        "store_failed", lambda asked: [*asked[: at(STREAM, asked) + 1], asked[at(RELEASE, asked)]]
    )
    assert kinds(*exchange(legacy, graph)) == ["call_extra"]


def test_two_moves_are_two_causes() -> None:
    """A write that is made behind another one does not explain a release behind the end."""

    def swapped(asked: list[ScriptedCall]) -> list[ScriptedCall]:
        first, last = (at(ops.TURN_PUT.label, asked, site) for site in ("message", "reply"))
        asked[first], asked[last] = asked[last], asked[first]
        return asked

    def behind(run: RunRecord, late: int, *sites: str) -> RunRecord:
        plays = tuple(
            msgspec.structs.replace(it, frames=late if f"{it.op}@{it.site}" in sites else 2)
            for it in run.plays
        )
        return msgspec.structs.replace(run, plays=plays)

    control, candidate = exchange(Script(), Script(upset=swapped))
    late = len(candidate.frames)
    alone = behind(control, 2), behind(candidate, late, "release@message")
    assert kinds(*alone) == ["frame_order", "write_order"]
    together = behind(candidate, late, "put@message", "put@reply", "release@message")
    assert kinds(behind(control, 2), together) == ["frame_order"]


def test_what_stands_behind_the_end_is_one_place() -> None:
    """The terminal frame was not the last one, whatever follows."""
    found = causes_over(
        (SOUND, SOUND.but(spoil=add(99, Send("x")))), (SOUND, SOUND.but(spoil=add(99, End())))
    )
    assert found == [("graph.frames[].*: behind the end", "grammar_broken", 2)]


def twice(*labels: str) -> Callable[[list[ScriptedCall]], list[ScriptedCall]]:
    """Make every call of some operations twice."""
    return lambda asked: [
        it for call in asked for it in [call] * (1 + (call.operation.label in labels))
    ]


def test_an_operation_that_does_all_twice_is_one_cause() -> None:
    """At the first of its sites; the others follow from it."""
    graph = Script(upset=twice(ops.TURN_PUT.label))
    [cause] = [f for f in findings(*exchange(Script(), graph)) if f.after is None]
    assert cause.path == "conversations.put@message[1]"


def test_two_operations_that_do_all_twice_are_two_causes() -> None:
    """They share nothing."""
    graph = Script(upset=twice(ops.TURN_PUT.label, ops.CLOCK_NOW.label))
    assert kinds(*exchange(Script(), graph)) == ["call_extra", "call_extra"]


def test_an_operation_that_asks_other_things_is_two_causes() -> None:
    """Only what repeats a call is one fault: two new calls are two."""

    def more(asked: list[ScriptedCall]) -> list[ScriptedCall]:
        turns = (Turn(message_id=name, role="user", content=name) for name in "ab")
        return [*asked, *(ScriptedCall(ops.TURN_PUT, t.content, PutTurn(t)) for t in turns)]

    assert kinds(*exchange(Script(), Script(upset=more))) == ["call_extra", "call_extra"]


def extracting(reply: float, extract: float) -> Script:
    """Ask for the reply and for facts, each with a temperature."""

    def upset(asked: list[ScriptedCall]) -> list[ScriptedCall]:
        asked = asking(temperature=reply)(asked)
        call = ModelCall(model_id="gpt-4.1", messages=(), temperature=extract)
        return [*asked, ScriptedCall(ops.MODEL_STREAM, "extract", call)]

    return Script(upset=upset)


def test_a_setting_that_gets_one_value_at_every_site_is_one_cause() -> None:
    """Whatever legacy sets there."""
    assert kinds(*exchange(extracting(0.7, 0.2), extracting(1.3, 1.3))) == ["parameter_changed"]
    assert len(kinds(*exchange(extracting(0.7, 0.2), extracting(1.3, 0.9)))) == 2


FACT = "喜欢喝茶"


def recalling(
    system: str, *, reads: bool = True, user: str = "?", fact: str = FACT, later: bool = False
) -> Script:
    """Read a memory before the model is asked, or after it."""
    entry = MemoryEntry(memory_id="f-1", user_id="u-1", text=fact)
    read = ScriptedCall(
        ops.MEMORY_RECALL, "recall", Recall(user_id="u-1", query="q"), (Memories((entry,)),)
    )

    def upset(asked: list[ScriptedCall]) -> list[ScriptedCall]:
        where = at(STREAM, asked) + later
        return [*asked[:where], read, *asked[where:]] if reads else asked

    return Script(system=system, user=user, upset=upset)


KNOWN = recalling(f"你是助手。\n你知道：\n{FACT}\n答得短。")


def test_what_a_call_did_not_answer_is_in_no_prompt() -> None:
    """One cause: the memory that is not read."""
    assert kinds(*exchange(KNOWN, recalling("你是助手。\n你知道：\n答得短。", reads=False))) == [
        "call_skipped"
    ]


@pytest.mark.parametrize(
    "graph",
    [
        recalling("你是猫。\n你知道：\n答得短。", reads=False),
        recalling("你是助手。\n你知道：\n答得短。", reads=False, user="!"),
        recalling(f"你是猫。\n你知道：\n{FACT}\n答得短。", reads=False),
    ],
    ids=["another line", "another message", "the answer is there"],
)
def test_a_prompt_that_differs_in_more_than_an_answer_is_a_second_cause(graph: Script) -> None:
    """The memory explains its own line alone."""
    assert kinds(*exchange(KNOWN, graph)) == ["call_skipped", "prompt_changed"]


def test_a_call_explains_nothing_that_comes_before_it() -> None:
    """What stood in the prompt was not read there."""
    legacy = recalling(f"你是助手。\n你知道：\n{FACT}\n答得短。", later=True)
    graph = recalling("你是助手。\n你知道：\n答得短。", reads=False)
    assert kinds(*exchange(legacy, graph)) == ["call_skipped", "prompt_changed"]


def refused(upset: Callable[[list[ScriptedCall]], list[ScriptedCall]]) -> Script:
    """Return a legacy that does not get its lock."""
    error = ErrorRecord("message_locked", status=409)
    return Script(outcome="refused", error=error, spoil=lambda _: [], upset=upset)


def test_a_lock_that_is_not_taken_is_one_cause() -> None:
    """Where legacy gets it, and where legacy is refused and graph goes on."""
    lock = ops.LOCK_ACQUIRE.label

    def unlocked(asked: list[ScriptedCall]) -> list[ScriptedCall]:
        return [it for it in asked if it.operation.label != lock]

    legacy = refused(lambda asked: asked[: at(lock, asked) + 1])
    graph = ended("tape_miss", lambda asked: unlocked(asked)[: at(lock, asked) + 1])
    assert causes_over((Script(), Script(upset=unlocked)), (legacy, graph)) == [
        ("locks.acquire@message[]", "call_skipped", 2)
    ]


def test_a_lock_under_another_site_is_one_cause() -> None:
    """That no tape answers it there is why graph ended."""
    lock = ops.LOCK_ACQUIRE.label

    def renamed(asked: list[ScriptedCall]) -> list[ScriptedCall]:
        where = at(lock, asked)
        return [*asked[:where], replace(asked[where], site="message_2")]

    legacy = refused(lambda asked: asked[: at(lock, asked) + 1])
    assert causes_over((legacy, ended("tape_miss", renamed))) == [
        ("locks.acquire@message→message_2", "site_changed", 1)
    ]


def test_a_text_that_lacks_its_end_follows_from_the_end_of_its_run() -> None:
    """Also where neither run completed."""
    legacy = SOUND.but(outcome="failed", error=ErrorRecord("model_unavailable"))
    cut = ErrorRecord("truncated")
    graph = SOUND.but(outcome="truncated", error=cut, spoil=lambda sent: sent[:3])
    assert kinds(*exchange(legacy, graph)) == ["outcome_changed"]


def test_a_text_that_was_taken_back_was_cut_elsewhere_too() -> None:
    """One cause, where the grammar does not watch over it."""
    wire = replace(CHAT, grammar=replace(CHAT.grammar, growing={}))
    graph = SOUND.but(spoil=put(7, Send(SOUND.pieces[0][:4])))
    assert kinds(*exchange(SOUND, graph), wire=wire) == ["text_shrank"]


def sending(*frames: tuple[str, str]) -> RunRecord:
    """Return a run of the companion that sends these frames."""
    control, _ = exchange()
    sent = tuple((k, f"event: {n}\ndata: {data}\n\n") for k, (n, data) in enumerate(frames))
    return msgspec.structs.replace(control, flow="companion", frames=sent, plays=(), tape=())


EMOTION = "emotion", '{"primary":"joy","intensity":0.9,"confidence":0.67}'
PIECES = ("text", '{"content":"Hello"}'), ("text", '{"content":", you"}')
RESULT = "tool_result", '{"tool":"weather","ok":true,"content":"21"}'
DONE = "done", '{"status":"completed"}'
STREAM_OF = EMOTION, PIECES[0], RESULT, PIECES[1], DONE


def shown(*frames: tuple[str, str], legacy: tuple[tuple[str, str], ...] = STREAM_OF) -> list[str]:
    """List the causes of a graph that sends these frames instead."""
    graph = msgspec.structs.replace(sending(*frames), role="shadow", stack="graph", tape=None)
    return kinds(sending(*legacy), graph, wire=COMPANION)


def test_frames_under_an_unknown_name_are_one_cause() -> None:
    """The text that came in them lacks; each of them breaks the grammar, which breaks once."""
    renamed = [("x_text", data) if name == "text" else (name, data) for name, data in STREAM_OF]
    assert shown(*renamed) == ["grammar_broken"]


def test_frames_under_two_unknown_names_are_two_causes() -> None:
    """Neither explains the other."""
    legacy = EMOTION, RESULT, PIECES[0], (RESULT[0], RESULT[1].replace("21", "22")), DONE
    graph = ("mood", EMOTION[1]), RESULT, PIECES[0], ("answer", legacy[3][1]), DONE
    assert shown(*graph, legacy=legacy) == ["frame_replaced", "grammar_broken"]
    graph = ("x_emotion", EMOTION[1]), RESULT, PIECES[0], ("x_tool_result", legacy[3][1]), DONE
    assert shown(*graph, legacy=legacy) == ["grammar_broken"]


def test_frames_that_cannot_be_read_are_one_cause() -> None:
    """Texts lack what stood in them, at their places and nowhere else."""
    spoilt = [
        (name, data.replace("content", "contents") if name == "text" else data)
        for name, data in STREAM_OF
    ]
    assert shown(*spoilt) == ["grammar_broken"]
    other = PIECES[1][0], PIECES[1][1].replace("you", "all")
    assert shown(spoilt[0], spoilt[1], RESULT, other, DONE) == ["grammar_broken", "text_changed"]


@pytest.mark.parametrize(
    ("shown", "legacy", "graph", "due"),
    [
        (("我查一下。今天晴", "我查一下？今天晴"), "答：我查一下。", "答：我查一下？", True),
        (("day 4 of 9", "day 5 of 9"), "on day 4 of", "on day 5 of", True),
        (("day 4 of 9", "day 5 of 9"), "all 14", "all 15", False),
        (("好的。今天晴", "今天晴"), '{"content":"好的。"}', '{"content":null}', True),
        (("今天晴", "好的。今天晴"), '{"content":"好的。"}', '{"content":null}', False),
        (("好，晴", "好，好，晴"), "说：好，", "说：好，好，", False),
    ],
)
def test_a_quoted_part_is_known_again_with_what_stands_around_it(
    shown: tuple[str, str], legacy: str, graph: str, *, due: bool
) -> None:
    """A prompt quotes a part of what was shown."""
    assert recurs(shown, legacy, graph) is due
