"""`current_time`: what the clock says, in a zone of the model's choice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated
from zoneinfo import ZoneInfo

import msgspec

from effects.tools.tool import BadArguments, Tool, ToolContext, tool

if TYPE_CHECKING:
    from contract.ports import Clock

Zone = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=64,
        pattern=r"^[A-Za-z][A-Za-z0-9_+/-]*$",
        description="IANA time zone, for example Asia/Shanghai",
    ),
]


class CurrentTimeArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of `current_time`."""

    zone: Zone | None = None


def teller_of_time(clock: Clock, zone: str = "UTC") -> Tool:
    """Make the tool `current_time`; `zone` is told where the model names none."""

    @tool(
        "current_time",
        "Tell the current date, time and weekday.",
        CurrentTimeArguments,
        read_only=True,
    )
    async def current_time(arguments: CurrentTimeArguments, _: ToolContext) -> dict[str, str]:
        name = arguments.zone or zone
        try:
            there = ZoneInfo(name)
        except (KeyError, ValueError, OSError) as failure:
            raise BadArguments(reason="no such time zone", argument="zone") from failure
        now = (await clock.now("current_time")).astimezone(there)
        return {
            "date": f"{now:%Y-%m-%d}",
            "time": f"{now:%H:%M:%S}",
            "weekday": f"{now:%A}",
            "zone": name,
        }

    return current_time
