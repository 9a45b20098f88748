"""Commands whose exit status is a verdict, and how times are given to them."""

import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from cutover.records import RecordDamaged
from harness.cli import Deciding, cli, moment
from harness.services import chosen

app = typer.Typer()
RAISED = {
    "damage": RecordDamaged("torn"),
    "package": ModuleNotFoundError("No module named 'pandas'"),
    "fault": ZeroDivisionError("a fault"),
    "abort": typer.Abort(),
}


@app.callback()
def commands() -> None:
    """Have more than one command."""


@app.command(cls=Deciding)
def judge(what: str, since: str = "") -> None:
    """Return a verdict."""
    if what in RAISED:
        raise RAISED[what]
    if since:
        moment(since)
    chosen([what], ["equal", "different"])
    raise typer.Exit(what == "different")


@pytest.mark.parametrize(
    ("line", "status", "said"),
    [
        ("equal", 0, ""),
        ("different", 1, ""),
        ("", 64, "Missing argument"),
        ("equal --sinse 2h", 64, "No such option"),
        ("equal --since soon", 64, "is no time"),
        ("sung", 64, "there are equal, different"),
        ("damage", 64, "cutover: the record cannot be read: torn"),
        ("package", 64, "No module named 'pandas'; install the extra, such as cutover[compare]"),
        ("fault", 70, "ZeroDivisionError: a fault"),
        ("abort", 1, "Aborted"),
    ],
)
def test_what_cannot_be_meant_is_no_verdict(line: str, status: int, said: str) -> None:
    """It ends with 64, and says why; a fault of the program's own ends with 70."""
    done = CliRunner().invoke(app, ["judge", *line.split()])
    assert (done.exit_code, said in done.output) == (status, True)


@pytest.mark.parametrize(
    ("text", "iso"),
    [
        ("2026-11-28", "2026-11-28T00:00:00+00:00"),
        ("2026-11-28T10:30", "2026-11-28T10:30:00+00:00"),
        ("2026-11-28T10:30+08:00", "2026-11-28T02:30:00+00:00"),
    ],
)
def test_moments(text: str, iso: str) -> None:
    """Without an offset they are UTC."""
    assert datetime.fromtimestamp(moment(text) / 1e6, UTC).isoformat() == iso


def test_moments_ago() -> None:
    """Minutes, hours, days before now."""
    for text, seconds in (("30m", 1_800), ("2h", 7_200), ("3d", 259_200)):
        before = time.time()
        ago = moment(text) / 1e6 + seconds
        assert before - 1e-3 <= ago <= time.time() + 1e-3


@pytest.mark.parametrize(
    "line",
    [
        "waive 0a1b2c3d --owner ada --reason known --until 2999-01-01 --waivers waivers.toml",
        "rollback",
        "rollback --flow chat",
        "ramp captures --dry-run",
        "forget --user nobody",
        "doctor",
    ],
)
def test_commands_end_with_what_comes_next(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever came of them; a flow need not be named where there is only one."""
    monkeypatch.chdir(tmp_path)
    captures = '[captures]\nurl = "captures"\nkey = "0123456789abcdef"\n'
    Path("cutover.toml").write_text(f"{captures}[flows.chat]\n")
    done = CliRunner().invoke(cli, line.split())
    assert done.exit_code in {0, 1}, done.output
    assert done.stdout.splitlines()[-1].startswith("next: "), done.output
