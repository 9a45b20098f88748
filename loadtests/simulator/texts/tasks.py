"""Tool calls that a user's text asks for, in rounds.

| asked for | example | tool |
|---|---|---|
| a sum | `12 * 7`, `15% of 80`, `3 加 5` | `calculate` |
| the time | `what time is it in Tokyo`, `现在几点` | `current_time` |
| a conversion | `5 km to miles`, `5 公斤等于多少磅` | `convert_units` |
| an order | `order 500 g of flour`, `订购 500 克面粉` | `order` |
| a memory | `do you remember…`, `你还记得…` | `search_memory` |
| a question back | `remind me: ask me when first`, `先问我` | `ask_human` |
| no end | `keep checking`, `一直查` | `current_time`, in every round |
| a fault | `no such tool`, `不存在的工具` | `no_such_tool` |
| a fault | `broken arguments`, `参数写坏` | `calculate`, its arguments no JSON |

Several tasks in one text are several calls of one round; `then`, `after that`, `然后`, `接着` begin
the next round, which may refer to the result (`then multiply it by 3`, `然后把结果乘以 3`).

The form of a question back has one field: `go_on` (boolean) where only a yes is asked for, a
number for `how many`, a choice where options are listed, else a text. Its title is the text before.
Only an order at the beginning of a clause counts: "they ask me when" asks for nothing.
"""

import re

import msgspec

from loadtests.simulator.request import FunctionCall
from loadtests.simulator.texts.prose import PHRASES, Language, language_of

NUMBER = r"\d+(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?"
OPERAND = rf"-?\(*(?:{NUMBER})\)*"
EXPRESSION = re.compile(
    rf"(?<![\w.@+/-])\(*(?:{NUMBER})\)*(?:(\s*)(\*\*|[-+*/×÷^]|(?<=\s)x(?=\s))\s*{OPERAND})+(?![\w@/-])"
)
PERCENT = re.compile(rf"({NUMBER})\s*(?:%|percent) of ({NUMBER})", re.IGNORECASE)
PERCENT_ZH = re.compile(rf"({NUMBER})\s*的\s*({NUMBER})\s*%")
SPELLED = re.compile(
    rf"({NUMBER})\s*(plus|minus|times|multiplied by|divided by|加上?|减去?|乘以?|除以)"
    rf"\s*({NUMBER})",
    re.IGNORECASE,
)
CONTINUED = re.compile(
    rf"(multiply|divide)\s+(?:it|that|the \w+)\s+by\s+({NUMBER})"
    rf"|(?:结果|它|得数|总数)\s*(加上?|减去?|乘以?|除以)\s*({NUMBER})",
    re.IGNORECASE,
)
ADDED = re.compile(
    rf"(add|subtract)\s+({NUMBER})\s+(?:to|from)\s+(?:it|that|the \w+)", re.IGNORECASE
)
ASKED = re.compile(
    r"calculate|compute|work out|how much|what(?:'s| is)|计算|算|等于|多少", re.IGNORECASE
)
OPERATORS = {"plus": "+", "add": "+", "加": "+", "minus": "-", "subtract": "-", "减": "-"}
OPERATORS |= {"times": "*", "mult": "*", "乘": "*", "divi": "/", "除": "/"}
PADDED = re.compile(r"(?<![\d.])0\d")  # as phone and order numbers have it
SIGNS = str.maketrans({"×": "*", "÷": "/", "x": "*", ",": None})
PREVIOUS = "{previous}"


