"""Words and alignment: differences as people read them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from compare.report.text_diff import word_diff
from compare.streams.alignment import MATCHED_AT_MOST, align


def test_one_inserted_item_is_one_block() -> None:
    """Aligned, not zipped."""
    blocks = [block for block in align("abcdef", "abXcdef") if not block.equal]
    assert [(len(b.left), len(b.right)) for b in blocks] == [(0, 1)]


@given(st.lists(st.integers(0, 3)), st.lists(st.integers(0, 3)))
def test_blocks_cover_both_sequences_in_order(left: list[int], right: list[int]) -> None:
    """Equal blocks are equal, and nothing is lost or doubled."""
    blocks = align(left, right)
    assert [i for block in blocks for i in block.left] == list(range(len(left)))
    assert [j for block in blocks for j in block.right] == list(range(len(right)))
    for block in blocks:
        if block.equal:
            assert [left[i] for i in block.left] == [right[j] for j in block.right]


def test_a_hopelessly_long_middle_is_one_block() -> None:
    """The matcher is quadratic; a report must still end."""
    left, right = range(MATCHED_AT_MOST + 1), range(10_000, 10_000 + MATCHED_AT_MOST + 1)
    assert len(align(left, right)) == 1


def test_chinese_is_compared_character_by_character() -> None:
    """A sentence without spaces is not one word."""
    assert [tuple(p) for p in word_diff("你是友好的助手", "你是冷淡的助手")] == [
        ("same", "你是"),
        ("gone", "友好"),
        ("new", "冷淡"),
        ("same", "的助手"),
    ]


def test_latin_is_compared_word_by_word() -> None:
    """A changed word is shown whole."""
    pieces = word_diff("be kind today", "be cold today")
    assert ("gone", "kind") in pieces
    assert ("new", "cold") in pieces


def test_what_is_equal_is_shortened_in_the_middle() -> None:
    """What stands next to a difference stays."""
    [_, _, same, *_] = word_diff("a" + " x" * 500 + " b", "c" + " x" * 500 + " d")
    assert " … " in same.text
    assert len(same.text) < 200


@given(st.text(max_size=60), st.text(max_size=60))
def test_both_texts_can_be_read_off_a_difference(legacy: str, graph: str) -> None:
    """As long as nothing was shortened."""
    pieces = word_diff(legacy, graph)
    assert "".join(p.text for p in pieces if p.op != "new") == legacy
    assert "".join(p.text for p in pieces if p.op != "gone") == graph
