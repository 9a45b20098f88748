"""What tells facts apart: numbers, names, negations, single words; in Chinese and English."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules.extraction.distinctions import keeps, marks, repeats


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
        ("三点一刻, 二〇二六", {"3", "2026"}),
        ("一起 一直 十分", set()),
        ("007 and 1,000", {"7", "1000"}),
    ],
)
def test_numbers_are_read_in_digits_and_words(text: str, numbers: set[str]) -> None:
    """A numeral in a word is none."""
    assert marks(text).numbers == numbers


@pytest.mark.untraced
@given(st.text(max_size=60))
def test_a_text_repeats_itself(text: str) -> None:
    """Whatever it holds; and it is read without an error."""
    assert repeats(text, text)
