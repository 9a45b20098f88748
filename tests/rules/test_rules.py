"""Texts, lexicons, thresholds and tables that both stacks read."""

import tomllib
from datetime import UTC, datetime
from pathlib import Path
from string import Formatter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import HumanMessage

from rules import extraction, forms, intents, models, prompts, risk
from rules.flows import pipeline
from rules.forms import Form, FormField, FormValue, HumanAnswer
from rules.risk import Instruction

ROWS = tomllib.loads(Path(__file__).with_name("rows.toml").read_text("utf-8"))


def test_texts_are_filled_in_and_overridden() -> None:
    """Options replace a text; values are filled in and never read as templates."""
    assert prompts.text("chat", {}, "length") == "(后续内容被截断)"
    assert prompts.text("chat", {"length": "…"}, "length") == "…"
    filled = prompts.text(*("ops", {}, "failed"), worker="{code}", action="a", code="x")
    assert filled == "{code}.a 没有完成：x"
    assert prompts.memories_paragraph("session", {}, []) == ""
    named = prompts.memories_paragraph("session", {}, ["用户名字是张三"])
    assert named == "\n\n相关记忆：\n- 用户名字是张三"
    assert prompts.tool_error("tool_timeout") == "Error: tool_timeout"


@pytest.mark.parametrize("folder", ["legacy", "graph_impl"])
def test_every_prompt_has_a_default_that_fills_in_all_its_parameters(folder: str) -> None:
    """A parameter stands once in a text, and what is put there is never read as a template."""
    for file in (Path(__file__).parents[2] / folder / "prompts").iterdir():
        text = (prompts.DEFAULTS / f"{file.stem}.txt").read_text("utf-8")
        used = {field for _, field, _, _ in Formatter().parse(text) if field}
        filled = prompts.default_prompt(file.stem, dict.fromkeys(used, "{x}"))
        assert filled.count("{x}") == len(used)


def test_prompt_parameters_are_as_documented() -> None:
    """Dates and times are local; lists become bullets for templates without loops."""
    now = datetime(2026, 11, 28, 17, 5, 9, tzinfo=UTC)
    local = {"current_date": "2026-11-29", "current_time": "01:05:09"}
    assert prompts.moment_parameters(now, "Asia/Shanghai") == local
    assert prompts.as_texts({"a": ["x\ny", "z"], "b": None, "c": 1}) == {
        "a": "- x y\n- z",
        "b": "",
        "c": "1",
    }
    assert prompts.working_memory(0, [], {}) == "这是本次对话的开始。"
    assert prompts.working_memory(9, ["a", "b"], {}) == "此前共有 9 条消息。更早时用户说过：a；b。"
    assert prompts.speakers({}, "Bo", ("Li", "女儿")) == "\n\n你是Li，用户的女儿。\n\n用户名叫Bo。"


@pytest.mark.parametrize(("message", "primary", "intensity"), ROWS["emotions"])
def test_emotion_is_read_from_words(message: str, primary: str, intensity: float) -> None:
    """Words, what strengthens and what denies them decide."""
    found = intents.emotion_of(message)
    assert (found.primary, found.intensity) == (primary, intensity)


@given(st.text(max_size=400))
def test_any_message_is_read(message: str) -> None:
    """Rules take any text; emotions stay within their bounds."""
    found = intents.emotion_of(message)
    assert 0 <= found.intensity <= 1
    assert 0 <= found.confidence <= 1
    assert intents.intent_snippet(message)
    intents.wishes_to_end(message)
    intents.preprocess(message, ["a"])


@pytest.mark.parametrize(("message", "intent"), ROWS["intents"])
def test_intent_is_the_first_that_fits(message: str, intent: str) -> None:
    """An intent is known by whole words."""
    assert intents.intent_of(message) == intent


@pytest.mark.parametrize(("message", "ends"), ROWS["goodbyes"])
def test_wish_to_end_is_a_goodbye_alone(message: str, ends: bool) -> None:
    """A goodbye ends a conversation where it is the whole last clause."""
    assert intents.wishes_to_end(message) is ends


@pytest.mark.parametrize(("answer", "needed"), ROWS["checks"])
def test_memory_check_is_read_as_documented(answer: str, needed: bool) -> None:
    """Memories are retrieved for 需要检索 without 不需要."""
    assert intents.needs_memory(answer) is needed


