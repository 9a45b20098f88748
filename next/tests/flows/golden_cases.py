"""The cases of the golden tapes: requests, the model's answers, and what a client must be told.

What is expected is written from the flows' description, one line an event: `text …` is joined text,
any other line the event's name and what counts of its data. Tapes are recorded after that, by
`python -m tests.flows.golden`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from loadtests.simulator import Answer, Call, Cut, ErrorEvent
from tests.flows.samples import SAMPLES

Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """One exchange; `before` are bodies that are served first, with the answers they get."""

    name: str
    flow: str
    body: Body
    expected: tuple[str, ...]
    answers: tuple[Answer, ...] = ()
    path: str = ""
    options: Body = field(default_factory=dict)
    before: tuple[tuple[Body, tuple[Answer, ...]], ...] = ()
    decide: Body | None = None
    """How the exchange's question is answered; what is expected is then the whole stream."""


def answer(text: str, **more: Any) -> Answer:
    """Return an answer of the model; a long one comes in large pieces."""
    size, long = 500, len(text) > 1_000
    pieces = tuple(text[at : at + size] for at in range(0, len(text), size)) if long else None
    return Answer(text=text, pieces=pieces, **more)


ODD = {
    "emoji": "👩‍👩‍👧‍👦 and 🏳️‍🌈, é as e\u0301",
    "line separators": "one\u2028two\u2029three\x85four",
    "right to left": "שלום \u202eabc\u202c مرحبا",
    "carriage returns": "one\r\ntwo\rthree\n\nfour",
    "braces": "{x} {{ y }} %s {0} ${z}",
    "quotes": "\"a\" \\ 'b' \t tab </script> data: event: x",
    "long": "long words and 长句子。" * 600,
    "chinese": "你好，世界！今天天气怎么样？",
    "white space": "  leading and trailing  ",
    "markup": "<b>bold</b> & [DONE] **md** `code`",
}
"""Texts that have broken streams before."""


# --- chat

FILTERED, CUT_OFF = "赤尾有点不想讨论这个话题呢~", "(后续内容被截断)"


def tool(name: str, status: str) -> str:
    """Return the line of a tool's status."""
    return f"SEND {name} {status}"


def said(text: str, *between: str) -> tuple[str, ...]:
    """Return the lines of a chat that says a text."""
    return ("ACCEPT", "START_REPLY", *between, f"SUCCESS {json.dumps(text)}", "END")


BROKEN = ("ACCEPT", "START_REPLY", "FAILED", "END")


def chat(name: str, expected: Sequence[str], *answers: Answer, **more: Any) -> Case:
    """Return a case of the chat flow."""
    body = {"message_id": "m1", "content": "Hello", "chat_id": "c"} | more.pop("body", {})
    return Case(f"chat, {name}", "chat", body, tuple(expected), answers, **more)


def call(name: str, arguments: str, number: int = 1) -> Call:
    """Return a tool call of the model."""
    return Call(name, arguments, f"call_{number}")


SUM = call("calculate", '{"expression": "12 * 7"}')


def _both(one: str, other: str) -> tuple[str, ...]:
    return (
        *(tool("calculate", "running"), tool("calculate", "running")),
        *(tool("calculate", one), tool("calculate", other)),
    )


