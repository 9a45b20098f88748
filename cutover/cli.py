"""The command line."""

from __future__ import annotations

import typer

from cutover.demo_command import demo
from cutover.diff_command import diff
from cutover.doctor_command import doctor
from cutover.history_command import history
from cutover.load_command import load
from cutover.noise_command import noise
from cutover.replay_command import replay_captures
from cutover.rollback_command import rollback
from cutover.selftest_command import selftest
from cutover.serve_command import serve
from cutover.waive_command import waive

app = typer.Typer(
    name="cutover",
    help="Replace the pipeline behind a streaming LLM chat service without its users noticing.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(demo)
app.command()(serve)
app.command("replay")(replay_captures)
app.command()(diff)
app.command()(noise)
app.command()(waive)
app.command()(selftest)
app.command()(load)
app.command()(rollback)
app.command()(history)
app.command()(doctor)


def main() -> None:
    """Run the command line."""
    app()
