"""What tells two facts apart that read alike: a number, a name, a negation, a single word.

Vectors do not: "I have two sisters" is nearer to "I have three sisters" than to most of its
paraphrases. Chinese and English; what these rules do not know they take for a name.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from rules.emotion import denials

_CJK: Final = "\u3400-\u4dbf\u4e00-\u9fff"
_TOKEN: Final = re.compile(rf"\d+(?:[.:,/-]\d+)*|[^\W\d_{_CJK}]+(?:['’][^\W\d_]+)?|[{_CJK}]")

# Words that may stand for each other; the first of a line stands for all.
_SYNONYMS: Final = """
喜欢 最喜欢 特别喜欢 更喜欢 最爱 偏爱 喜爱 热爱 爱
住在 家在 居住在 现居 定居在 家住
妈妈 母亲 妈
爸爸 父亲 爸
妻子 太太 老婆
丈夫 老公 先生
孩子 小孩
养 饲养
会 懂得 懂
叫 名叫 叫做 名字叫 名字是 的名字是 名为 名是
学 学习 在学 正在学
工作 上班 任职 就职 职业
每天 天天
起床 起来
早上 早晨 清晨
旅行 旅游
购买 买 购于 购
like likes liked love loves enjoy enjoys prefer prefers
live lives living lived reside resides home
called named name
allergic allergy
mother mum mom
father dad
leave leaves depart departs departure
work works working job
child kid
car drive drives
learn learning lessons
run runs running
move moving
"""
_GRAMMAR: Final = """
我 你 他 她 的 了 是 有 也 就 都 在 这 那 边 很 呢 吧 啊 着 过 把 于 为
只 个 位 用 户 现 平 时 般 一 要 上 从 起 家
a an the i i'm my me user user's is am are was were be been being do does did to of in on at for
and that this it its by as with there really very will would who what which any some have has had
got own owns not no never don't doesn't didn't isn't aren't
"""
_OPENING: Final = """
he she his her we our they their you your every each always often works working lives living likes
loves plays prefers enjoys wants plans speaks studies drives runs hates dislikes eats drinks goes
moved born married allergic
"""
_FUNCTION_WORDS: Final = frozenset(_GRAMMAR.split())
_OPENERS: Final = _FUNCTION_WORDS | frozenset(_OPENING.split())
"""Words that begin a sentence with a capital and are no names."""

_NUMERAL_WORDS: Final = re.compile(
    "(?<!十)一(?![个只条张件位次天年月日号岁块本台辆名家口头杯瓶碗双对种层楼周季十百千万])"
    "|十分|千万|五花肉|三明治|百[度合]|两边"
)
"""Numerals that are no numbers; 一 is one before a measure word."""
_NUMERAL: Final = re.compile("[零〇一二两三四五六七八九十百千万亿]+")
_DIGITS: Final = {digit: number for number, digit in enumerate("零一二三四五六七八九")} | {
    "〇": 0,
    "两": 2,
}
_UNITS: Final = {"十": 10, "百": 100, "千": 1_000}
_LARGE: Final = {"万": 10_000, "亿": 100_000_000}
_TO_TWENTY: Final = """
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
sixteen seventeen eighteen nineteen twenty
"""
_ORDINALS: Final = """
first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth
"""
_TENS: Final = "ten twenty thirty forty fifty sixty seventy eighty ninety"
_ENGLISH: Final = {
    **{word: str(10 * number) for number, word in enumerate(_TENS.split(), 1)},
    **{word: str(number) for number, word in enumerate(_TO_TWENTY.split())},
    **{word: str(number) for number, word in enumerate(_ORDINALS.split(), 1)},
    "hundred": "100",
    "thousand": "1000",
    "twice": "2",
    "once": "1",
}

_AVERSIONS: Final = re.compile(
    r"不过(?=敏|关)|讨厌|反感|厌恶|拒绝|\b(?:hates?|dislikes?|refuses?|stopped|quit|former(?:ly)?)\b"
)
"""Words that deny without a negation."""

_SURNAMES: Final = (
    "王李张刘陈杨黄赵吴周徐孙马朱胡郭何林高罗郑梁谢宋唐许韩邓冯曹彭曾肖田董潘袁蔡蒋余于杜叶程魏"
    "苏吕丁任卢姚沈钟姜崔谭陆范汪廖石金贾韦夏付方邹熊孟秦邱江尹薛闫段雷侯龙史陶黎贺顾毛郝龚邵万"
)
_PLACES: Final = (
    "北京|上海|天津|重庆|广州|深圳|杭州|南京|苏州|成都|武汉|西安|长沙|青岛|大连|厦门|福州|济南|郑州|"
    "沈阳|哈尔滨|长春|昆明|贵阳|南宁|海口|三亚|拉萨|兰州|银川|西宁|太原|合肥|南昌|无锡|宁波|温州|香港|"
    "澳门|台北|东京|大阪|京都|首尔|曼谷|新加坡|伦敦|巴黎|柏林|纽约|洛杉矶|旧金山|中国|日本|韩国|美国|"
    "英国|法国|德国|加拿大|澳大利亚|泰国|意大利|西班牙(?!语)"
)
_STOP: Final = "的是在和也很会喜有这那工上时"
_NAMES: Final = tuple(
    re.compile(pattern)
    for pattern in (
        rf"(?:叫做?|名字?是|名为|姓|昵称是?|小名)\s*([{_CJK}]{{1,4}}?)(?=[{_STOP}]|$|[^{_CJK}])",
        rf"(?:公司|单位|学校|老家|家乡|城市|餐厅|朋友|同事|老板)是([{_CJK}]{{2,6}})",
        rf"[在是去到从于]([{_CJK}]{{2,6}}?(?:大学|学院|中学|小学|医院|银行|公司|集团))",
        rf"(?:在|去|到|来自)([{_CJK}]{{2,6}}?)(?=工作|上班|上学|读书|任职|实习|旅|玩|出差)",
        rf"(?:^|[是叫和跟与同、，。\s给])([{_SURNAMES}][{_CJK}]{{1,2}}?)(?=$|[{_STOP}]|[^{_CJK}])",
        f"({_PLACES})",
        r"[“\"「《]([^”\"」》]{1,30})[”\"」》]",
    )
)
_RUNS: Final = re.compile(rf"[{_CJK}]+|[A-Za-z]{{2,}}")
_SENTENCE_END: Final = '.!?。！？:：“"「'
_STEM: Final = 5
"""Letters by which words are told apart here."""
_SHORT: Final = 4
"""Tokens of a part that one word may be."""


def _synonym_table() -> tuple[re.Pattern[str], Mapping[str, str]]:
    lines = [line.split() for line in _SYNONYMS.strip().splitlines()]
    table = {word: line[0] for line in lines for word in line}
    longest = sorted(table, key=len, reverse=True)
    ascii_words = "|".join(word for word in longest if word.isascii())
    others = "|".join(word for word in longest if not word.isascii())
    return re.compile(rf"\b(?:{ascii_words})\b|{others}"), table


_SYNONYM, _CANONICAL = _synonym_table()


@dataclass(frozen=True, slots=True)
class Marks:
    """What a fact can be told by; `words` without numbers and those of grammar, `folded` whole."""

    numbers: frozenset[str]
    names: tuple[str, ...]
    denials: int
    words: tuple[str, ...]
    folded: str


@lru_cache(maxsize=1_024)
def marks(text: str) -> Marks:
    """Read the marks of a fact."""
    plain = unicodedata.normalize("NFKC", text)
    folded = plain.casefold()
    canonical = _SYNONYM.sub(lambda found: _CANONICAL[found[0]], folded)
    words = tuple(one for one in _TOKEN.findall(canonical) if _tells(one))
    return Marks(
        frozenset(_numbers(folded)),
        tuple(_names(plain)),
        denials(folded) + len(_AVERSIONS.findall(folded)),
        words,
        folded,
    )


def keeps(old: str, new: str) -> bool:
    """Whether `new` may replace `old`: it has its numbers and names, and is denied as often.

    Nor are they the same text but for one word, unless that is known to mean the same.
    """
    before, after = marks(old), marks(new)
    lost = before.numbers - after.numbers
    if lost - {"1"} or (lost and after.numbers):  # "a cat" is "one cat"
        return False
    if before.denials != after.denials:
        return False
    if any(name not in after.folded for name in before.names):
        return False
    return not _differ_in_a_word(before.words, after.words)


def repeats(old: str, new: str) -> bool:
    """Whether `new` says nothing that `old` does not, in words that are almost the same."""
    before, after = marks(old), marks(new)
    return (
        keeps(old, new)
        and before.numbers - {"1"} == after.numbers - {"1"}
        and set(after.words) <= set(before.words)
        and _in_order(sorted(before.names, key=before.folded.find), after)
    )


def restates(old: str, new: str) -> bool:
    """Whether either may replace the other, and they have a word in common."""
    shared = set(marks(old).words).intersection(marks(new).words)
    return bool(shared) and keeps(old, new) and keeps(new, old)


def _tells(word: str) -> bool:
    """Whether a word says something; numbers are compared by themselves."""
    return not (
        word in _FUNCTION_WORDS or word in _ENGLISH or word[0].isdigit() or _NUMERAL.fullmatch(word)
    )


def _in_order(names: list[str], text: Marks) -> bool:
    """Whether names stand in a text in their order: who likes whom is not told by words alone."""
    places = [text.folded.find(name) for name in names]
    return places == sorted(places)


def _differ_in_a_word(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether both are the same but for a short part that has no word in common."""
    least = min(len(one), len(other))
    start = next((at for at in range(least) if one[at] != other[at]), least)
    rest = least - start
    end = next((at for at in range(rest) if one[-1 - at] != other[-1 - at]), rest)
    parts = one[start : len(one) - end], other[start : len(other) - end]
    stems = [{word[:_STEM] for word in part} for part in parts]
    apart = all(parts) and stems[0].isdisjoint(stems[1])
    return apart and start + end > 0 and max(map(len, parts)) <= _SHORT


