"""The command line: one module a command, imported when it is called."""

from __future__ import annotations

import gc
import sys
import traceback
from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from io import BufferedWriter, FileIO, TextIOWrapper
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer
from typer._click.exceptions import ClickException, UsageError
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from contract.errors import MissingExtra

if TYPE_CHECKING:
    # Typer's own copy of click, named here only for its types.
    from typer._click import Command, Context, HelpFormatter
    from typing_extensions import Buffer


USAGE: Final = 64
"""Exit status of a command line that cannot be read, EX_USAGE of sysexits(3)."""
UNAVAILABLE: Final = 69
"""Exit status of a command whose extra is not installed, EX_UNAVAILABLE of sysexits(3)."""
INTERNAL: Final = 70
"""Exit status of an error that is ours, EX_SOFTWARE of sysexits(3)."""
# Typer's 2 is a verdict of `cutover gate`: a script would roll back because of a misspelt option.
UsageError.exit_code = USAGE


class _Place(NamedTuple):
    """Where a command is, what help says of it (its docstring's first paragraph), what it needs."""

    function: str
    summary: str
    extra: str = ""


COMMANDS: Mapping[str, _Place] = {
    "demo": _Place(
        "setup.demo:demo",
        "Serve, mirror, crash, ask, approve, load and compare, all on a simulated provider.",
        extra="compare,load",
    ),
    "init": _Place(
        "setup.init:init",
        "Send one request to two services, recognise their streams, and write cutover.toml.",
    ),
    "serve": _Place(
        "operate.serve:serve",
        "Serve the flows; a change of cutover.toml is in force within a second.",
    ),
    "shadow-worker": _Place(
        "operate.shadow_worker:shadow_worker",
        "Run shadows that routers hand over, and write the pairs into the captures.",
        extra="workers",
    ),
    "replay": _Place(
        "compare.replay:replay_captures",
        "Run captured exchanges on a stack as it is now, from the tape, and compare.",
        extra="compare",
    ),
    "diff": _Place(
        "compare.diff:diff",
        "Compare legacy and graph on captured exchanges, or one report with an older one.",
        extra="compare",
    ),
    "report": _Place(
        "compare.report:report",
        "Report what captures hold beside differences: the time in each node.",
        extra="compare",
    ),
    "noise": _Place(
        "compare.noise:noise",
        "Measure how far legacy is from itself, and whether graph is farther.",
        extra="compare",
    ),
    "judge": _Place(
        "compare.judge:judge",
        "Ask which of two answers is better, and store what is preferred for the gate.",
        extra="compare",
    ),
    "waive": _Place(
        "compare.waive:waive",
        "Accept a difference until a day; reports go on showing it, and who accepted it.",
        extra="compare",
    ),
    "prompts": _Place(
        "setup.prompts:prompts", "Jinja2 prompts to PromptTemplate, with proof of equal output."
    ),
    "selftest": _Place(
        "compare.selftest:selftest",
        "Put faults into runs and code, and see what the comparison finds.",
        extra="compare",
    ),
    "load": _Place(
        "compare.load:load",
        "Put both stacks under the same load, turn by turn, and report them side by side.",
        extra="load",
    ),
    "gate": _Place(
        "compare.gate:gate",
        "Decide whether graph may serve more: promote, hold, roll back, or cannot tell.",
        extra="compare",
    ),
    "ops": _Place(
        "operate.ops:ops", "Let workers do something, step by step, and approve what is risky."
    ),
    "ops audit": _Place(
        "operate.ops_audit:audit",
        "Show what was requested of workers, decided and done, newest first.",
    ),
    "mcp": _Place(
        "operate.mcp:mcp",
        "Start an MCP server and pass messages; calls that name an exchange happen once in it.",
    ),
    "rollback": _Place(
        "operate.rollback:rollback",
        "Send everything of a flow to legacy: enable_langgraph = false, in force within a second.",
    ),
    "ramp": _Place(
        "operate.ramp:ramp",
        "Raise a flow's percentage step by step while the gate says promote, or roll back.",
        extra="compare",
    ),
    "retire": _Place(
        "operate.retire:retire",
        "Show what is left to do before legacy is removed, and the last step.",
        extra="compare",
    ),
    "pins": _Place(
        "operate.pins:pins", "Show which stacks conversations are pinned to, and release them."
    ),
    "graph": _Place(
        "setup.graph:graph",
        "Print the steps of a flow, with the targets of every conditional edge.",
    ),
    "history": _Place(
        "operate.history:history", "Show the changes that came in force on this host, newest first."
    ),
    "doctor": _Place(
        "setup.doctor:doctor",
        "Show what is configured, reachable and missing, and what this set-up can and cannot do.",
    ),
    "import": _Place(
        "setup.imports:imports",
        "Bring what an old application holds into the stores: turns, memories, threads.",
    ),
    "forget": _Place(
        "operate.forget:forget",
        "Remove a user, a chat or a message from captures and all stores, and report what was.",
    ),
}
"""The commands, in the order in which help lists them."""
_MADE_BETWEEN_COLLECTIONS = 10_000