NAMES = {
    "km": ("kilometers", "kilometres", "kilometer", "kilometre", "km", "公里", "千米"),
    "m": ("meters", "metres", "meter", "metre", "m", "米"),
    "cm": ("centimeters", "centimetres", "centimeter", "cm", "厘米"),
    "mi": ("miles", "mile", "mi", "英里"),
    "ft": ("feet", "foot", "ft", "英尺"),
    "in": ("inches", "inch", "英寸"),
    "kg": ("kilograms", "kilogram", "kilos", "kg", "公斤", "千克"),
    "g": ("grams", "gram", "g", "克"),
    "lb": ("pounds", "pound", "lbs", "lb", "磅"),
    "oz": ("ounces", "ounce", "oz", "盎司"),
    "l": ("liters", "litres", "liter", "litre", "升"),
    "gal": ("gallons", "gallon", "gal", "加仑"),
    "c": ("degrees celsius", "celsius", "°c", "摄氏度"),
    "f": ("degrees fahrenheit", "fahrenheit", "°f", "华氏度"),
}
SYMBOLS = {name: symbol for symbol, names in NAMES.items() for name in names}
UNIT_NAMES = "|".join(sorted(map(re.escape, SYMBOLS), key=len, reverse=True))
# A Latin unit must end as a word does; a Chinese one may be followed by anything.
UNIT = rf"(?:{UNIT_NAMES})(?![A-Za-z])"
DECIMAL = r"-?\d+(?:\.\d+)?"
FORWARD = re.compile(
    rf"({DECIMAL})\s*({UNIT})\s*(?:to|into|in|as|换算成|换算为|换成|转换成|转成|等于多少|是多少|合多少|折合多少|等于几)\s*({UNIT})",
    re.IGNORECASE,
)
BACKWARD = re.compile(
    rf"how many\s+({UNIT})\s+(?:is|are|in|are in|make)\s+({DECIMAL})\s*({UNIT})", re.IGNORECASE
)
ORDERED = re.compile(
    r"(?:^|[.:;,!?\n–—-])[^\S\n]*(?:(?:please|but|and|so|just|first)\s+)*ask me\b"
    r"(?P<what>[^.:;,!?\n]*)(?::\s*(?P<options>[^.;:!?\n]+))?"
    # 请问我 begins the user's own question.
    r"|(?:^|[，。：；！？,.:;!?\n])[^\S\n]*(?:(?:但是?|不过|请|你|再)*先)?问(?:一下|问)?我(?:一下)?"
    r"(?P<what_zh>[^，。：；！？,.:;!?\n]*)(?:[：:]\s*(?P<options_zh>[^。；：！？.;:!?\n]+))?",
    re.IGNORECASE,
)
FIRST = re.compile(r"\bfirst\b|^\s*for\b", re.IGNORECASE)
BETWEEN = re.compile(r"\s*(?:,\s*or\b|,|，|、|\bor\b|还是|或者?)\s*", re.IGNORECASE)
# A name for the field, its type, and the words that ask for it; the first that fits counts.
KINDS = tuple(
    (name, kind, re.compile(words, re.IGNORECASE))
    for name, kind, words in (
        ("how_many", "number", r"^how (?:many|much)\b|多少|几[个位人只本张]"),
        ("when", "text", r"^when\b|什么时候|几点|哪天"),
        ("where", "text", r"^where\b|哪里|哪儿|在哪$"),
        ("which", "text", r"^which\b|哪"),
        ("who", "text", r"^whom?\b|谁"),
        ("how", "text", r"^how\b|怎么"),
        ("what", "text", r"^(?:what|for)\b|什么"),
    )
)
GOODS = re.compile(r"\border (\d+) g of (\w+)|订购\s*(\d+)\s*克(\w+)", re.IGNORECASE)
LONGEST_LABEL = 80
LONGEST_OPTION = 40
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
"""Calls with the positions of their words in the text."""


def call_rounds(question: str, offered: tuple[str, ...]) -> list[list[FunctionCall]]:
    """Read the rounds of calls a text asks for, of the tools that are offered."""
    if not offered:
        return []
    stages = [_calls(part, offered) for part in NEXT_ROUND.split(question)]
    return [stage for stage in stages if stage]


def endless(question: str) -> bool:
    """Whether the text asks for calls in every round, without end."""
    return ENDLESS.search(question) is not None


def resolved(call: FunctionCall, previous: str) -> FunctionCall:
    """Put the last number of the previous result where a call refers to it."""
    numbers = re.findall(r"-?\d+(?:\.\d+)?", previous.replace(",", ""))
    last = numbers[-1] if numbers else "0"
    return FunctionCall(call.name, call.arguments.replace(PREVIOUS, last))


def _calls(text: str, offered: tuple[str, ...]) -> list[FunctionCall]:
    found = sums(text) + conversions(text) + _times(text) + _memories(text)
    found += _orders(text) + _faults(text) + (_questions(text) if ASK in offered else [])
    found.sort(key=lambda item: item[0])
    return [call for _, call in found if call.name in {*offered, "no_such_tool"}]


def _call(name: str, **arguments: object) -> FunctionCall:
    return FunctionCall(name, msgspec.json.encode(arguments).decode())


def sums(text: str) -> Found:
    """Find every sum; `PREVIOUS` stands for the result of the round before."""
    found = [(hit, _symbolic(hit[0])) for hit in EXPRESSION.finditer(text)]
    found = [(hit, sum_) for hit, sum_ in found if sum_ and _is_sum(text, hit.start(), sum_)]
    found += [(hit, f"{hit[2]} * {hit[1]} / 100") for hit in PERCENT.finditer(text)]
    found += [(hit, f"{hit[1]} * {hit[2]} / 100") for hit in PERCENT_ZH.finditer(text)]
    found += [(hit, f"{hit[1]} {_operator(hit[2])} {hit[3]}") for hit in SPELLED.finditer(text)]
    found += [
        (hit, f"{PREVIOUS} {_operator(hit[1] or hit[3])} {hit[2] or hit[4]}")
        for hit in CONTINUED.finditer(text)
    ]
    found += [(hit, f"{PREVIOUS} {_operator(hit[1])} {hit[2]}") for hit in ADDED.finditer(text)]
    return sorted(
        (
            (hit.start(), _call("calculate", expression=sum_.replace(",", "")))
            for hit, sum_ in found
        ),
        key=lambda item: item[0],
    )


