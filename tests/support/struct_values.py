"""Hypothesis strategies for structs of the contract, made from their types."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec
from hypothesis import strategies as st
from msgspec import inspect as types

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hypothesis.strategies import SearchStrategy

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=5,
)
RAW = JSON.map(msgspec.json.encode).map(msgspec.Raw)


PLAIN: Mapping[type[types.Type], SearchStrategy[Any]] = {
    types.StrType: st.text(max_size=12),
    types.FloatType: st.floats(allow_nan=False, allow_infinity=False),
    types.BoolType: st.booleans(),
    types.NoneType: st.none(),
    types.RawType: RAW,
    types.AnyType: JSON,
}


@cache
def values(of: Any) -> SearchStrategy[Any]:
    """Give any value of a type that fits through JSON unchanged."""
    return _values(types.type_info(of))


def _values(info: types.Type) -> SearchStrategy[Any]:
    match info:
        case types.StructType():
            fields = {field.name: _values(field.type) for field in info.fields}
            return st.builds(info.cls, **fields)
        case types.UnionType():
            return st.one_of([_values(one) for one in info.types])
        case types.LiteralType():
            return st.sampled_from(info.values)
        case types.IntType():
            return st.integers(-(2**53) if info.ge is None else info.ge, info.le or 2**53)
        case _:
            return _collections(info)


def _collections(info: types.Type) -> SearchStrategy[Any]:
    match info:
        case types.VarTupleType():
            return st.lists(_values(info.item_type), max_size=3).map(tuple)
        case types.TupleType():
            return st.tuples(*map(_values, info.item_types))
        case types.DictType():
            return st.dictionaries(_values(info.key_type), _values(info.value_type), max_size=3)
        case _:
            return PLAIN[type(info)]
