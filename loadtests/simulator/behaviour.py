"""What the simulated model answers without a script; the first row that fits decides.

| the request | the answer |
|---|---|
| a prompt names 需要检索 and 不需要检索 | the first where the text asks about the past |
| a system prompt asks for instructions as JSON | the next instruction, then the final answer |
| a prompt or a schema asks for JSON | the facts in the user's text, as the flows ask for them |
| an image in the last message | a fixed text |
| results of tools | each result in a sentence |
| a sum, the time, a memory, a form, and the tool for it | calls, all of one round |
| anything else | a paragraph in the user's language that quotes the user |

Prose depends on the question, so that equal questions in other words of the prompt have equal
answers.
"""

import re
from hashlib import blake2b
from typing import Any

import msgspec

from loadtests.simulator.answer import Answer, split_text
from loadtests.simulator.request import FunctionCall, Message, ModelRequest

PICTURE_TEXT = "小明的生日是5月3日。\n我们约好周五下午三点在咖啡馆见面。"
CHUNKS = 48
"""Chunks of a paragraph, about."""

_CJK = re.compile(r"[\u3400-\u9fff]")
_SPEAKER = re.compile(r"^\[[^\]\n]{1,64}\]: ")
_SPOKEN = re.compile(r"(?im)^(?:user|用户|human)[^:：\n]{0,64}[:：] ?(.+)$")
_NEW_PART = re.compile(r"(?i)新的对话[：:]?|new (?:messages|conversation):?")
_FACT = re.compile(r"(?i)我|生日|喜欢|住在|\bmy\b|\bI(?:'m)?\b|birthday|likes?\b")
_QUESTION = re.compile(r"(?i)[?？]|^(?:what|who|how|when|where)\b")
_SENTENCE = re.compile(r"(?:[^。！？!?\n.]|\.(?=\d))+[。！？!?.]?")
_DATE = re.compile(r"\d{4}-\d{1,2}-\d{1,2}")
_SUM = re.compile(r"[(\d][\d\s.()]*(?:\s*[-+*/×÷]+\s*[(\d][\d.()]*)+")
_ASCII = str.maketrans("×÷", "*/")
_PAST = re.compile(r"(?i)记得|上次|以前|之前|去年|小时候|remember|last (?:time|week|year)|\bago\b")
_TIME = re.compile(r"(?i)几点|现在.*时间|what time|current time")
_DECIDE = re.compile(r"(?i)预订|帮我订|问我|\bbook\b|\bask me\b")
_ASKS_JSON = re.compile(
    r"(?i)(?:输出|返回|回答|只).{0,20}JSON|\b(?:only|return|reply|answer|output|as)\b.{0,40}JSON"
)
_QUOTED = re.compile(r"(?s)“(.*?)”")
_INSTRUCTION = '"worker"'
_FAILED = re.compile(r'"ok": ?false|^Error:')
_THEN = re.compile(r"(?i)\bthen\b|然后|接着")
_DELETE = r"(?:delete temporary|(?:删除|清理)临时)(?: files?|文件)?(?: ?([\w.-]*\*[\w.*-]*))?"
_RESTART = r"(?:restart|重启)(?: container|容器)?\s*([\w.-]+)"

_WORK = (
    (r"dis[ck]|磁盘|硬盘", "system", "disk", ()),
    (r"memory|内存", "system", "memory", ()),
    (r"process|进程", "system", "processes", ()),
    (_DELETE, "system", "delete_temporary", ("pattern",)),
    (_RESTART, "container", "restart", ("name",)),
    (r"(?:logs? (?:of|from|for)|日志) ?([\w.-]+)", "container", "logs", ("name",)),
    (r"containers\b|容器列表|有哪些容器", "container", "list", ()),
    (r"([\w.-]+):(\d{2,5})\b", "network", "reach", ("host", "port")),
    (r"deploy|部署", "deploy", "run", ()),
)
"""Words, worker, its action, arguments by group."""

_SENTENCES = {
    "en": (
        "There are several ways to look at this, and each has its merits.",
        "A small first step is often enough to see how things really stand.",
        "It helps to write down what is known and what is still a guess.",
        "Take your time, and compare the result with what you expected.",
        "If something does not fit, tell me, and we look at it again.",
        "Most questions become easier once they are split into two smaller ones.",
    ),
    "zh": (
        "这件事可以从几个方面来看，每个方面都有它的道理。",
        "不妨先迈出一小步，看看实际情况究竟怎么样。",
        "把已经知道的和还在猜测的分开写下来，会清楚很多。",
        "慢慢来，把结果和你原来的期待比较一下。",
        "如果哪里不合适，就告诉我，我们再一起想办法。",
        "大多数问题拆成两个小问题以后，都会变得容易一些。",
    ),
}


def answer_request(request: ModelRequest) -> Answer:
    """Return what the simulated model answers."""
    prompt = f"{request.system}\n{request.schema}"
    if "不需要检索" in prompt or "不需要检索" in request.question:
        return Answer(text="需要检索" if _PAST.search(_checked(request)) else "不需要检索")
    if _ASKS_JSON.search(request.system) and _INSTRUCTION in request.system:
        return Answer(text=_json(_next_step(request)))
    if request.schema or _ASKS_JSON.search(request.system or request.question):
        return Answer(text=_json(_facts(request, prompt + request.question)))
    if request.last_user.pictures:
        return Answer(text=PICTURE_TEXT)
    if results := _results(request):
        return Answer(text=_say(request, " ", "").join(results))
    if calls := _calls(request):
        return Answer(tool_calls=tuple(calls))
    return Answer(text=_paragraph(request))