@pytest.mark.parametrize(("message", "text", "instruction"), ROWS["requests"])
def test_preprocess_is_certain_of_whole_requests(
    message: str, text: str, instruction: dict[str, Any]
) -> None:
    """References name items of the last result; anything unclear is left to the model."""
    found = intents.preprocess(message, ["web", "db"])
    assert found.instruction == (Instruction(**instruction) if instruction else None)
    assert found.text == (text or message)


def test_items_are_named_in_order() -> None:
    """The first list of a result names its items."""
    rows = [{"name": "web"}, {"path": "/a"}, {"pid": 7}, {}]
    assert intents.items_of({"count": 4, "rows": rows}) == ("web", "/a", "7", "")
    assert intents.items_of(["a line"]) == ()
    assert intents.items_of(None) == ()


@pytest.mark.parametrize(("worker", "action", "args", "level"), ROWS["risks"])
def test_risk_is_decided_by_worker_action_and_arguments(
    worker: str, action: str, args: dict[str, Any], level: str
) -> None:
    """The table decides; what it does not know is critical."""
    assert risk.risk_of(Instruction(worker, action, args)) == level


@pytest.mark.parametrize(
    ("instruction", "fault"),
    [
        (Instruction("system", "disk"), None),
        (Instruction("sytem", "disk"), "unknown_worker"),
        (Instruction("system", "format"), "unknown_action"),
        (Instruction("system", "disk", {"path": "/"}), "bad_arguments"),
        (Instruction("container", "logs", {"name": ["a"]}), "bad_arguments"),
    ],
)
def test_instructions_outside_the_table_are_faults(
    instruction: Instruction, fault: str | None
) -> None:
    """Workers, actions and arguments must be known."""
    assert risk.instruction_fault(instruction) == fault


def test_step_is_followed_by_its_row() -> None:
    """A certain step that went well ends the turn; the last one ends it in an error."""
    assert risk.after_step(1, 10, certain=True, ok=True) == "end"
    assert risk.after_step(1, 10, certain=True, ok=False) == "reason"
    assert risk.after_step(10, 10, certain=False, ok=True) == "error"
    assert len(risk.worker_lines()) == len(risk.ACTIONS)


@pytest.mark.parametrize(
    ("used", "action"),
    [(0, "continue"), (69, "continue"), (70, "warn"), (85, "compress"), (95, "end"), (200, "end")],
)
def test_token_action_begins_at_its_share(used: int, action: str) -> None:
    """Shares of 70, 85 and 95 per cent count from where they are reached."""
    assert pipeline.token_action(used, 100) == action


@given(st.lists(st.integers(0, 60), min_size=1, max_size=8))
def test_as_few_turns_as_needed_are_dropped(counts: list[int]) -> None:
    """Dropping stops as soon as the rest fits; the message itself stays."""
    dropped = pipeline.turns_to_drop(counts, 100)
    assert dropped < len(counts)
    assert sum(counts[dropped:]) < 85 or dropped == len(counts) - 1
    assert not dropped or sum(counts[dropped - 1 :]) >= 85


def test_window_keeps_the_newest_turns_that_fit() -> None:
    """The budget and the number of turns both bound a history, from its end."""
    oldest, older, newest = (HumanMessage(text) for text in ("甲" * 5, "乙" * 3, "丙"))
    turns = [oldest, older, newest]
    assert models.window(turns, 8) == (older, newest)
    assert models.window(turns, 99, 1) == (newest,)
    assert models.window(turns, 99, 0) == ()
    assert [models.estimate(text) for text in ("", "abcde", "你好a")] == [0, 2, 3]


FENCED = 'Sure:\n```json\n{"memories":[{"text":"a","confidence":0.3},{"text":"b"}]}\n```'


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (FENCED, ["a", "b"]),
        ('["a","a"," "]', ["a"]),
        ('They are {"facts":["a"]}.', ["a"]),
        ('[{"text":"a","confidence":0.29},{"text":"b","confidence":"high"},{"text":5}]', []),
        ('[{"text":"' + "x" * 501 + '"}]', []),
        ("[" * 5_000, []),
        ('{"memories":null}', []),
        ("no facts", []),
    ],
)
def test_facts_are_read_from_any_answer(answer: str, found: list[str]) -> None:
    """JSON is found in fences and prose; items that are no sure facts are left out."""
    assert [fact.text for fact in extraction.read_facts(answer, 0.3)] == found


