"""The prompts of the flows: their parameters, and what stands in where a file is missing.

Each stack has the files themselves, in its own template language; both fill in what is named here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

from rules.texts import bullets, text

PROMPTS: Final[Mapping[str, Mapping[str, type[str | list[str]]]]] = {
    "chat_system": {"current_date": str, "current_time": str},
    "companion_system": {
        "current_date": str,
        "current_time": str,
        "emotion": str,
        "intensity": str,
        "intent": str,
        "working_memory": str,
        "memories": list,
    },
    "companion_vision": {"no_text": str},
    "companion_extraction": {},
    "session_system": {"system_prompt": str, "memories": str},
    "session_extraction": {"known": list},
    "pipeline_system": {"system_prompt": str, "speakers": str, "memories": str},
    "pipeline_memory_check": {"message": str},
    "ops_system": {"workers": list},
}
"""The parameters of each prompt, by its name, which is its file's.

A `list` is one of texts; templates without loops get it through `as_texts`. The `memories` that are
a `str` are a `memories_paragraph`, `intensity` has two decimals.
"""

DEFAULTS: Final[Mapping[str, str]] = {
    "chat_system": (
        "你是一个AI助手，当前时间是 {current_time}，当前日期是 {current_date}。\n"
        "请根据以下对话历史回答用户问题。"
    ),
    "companion_system": (
        "你是一个贴心的桌面伙伴。今天是 {current_date} {current_time}。\n"
        "用户的情绪：{emotion}（{intensity}）。{intent}\n{working_memory}\n你记得的事：\n{memories}"
    ),
    "companion_vision": "读出图片中的全部文字。没有文字时，只回答 {no_text}。",
    "companion_extraction": (
        "从下面的文字中找出关于用户、值得长期记住的事实，只输出 JSON："
        '{{"memories":[{{"text":"…","confidence":0.5}}]}}。'
    ),
    "session_system": "{system_prompt}{memories}",
    "session_extraction": (
        "你负责维护关于用户的长期记忆。已知的记忆：\n{known}\n"
        "从新的对话中找出关于用户、值得长期记住的事实：新的用 add；有了更多细节的用 update，"
        "写出完整的新表述；不再成立的用 delete；已知而没有变化的不要输出。\n"
        '只输出 JSON：{{"operations":[{{"op":"add","text":"…","type":"preference",'
        '"confidence":0.9}},{{"op":"update","id":"m1","text":"…"}},{{"op":"delete","id":"m2"}}]}}；'
        "type 是 identity、preference、plan、relation、other 之一。"
        '没有就输出 {{"operations":[]}}。'
    ),
    "pipeline_system": "{system_prompt}{speakers}{memories}",
    "pipeline_memory_check": (
        "判断消息是否需要从记忆库检索信息。只输出“需要检索”或“不需要检索”。\n\n"
        "需要检索的情况：\n"
        "1. 询问过去的事件/经历（如：还记得、小时候、以前、去年）\n"
        "2. 询问角色的事实信息（如：你有哪些好友、你的家人、你做过什么工作）\n"
        "3. 提及需要历史上下文的话题\n\n"
        "不需要检索的情况：\n"
        "1. 当前状态/问候（如：你好、身体怎么样、在干嘛）\n"
        "2. 当前情感/动作（如：想你了、来看你）\n"
        "3. 日常闲聊不需要历史信息\n\n"
        "消息：“{message}”\n判断："
    ),
    "ops_system": (
        "你是运维助手，通过工作者一步一步执行指令。可用的指令：\n{workers}\n"
        '每次只输出一个 JSON 对象：{{"worker":"…","action":"…","args":{{}}}}，'
        '或者结束：{{"final":"给用户的回答"}}。'
    ),
}
"""Stand in for prompt files that are missing; in `str.format` syntax."""

_TOPICS, _LONGEST_TOPIC = 3, 40


def default_prompt(name: str, parameters: Mapping[str, Any]) -> str:
    """Return a built-in prompt, filled in; raises `KeyError` for a parameter that is missing."""
    return DEFAULTS[name].format_map(as_texts(parameters))


def as_texts(parameters: Mapping[str, Any]) -> dict[str, str]:
    """Return parameters for templates without loops: lists become `bullets`, None becomes ""."""
    return {
        name: bullets(value) if isinstance(value, list) else "" if value is None else str(value)
        for name, value in parameters.items()
    }


def moment_parameters(now: datetime, timezone: str) -> dict[str, str]:
    """Return `current_date` and `current_time` of an aware moment in a zone."""
    local = now.astimezone(ZoneInfo(timezone))
    return {"current_date": f"{local:%Y-%m-%d}", "current_time": f"{local:%H:%M:%S}"}


def working_memory(count: int, hidden: Sequence[str], overrides: Mapping[str, str]) -> str:
    """Return what a companion's prompt says of a conversation.

    `count` are all earlier messages, `hidden` the user's among them that the model is not shown.
    """
    if not count:
        return text("companion", overrides, "new_conversation")
    length = text("companion", overrides, "earlier_turns", count=count)
    lines = [" ".join(message.split()) for message in hidden[-_TOPICS:]]
    if not lines:
        return length
    topics = "；".join(
        line if len(line) <= _LONGEST_TOPIC else line[:_LONGEST_TOPIC] + "…" for line in lines
    )
    return length + text("companion", overrides, "earlier_topics", topics=topics)


def speakers(
    overrides: Mapping[str, str], user_name: str | None, interlocutor: tuple[str, str] | None
) -> str:
    """Return what a pipeline's prompt says of its speakers; the interlocutor: name, relation."""
    said = ""
    if interlocutor is not None:
        name, relation = interlocutor
        said += text("pipeline", overrides, "interlocutor", name=name, relation=relation)
    return said + (text("pipeline", overrides, "user", name=user_name) if user_name else "")