def _symbolic(text: str) -> str:
    """Write a sum with Python's operators; empty when its brackets do not match."""
    while text.startswith("(") and text.count("(") > text.count(")"):
        text = text[1:]
    while text.endswith(")") and text.count(")") > text.count("("):
        text = text[:-1]
    balanced = text.count("(") == text.count(")")
    return text.translate(SIGNS).replace("^", "**") if balanced else ""


def _is_sum(text: str, start: int, sum_: str) -> bool:
    """Whether it is a sum, not a date, a phone number, a score or a template's braces."""
    if text[max(0, start - 2) : start] == "{{" or PADDED.search(sum_):
        return False
    if any(sign in sum_ for sign in "+*(") or re.search(r"\s[-/]\s", sum_):
        return True
    return ASKED.search(text) is not None and len(re.findall(r"[-/]", sum_)) == 1


def _operator(word: str) -> str:
    word = word.lower()
    return next(sign for start, sign in OPERATORS.items() if word.startswith(start))


def conversions(text: str) -> Found:
    """Find every conversion of units."""
    found = [(hit, hit[1], hit[2], hit[3]) for hit in FORWARD.finditer(text)]
    found += [(hit, hit[2], hit[3], hit[1]) for hit in BACKWARD.finditer(text)]
    return [(hit.start(), _conversion(*words)) for hit, *words in found]


def _conversion(value: str, source: str, target: str) -> FunctionCall:
    number = float(value)
    return _call(
        "convert_units",
        value=int(number) if number.is_integer() else number,
        from_unit=SYMBOLS[source.lower()],
        to_unit=SYMBOLS[target.lower()],
    )


def _times(text: str) -> Found:
    match = TIME.search(text) or ENDLESS.search(text)
    if match is None:
        return []
    lowered = text.lower()
    zones = [zone for zone, names in ZONES.items() if any(name in lowered for name in names)]
    calls = [_call("current_time", zone=zone) for zone in zones] or [_call("current_time")]
    return [(match.start(), call) for call in calls]


def _orders(text: str) -> Found:
    return [
        (hit.start(), _call("order", item=hit[2] or hit[4], grams=int(hit[1] or hit[3])))
        for hit in GOODS.finditer(text)
    ]


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


class QuestionField(msgspec.Struct, frozen=True, omit_defaults=True):
    """The one field of a form."""

    name: str
    label: str
    type: str
    required: bool
    options: tuple[str, ...] = ()


class QuestionForm(msgspec.Struct, frozen=True):
    """What the tool `ask_human` takes."""

    title: str
    fields: tuple[QuestionField]


def forms(text: str) -> list[tuple[int, QuestionForm]]:
    """Find every question back that the text asks for, with its position."""
    found = [(hit.start(), _form(text, hit)) for hit in ORDERED.finditer(text)]
    return [(at, form) for at, form in found if form is not None]


def _form(text: str, hit: re.Match[str]) -> QuestionForm | None:
    language = language_of(text)
    wanted = (hit["what"] or hit["what_zh"] or "").strip()
    field = _field(wanted, hit["options"] or hit["options_zh"] or "", language)
    if field is None:
        return None
    before = SENTENCE_END.split(text[: hit.start()].strip())[-1].strip(" ,，:：;；")
    return QuestionForm(_headed(before)[:LONGEST_LABEL] or field.label, (field,))


def _field(wanted: str, listed: str, language: Language) -> QuestionField | None:
    """Build the field of a question; None where the text asks for none plainly."""
    question = FIRST.sub("", wanted).strip()
    if not question:
        return QuestionField("go_on", PHRASES[language].go_on, "boolean", required=True)
    label = _headed(question)[:LONGEST_LABEL] + ("？" if language == "zh" else "?")
    options = _options(listed)
    for name, kind, words in KINDS:
        if words.search(wanted):
            shape = "choice" if options else kind
            return QuestionField(name, label, shape, required=True, options=options)
    return None


def _options(listed: str) -> tuple[str, ...]:
    """Read what there is to choose from; nothing where there is no choice."""
    parts = (part.strip()[:LONGEST_OPTION] for part in BETWEEN.split(listed))
    found = tuple(dict.fromkeys(part for part in parts if part))
    return found if len(found) > 1 else ()


def _headed(text: str) -> str:
    return text[:1].upper() + text[1:]
