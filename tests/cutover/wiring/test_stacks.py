"""Loading stacks: from where the configuration says, or with a word about what is wrong."""

from __future__ import annotations

import pytest

import legacy
from cutover.wiring.stacks import StackNotLoaded, load_stack


def test_a_stack_is_found_by_module_and_name() -> None:
    """`FLOWS` is what it is called unless said otherwise."""
    for where in ("legacy", "legacy:FLOWS"):
        assert load_stack("legacy", where).flows == legacy.FLOWS


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("nowhere:FLOWS", "No module named 'nowhere'"),
        ("legacy:FLOW", "no attribute 'FLOW'"),
        ("os:environ", "no mapping from the names of flows to flows"),
        ("os:sep", "no mapping from the names of flows to flows"),
    ],
)
def test_what_is_no_stack_is_refused(where: str, why: str) -> None:
    """With its name, its place and the reason: at the start, not at the first request."""
    with pytest.raises(StackNotLoaded) as refused:
        load_stack("graph", where)
    assert str(refused.value).startswith(f"stack 'graph' cannot be loaded from {where!r}: ")
    assert why in str(refused.value)