def _numbers(text: str) -> Iterator[str]:
    for token in _TOKEN.findall(text):
        if token[0].isdigit():
            yield token.replace(",", "").lstrip("0") or "0"
        elif token in _ENGLISH:
            yield _ENGLISH[token]
    for numeral in _NUMERAL.findall(_NUMERAL_WORDS.sub(" ", text)):
        yield str(_value(numeral))


def _value(numeral: str) -> int:
    """Return the number a Chinese numeral stands for; digits in a row are read as such."""
    if not any(one in _UNITS or one in _LARGE for one in numeral):
        return int("".join(str(_DIGITS[one]) for one in numeral))
    total = section = digit = 0
    for one in numeral:
        if one in _DIGITS:
            digit = _DIGITS[one]
        elif one in _UNITS:
            section, digit = section + (digit or 1) * _UNITS[one], 0
        else:
            total, section, digit = total + (section + digit or 1) * _LARGE[one], 0, 0
    return total + section + digit


def _names(text: str) -> Iterator[str]:
    for token in re.finditer(r"[^\W\d_]+(?:['’][^\W\d_]+)?", text):
        word = token[0]
        if not word[0].isupper() or word in {"I", "I'm", "I’m", "I've"}:
            continue
        before = text[: token.start()].rstrip()
        begins = not before or before[-1] in _SENTENCE_END
        if not (begins and word.casefold() in _OPENERS):
            yield _bare(word.casefold())
    # A word of the other script is a name: a brand in Chinese, a restaurant in English.
    latin, dense = (
        [run for run in _RUNS.findall(text) if run.isascii() is ascii_] for ascii_ in (True, False)
    )
    yield from map(str.casefold, latin if 2 * len(latin) <= sum(map(len, dense)) else dense)
    for pattern in _NAMES:
        yield from (found.casefold() for found in pattern.findall(text))


def _bare(word: str) -> str:
    """Return a word without the letters its genitive has added."""
    return word.removesuffix("'s").removesuffix("’s")
