"""The command line; a command is imported when it is called, so that none waits for the others."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

import typer
from typer.core import TyperGroup
from typer.main import get_command

if TYPE_CHECKING:
    from collections.abc import Mapping

    # Typer keeps its click to itself; at run time nothing of it is named here.
    from typer._click import Command, Context

_COMMANDS: Mapping[str, str] = {
    "demo": "demo_command:demo",
    "serve": "serve_command:serve",
    "replay": "replay_command:replay_captures",
    "diff": "diff_command:diff",
    "noise": "noise_command:noise",
    "waive": "waive_command:waive",
    "prompts": "prompts_command:prompts",
    "selftest": "selftest_command:selftest",
    "load": "load_command:load",
    "rollback": "rollback_command:rollback",
    "history": "history_command:history",
    "doctor": "doctor_command:doctor",
    "forget": "forget_command:forget",
}
"""Where each command is, in the order in which help lists them."""


class _Commands(TyperGroup):
    def list_commands(self, ctx: Context) -> list[str]:
        """Name the commands."""
        del ctx
        return list(_COMMANDS)

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        """Import a command; None where there is none of that name."""
        del ctx
        place = _COMMANDS.get(cmd_name)
        if place is None:
            return None
        module, _, function = place.partition(":")
        found = getattr(import_module(f"cutover.{module}"), function)
        if isinstance(found, typer.Typer):
            group = get_command(found)
            group.name = cmd_name
            return group
        alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        alone.command(cmd_name)(found)
        return get_command(alone)


app = typer.Typer(
    name="cutover",
    cls=_Commands,
    help="Replace the pipeline behind a streaming LLM chat service without its users noticing.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def _group() -> None:
    """Make a group of it: its commands are not known to Typer."""


def main() -> None:
    """Run the command line."""
    app()
