"""What tells two facts apart that read alike: a number, a name, a negation, a single word.

Vectors do not: "I have two sisters" is nearer to "I have three sisters" than to most of its
paraphrases. Chinese and English; what these rules do not know they take for a name.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, groupby, pairwise
from typing import Final

from rules.emotion import denials

_CJK: Final = "\u3400-\u4dbf\u4e00-\u9fff"
_LATIN: Final = rf"[^\W\d_{_CJK}]+(?:['’][^\W\d_{_CJK}]+)?"
_TOKEN: Final = re.compile(
    rf"""
    (?P<end>    [.,;:!?。、…\n] | 但是? | 可是 | 而且? | \bbut\b )
  | (?P<digits> \d+ (?:[.:,/-]\d+)* )
  | (?P<day>    (?:星期|礼拜|周) [一二三四五六日天] (?![次个天回种]) )
  | (?P<idiom>  一 (?=[起直般定样些下边旦切向共生致时度旁律概再]) | [统唯万]一
              | 十分 | 千万 | 五花肉 | 三明治 | 百[度合] | 两边 )
  | (?P<numeral> [零〇一二两三四五六七八九十百千万亿]{{1,40}} )
  | (?P<word>   {_LATIN} | [{_CJK}] )
    """,
    re.VERBOSE,
)
"""A numeral in an idiom is no number."""
_NUMBER: Final = "#"
_ONE: Final = "#1"
_DENIED: Final = "¬"
_END: Final = "|"
_SELF: Final = "我"
_SIGNS: Final = _NUMBER + _DENIED + _END + _SELF
_PERSON: Final = frozenset({"我", "i", "i'm", "i’m", "me", "my", "user", "user's", "user’s"})

# Words that may stand for each other; the first of a line stands for all.
_SYNONYMS: Final = """
我 用户 本人
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
每周 一周 每星期 每个星期 一个星期
每月 每个月 一个月
元 块钱 块
楼 层
读书 上学 念书
旅行 旅游
购买 买 购于 购
like likes liked love loves enjoy enjoys prefer prefers
live lives living lived reside resides home
called named name
allergic allergy
mother mum mom
father dad
leave leaves depart departs departure
work works working job employed
child kid
car drive drives
hate hates dislike dislikes
born birthday
learn learning lessons
run runs running
move moving
"""
_GRAMMAR: Final = """
的 了 是 有 也 就 都 在 这 那 边 很 呢 吧 啊 着 过 把 只 个 现 般 平 时 从 起 要 为 于
the is am are was were be been being do does did to of in on at for and that this it its by
as with there really very will would who what which any some have has had got own owns
"""
_OPENING: Final = """
he she his her we our they their you your every each always often works working lives living likes
loves plays prefers enjoys wants plans speaks studies drives runs hates dislikes eats drinks goes
moved born married allergic when while since after before during
"""
_FUNCTION_WORDS: Final = frozenset(_GRAMMAR.split())
_OPENERS: Final = _FUNCTION_WORDS | _PERSON | frozenset(_OPENING.split())
"""Words that begin a sentence with a capital and are no names."""

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
    **dict.fromkeys(("once", "a", "an"), "1"),
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
    "河北|山西|辽宁|吉林|黑龙江|江苏|浙江|安徽|福建|江西|山东|河南|湖北|湖南|广东|广西|海南|四川|贵州|云南|"
    "西藏|陕西|甘肃|青海|宁夏|新疆|内蒙古|台湾|"
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
        rf"(?:^|[。、\s])([{_CJK}]{{2,4}})是(?:我|用户)",
        rf"(?:^|[。、\s认识和跟与给帮找见陪嫁娶手事友板师居哥弟姐妹子女儿夫])([{_SURNAMES}][{_CJK}])",
        rf"([小老][{_SURNAMES}]|阿[{_CJK}])",
        rf"(?:^|[是叫和跟与同、，。\s给])([{_SURNAMES}][{_CJK}]{{1,2}}?)(?=$|[{_STOP}]|[^{_CJK}])",
        f"({_PLACES})",
        r"[“\"「《]([^”\"」》]{1,30})[”\"」》]",
    )
)
_ADDED: Final = re.compile("['’](?:s|m|d|ve|re|ll)$")
_PLURAL: Final = re.compile("(?<=[a-z]{2}[^su])s$")
_TITLE: Final = re.compile("(?<=.)(?:老师|先生|女士|小姐|医生|教授|经理|师傅)$")
_RUNS: Final = re.compile(rf"[{_CJK}]+|[A-Za-z]{{2,}}")
_SENTENCE_END: Final = '.!?。！？:：“"「'
_STEM: Final = 5
"""Letters by which words are told apart here."""
_STARTS: Final = 64
"""Tokens at which a text may begin another time: what takes the square of a text is bounded."""
_COMMON: Final = 4
"""Letters by which words are the same."""
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
    """What a fact can be told by.

    `tokens` are its words without those of grammar, in synonyms; numbers as `#7`, "我" for the
    user, "¬" for a denial and "|" for the end of a clause. `latin` are the words of a Latin script,
    `folded` is all of the text.
    """

    tokens: tuple[str, ...]
    names: tuple[str, ...]
    latin: frozenset[str]
    folded: str

    @property
    def words(self) -> tuple[str, ...]:
        """The words alone."""
        return tuple(one for one in self.tokens if one[0] not in _SIGNS)

    @property
    def numbers(self) -> Counter[str]:
        """The numbers, and how often each is there."""
        return Counter(one for one in self.tokens if one[0] == _NUMBER)

    @property
    def denials(self) -> int:
        """How often something is denied."""
        return self.tokens.count(_DENIED)


@lru_cache(maxsize=1_024)
def marks(text: str) -> Marks:
    """Read the marks of a fact."""
    # Normalised, a comma between clauses would stand between the digits of one number.
    plain = unicodedata.normalize("NFKC", text.replace("，", "。"))
    folded = plain.casefold()
    canonical = _SYNONYM.sub(lambda found: _CANONICAL[found[0]], folded)
    return Marks(
        tuple(_tokens(canonical)),
        tuple(_names(plain)),
        frozenset(map(_bare, re.findall(_LATIN, folded))),
        folded,
    )


def keeps(old: str, new: str) -> bool:
    """Whether `new` may replace `old`: it has its numbers and names, and is denied as often.

    They have more than a third of the shorter one in common. Nor do they contradict each other: by
    another number or denial at the same words, by the order of the same words, or by one word,
    unless that is known to mean the same.
    """
    before, after = marks(old), marks(new)
    lost, gained = before.numbers - after.numbers, after.numbers - before.numbers
    if lost.keys() - {_ONE} or (lost and gained):  # "a cat" is "the cat", and not "two cats"
        return False
    if before.denials != after.denials or not all(_has_name(after, one) for one in before.names):
        return False
    return _have_a_third_in_common(before, after) and not (
        _differ_in_a_word(before.words, after.words)
        or _differ_in_order(before, after)
        or _contradict(_counted(before.tokens), _counted(after.tokens))
        or _contradict(_denied(before.tokens), _denied(after.tokens))
    )


def repeats(old: str, new: str) -> bool:
    """Whether `new` says nothing that `old` does not, in words that are almost the same."""
    before, after = marks(old), marks(new)
    return (
        keeps(old, new)
        and before.numbers.keys() - {_ONE} == after.numbers.keys() - {_ONE}
        and set(after.words) <= set(before.words)
        and (not _tells_by_order(before) or _in_turn(after.tokens, before.tokens))
    )


def restates(old: str, new: str) -> bool:
    """Whether either may replace the other."""
    return keeps(old, new) and keeps(new, old)


def _tokens(text: str) -> Iterator[str]:
    denials_at = denials(text)
    aversions_at = {found.start() for found in _AVERSIONS.finditer(text)}
    for found in _TOKEN.finditer(text):
        kind, word = found.lastgroup, found[0]
        if found.start() in denials_at | aversions_at:
            yield _DENIED
        if kind == "end":
            yield _END
        elif kind == "digits":
            yield _NUMBER + (word.replace(",", "").lstrip("0") or "0")
        elif kind == "day":
            yield _NUMBER + word[-1].replace("天", "日")
        elif kind == "numeral":
            yield f"{_NUMBER}{_value(word)}"
        elif word in _ENGLISH:
            yield _NUMBER + _ENGLISH[word]
        elif word in _PERSON:
            yield _SELF
        elif kind != "idiom" and found.start() not in denials_at and word not in _FUNCTION_WORDS:
            yield _PLURAL.sub("", _bare(word))


def _have_a_third_in_common(one: Marks, other: Marks) -> bool:
    stems, others = (
        {token[:_COMMON] for token in text.tokens if token not in {_SELF, _DENIED, _END}}
        for text in (one, other)
    )
    return stems == others or 3 * len(stems & others) > min(len(stems), len(others))


def _has_name(text: Marks, name: str) -> bool:
    return name in (text.latin if name.isascii() else text.folded)


def _counted(tokens: tuple[str, ...]) -> dict[str, set[str]]:
    """Return the numbers by the words after them."""
    found: dict[str, set[str]] = {}
    for one, other in pairwise(tokens):
        if one[0] == _NUMBER and other[0] not in _SIGNS:
            found.setdefault(other, set()).add(one)
    return found


def _denied(tokens: tuple[str, ...]) -> dict[str, set[str]]:
    """Return by its words whether a clause is denied; nothing of a text with one clause."""
    clauses = [list(part) for end, part in groupby(tokens, _END.__eq__) if not end]
    found: dict[str, set[str]] = {}
    for clause in clauses if len(clauses) > 1 else ():
        for word in clause:
            found.setdefault(word, set()).add("odd" if clause.count(_DENIED) % 2 else "even")
    return found


def _contradict(one: Mapping[str, set[str]], other: Mapping[str, set[str]]) -> bool:
    return any(one[key].isdisjoint(other[key]) for key in one.keys() & other.keys())


def _differ_in_order(one: Marks, other: Marks) -> bool:
    """Whether the same tokens stand in another order, which tells who, how many or what not."""
    tokens, others = ([token for token in text.tokens if token != _END] for text in (one, other))
    if Counter(tokens) != Counter(others) or _in_turn(tokens, others):
        return False
    who = {_SELF, *chain.from_iterable([name] if name.isascii() else name for name in one.names)}

    def order(text: Sequence[str]) -> tuple[list[str], list[str]]:
        return [one for one in text if one in who], [one for one in text if one[0] == _NUMBER]

    return one.denials > 0 or order(tokens) != order(others)


def _tells_by_order(text: Marks) -> bool:
    """Whether a text has several persons or numbers, or denies something."""
    persons = {*text.names, _SELF} if _SELF in text.tokens else set(text.names)
    return len(persons) > 1 or sum(text.numbers.values()) > 1 or text.denials > 0


def _in_turn(part: Sequence[str], whole: Sequence[str]) -> bool:
    """Whether a text has what another has, in its order, which may begin anywhere.

    "Anna is my sister" is "my sister is Anna"; "Anna likes Tom" is not "Tom likes Anna".
    """
    wanted, there = ([one for one in text if one not in {_END, _ONE}] for text in (part, whole))
    starts = range(min(len(there), _STARTS) or 1)
    return any(_is_part(wanted, [*there[start:], *there[:start]]) for start in starts)


def _is_part(part: Sequence[str], whole: Sequence[str]) -> bool:
    rest = iter(whole)
    return all(one in rest for one in part)


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
        if not word[0].isupper() or _bare(word) == "I":
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
        yield from (_TITLE.sub("", found).casefold() for found in pattern.findall(text))


def _bare(word: str) -> str:
    """Return a word without what an apostrophe has added."""
    return _ADDED.sub("", word)
