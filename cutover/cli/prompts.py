"""`cutover prompts`: Jinja2 prompts checked, converted to PromptTemplate, and proved equal."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.progress import MofNCompleteColumn, TimeRemainingColumn

from cutover.cli.terminal import bar, refusals
from cutover.flows import DEFAULT_CONFIG, SPECS
from cutover.prompts.conversion import (
    MAP,
    cases_of,
    checked,
    map_document,
    map_of,
    outcomes,
    refuse_templates,
)
from cutover.prompts.proving import Orders, prove_all
from cutover.prompts.telling import tell
from cutover.prompts.writing import Outcome, write_all, write_outcome
from router.config import ConfigRefused, PromptSettings, convert_table, load_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cutover.prompts.case import Proof
    from cutover.prompts.conversion import Checked
    from cutover.prompts.report import Entry, Fate, PromptReport

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
    typer.Option(help="The configuration with [prompts]; default: cutover.toml, if it is there."),
]
_Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="A setting of [prompts], as in the file: trim_blocks=true.",
        metavar="KEY=VALUE",
    ),
]
_Json = Annotated[bool, typer.Option("--json", help="Say it as JSON.")]


@prompts.command()
def check(
    folder: _Folder,
    *,
    config: _Config = None,
    settings: _Set = None,
    prompt_map: Annotated[
        Path | None, typer.Option("--map", help="Where the map for `cutover diff` goes.")
    ] = None,
    prove: Annotated[
        bool, typer.Option("--prove", help="Render both ways on drawn values, too.")
    ] = False,
    as_json: _Json = False,
) -> None:
    """Say of each template whether it converts, converts with care, or stays, and why.

    Exit 0: all convert, 1: some stay, or differ when they are rendered, 2: the folder or its
    settings cannot be read.
    """
    with refusals(REFUSED):
        found = _checked(folder, settings_at(config, settings or ()))
        if prompt_map is not None:
            write_outcome(Outcome(prompt_map, map_document(map_of(found, {}))))
        report = found.report(_proofs(found, Path()) if prove else None)
    _say(report, as_json=as_json)
    raise typer.Exit(ALL if all(_fit(entry) for entry in report.prompts) else SOME_STAY)


@prompts.command()
def convert(
    folder: _Folder,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the prompts go.")],
    *,
    force: Annotated[bool, typer.Option("--force", help="Write over files that differ.")] = False,
    prove: Annotated[
        bool, typer.Option(help="Render both ways on drawn values; what differs is not written.")
    ] = True,
    config: _Config = None,
    settings: _Set = None,
    as_json: _Json = False,
) -> None:
    """Write the PromptTemplates of all templates that convert, and the map of all.

    Exit 0: all are written, or were there as they are now, 1: some stay, or differ when they
    are rendered, 2: refused, and nothing is written.
    """
    with refusals(REFUSED):
        found = _checked(folder, settings_at(config, settings or ()))
        refuse_templates(found, out)
        proofs = _proofs(found, out) if prove else {}
        report = convert_checked(found, out, proofs, force=force)
    _say(report, as_json=as_json)
    whole = all(entry.fate in {"written", "unchanged"} for entry in report.prompts)
    raise typer.Exit(ALL if whole else SOME_STAY)


def settings_at(config: Path | None, assigned: Sequence[str]) -> PromptSettings:
    """Read `[prompts]` of a file, the one at the default place if there is one, and settings.

    Raises `ConfigRefused`.
    """
    there = config is not None or DEFAULT_CONFIG.exists()
    settings = load_settings(config or DEFAULT_CONFIG, SPECS).prompts if there else PromptSettings()
    table = msgspec.to_builtins(settings)
    for said in assigned:
        for key, value in _assigned(said).items():
            table[key] = {**table[key], **value} if _tables(table.get(key), value) else value
    return convert_table(table, PromptSettings, "--set", "prompts.") if assigned else settings


def _tables(*values: object) -> bool:
    return all(isinstance(value, dict) for value in values)


def _assigned(said: str) -> Mapping[str, Any]:
    """Read one setting as a line of TOML; what is no value of TOML is a text."""
    key, sign, value = said.partition("=")
    for line in (said, f"{key} = {json.dumps(value)}") if sign else ():
        with suppress(tomllib.TOMLDecodeError):
            return tomllib.loads(line)
    why = f"KEY=VALUE is due: {said!r}"
    raise ConfigRefused(where="--set", key="", why=why)


def _checked(folder: Path, settings: PromptSettings) -> Checked:
    with _bar("reading") as advance:
        return checked(folder, settings, advance)


def _proofs(found: Checked, out: Path) -> dict[str, Proof]:
    """Prove what converts, as it would be written."""
    fit = [entry for entry in found.report().prompts if _fit(entry)]
    cases = cases_of(found, outcomes(found, fit, out))
    with _bar("proving") as advance:
        return prove_all(cases, Orders(found.settings, found.folder), advance) if cases else {}


def convert_checked(
    found: Checked, out: Path, proofs: Mapping[str, Proof], *, force: bool
) -> PromptReport:
    """Write what converts, and the map; raises `WouldOverwrite` before anything is written."""
    report = found.report(proofs)
    fit = [entry for entry in report.prompts if _fit(entry)]
    files = outcomes(found, fit, out)
    targets = {entry.name: entry.target for entry in fit}
    document = Outcome(out / MAP, map_document(map_of(found, targets)))
    fresh = write_all(list(files.values()), force=force)
    write_all([document], force=True)
    fates: dict[str, Fate] = {
        name: "written" if file.path in fresh else "unchanged" for name, file in files.items()
    }
    entries = (
        msgspec.structs.replace(entry, fate=fates.get(entry.name, "not written"))
        for entry in report.prompts
    )
    return msgspec.structs.replace(report, prompts=tuple(entries))


def _fit(entry: Entry) -> bool:
    return entry.label != "stays" and (entry.proof is None or entry.proof.holds)


@contextmanager
def _bar(what: str) -> Iterator[Callable[[int], None]]:
    """Show how far it is; only a terminal shows it. What it gives is called once for each."""
    console = Console(stderr=True)
    with bar(console, MofNCompleteColumn(), TimeRemainingColumn()) as shown:
        task = shown.add_task(what, total=None)
        yield lambda total: shown.update(task, total=total, advance=1)


def _say(report: PromptReport, *, as_json: bool) -> None:
    if as_json:
        typer.echo(msgspec.json.format(msgspec.json.encode(report), indent=2))
    else:
        tell(report, Console())
