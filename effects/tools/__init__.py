"""Tools: functions a model may call, those built in, and a scripted fake."""

from effects.tools.builtin import builtin_tools
from effects.tools.fake import ScriptedTools
from effects.tools.registry import DuplicateTool, ToolRegistry, ToolSource
from effects.tools.tool import BadArguments, Tool, ToolContext, schema_tool, tool

__all__ = [
    "BadArguments",
    "DuplicateTool",
    "ScriptedTools",
    "Tool",
    "ToolContext",
    "ToolRegistry",
    "ToolSource",
    "builtin_tools",
    "schema_tool",
    "tool",
]
