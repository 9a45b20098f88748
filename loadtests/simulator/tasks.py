"""What a user's text asks tools to do: calls, in rounds.

| asked for | example | tool |
|---|---|---|
| a sum | `12 * 7`, `15% of 80`, `3 加 5` | `calculate` |
| the time | `what time is it in Tokyo`, `现在几点` | `current_time` |
| a conversion | `5 km to miles`, `5 公斤等于多少磅` | `convert_units` |
| a memory | `do you remember…`, `你还记得…` | `search_memory` |
| a question back (`questions.py`) | `remind me: ask me when first`, `先问我` | `ask_human` |
| no end | `keep checking`, `一直查` | `current_time`, in every round |
| a fault | `no such tool`, `不存在的工具` | `no_such_tool` |
| a fault | `broken arguments`, `参数写坏` | `calculate`, its arguments no JSON |

Several tasks in one text are several calls of one round; `then`, `after that`, `然后`, `接着` begin
the next round, which may refer to the result (`then multiply it by 3`, `然后把结果乘以 3`).
"""

import re

import msgspec

from loadtests.simulator.arithmetic import PREVIOUS, expressions
from loadtests.simulator.questions import forms
from loadtests.simulator.request import FunctionCall
from loadtests.simulator.units import Conversion, conversions

NEXT_ROUND = re.compile(
    r"\b(?:and )?then\b|\bafter that\b|\bafterwards\b|然后再?|接着再?", re.IGNORECASE
)
TIME = re.compile(
    r"what(?:'s| is) the (?:current |local )?(?:time|date)|what time is it|current time"
    r"|what day is (?:it|today)|today's date|现在[^，。？\n]{0,4}几点|几点[了钟]"
    r"|现在[^，。？\n]{0,6}时间|当前时间|今天是?(?:几号|星期几|周几)",
    re.IGNORECASE,
)
MEMORY = re.compile(
    r"(?:do|can) you (?:still )?remember|did i (?:ever )?(?:tell|mention)|have i (?:told|mentioned)"
    r"|what do you (?:know|remember) about me|还记得|你记得|记不记得"
    r"|我(?:之前|以前|上次)[^，。？\n]{0,6}[说提讲]过",
    re.IGNORECASE,
)
ENDLESS = re.compile(r"keep checking|一直查", re.IGNORECASE)
UNKNOWN = re.compile(r"no such tool|不存在的工具", re.IGNORECASE)
BROKEN = re.compile(r"broken arguments|参数写坏", re.IGNORECASE)
SENTENCE_END = re.compile(r"[.?!。？！\n]")
QUERY_LENGTH = 80
ASK = "ask_human"
ZONES = {
    "Asia/Tokyo": ("tokyo", "东京"),
    "Asia/Shanghai": ("beijing", "shanghai", "北京", "上海"),
    "Europe/London": ("london", "伦敦"),
    "Europe/Berlin": ("berlin", "柏林"),
    "Europe/Paris": ("paris", "巴黎"),
    "America/New_York": ("new york", "纽约"),
    "America/Los_Angeles": ("los angeles", "san francisco", "洛杉矶", "旧金山"),
    "UTC": ("utc", "世界时"),
}
Found = list[tuple[int, FunctionCall]]


def rounds(question: str, offered: tuple[str, ...]) -> list[list[FunctionCall]]:
    """Read the rounds of calls a text asks for, of the tools that are offered."""
    if not offered:
        return []
    stages = [_calls(part, offered) for part in NEXT_ROUND.split(question)]
    return [stage for stage in stages if stage]


def endless(question: str) -> bool:
    """Tell whether the text asks for calls in every round, without end."""
    return ENDLESS.search(question) is not None


def resolved(call: FunctionCall, previous: str) -> FunctionCall:
    """Put the last number of the previous result where a call refers to it."""
    numbers = re.findall(r"-?\d+(?:\.\d+)?", previous.replace(",", ""))
    last = numbers[-1] if numbers else "0"
    return FunctionCall(call.name, call.arguments.replace(PREVIOUS, last))


def _calls(text: str, offered: tuple[str, ...]) -> list[FunctionCall]:
    found = _sums(text) + _conversions(text) + _times(text) + _memories(text)
    found += _faults(text) + (_questions(text) if ASK in offered else [])
    found.sort(key=lambda item: item[0])
    return [call for _, call in found if call.name in {*offered, "no_such_tool"}]


def _sums(text: str) -> Found:
    return [(at, _call("calculate", expression=sum_)) for at, sum_ in expressions(text)]


def _conversions(text: str) -> Found:
    return [(at, _conversion(wanted)) for at, wanted in conversions(text)]


def _conversion(wanted: Conversion) -> FunctionCall:
    units = {"from_unit": wanted.source, "to_unit": wanted.target}
    return _call("convert_units", value=wanted.value, **units)


def _times(text: str) -> Found:
    match = TIME.search(text) or ENDLESS.search(text)
    if match is None:
        return []
    lowered = text.lower()
    zones = [zone for zone, names in ZONES.items() if any(name in lowered for name in names)]
    calls = [_call("current_time", zone=zone) for zone in zones] or [_call("current_time")]
    return [(match.start(), call) for call in calls]


def _memories(text: str) -> Found:
    match = MEMORY.search(text)
    if match is None:
        return []
    sentence = SENTENCE_END.split(text[match.start() :], maxsplit=1)[0]
    return [(match.start(), _call("search_memory", query=sentence[:QUERY_LENGTH].strip()))]


def _questions(text: str) -> Found:
    return [(at, FunctionCall(ASK, msgspec.json.encode(form).decode())) for at, form in forms(text)]


def _faults(text: str) -> Found:
    found = [(hit.start(), _call("no_such_tool")) for hit in UNKNOWN.finditer(text)]
    broken = FunctionCall("calculate", '{"expression": ')
    return found + [(hit.start(), broken) for hit in BROKEN.finditer(text)]


def _call(name: str, **arguments: object) -> FunctionCall:
    return FunctionCall(name, msgspec.json.encode(arguments).decode())