def _checked(request: ModelRequest) -> str:
    """Return the message that a memory check is about: in a prompt it is what is quoted last."""
    text = request.question or request.system
    if "不需要检索" not in text:
        return text
    return (_QUOTED.findall(text) or text.strip().splitlines())[-1]


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _quote(request: ModelRequest) -> str:
    return _SPEAKER.sub("", request.question).strip()[:120]


def _say(request: ModelRequest, english: str, chinese: str) -> str:
    return chinese if _CJK.search(_quote(request)) else english


def _paragraph(request: ModelRequest) -> str:
    quote = _quote(request)
    text = _say(request, f"You said: “{quote}”", f"你说：“{quote}”")
    bank = _SENTENCES[_say(request, "en", "zh")]
    for drawn in blake2b(quote.encode(), digest_size=32).digest():
        if len(split_text(text)) >= CHUNKS:
            break
        text += _say(request, " ", "" if text.endswith("。") else "。") + bank[drawn % len(bank)]
    return text


# Tools


def _calls(request: ModelRequest) -> list[FunctionCall]:
    question = _DATE.sub(" ", request.question)
    form = {"name": "answer", "label": _quote(request), "type": "text", "required": True}
    wanted: list[tuple[str, Any]] = [
        ("calculate", {"expression": one[0].strip(" .").translate(_ASCII)})
        for one in _SUM.finditer(question)
    ]
    for words, tool, arguments in (
        (_TIME, "current_time", {}),
        (_PAST, "search_memory", {"query": _quote(request)}),
        (_DECIDE, "ask_human", {"title": _quote(request), "fields": [form]}),
    ):
        if words.search(question):
            wanted.append((tool, arguments))
    return [
        FunctionCall(tool, _json(arguments)) for tool, arguments in wanted if tool in request.tools
    ]


def _results(request: ModelRequest) -> list[str]:
    calls = {call.id: call for one in request.turn for call in one.calls}
    unknown = FunctionCall("tool")
    results = [one for one in request.turn if one.role == "tool"]
    return [_result(request, calls.get(one.call_id, unknown), one.text) for one in results]


def _result(request: ModelRequest, call: FunctionCall, text: str) -> str:
    if text.startswith("Error:"):
        return _say(request, f"{call.name} failed: {text}.", f"{call.name} 失败了：{text}。")
    if call.name == "calculate":
        summed = msgspec.json.decode(call.arguments).get("expression", "?")
        return _say(request, f"{summed} is {text}.", f"{summed} 等于 {text}。")
    return _say(request, f"{call.name} answers: {text}.", f"{call.name} 的结果：{text}。")


# JSON: instructions and facts, as the prompts of the flows ask for them


def _next_step(request: ModelRequest) -> dict[str, Any]:
    work, results = _request_and_results(request.messages)
    steps = [step for part in _THEN.split(work) for step in _instructions(part)]
    failed = bool(results) and _FAILED.search(results[-1])
    if len(results) < len(steps) and not failed:
        return steps[len(results)]
    nothing = "这不需要执行任何操作。" if _CJK.search(work) else "There is nothing to do."
    return {"final": _message_of(results[-1]) if results else nothing}


def _request_and_results(messages: tuple[Message, ...]) -> tuple[str, list[str]]:
    """Return the user's latest request, and the results that followed it.

    What follows an assistant's instruction, or is JSON, is a result.
    """
    work, results, instructed = "", list[str](), False
    for message in messages:
        if message.role == "assistant":
            instructed = _INSTRUCTION in message.text
        elif message.role == "user" and (instructed or message.text.startswith(("{", "Error:"))):
            results.append(message.text)
            instructed = False
        elif message.role == "user":
            work, results = message.text, []
    return work, results


def _instructions(text: str) -> list[dict[str, Any]]:
    found: list[tuple[int, dict[str, Any]]] = []
    for words, worker, action, names in _WORK:
        for hit in re.finditer(words, text, re.IGNORECASE):
            pairs = zip(names, hit.groups(), strict=True)
            args = {name: int(it) if name == "port" else it for name, it in pairs if it}
            found.append((hit.start(), {"worker": worker, "action": action, "args": args}))
    return [step for _, step in sorted(found, key=lambda pair: pair[0])]


def _message_of(result: str) -> str:
    try:
        return str(msgspec.json.decode(result)["message"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return result


def _facts(request: ModelRequest, prompt: str) -> dict[str, Any]:
    *earlier, latest = _NEW_PART.split(request.question)
    spoken = "\n".join(_SPOKEN.findall(latest)) or latest
    sentences = dict.fromkeys(one.strip() for one in _SENTENCE.findall(spoken))
    known = "".join([*earlier, request.system])
    new = [
        one
        for one in sentences
        if _FACT.search(one) and not _QUESTION.search(one) and one not in known
    ]
    if '"operations"' not in prompt:
        return {"memories": [{"text": fact, "confidence": 0.9} for fact in new]}
    op = {"op": "add", "type": "other", "confidence": 0.9}
    return {"operations": [op | {"text": fact} for fact in new]}
