"""Where two JSON values differ, told fast where they are of one shape."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from compare.layers import values
from compare.layers.values import REMEMBERED_UP_TO, changes

KEYS = st.sampled_from(["a", "b", "city", "a b", "0", "é"])
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([0.5, 2.5]),
    st.text(max_size=3),
)
SHAPES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.dictionaries(KEYS, inner, max_size=3), st.lists(inner, max_size=3)),
    max_leaves=8,
)


def encoded(value: object) -> bytes:
    """Write a value."""
    return msgspec.json.encode(value)


@given(st.data())
def test_values_of_one_shape_differ_where_the_aligner_says(data: st.DataObject) -> None:
    """The fast way and DeepDiff agree."""
    left = data.draw(st.dictionaries(KEYS, SHAPES, max_size=4))
    right = {key: data.draw(st.one_of(st.just(value), LEAVES)) for key, value in left.items()}
    slow = sorted(values.aligned(left, right))
    assert sorted(changes(encoded(left), encoded(right))) == slow


def test_keys_and_lists_are_aligned() -> None:
    """One key more is one change, and so is one item less."""
    assert changes(b'{"a":1}', b'{"a":1,"b":"x"}') == ((".b", None, "x"),)
    assert changes(b'{"a":["x","y","z"]}', b'{"a":["x","z"]}') == ((".a[1]", "y", None),)


def test_numbers_of_another_type_differ() -> None:
    """A client that wants an integer gets none."""
    assert changes(b'{"a":1}', b'{"a":1.0}') == ((".a", "1", "1.0"),)
    assert changes(b'{"a":[1]}', b'{"a":[1.0]}') == (("", '{"a":[1]}', '{"a":[1.0]}'),)
    assert changes(b'{"a":[{"x":1,"y":2}]}', b'{"a":[{"y":2,"x":1}]}') == ()


def test_what_is_no_json_differs_as_a_whole() -> None:
    """Bytes of a remote stack can be anything."""
    assert changes(b"{", b"{}") == (("", "{", "{}"),)


def test_what_is_nested_too_deep_to_be_walked_differs_as_a_whole() -> None:
    """Rather than end the comparison of everything else."""
    legacy, graph = (b"[" * 600 + leaf + b"]" * 600 for leaf in (b"1", b"2"))
    assert changes(legacy, graph) == (("", legacy.decode(), graph.decode()),)


def test_long_documents_are_not_remembered() -> None:
    """Memory stays flat whatever is written."""
    long = encoded({"a": "x" * REMEMBERED_UP_TO})
    assert changes(long, b'{"a":"y"}') == ((".a", "x" * REMEMBERED_UP_TO, "y"),)