def test_changes_are_bounded() -> None:
    """One change a memory, unknown ids never delete."""
    answer = (
        '{"operations":[{"op":"update","id":"[m1]","text":"a"},{"op":"delete","id":"m1"},'
        '{"op":"delete","id":"m9"},{"op":"update","id":"m9","text":"b"},{"op":"drop","id":"m2"},'
        '{"op":"add"},"c",{"op":"delete","id":"m2"}]}'
    )
    changes = extraction.read_changes(answer, 3)
    assert [(one.op, one.text) for one in changes] == [
        *(("update", "a"), ("add", "b"), ("add", "c"), ("delete", None))
    ]
    assert [extraction.known_index(one) for one in (changes[0], changes[3])] == [0, 1]
    assert extraction.known_lines(["x"]) == ["[m1] x"]
    assert [extraction.is_known(one) for one in (None, 0.89, 0.9)] == [False, False, True]


def test_approved_facts_are_those_the_user_left() -> None:
    """Edited facts are certain, emptied ones go, a rejection keeps none."""
    facts = [extraction.Fact(text, 0.5) for text in "abc"]
    form = extraction.memory_form(facts, {})
    assert form.fields[0].label == "记忆 1（置信度 0.50）"
    edited = HumanAnswer("edit", {"memory_1": "", "memory_2": "d"})
    kept = extraction.approved_facts(facts, form, edited)
    assert [(fact.text, fact.confidence) for fact in kept] == [("d", 1.0), ("c", 0.5)]
    assert extraction.approved_facts(facts, form, HumanAnswer("reject")) == ()
    assert len(extraction.approved_facts(facts, form, HumanAnswer("approve"))) == 3


FIELDS = (
    FormField("text", "T", required=True),
    FormField("number", "N", "number", value=1),
    FormField("yes", "Y", "boolean"),
    FormField("one", "O", "choice", options=["a", "b"]),
    FormField("some", "S", "list", options=["a", "b"]),
)


@pytest.mark.parametrize(("data", "problems"), ROWS["answers"])
def test_answers_are_checked_against_their_form(
    data: dict[str, FormValue], problems: dict[str, str]
) -> None:
    """Every field has a type, perhaps options; rejections need no values."""
    form = Form("T", FIELDS)
    assert forms.answer_problems(form, HumanAnswer("edit", data)) == problems
    assert forms.answer_problems(form, HumanAnswer("reject", data)) == {}


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "{}",
        '{"title":"T","fields":[]}',
        '{"title":"T","fields":[{"name":"a","label":"A","type":"choice"}]}',
        '{"title":"T","fields":[{"name":"a","label":"A"},{"name":"a","label":"B"}]}',
        '{"title":"T","fields":[{"name":"a","label":"A","type":"number","value":"x"}]}',
        '{"title":"T","fields":[{"name":"a b","label":"A"}]}',
        "[" * 5_000,
    ],
)
def test_forms_that_cannot_be_answered_are_no_questions(arguments: str) -> None:
    """A model's form must be one that a person can fill in."""
    assert forms.form_of(arguments) is None


def test_calls_of_a_round_are_divided() -> None:
    """The first valid form is the question; other questions are errors; tools run."""
    form = '{"title":"T","fields":[{"name":"day","label":"Day"}]}'
    calls = [("calculate", "{}"), ("ask_human", "{"), ("ask_human", form), ("ask_human", form)]
    divided = forms.divide_calls(calls)
    assert (divided.runs, divided.question) == ((0,), 2)
    assert divided.errors == {1: "bad_arguments", 3: "tool_failed"}
    assert divided.form is not None
    answer = HumanAnswer("edit", {"day": "Mon"})
    assert forms.answer_text(divided.form, answer) == '{"action":"edit","data":{"day":"Mon"}}'
    assert forms.answer_text(divided.form, HumanAnswer("reject")) == '{"action":"reject"}'


@pytest.mark.parametrize(
    ("finish", "calls", "runs", "notice"),
    [
        ("stop", 0, False, ""),
        ("tool_calls", 2, True, ""),
        ("tool_calls", 0, False, ""),
        ("stop", 1, False, ""),
        ("length", 1, False, "(后续内容被截断)"),
        ("content_filter", 0, False, "赤尾有点不想讨论这个话题呢~"),
        ("", 1, False, ""),
    ],
)
def test_finish_reason_decides_what_follows(
    finish: str, calls: int, *, runs: bool, notice: str
) -> None:
    """Tools run for `tool_calls` alone."""
    assert models.runs_tools(finish, calls) is runs
    assert prompts.finish_notice(finish, {}) == notice
