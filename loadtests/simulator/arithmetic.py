"""Sums in a user's text, as expressions for the tool `calculate`."""

import re

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


def expressions(text: str) -> list[tuple[int, str]]:
    """Find every sum with its position; `PREVIOUS` stands for the result of the round before."""
    found = [(match.start(), _symbolic(match)) for match in EXPRESSION.finditer(text)]
    found = [(start, sum_) for start, sum_ in found if sum_ and _meant(text, start, sum_)]
    for match in PERCENT.finditer(text):
        found.append((match.start(), f"{_plain(match[2])} * {_plain(match[1])} / 100"))
    for match in PERCENT_ZH.finditer(text):
        found.append((match.start(), f"{_plain(match[1])} * {_plain(match[2])} / 100"))
    for match in SPELLED.finditer(text):
        sum_ = f"{_plain(match[1])} {_operator(match[2])} {_plain(match[3])}"
        found.append((match.start(), sum_))
    return sorted(found + _continued(text))


def _continued(text: str) -> list[tuple[int, str]]:
    found = []
    for match in CONTINUED.finditer(text):
        word, number = (match[1], match[2]) if match[1] else (match[3], match[4])
        found.append((match.start(), f"{PREVIOUS} {_operator(word)} {_plain(number)}"))
    return found + [
        (match.start(), f"{PREVIOUS} {_operator(match[1])} {_plain(match[2])}")
        for match in ADDED.finditer(text)
    ]


def _symbolic(match: re.Match[str]) -> str:
    """Write a sum with Python's operators; empty when its brackets do not match."""
    text = match[0]
    while text.startswith("(") and text.count("(") > text.count(")"):
        text = text[1:]
    while text.endswith(")") and text.count(")") > text.count("("):
        text = text[:-1]
    if text.count("(") != text.count(")"):
        return ""
    return text.translate(SIGNS).replace("^", "**")


def _meant(text: str, start: int, sum_: str) -> bool:
    """Tell a sum from a date, a phone number, a score and a template's braces."""
    if text[max(0, start - 2) : start] == "{{" or PADDED.search(sum_):
        return False
    if any(sign in sum_ for sign in "+*(") or re.search(r"\s[-/]\s", sum_):
        return True
    return ASKED.search(text) is not None and len(re.findall(r"[-/]", sum_)) == 1


def _operator(word: str) -> str:
    word = word.lower()
    return next(sign for start, sign in OPERATORS.items() if word.startswith(start))


def _plain(number: str) -> str:
    return number.replace(",", "")
