"""Tools: functions a model may call, built in or a team's own, and a scripted fake."""

from effects.tools.builtin import builtin_tools
from effects.tools.fake import ScriptedTools
from effects.tools.functions import ToolModuleRefused, function_tool, python_tools, reserved_names
from effects.tools.registry import DuplicateTool, ToolRegistry, ToolSource
from effects.tools.tool import BadArguments, Tool, ToolContext, schema_tool, tool

__all__ = [
    "BadArguments",
    "DuplicateTool",
    "ScriptedTools",
    "Tool",
    "ToolContext",
    "ToolModuleRefused",
    "ToolRegistry",
    "ToolSource",
    "builtin_tools",
    "function_tool",
    "python_tools",
    "reserved_names",
    "schema_tool",
    "tool",
]
