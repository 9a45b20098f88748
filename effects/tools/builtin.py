"""The tools every deployment has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from effects.tools.calculate import calculator
from effects.tools.convert_units import converter_of_units
from effects.tools.current_time import teller_of_time
from effects.tools.search_memory import searcher_of_memory

if TYPE_CHECKING:
    from contract.ports import Clock, Memory
    from effects.tools.tool import Tool


def builtin_tools(clock: Clock, memory: Memory | None = None, zone: str = "UTC") -> list[Tool]:
    """Make them; without a memory there is none to search. `zone` is the default of the clock."""
    tools = [calculator(), teller_of_time(clock, zone), converter_of_units()]
    if memory is not None:
        tools.append(searcher_of_memory(memory))
    return tools
