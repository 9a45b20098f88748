"""The units of systemd fit the router, and systemd reads them."""

from __future__ import annotations

import configparser
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from contract.flows import SPECS
from cutover.cli import app
from cutover.server.serve import CLOSING_SECONDS, stop_seconds
from router.config.loader import parse_settings
from tests.conftest import ROOT
from tests.support.programs import installed, output_of

UNITS = sorted((ROOT / "deploy").glob("*.service"))
DEFAULTS = parse_settings("", "defaults", SPECS)


def section(path: Path, name: str) -> dict[str, str]:
    """Return a section of a unit."""
    unit = configparser.RawConfigParser(strict=False, delimiters=("=",))
    unit.optionxform = str  # type: ignore[assignment, method-assign] # its documented way
    unit.read(path, "utf-8")
    return dict(unit[name])


@pytest.mark.slow
def test_systemd_reads_the_units(tmp_path: Path) -> None:
    """Without a warning; the program is one of this machine."""
    program = installed("systemd-analyze", "systemd")
    copies = []
    for path in UNITS:
        text = path.read_text("utf-8").replace(
            "/srv/cutover/.venv/bin", str(Path(sys.executable).parent)
        )
        copies.append(tmp_path / path.name.replace("@.", "@1."))
        copies[-1].write_text(text, "utf-8")
        (tmp_path / path.name).write_text(text, "utf-8")
    ran = output_of(program, "verify", "--man=no", *copies, folder=tmp_path)
    ours = [line for line in ran.stderr.splitlines() if "cutover" in line]
    assert (ran.returncode, ours) == (0, []), ran.stderr


@pytest.mark.parametrize("path", UNITS, ids=[path.name for path in UNITS])
def test_units_give_the_time_it_may_take_to_stop(path: Path) -> None:
    """Of a router or of a shadow worker; and the start is tried until it succeeds."""
    service = section(path, "Service")
    command = service["ExecStart"].split()[1:]
    # An option that does not exist is refused before the help is shown.
    assert CliRunner().invoke(app, [*command, "--help"]).exit_code == 0
    needed = {
        "serve": stop_seconds(DEFAULTS),
        "shadow-worker": DEFAULTS.server.drain_seconds + CLOSING_SECONDS,
    }
    assert float(service["TimeoutStopSec"]) >= needed[command[0]]
    assert service["KillMode"] == "mixed"
    assert service["Restart"] == "on-failure"
    # Status 2 may be a store that is away: the start is tried again.
    assert service["RestartPreventExitStatus"] == "64"
    assert section(path, "Unit")["StartLimitIntervalSec"] == "0"


@pytest.mark.parametrize("path", UNITS, ids=[path.name for path in UNITS])
def test_units_are_confined(path: Path) -> None:
    """Not root, and nothing is writable but the folder of the state."""
    service = section(path, "Service")
    assert service["User"] == "cutover"
    assert service["ProtectSystem"] == "strict"
    assert service["StateDirectory"] == "cutover"
    assert service["EnvironmentFile"] == "/etc/cutover/environment"
