"""`convert_units`: a value in another unit of the same dimension."""

from __future__ import annotations

from typing import Annotated

import msgspec

from effects.tools.numbers import readable
from effects.tools.tool import BadArguments, Tool, ToolContext, tool
from effects.tools.units import Unit, convert, unit

UnitName = Annotated[
    str, msgspec.Meta(min_length=1, max_length=40, description="For example km, mile, 公斤, °F, MB")
]


class ConvertUnitsArguments(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    rename={"given": "from_unit", "wanted": "to_unit"},
):
    """Arguments of `convert_units`."""

    value: float
    given: UnitName
    wanted: UnitName


def converter_of_units() -> Tool:
    """Make the tool `convert_units`."""

    @tool(
        "convert_units",
        "Convert a value between units of length, mass, temperature, volume, speed, area, time or "
        "data. Names may be English or Chinese; a year has 365 days, a KB 1000 bytes.",
        ConvertUnitsArguments,
        read_only=True,
    )
    async def convert_units(arguments: ConvertUnitsArguments, _: ToolContext) -> str:
        given = _known("from_unit", arguments.given)
        wanted = _known("to_unit", arguments.wanted)
        if given.dimension != wanted.dimension:
            raise BadArguments(reason=f"not a unit of {given.dimension!r}", argument="to_unit")
        return f"{readable(convert(arguments.value, given, wanted))} {wanted.symbol}"

    return convert_units


def _known(argument: str, name: str) -> Unit:
    found = unit(name)
    if found is None:
        raise BadArguments(argument, f"no unit {name!r}")
    return found
