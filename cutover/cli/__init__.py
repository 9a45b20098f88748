"""The command line; a command is imported when it is called, so that none waits for the others."""

from __future__ import annotations

import gc
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperGroup
from typer.main import get_command

if TYPE_CHECKING:
    from collections.abc import Mapping

    # Typer keeps its click to itself; at run time nothing of it is named here.
    from typer._click import Command, Context

_COMMANDS: Mapping[str, str] = {
    "demo": "demo:demo",
    "serve": "serve:serve",
    "replay": "replay:replay_captures",
    "diff": "diff:diff",
    "noise": "noise:noise",
    "waive": "waive:waive",
    "prompts": "prompts:prompts",
    "selftest": "selftest:selftest",
    "load": "load:load",
    "rollback": "rollback:rollback",
    "graph": "graph:graph",
    "history": "history:history",
    "doctor": "doctor:doctor",
    "forget": "forget:forget",
}
"""Where each command is, in the order in which help lists them."""
_MADE_BETWEEN_COLLECTIONS = 10_000


class _Commands(TyperGroup):
    def list_commands(self, ctx: Context) -> list[str]:
        """Name the commands."""
        del ctx
        return list(_COMMANDS)

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        """Import a command; None where there is none of that name, nor one like it."""
        place = _COMMANDS.get(cmd_name)
        if place is None:
            # Typer looks for one only among commands that are imported already: there are none.
            for near in get_close_matches(cmd_name, _COMMANDS, n=1):
                ctx.fail(f"No such command {cmd_name!r}. Did you mean {near!r}?")
            return None
        module, _, function = place.partition(":")
        found = getattr(import_module(f"cutover.cli.{module}"), function)
        if isinstance(found, typer.Typer):
            group = get_command(found)
            group.name = cmd_name
            return group
        alone = typer.Typer(
            add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="markdown"
        )
        alone.command(cmd_name)(found)
        return get_command(alone)


app = typer.Typer(
    name="cutover",
    cls=_Commands,
    help="Replace the pipeline behind a streaming LLM chat service without its users noticing.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


def _tell_version(wanted: bool) -> None:  # noqa: FBT001 - as Typer calls it
    if wanted:
        typer.echo(f"cutover {version('cutover')}")
        raise typer.Exit


@app.callback()
def _group(
    *,
    _: Annotated[
        bool,
        typer.Option(
            "--version", callback=_tell_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Make a group of it: its commands are not known to Typer."""


def main() -> None:
    """Run the command line."""
    # What a command imports lives to its end: to look for garbage among it took a tenth of a start,
    # and up to a quarter.
    gc.set_threshold(_MADE_BETWEEN_COLLECTIONS)
    app()
