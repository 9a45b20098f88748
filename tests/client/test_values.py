"""What a call's arguments are as JSON: the same however they were given."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import inspect
import uuid

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutover_client import NotJson
from cutover_client.values import arguments_of, as_json

_LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.text()
    | st.floats(allow_nan=False, allow_infinity=False)
)
JSON = st.recursive(
    _LEAVES,
    lambda some: st.lists(some, max_size=3) | st.dictionaries(st.text(), some, max_size=3),
    max_leaves=8,
)


def function(value: object, day: dt.date, *, one: uuid.UUID, more: int = 1) -> None:
    """Take arguments in every way."""
    del value, day, one, more


@given(JSON, st.dates(), st.uuids())
def test_arguments_stand_under_their_names(value: object, day: dt.date, one: uuid.UUID) -> None:
    """Given by place, by name or by default."""
    signature = inspect.signature(function)
    by_place = arguments_of("e", signature, (), (value, day), {"one": one})
    by_name = arguments_of(
        "e", signature, (), (), {"more": 1, "one": one, "day": day, "value": value}
    )
    assert by_place == by_name
    assert by_name == {"value": value, "day": day.isoformat(), "one": str(one), "more": 1}
    left = arguments_of("e", signature, {"value", "more"}, (value, day), {"one": one})
    assert set(left) == {"day", "one"}


class Colour(enum.Enum):
    """One of two."""

    RED = "red"


class Model(pydantic.BaseModel):
    """A model of pydantic's."""

    day: dt.date


@dataclasses.dataclass
class Item:
    """A data class."""

    price: decimal.Decimal
    colour: Colour


def test_what_has_one_obvious_form_is_written_in_it() -> None:
    """Also inside of one another."""
    items = [Item(decimal.Decimal("1.50"), Colour.RED), Model(day=dt.date(2026, 11, 24))]
    assert as_json("a value", "e", items) == [
        {"price": "1.50", "colour": "red"},
        {"day": "2026-11-24"},
    ]


@pytest.mark.parametrize(
    "value", [object(), b"bytes", {1, 2}, float("nan"), float("inf"), "\ud800", Colour]
)
def test_what_has_none_is_refused(value: object) -> None:
    """By the name of the effect, and what to do."""
    with pytest.raises(NotJson, match=r"a value of the effect 'e'.*encode="):
        as_json("a value", "e", {"a": [value]})
