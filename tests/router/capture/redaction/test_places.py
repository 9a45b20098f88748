"""Places: which paths need no walk, because what they name is said nowhere."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from router.capture.redaction import Json, Paths, Spot, collect, reachable

NAMES = ("a", "b", "ü", 'q"', "0", "1")
values = st.recursive(
    st.sampled_from(["x", 1, None]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)
    ),
    max_leaves=8,
)
some_paths = st.lists(
    st.lists(st.sampled_from((*NAMES, "*")), max_size=3).map(tuple), max_size=3
).map(tuple)


def found(tree: Json, paths: Paths) -> list[tuple[str, str]]:
    """Return what paths lead to."""
    spots: list[Spot] = []
    collect(spots, 0, [tree], 0, paths)
    return [(spot.pointed, spot.text) for spot in spots if spot.pointed]


@given(values, some_paths, st.booleans())
def test_what_is_left_out_leads_nowhere(tree: Json, paths: Paths, plain: bool) -> None:  # noqa: FBT001 - drawn
    """Whether names are written as they are or in escapes."""
    left = reachable(paths, json.dumps(tree, ensure_ascii=plain).encode())
    assert found(tree, left) == found(tree, paths)


def test_a_name_that_does_not_occur_is_not_searched() -> None:
    """That is the use of it."""
    assert reachable((("user_name",),), b'{"content":"hello"}') == ()
