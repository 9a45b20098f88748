"""Commands as they are typed."""

from __future__ import annotations

from typer.testing import CliRunner

from cutover.cli import app


def run_command(*arguments: object) -> tuple[int, str]:
    """Run `cutover` with arguments; returns its exit status and everything it printed."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return result.exit_code, result.output


def run_on_one_line(*arguments: object) -> tuple[int, str]:
    """Run `cutover` with arguments; returns its exit status and its output without line ends."""
    status, output = run_command(*arguments)
    return status, " ".join(output.split())
