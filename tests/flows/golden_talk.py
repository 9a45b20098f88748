"""Golden cases of chat and session."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from loadtests.simulator import Answer, Cut, ErrorEvent, Garbage
from tests.flows.golden_case import ODD, SUM, Case, answer, call

# --- chat

FILTERED, CUT_OFF = "赤尾有点不想讨论这个话题呢~", "(后续内容被截断)"


def tool(name: str, status: str) -> str:
    """Return the line of a tool's status."""
    return f"SEND {name} {status}"


def said(text: str, *between: str) -> tuple[str, ...]:
    """Return the lines of a chat that says a text."""
    return ("ACCEPT", "START_REPLY", *between, f"SUCCESS {json.dumps(text)}", "END")


LATE, BROKE = call("wait", "{}", 2), call("smash", '{"what": "it"}', 2)


def delta(content: str) -> Answer:
    """Return an answer of one chunk, whose delta is this JSON."""
    rest = '"id":"x","object":"chat.completion.chunk","created":1,"model":"m"'
    chosen = f'"choices":[{{"index":0,"delta":{{{content}}},"finish_reason":"stop"}}]'
    return Answer(raw=f"data: {{{rest},{chosen}}}\n\ndata: [DONE]\n\n")


BROKEN = ("ACCEPT", "START_REPLY", "FAILED", "END")


def chat(name: str, expected: Sequence[str], *answers: Answer, **more: Any) -> Case:
    """Return a case of the chat flow."""
    body = {"message_id": "m1", "content": "Hello", "chat_id": "c"} | more.pop("body", {})
    return Case(f"chat, {name}", "chat", body, tuple(expected), answers, **more)


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
    *(
        chat(
            f"a tool that {what}",
            said("Hm.", tool(wanted.name, "running"), tool(wanted.name, "error")),
            answer("", tool_calls=(wanted,)),
            answer("Hm."),
        )
        for what, wanted in (("is late", LATE), ("breaks", BROKE))
    ),
    chat(
        "a late tool between two others",
        said(
            "84 and 7.",
            *(tool("calculate", "running"), tool("wait", "running"), tool("calculate", "running")),
            *(tool("calculate", "done"), tool("wait", "error"), tool("calculate", "done")),
        ),
        answer("", tool_calls=(SUM, LATE, call("calculate", '{"expression":"3+4"}', 3))),
        answer("84 and 7."),
    ),
    chat(
        "reasoning before a tool",
        said("84.", tool("calculate", "running"), tool("calculate", "done")),
        answer("", tool_calls=(SUM,), reasoning="A sum."),
        answer("84.", reasoning="That is it."),
        options={"wire": "extended"},
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
    chat("too many requests once", said("Yes."), Answer(status=429), answer("Yes.")),
    chat("too many requests", BROKEN, *[Answer(status=429)] * 9),
    chat("overloaded", BROKEN, *[Answer(status=500)] * 9),
    chat("the model is unknown there", BROKEN, Answer(status=404)),
    chat("an event that is no JSON", BROKEN, answer("a b c d", fault=Garbage(2))),
    chat("half of a character", BROKEN, delta(r'"content":"a\ud800"')),
    chat("a character in two escapes", said("a😀"), delta(r'"content":"a\ud83d\ude00"')),
    chat("the model refuses", said("I will not."), delta('"refusal":"I will not."')),
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
        "more turns than are shown",
        said("The last."),
        answer("The last."),
        body={"message_id": "last", "content": "Which one is this?"},
        before=tuple(
            (
                {"message_id": f"n{number}", "chat_id": "c", "content": f"This is {number}."},
                (answer(f"I see {number}."),),
            )
            for number in range(12)
        ),
    ),
    chat(
        "prompt parameters",
        said("Yes."),
        answer("Yes."),
        body={"prompt_params": {"current_date": "1999-12-31", "user_name": " Ada "}},
    ),
    chat(
        "a model that is not configured",
        ("refused 422 unknown_model",),
        body={"model_config": {"model_id": "nowhere"}},
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
    session(
        "an unknown tool leaves no frame",
        replied("Hm."),
        answer("", tool_calls=(call("fly", "{}"),)),
        answer("Hm."),
    ),
    session(
        "two rounds of tools",
        replied("84 and 7."),
        answer("84", tool_calls=(SUM, call("smash", '{"what": "it"}', 2))),
        answer(" and ", tool_calls=(call("calculate", '{"expression":"3+4"}', 3),)),
        answer("7."),
    ),
    session("cut at its length", replied("Once"), answer("Once", finish="length")),
    session("too many requests once", replied("Yes."), Answer(status=429), answer("Yes.")),
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
