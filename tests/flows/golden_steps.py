"""Golden cases of pipeline, companion and ops."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from loadtests.simulator import Answer, Cut
from tests.flows.golden_case import ODD, SUM, Case, answer, call
from tests.flows.samples import SAMPLES

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
    pipeline("an unclear check", told("Yes."), answer("也许"), answer("Yes.")),
    pipeline("a farewell", told("再见！"), NO, answer("再见！"), body={"message": " 再见 "}),
    pipeline(
        "a second turn",
        told("Ada."),
        NO,
        answer("Ada."),
        body={"message": "Who am I?"},
        before=(
            ({"user_id": "u", "session_id": "s", "message": "I am Ada"}, (NO, answer("Hello!"))),
        ),
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
    companion(
        "a question that is rejected",
        (HAPPY, "hitl When?", 'text "Later, then."', "done completed"),
        answer("", tool_calls=(call("ask_human", FORM),)),
        answer("Later, then."),
        decide={"action": "reject"},
    ),
    companion(
        "a question beside a tool, answered",
        (
            HAPPY,
            "tool_result calculate True '84'",
            "hitl When?",
            'text "Monday."',
            "done completed",
        ),
        answer("", tool_calls=(call("ask_human", FORM), call("calculate", SUM.arguments, 2))),
        answer("Monday."),
        decide={"action": "edit", "data": {"day": "Monday"}},
    ),
    companion(
        "a question without a form",
        (
            HAPPY,
            "tool_result ask_human False 'Error: bad_arguments'",
            'text "Hm."',
            "done completed",
        ),
        answer("", tool_calls=(call("ask_human", "{}"),)),
        answer("Hm."),
    ),
    companion(
        "a second turn",
        (HAPPY, 'text "Ada."', "done completed"),
        answer("Ada."),
        body={"message": "I am happy. Who am I?"},
        before=(({"session_id": "s", "message": "I am Ada"}, (answer("Hello!"),)),),
    ),
    picture(
        "a picture that is not remembered",
        (
            f"text {json.dumps(READ)}",
            "hitl 要记住这些内容吗？",
            f"text {json.dumps(chr(10) * 2 + '好的，这些内容没有保存。')}",
            "done completed",
        ),
        answer(READ),
        answer(FACTS),
        decide={"action": "reject"},
    ),
    picture(
        "a picture with nothing to remember",
        (f"text {json.dumps(READ + chr(10) * 2 + '没有找到值得记住的内容。')}", "done completed"),
        answer(READ),
        answer('{"memories": []}'),
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
        "the provider fails", (HAPPY, "error model_bad_request", "done failed"), Answer(status=400)
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
    ops(
        "an approved one",
        (*ASKED, "result deploy.run", 'final "Done."', "done completed"),
        RESTART,
        final("Done."),
        decide={"approved": True, "by": "ada"},
    ),
    ops(
        "where credentials are kept",
        (
            *("step 1 network.reach high", "approval_required network.reach high"),
            "done approval_required",
        ),
        instruct("network", "reach", host="169.254.169.254", port=80),
    ),
    ops(
        "a worker that is unknown",
        ("step 1 plane.fly critical", "result plane.fly", 'final "No."', "done completed"),
        instruct("plane", "fly"),
        final("No."),
    ),
    ops(
        "a second turn",
        ('final "Ada."', "done completed"),
        final("Ada."),
        body={"input": "who am I"},
        before=(({"session_id": "s", "input": "I am Ada"}, (final("Hello!"),)),),
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