CHAT = [
    *(chat(f"odd text: {name}", said(text), answer(text)) for name, text in ODD.items()),
    *(
        chat(
            f"odd question: {name}",
            said("Yes."),
            answer("Yes."),
            body={"content": f"Is it {text}?"},
        )
        for name, text in ODD.items()
    ),
    chat(
        "a tool",
        said("84.", tool("calculate", "running"), tool("calculate", "done")),
        answer("", tool_calls=(SUM,)),
        answer("84."),
    ),
    chat(
        "text before and after a tool",
        said("Let me see. 84.", tool("calculate", "running"), tool("calculate", "done")),
        answer("Let me see. ", tool_calls=(SUM,)),
        answer("84."),
    ),
    chat(
        "several tools at once",
        said("84 and 7.", *_both("done", "done")),
        answer("", tool_calls=(SUM, call("calculate", '{"expression":"3+4"}', 2))),
        answer("84 and 7."),
    ),
    chat(
        "an unknown tool beside a known one",
        said(
            "Hm.",
            *(tool("calculate", "running"), tool("fly", "running")),
            *(tool("calculate", "done"), tool("fly", "error")),
        ),
        answer("", tool_calls=(SUM, call("fly", "{}", 2))),
        answer("Hm."),
    ),
    *(
        chat(
            f"bad arguments: {arguments[:12]}",
            said("Hm.", tool("calculate", "running"), tool("calculate", "error")),
            answer("", tool_calls=(call("calculate", arguments),)),
            answer("Hm."),
        )
        for arguments in ('{"expression": "1', "[1]", '{"expression": 1}', '{"x": "1"}', "nonsense")
    ),
    chat(
        "a tool that cannot do it",
        said("Hm.", tool("calculate", "running"), tool("calculate", "error")),
        answer("", tool_calls=(call("calculate", '{"expression": "1 / 0"}'),)),
        answer("Hm."),
    ),
    chat(
        "the last round runs no tool",
        said("So.", tool("calculate", "running"), tool("calculate", "done")),
        answer("", tool_calls=(SUM,)),
        answer("So.", tool_calls=(SUM,)),
        body={"model_config": {"max_tool_iterations": 1}},
    ),
    chat(
        "without tools", said("Hi."), answer("Hi."), body={"model_config": {"enable_tools": False}}
    ),
    chat("length", said(f"Once{CUT_OFF}"), answer("Once", finish="length")),
    chat("content filter", said(f"Once{FILTERED}"), answer("Once", finish="content_filter")),
    chat("content filter before any text", said(FILTERED), answer("", finish="content_filter")),
    *(
        chat(
            f"reasoning as {name}",
            said("Yes."),
            answer("Yes.", reasoning="Let me think.", reasoning_field=name),
            options={"wire": "extended"},
        )
        for name in ("reasoning_content", "reasoning")
    ),
    chat("no [DONE]", said("Yes."), answer("Yes.", done=False)),
    chat("late usage", said("Yes."), answer("Yes.", usage="late")),
    chat("no usage", said("Yes."), answer("Yes.", usage="none")),
    chat("overloaded once", said("Yes."), Answer(status=500), answer("Yes.")),
    chat("refused by the provider", BROKEN, Answer(status=400)),
    chat("the key is wrong", BROKEN, Answer(status=401)),
    chat("an error before the first chunk", BROKEN, answer("Yes.", fault=ErrorEvent(0))),
    chat("an error after the second chunk", BROKEN, answer("a b c d", fault=ErrorEvent(2))),
    chat("cut in the middle", BROKEN, answer("a b c d", fault=Cut(2))),
    chat("no finish reason", BROKEN, answer("a b c d", finish=None)),
    chat("nothing at all", BROKEN, answer("")),
    chat(
        "several turns",
        said("You are Ada."),
        answer("You are Ada."),
        body={"content": "Who am I?", "user_name": "Ada", "message_id": "m2"},
        before=(
            (
                {"message_id": "m1", "chat_id": "c", "content": "I am Ada", "user_name": "Ada"},
                (answer("Hello, Ada!"),),
            ),
        ),
    ),
    chat(
        "prompt parameters",
        said("Yes."),
        answer("Yes."),
        body={"prompt_params": {"current_date": "1999-12-31", "user_name": " Ada "}},
    ),
    chat("unknown id", ("refused 404 unknown_message",), body={"content": None}),
    chat(
        "the id of a reply's conversation",
        ("refused 409 message_conflict",),
        body={"content": "Something else"},
        before=(({"message_id": "m1", "chat_id": "c", "content": "Hello"}, (answer("Hi."),)),),
    ),
]


# --- session


def session(name: str, expected: Sequence[str], *answers: Answer, **more: Any) -> Case:
    """Return a case of the session flow."""
    body = {"message": "Hello", "user_id": "u"} | more.pop("body", {})
    return Case(f"session, {name}", "session", body, tuple(expected), answers, **more)


def replied(text: str, *, new: bool = True) -> tuple[str, ...]:
    """Return the lines of a session that says a text."""
    return (
        *(("session_created",) if new else ()),
        "thinking",
        f"text {json.dumps(text)}",
        f"done {json.dumps(text)}",
    )


