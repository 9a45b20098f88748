"""Paths into JSON: looked at and taken out."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.wire.paths import (
    branches_of,
    drop,
    path_fault,
    path_of,
    take,
    values_at,
    without_empties,
    without_nulls,
)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("a.b", ("a", "b")),
        ("a[0].b", ("a", "0", "b")),
        ("a.0.b", ("a", "0", "b")),
        ("a[*].b", ("a", "*", "b")),
        ("a[].b", ("a", "*", "b")),
        ("*.b", ("*", "b")),
        ("", ()),
    ],
)
def test_paths_are_written_as_reports_write_them(text: str, path: tuple[str, ...]) -> None:
    """Dots, brackets, stars."""
    assert path_of(text) == path


@given(
    st.lists(
        st.tuples(
            st.sampled_from(("a", "*", "7", "b c")), st.sampled_from(("", "[0]", "[*]", "[]"))
        ),
        min_size=1,
    )
)
def test_what_is_put_together_soundly_has_no_fault(steps: list[tuple[str, str]]) -> None:
    """Keys and indices; a root that is a list, too."""
    text = ".".join(key + index for key, index in steps)
    assert path_fault(text) is None
    assert path_fault(f"[0].{text}") is None
    assert path_fault(f"{text}.") is not None


@given(st.text("ab.[]*0", max_size=8))
def test_a_path_without_a_fault_names_all_its_steps(text: str) -> None:
    """Nothing of it is read over."""
    fault = path_fault(text)
    if fault is None:
        assert not {"[", "]"} & set("".join(path_of(text)))
        assert len(path_of(text)) == 1 + text.count(".") + text.count("[") - text.startswith("[")
    else:
        assert "path" in fault


def tree() -> dict[str, Any]:
    """Give something to walk through."""
    return {"a": [{"b": 1, "c": 2}, {"b": 3}], "d": {"b": 4}, "0": 5}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("a[*].b", [1, 3]),
        ("a[1].b", [3]),
        ("a[2].b", []),
        ("a.b", []),
        ("*.b", [4]),
        ("d.b.c", []),
        ("0", [5]),
        ("d[0]", []),
    ],
)
def test_what_stands_at_a_path_is_found_in_order(path: str, found: list[int]) -> None:
    """Where nothing stands, nothing is found."""
    assert list(values_at(tree(), path_of(path))) == found


@pytest.mark.parametrize(
    ("path", "left"),
    [
        ("a[*].b", {"a": [{"c": 2}], "d": {"b": 4}, "0": 5}),
        ("d.b", {"a": [{"b": 1, "c": 2}, {"b": 3}], "0": 5}),
        ("a[*]", {"d": {"b": 4}, "0": 5}),
        ("a[*].x", tree()),
        ("", tree()),
    ],
)
def test_taking_out_leaves_no_emptied_holder(path: str, left: dict[str, Any]) -> None:
    """Those that were empty before stay."""
    value = tree()
    take(value, path_of(path))
    assert value == left


@pytest.mark.parametrize("paths", [["a[*].b", "d"], ["a[0]", "a[*].b"], ["a", "a[*].b"], ["*.b"]])
def test_many_paths_are_dropped_as_one_after_the_other(paths: list[str]) -> None:
    """In one walk; an index of a list means what it meant before."""
    at_once, in_turn = tree(), tree()
    drop(at_once, branches_of([path_of(path) for path in paths]))
    for path in paths:
        take(in_turn, path_of(path))
    assert at_once == in_turn


def test_only_what_fits_is_taken() -> None:
    """The rest stays where it is."""
    value: dict[str, Any] = {"a": ["x", 1, {}, "y"]}
    assert take(value, path_of("a[*]"), lambda item: isinstance(item, str)) == ["x", "y"]
    assert value == {"a": [1, {}]}


def test_nulls_and_empties_are_left_out() -> None:
    """Falsehood, nought and empty text are something."""
    value: dict[str, Any] = {
        "a": None,
        "b": [None, {"c": None}],
        "d": {"e": []},
        "f": [0, False, ""],
    }
    assert without_empties(without_nulls(value)) == {"f": [0, False, ""]}
