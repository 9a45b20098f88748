"""The edit distance against the table everybody knows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compare.noise import distances as module
from compare.noise.distances import bag_edits, edits, share_edited

TEXTS = st.lists(st.sampled_from("abcd"), max_size=40)


def table(one: list[str], other: list[str]) -> int:
    """Wagner and Fischer's table."""
    row = list(range(len(other) + 1))
    for i, left in enumerate(one, 1):
        above, row = row, [i]
        for j, right in enumerate(other, 1):
            row.append(min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (left != right)))
    return row[-1]


@pytest.mark.slow
@given(TEXTS, TEXTS)
def test_bits_give_what_the_table_gives(one: list[str], other: list[str]) -> None:
    """Bit-parallel or not, and whatever is trimmed."""
    expected = table(one, other)
    assert edits(one, other) == expected
    longer = max(len(one), len(other), 1)
    assert share_edited(one, other) == expected / longer
    assert bag_edits(one, other) <= expected


@given(TEXTS, TEXTS, TEXTS)
def test_edits_are_a_distance(one: list[str], other: list[str], third: list[str]) -> None:
    """Symmetric, zero for equals alone, no detour is shorter."""
    assert edits(one, other) == edits(other, one)
    assert (edits(one, other) == 0) == (one == other)
    assert edits(one, third) <= edits(one, other) + edits(other, third)


@pytest.mark.slow
def test_very_long_texts_are_compared_as_bags() -> None:
    """The cost is bounded; what is said is the least it can be."""
    size = 1 + int(module.CELLS_AT_MOST**0.5)
    one = list(range(1, size))
    assert share_edited([0, *one], [*one, 0]) == 0.0
    assert share_edited([0, *one], [-1, *(-k - 1 for k in one)]) == 1.0