TURN = ({"message": "我叫张三", "session_id": "s", "user_id": "u"}, (answer("你好，张三！"),))
SESSION = [
    *(session(f"odd text: {name}", replied(text), answer(text)) for name, text in ODD.items()),
    session("a tool leaves no frame", replied("84."), answer("", tool_calls=(SUM,)), answer("84.")),
    session("reasoning leaves no frame", replied("Yes."), answer("Yes.", reasoning="Hm.")),
    session(
        "a known session",
        replied("你叫张三。", new=False),
        answer("你叫张三。"),
        answer(
            '{"operations":[{"op":"add","text":"用户名字是张三","type":"identity","confidence":1}]}'
        ),
        body={"message": "我叫什么？", "session_id": "s"},
        before=(TURN,),
    ),
    session("an unknown session", replied("Yes."), answer("Yes."), body={"session_id": "new"}),
    session(
        "an unknown session is refused",
        ("refused 404 unknown_session",),
        body={"session_id": "new"},
        options={"unknown_session": "refuse"},
    ),
    session(
        "the provider fails",
        ("session_created", "thinking", "error model_bad_request"),
        Answer(status=400),
    ),
    session(
        "the provider breaks off",
        ("session_created", "thinking", 'text "a b"', "error model_unavailable"),
        answer("a b c d", fault=Cut(2)),
    ),
]


# --- pipeline


def pipeline(name: str, expected: Sequence[str], *answers: Answer, **more: Any) -> Case:
    """Return a case of the pipeline flow."""
    body = {"user_id": "u", "session_id": "s", "message": "Hello"} | more.pop("body", {})
    return Case(f"pipeline, {name}", "pipeline", body, tuple(expected), answers, **more)


NO, YES = answer("不需要检索"), answer("需要检索")


