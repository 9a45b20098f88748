"""`cutover prompts`: Jinja2 prompts checked, converted to PromptTemplate, and proved equal."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.progress import MofNCompleteColumn, TimeRemainingColumn

from cutover.cli.terminal import bar, refusals
from cutover.flows import settings_at
from cutover.prompts.conversion import PlannedFile, map_document, write_converted
from cutover.prompts.examination import (
    ExaminationOrder,
    ExaminedPrompt,
    examine_folder,
    silent_about_missing,
)
from cutover.prompts.report import PromptReport, print_report, report_on
from router.config.errors import ConfigRefused
from router.config.loader import convert_table
from router.config.schema import PromptSettings

ALL = 0
SOME_STAY = 1
REFUSED = 2

prompts = typer.Typer(
    help="Jinja2 prompts to PromptTemplate, with proof of equal output.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
)

_Folder = Annotated[Path, typer.Argument(help="The folder of templates.", metavar="DIR")]
_Config = Annotated[
    Path | None,
    typer.Option(help="The configuration with [prompts]; default: cutover.toml if it exists."),
]
_Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="A key of [prompts], as in the file: trim_blocks=true.", metavar="KEY=VALUE"
    ),
]
_Json = Annotated[bool, typer.Option("--json", help="Print the report as JSON.")]


@prompts.command()
def check(
    folder: _Folder,
    *,
    config: _Config = None,
    settings: _Set = None,
    prompt_map: Annotated[
        Path | None, typer.Option("--map", help="Write the map for `cutover diff` to this file.")
    ] = None,
    prove: Annotated[
        bool, typer.Option("--prove", help="Render both ways on drawn values, too.")
    ] = False,
    as_json: _Json = False,
) -> None:
    """Report which templates convert, which convert with care, which stay, and why.

    Exit 0: all convert, 1: some stay, or differ when rendered, 2: the folder or its settings
    cannot be read.
    """
    with refusals(REFUSED):
        order = ExaminationOrder(prompt_settings(folder, config, settings), folder, prove=prove)
        found = _examined(order)
        if prompt_map is not None:
            PlannedFile(prompt_map, map_document(found)).write()
        silent = silent_about_missing(order.settings, folder)
    _print(report_on(folder, found, silent=silent), as_json=as_json)
    raise typer.Exit(ALL if all(prompt.fit for prompt in found) else SOME_STAY)


@prompts.command()
def convert(
    folder: _Folder,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the prompts are written.")],
    *,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that differ.")] = False,
    prove: Annotated[
        bool, typer.Option(help="Render both ways on drawn values; write no prompt that differs.")
    ] = True,
    config: _Config = None,
    settings: _Set = None,
    as_json: _Json = False,
) -> None:
    """Write the PromptTemplates of all templates that convert, and the map of all.

    Exit 0: all are written or unchanged, 1: some stay, or differ when rendered, 2: refused, and
    nothing is written.
    """
    with refusals(REFUSED):
        order = ExaminationOrder(prompt_settings(folder, config, settings), folder, prove=prove)
        found = _examined(order)
        written = write_converted(found, order, out, force=force)
        silent = silent_about_missing(order.settings, folder)
    _print(report_on(folder, found, written, silent=silent), as_json=as_json)
    raise typer.Exit(ALL if len(written) == len(found) else SOME_STAY)


def prompt_settings(
    folder: Path, config: Path | None, assigned: Sequence[str] | None
) -> PromptSettings:
    """Read `[prompts]` of a file, by default cutover.toml, and override single keys.

    A folder of prompts that a flow reads is read as the flow does. Raises `ConfigRefused`.
    """
    found = settings_at(config)
    flows = {Path(flow.prompts).resolve() for flow in found.flows.values() if flow.prompts}
    of_a_flow = folder.resolve() in flows
    settings = PromptSettings(keep_trailing_newline=True) if of_a_flow else found.prompts
    table = settings.model_dump()
    for assignment in assigned or ():
        for key, value in _assigned(assignment).items():
            merges = isinstance(table.get(key), dict) and isinstance(value, dict)
            table[key] = {**table[key], **value} if merges else value
    return convert_table(table, PromptSettings, "--set", "prompts.") if assigned else settings


def _assigned(assignment: str) -> Mapping[str, Any]:
    """Read one assignment as a line of TOML; a value that is not TOML is a text."""
    key, sign, value = assignment.partition("=")
    for line in (assignment, f"{key} = {json.dumps(value)}") if sign else ():
        with suppress(tomllib.TOMLDecodeError):
            return tomllib.loads(line)
    raise ConfigRefused(where="--set", key="", why=f"expected KEY=VALUE, got {assignment!r}")


def _examined(order: ExaminationOrder) -> tuple[ExaminedPrompt, ...]:
    with bar(Console(stderr=True), MofNCompleteColumn(), TimeRemainingColumn()) as shown:
        task = shown.add_task("proving" if order.prove else "reading", total=None)
        return examine_folder(order, lambda total: shown.update(task, total=total, advance=1))


def _print(report: PromptReport, *, as_json: bool) -> None:
    if as_json:
        typer.echo(msgspec.json.format(msgspec.json.encode(report), indent=2))
    else:
        print_report(report, Console())
