"""What tells facts apart: numbers, names, negations, single words; in Chinese and English."""

from __future__ import annotations

from itertools import permutations, product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules.extraction.distinctions import keeps, marks, repeats, restates


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("我有两个孩子", "我有三个孩子"),
        ("我有两个孩子", "我家有3个小孩"),
        ("我的生日是五月三日", "我五月四日过生日"),
        ("房租是一千二百元", "房租是一千三百元"),
        ("I have two sisters", "There are three sisters in my family"),
        ("My flight leaves at 18:40", "My flight departs at 18:50"),
        ("My office is on the fourth floor", "I work on the fifth floor"),
        ("我住在上海", "我家在北京"),
        ("我养了一只叫咪咪的猫", "我家的猫名字叫豆豆"),
        ("王芳是我最好的朋友", "我最好的朋友是王强"),
        ("我在浙江大学读书", "我是复旦大学的学生"),
        ("我用 macOS 办公", "我办公用 Linux"),
        ("I live in Berlin", "My home is in Hamburg"),
        ("Anna is my sister", "My sister is Eve"),
        ("i live in berlin", "i live in hamburg"),
        ("I eat lunch at 小南国", "外婆家 is where I eat lunch"),
        ("我吃羊肉", "羊肉我是不吃的"),
        ("我对花生过敏", "我对花生不过敏"),
        ("我喜欢狗", "我很讨厌狗"),
        ("I eat meat", "I don't eat meat"),
        ("She likes dogs", "She hates dogs"),
        ("我喜欢喝绿茶", "我喜欢喝红茶"),
        ("I play the violin", "I play the cello"),
        ("我有一个弟弟和两个妹妹", "我有两个弟弟和一个妹妹"),
        ("We have two dogs and three cats", "I have two cats and three dogs"),
        ("I work from nine to five", "From five to nine I work"),
        ("我有一部手机", "我有两部手机"),
        ("I have a cat", "I have two cats"),
        ("我周一休息", "我周三休息"),
        ("我星期五交报告", "报告我在星期四交"),
        ("我有两个孩子，今年搬家", "我有3，4个孩子，今年搬家"),
        ("My sister Ann lives in Paris", "Anna, my sister, lives in Paris"),
        ("小雨是我女儿的名字", "我女儿叫小雪"),
        ("我老家在湖南", "河南是我的老家"),
        ("负责测试的是我同事张伟", "我同事李伟负责测试"),
        ("我喜欢猫，不喜欢狗", "我喜欢狗，不喜欢猫"),
        ("我喜欢猫但是不喜欢狗", "我喜欢狗，不喜欢猫"),
        ("我欠小王两百元", "小王欠我两百元"),
        ("Anna likes Tom", "Tom likes Anna"),
        ("我上午三点开会", "我下午三点开会"),
        ("蛇是我最怕的", "我的车是 2018 年的丰田"),
    ],
)
def test_a_fact_does_not_replace_one_that_differs(one: str, other: str) -> None:
    """In either direction; nor does it repeat it."""
    for pair in ((one, other), (other, one)):
        assert not keeps(*pair)
        assert not repeats(*pair)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("我喜欢喝绿茶", "我特别爱喝绿茶"),
        ("我有12个孩子", "我家有十二个小孩"),
        ("我养了一只猫", "我养了只叫咪咪的猫"),
        ("我有孩子", "我有两个孩子"),
        ("I live in Berlin", "My home is in Berlin"),
        ("I own a cat", "I have one cat called Mimi"),
        ("Likes tea", "The user loves green tea"),
        ("I do not eat meat", "Meat is something I never eat"),
        ("My rent is 1,200", "I pay 1200 of rent"),
        ("I can't swim", "I cannot swim"),
        ("I have three cats and two dogs", "We have two dogs and three cats"),
        ("我喜欢猫，不喜欢狗", "猫我喜欢，狗我不喜欢"),
        ("我一周健身三次", "我每个星期健身三次"),
        ("用户喜欢绿茶", "我很喜欢绿茶"),
        ("周杰伦是我喜欢的歌手", "我喜欢的歌手是周杰伦"),
        ("My daughter's age is 7", "My daughter is of the age of 7"),
    ],
)
def test_a_fact_replaces_one_it_says_in_other_words_or_more_of(old: str, new: str) -> None:
    """What is added may be a number or a name."""
    assert keeps(old, new)


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("我喜欢喝绿茶", "我最喜欢喝绿茶了", True),
        ("Python 是我最喜欢的语言", "我最喜欢的语言是 Python", True),
        ("I have a cat", "I have a cat called Mimi", False),
        ("I like cats", "I like cats and dogs", False),
        ("I like cats and dogs", "I like cats", True),
        ("Anna likes Tom", "Tom likes Anna", False),
        ("我有孩子", "我有两个孩子", False),
        ("I have a cat and two dogs", "I have a dog and two cats", False),
        ("猫我喜欢，狗我不喜欢", "我喜欢狗，不喜欢猫", False),
    ],
)
def test_a_fact_repeats_one_it_adds_nothing_to(old: str, new: str, *, same: bool) -> None:
    """Neither a word nor an order of names."""
    assert repeats(old, new) is same


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("二十一", {"21"}),
        ("一万两千零五", {"12005"}),
        ("三点一刻, 二〇二六", {"3", "1", "2026"}),
        ("一起 一直 十分", set()),
        ("007 and 1,000", {"7", "1000"}),
        ("周五 星期天 周五十点", {"五", "日", "10"}),
        ("一周三次", {"3"}),
        ("九" * 9_999, {"9" * 40, "9" * 39}),
    ],
)
def test_numbers_are_read_in_digits_and_words(text: str, numbers: set[str]) -> None:
    """A numeral in a word is none."""
    assert {number[1:] for number in marks(text).numbers} == numbers


