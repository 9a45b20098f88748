"""Places: which paths need no walk, because what they name is said nowhere."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from router.capture.redaction.passes import Json, Paths, reachable, walk

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


class Noting:
    """Notes the values paths lead to."""

    def __init__(self) -> None:
        self.pointed_at: list[tuple[str, str]] = []

    def leaf(self, text: str, *, protocol: bool) -> str:
        """Pass over a text."""
        del protocol
        return text

    def number(self, value: int) -> int | str:
        """Pass over a number."""
        return value

    def pointed(self, name: str, value: str) -> str:
        """Note a value."""
        self.pointed_at.append((name, value))
        return value


def found(tree: Json, paths: Paths) -> list[tuple[str, str]]:
    """Return what paths lead to."""
    noting = Noting()
    walk(tree, paths, noting)  # type: ignore[arg-type]
    return noting.pointed_at


@given(values, some_paths, st.booleans())
def test_what_is_left_out_leads_nowhere(tree: Json, paths: Paths, plain: bool) -> None:  # noqa: FBT001 - drawn
    """Whether names are written as they are or in escapes."""
    left = reachable(paths, json.dumps(tree, ensure_ascii=plain).encode())
    assert found(tree, left) == found(tree, paths)


def test_a_name_that_does_not_occur_is_not_searched() -> None:
    """That is the use of it."""
    assert reachable((("user_name",),), b'{"content":"hello"}') == ()