class _Commands(TyperGroup):
    _summaries = False

    def list_commands(self, ctx: Context) -> list[str]:
        """Return the names of the commands."""
        del ctx
        return list(COMMANDS)

    def format_help(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Print the commands' summaries without importing them."""
        self._summaries = True
        super().format_help(ctx, formatter)

    def invoke(self, ctx: Context) -> Any:
        """Run a command; an error that it does not expect ends it with `INTERNAL`.

        Python and Typer would end with 1, which is an answer of `gate`, `diff` and others.
        """
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort, ClickException):
            raise
        except Exception as error:
            traceback.print_exc()
            raise typer.Exit(INTERNAL) from error

    def resolve_command(
        self, ctx: Context, args: list[str]
    ) -> tuple[str | None, Command | None, list[str]]:
        """Find a command by its name, which may be two words: `ops` takes a message, too."""
        name = " ".join(args[:2])
        if " " in name and name in COMMANDS:
            return name, self.get_command(ctx, name), args[2:]
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        """Import a command; None for an unknown name that resembles none."""
        place = COMMANDS.get(cmd_name)
        if place is None:
            # Typer would look for one only among commands that are imported.
            for near in get_close_matches(cmd_name, COMMANDS, n=1):
                ctx.fail(f"No such command {cmd_name!r}. Did you mean {near!r}?")
            return None
        if self._summaries:
            return TyperCommand(cmd_name, help=place.summary)
        module, _, function = place.function.partition(":")
        try:
            found = getattr(import_module(f"cutover.cli.{module}"), function)
        except ModuleNotFoundError as error:
            if not place.extra or find_spec((error.name or "").partition(".")[0]):
                raise
            typer.echo(f"error: {MissingExtra(f'cutover {cmd_name}', place.extra)}", err=True)
            raise typer.Exit(UNAVAILABLE) from error
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


def _print_version(*, wanted: bool) -> None:
    if wanted:
        typer.echo(f"cutover {version('cutover')}")
        raise typer.Exit


@app.callback()
def _group(
    *,
    _: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Make a group: Typer does not know the commands."""


class _Unread(FileIO):
    """Standard output that goes on where nothing reads it any more, as before `| head -1`."""

    def write(self, data: Buffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            return memoryview(data).nbytes


def _outlive_readers() -> None:
    """Let a command end with its own status, its files written, when its reader ends first.

    Libraries turn a closed pipe into status 1, which for `cutover diff` says "different".
    """
    standard = sys.__stdout__
    if standard is None:  # closed before the start
        return
    sys.stdout = TextIOWrapper(
        BufferedWriter(_Unread(standard.fileno(), "wb", closefd=False)),
        encoding=standard.encoding,
        errors=standard.errors,
        line_buffering=standard.isatty(),
        write_through=True,
    )


def main() -> None:
    """Run the command line."""
    import_module("cutover.own_modules").append_working_directory()
    # What a command imports lives to its end; collecting garbage among it took a tenth of a start.
    gc.set_threshold(_MADE_BETWEEN_COLLECTIONS)
    _outlive_readers()
    app()