DIGITS = st.integers(1, 99_999).map(str)
NUMBERED = (
    ("我有{}个孩子", "我家里有{}个小孩"),
    ("我在{}楼上班", "我上班的地方在{}层"),
    ("房租每月{}元", "我一个月的房租是{}块"),
    ("I have {} cats", "There are {} cats in my house"),
    ("My flight leaves at {}", "The departure of my flight is at {}"),
)


@given(DIGITS, DIGITS, st.sampled_from(NUMBERED))
def test_a_fact_is_told_by_its_number(one: str, other: str, forms: tuple[str, str]) -> None:
    """However the rest is said."""
    for form, another in product(forms, forms):
        assert keeps(form.format(one), another.format(other)) == (one == other)


NAMED = (
    ("我妻子叫{}", "{}是我妻子"),
    ("我和{}是同学", "{}和我是同学"),
    ("My wife is {}", "{} is my wife"),
    ("I live with {}", "{} lives with me"),
)
NAMES = ("张伟", "张强", "王建国", "李娜", "小王", "阿明", "Tom", "Tim", "Ann", "Anna", "O'Neil")


@pytest.mark.parametrize("forms", NAMED)
def test_a_fact_is_told_by_its_name(forms: tuple[str, str]) -> None:
    """However the rest is said."""
    for one, other in permutations(NAMES, 2):
        for form, another in product(forms, forms):
            assert not keeps(form.format(one), another.format(other)), (one, other)


def test_of_facts_that_the_rules_do_not_know_none_is_lost() -> None:
    """And most paraphrases may replace the fact they state, in both directions."""
    path = Path(__file__).parents[1] / "data" / "further_facts.txt"
    conversations: list[list[tuple[str, str]]] = []
    for line in path.read_text("utf-8").splitlines():
        if line.startswith("= "):
            conversations.append([])
        if line[:1] in {"=", "~", "!"}:
            conversations[-1].append((line[0], line[2:]))
    same = other = lost = 0
    for said in conversations:
        for (mark, one), (another_mark, another) in permutations(said, 2):
            if "!" not in {mark, another_mark}:
                other += 1
                same += keeps(one, another)
            else:
                lost += keeps(one, another) or restates(one, another)
    assert lost == 0
    assert same / other >= 0.86


@pytest.mark.untraced
@given(st.text(max_size=60))
def test_a_text_repeats_itself(text: str) -> None:
    """Whatever it holds; and it is read without an error."""
    assert repeats(text, text)
