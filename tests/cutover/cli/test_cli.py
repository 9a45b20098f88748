"""The command line as a whole: what it lists, and that a command loads no other's libraries."""

from __future__ import annotations

import gc
import inspect
import subprocess
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from cutover.cli import COMMANDS, USAGE, app, main
from loadtests.processes import child_environment


def test_help_lists_every_command_with_what_it_does() -> None:
    """In the order of a migration."""
    shown = CliRunner().invoke(app, ["--help"]).output
    places = [shown.index(f"│ {name} ") for name in COMMANDS]
    assert places == sorted(places)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_tells_its_options(name: str) -> None:
    """What is listed can be called."""
    told = CliRunner().invoke(app, [name, "--help"])
    assert told.exit_code == 0
    assert f"Usage: cutover {name} [OPTIONS]" in told.output


TEAM = """
async def chat(request, effects):
    yield

FLOWS = dict.fromkeys(("chat", "companion", "ops", "pipeline", "session"), chat)

def describe(flow):
    return {flow: "of the team"}
"""
CONFIG = """
[stacks]
graph = "team:FLOWS"
[captures]
percent = 0
[models.m]
provider = "p"
[providers.p]
base_url = "http://127.0.0.1:1/v1"
"""


def started(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start a command as its console script does: only this project is on the path."""
    code = "import sys; from cutover.cli import main; sys.argv[0] = 'cutover'; main()"
    return subprocess.Popen(
        [sys.executable, "-P", "-c", code, *arguments],
        cwd=folder,
        env=child_environment(COLUMNS="200", PYTHONSAFEPATH="1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.slow
def test_a_stack_may_be_a_module_of_the_current_folder(tmp_path: Path) -> None:
    """For every command."""
    (tmp_path / "team.py").write_text(TEAM, "utf-8")
    (tmp_path / "cutover.toml").write_text(CONFIG, "utf-8")
    for arguments, due in (
        (("graph", "chat", "--stack", "team:FLOWS"), "%% chat\nof the team"),
        (("doctor",), "good    stacks.graph: team:FLOWS, fingerprint"),
    ):
        with started(tmp_path, *arguments) as command:
            output, _ = command.communicate()
            assert due in output, output
    with started(tmp_path, "serve", "--port", "0") as server:
        try:
            assert server.stdout is not None
            assert any("cutover listening on" in line for line in server.stdout)
        finally:
            server.terminate()
            server.communicate()


def test_a_command_there_is_not_is_refused() -> None:
    """As a wrong option is: with status 64, and with the nearest name where one is near."""
    assert CliRunner().invoke(app, ["promote"]).exit_code == USAGE
    misspelt = CliRunner().invoke(app, ["serv"])
    assert misspelt.exit_code == USAGE
    assert "No such command 'serv'. Did you mean 'serve'?" in misspelt.output


@pytest.mark.parametrize("command", COMMANDS)
def test_a_misspelt_option_is_no_answer_of_any_command(command: str) -> None:
    """Not 2, on which a script that runs the gate rolls back."""
    assert CliRunner().invoke(app, [*command.split(), "--misspelt"]).exit_code == USAGE


def test_a_command_runs_without_standard_output() -> None:
    """As started by a supervisor that closes it."""
    command = 'exec "$0" -m cutover --version >&-'
    done = subprocess.run(
        ["/bin/sh", "-c", command, sys.executable], capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_version_is_told() -> None:
    """That of the installed package."""
    told = CliRunner().invoke(app, ["--version"])
    assert (told.exit_code, told.output) == (0, f"cutover {version('cutover')}\n")


def test_a_start_seldom_looks_for_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is hardly any among what is imported, and looking for it takes its time."""
    before = gc.get_threshold()
    monkeypatch.setattr(sys, "argv", ["cutover", "--version"])
    monkeypatch.setattr(sys, "stdout", sys.stdout)  # put back: it is replaced
    try:
        with pytest.raises(SystemExit):
            main()
        assert gc.get_threshold() == (10_000, *before[1:])
    finally:
        gc.set_threshold(*before)


def test_help_keeps_the_names_of_sections() -> None:
    """`[prompts]` is no markup."""
    told = CliRunner().invoke(app, ["prompts", "check", "--help"], env={"COLUMNS": "200"}).output
    assert "The configuration with [prompts]; default" in told


@pytest.mark.slow
def test_commands_load_nothing_they_never_use() -> None:
    """Each start would wait for it: help for any of them, `serve` for pandas, six for an SDK.

    Nor does a module of compare load what another one needs.
    """
    code = """
import sys
import cutover.cli

sys.argv = ["cutover", "--help"]
try:
    cutover.cli.main()
except SystemExit:
    pass
print("help:", sys.modules.keys() & {"pandas", "locust", "langgraph", "openai"})
import compare.waivers
print("waivers:", sys.modules.keys() & {"pandas", "deepdiff"})
import cutover.cli.operate.serve
print("serve:", sys.modules.keys() & {"pandas"})
from cutover.cli.operate import rollback, history, forget
from cutover.cli.setup import graph, demo
from cutover.cli.compare import selftest
print("others:", sys.modules.keys() & {"openai", "langgraph"})
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=False,
        capture_output=True,
        text=True,
        env=child_environment(),
    )
    parts = ("help", "waivers", "serve", "others")
    assert done.stdout.splitlines()[-4:] == [f"{part}: set()" for part in parts], done.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_a_summary_in_help_is_the_command_s_own(name: str) -> None:
    """The first paragraph of the command's help."""
    place = COMMANDS[name]
    module, _, function = place.function.partition(":")
    found = getattr(import_module(f"cutover.cli.{module}"), function)
    text = found.info.help if isinstance(found, typer.Typer) else inspect.getdoc(found)
    assert text
    assert " ".join(text.split("\n\n")[0].split()) == place.summary