def told(text: str, action: str = "continue", errors: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the lines of a pipeline that says a text."""
    return (f"text {json.dumps(text)}", f"message {action} {json.dumps(text)} {list(errors)}")


def untold(action: str, *errors: str) -> str:
    """Return the line of a pipeline without a response."""
    return f"message {action} null {list(errors)}"


PIPELINE = [
    *(pipeline(f"odd text: {n}", told(text), NO, answer(text)) for n, text in ODD.items()),
    pipeline("memories are looked for", told("Yes."), YES, answer("Yes.")),
    pipeline(
        "the check fails",
        told("Yes.", errors=["memory_check:model_bad_request"]),
        Answer(status=400),
        answer("Yes."),
    ),
    pipeline(
        "the answer fails",
        (untold("continue", "response_generator:model_bad_request"),),
        NO,
        Answer(status=400),
    ),
    pipeline(
        "the answer breaks off",
        ('text "a b"', untold("continue", "pipeline:model_unavailable")),
        NO,
        answer("a b c d", fault=Cut(2)),
    ),
    pipeline(
        "at its limit",
        told("好的。\n\n（这段对话已到长度上限，我们先聊到这里，期待下次再见。）", "end"),
        NO,
        answer("好的。"),
        options={"token_limit": 2},
    ),
    pipeline(
        "with an interlocutor",
        told("Yes."),
        YES,
        answer("Yes."),
        body={"user_name": "张三", "interlocutor": {"name": "小红", "relation": "女儿"}},
    ),
]


# --- companion

HAPPY = "emotion joy"


def companion(name: str, expected: Sequence[str], *answers: Answer, **more: Any) -> Case:
    """Return a case of the companion flow."""
    body = {"session_id": "s", "message": "I am happy", "user_id": "u"} | more.pop("body", {})
    return Case(f"companion, {name}", "companion", body, tuple(expected), answers, **more)


FORM = json.dumps({"title": "When?", "fields": [{"name": "day", "label": "Day", "type": "text"}]})
PICTURE = SAMPLES["companion, a picture"]
READ = "小明的生日是5月3日。"
FACTS = json.dumps({"memories": [{"text": READ, "confidence": 0.9}]}, ensure_ascii=False)


def picture(name: str, expected: Sequence[str], *answers: Answer, **more: Any) -> Case:
    """Return a case of a picture."""
    body = dict(PICTURE.body) | more.pop("body", {})
    return Case(
        f"companion, {name}", "companion", body, tuple(expected), answers, PICTURE.path, **more
    )


COMPANION = [
    *(
        companion(
            f"odd text: {n}", (HAPPY, f"text {json.dumps(text)}", "done completed"), answer(text)
        )
        for n, text in ODD.items()
    ),
    companion(
        "a tool",
        (HAPPY, "tool_result calculate True '84'", 'text "84."', "done completed"),
        answer("", tool_calls=(SUM,)),
        answer("84."),
    ),
    companion(
        "several tools, one unknown",
        (
            HAPPY,
            "tool_result calculate True '84'",
            "tool_result fly False 'Error: unknown_tool'",
            'text "84."',
            "done completed",
        ),
        answer("", tool_calls=(SUM, call("fly", "{}", 2))),
        answer("84."),
    ),
    companion(
        "a question",
        (HAPPY, "hitl When?", "done suspended"),
        answer("", tool_calls=(call("ask_human", FORM),)),
    ),
    companion(
        "a question beside a tool",
        (HAPPY, "tool_result calculate True '84'", "hitl When?", "done suspended"),
        answer("", tool_calls=(SUM, call("ask_human", FORM, 2))),
    ),
    companion(
        "a question that is answered",
        (HAPPY, "hitl When?", 'text "Monday."', "done completed"),
        answer("", tool_calls=(call("ask_human", FORM),)),
        answer("Monday."),
        decide={"action": "approve", "data": {"day": "Monday"}},
    ),
    picture(
        "a picture is read",
        (f"text {json.dumps(READ)}", "done completed"),
        answer(READ),
        body={"action": "analyze_only"},
    ),
    picture(
        "a picture to remember",
        (f"text {json.dumps(READ)}", "hitl 要记住这些内容吗？", "done suspended"),
        answer(READ),
        answer(FACTS),
    ),
    picture(
        "a picture that is remembered",
        (
            f"text {json.dumps(READ)}",
            "hitl 要记住这些内容吗？",
            f"text {json.dumps(chr(10) * 2 + '已记住 1 条。')}",
            "done completed",
        ),
        answer(READ),
        answer(FACTS),
        decide={"action": "approve", "data": {"memory_1": READ}},
    ),
    companion(
        "the provider fails",
        (HAPPY, "error model_bad_request", "done failed"),
        Answer(status=400),
    ),
    companion(
        "the provider breaks off",
        (HAPPY, 'text "a b"', "error model_unavailable", "done failed"),
        answer("a b c d", fault=Cut(2)),
    ),
]


# --- ops


def ops(name: str, expected: Sequence[str], *answers: Answer, **more: Any) -> Case:
    """Return a case of the ops flow."""
    body = {"session_id": "s", "input": "please help"} | more.pop("body", {})
    return Case(f"ops, {name}", "ops", body, tuple(expected), answers, **more)


def instruct(worker: str, action: str, **args: Any) -> Answer:
    """Return an instruction of the model."""
    return answer(json.dumps({"worker": worker, "action": action, "args": args}))


def final(text: str) -> Answer:
    """Return the model's answer that ends a turn."""
    return answer(json.dumps({"final": text}, ensure_ascii=False))


REACH = instruct("network", "reach", host="127.0.0.1", port=1)
RESTART = instruct("deploy", "run")
STEP = "step 1 network.reach low"
ASKED = ("step 1 deploy.run high", "approval_required deploy.run high")
OPS = [
    *(
        ops(f"odd text: {n}", (f"final {json.dumps(t)}", "done completed"), final(t))
        for n, t in ODD.items()
    ),
    ops(
        "an instruction",
        (STEP, "result network.reach", 'final "No."', "done completed"),
        REACH,
        final("No."),
    ),
    ops("a risky one asks", (*ASKED, "done approval_required"), RESTART),
    ops(
        "a rejected one",
        (*ASKED, f"final {json.dumps('deploy.run 被拒绝，没有执行。')}", "done rejected"),
        RESTART,
        decide={"approved": False, "by": "ada"},
    ),
    ops("no instruction", ("not served bad_instruction",), answer("I do not know")),
    ops("the provider fails", ("not served model_bad_request",), Answer(status=400)),
    ops(
        "too many steps",
        (
            *(STEP, "result network.reach"),
            *("step 2 network.reach low", "result network.reach"),
            *("error too_many_iterations", "done failed"),
        ),
        REACH,
        REACH,
        body={"max_iterations": 2},
    ),
]

CASES: dict[str, Case] = {
    case.name: case for case in (*CHAT, *SESSION, *PIPELINE, *COMPANION, *OPS)
}
"""All cases by name."""
