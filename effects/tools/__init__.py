"""Tools: functions a model may call, those built in, and a scripted fake."""

from effects.tools.builtin import builtin_tools
from effects.tools.registry import ToolNameTaken, ToolRegistry, ToolSource, UserTools
from effects.tools.scripted import ScriptedTools
from effects.tools.tool import BadArguments, Tool, ToolContext, schema_tool, tool

__all__ = [
    "BadArguments",
    "ScriptedTools",
    "Tool",
    "ToolContext",
    "ToolNameTaken",
    "ToolRegistry",
    "ToolSource",
    "UserTools",
    "builtin_tools",
    "schema_tool",
    "tool",
]
