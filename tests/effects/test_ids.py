"""Identifiers: random ones and counted ones."""

from __future__ import annotations

import pytest

from contract.ports import Ids
from effects.ids import CountingIds, RandomIds


@pytest.mark.parametrize("ids", [RandomIds(), CountingIds()], ids=["random", "counting"])
async def test_no_identifier_comes_twice(ids: Ids) -> None:
    """A thousand are a thousand, short and printable."""
    made = [await ids.new("final_message") for _ in range(1_000)]
    assert len(set(made)) == len(made)
    assert all(0 < len(one) <= 64 and one.isascii() and one.isprintable() for one in made)


async def test_counted_identifiers_can_be_foretold() -> None:
    """Two counters with one prefix give the same row, whatever the site."""
    left, right = CountingIds("m"), CountingIds("m")
    assert [await left.new("a"), await left.new("b")] == ["m-1", "m-2"]
    assert [await right.new("b"), await right.new("a")] == ["m-1", "m-2"]
