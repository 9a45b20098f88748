"""What `cutover serve` says as it starts: where it listens, what it serves, and what it lacks."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from loadtests.processes import child_environment
from tests.e2e.processes import configured_router
from tests.support.deployment import until
from tests.support.patience import PATIENCE_S

pytestmark = [pytest.mark.sockets, pytest.mark.slow]

DECLARED = Path(__file__).parents[2] / "examples" / "declared_flow" / "cutover.toml"


def started_and_stopped(folder: Path) -> str:
    """Type `cutover serve` in a folder, wait until it serves, stop it; gives all it said."""
    environ = child_environment()
    environ.pop("OPENAI_API_KEY", None)
    command = [sys.executable, "-m", "cutover", "serve", "--port", "0"]
    pipe, together = subprocess.PIPE, subprocess.STDOUT
    with subprocess.Popen(
        command, cwd=folder, stdout=pipe, stderr=together, text=True, env=environ
    ) as router:
        assert router.stdout is not None
        said = []
        for line in router.stdout:
            said.append(line)
            if "Started server process" in line:
                router.send_signal(signal.SIGINT)
        assert router.wait(PATIENCE_S) == 0
    return "".join(said)


def test_who_starts_it_beside_its_file_is_told(tmp_path: Path) -> None:
    """It serves all the same, every request refused: the log says why."""
    said = started_and_stopped(tmp_path)
    assert "cutover listening on http://127.0.0.1:" in said
    assert "  no cutover.toml here: defaults are in force\n" in said
    assert "  /chat/sse  chat: configured off\n" in said
    assert (
        "WARNING cutover.wiring.composition models: none is configured, and OPENAI_API_KEY" in said
    )


async def test_flows_nobody_has_are_not_named(tmp_path: Path) -> None:
    """They would not answer."""
    (tmp_path / "cutover.toml").write_bytes(DECLARED.read_bytes())
    async with configured_router(tmp_path, {}) as router:
        await until(lambda: "Started server process" in (tmp_path / "log").read_text("utf-8"))
        router.child.send_signal(signal.SIGINT)
        assert await router.child.wait() == 0
    said = (tmp_path / "out").read_text("utf-8") + (tmp_path / "log").read_text("utf-8")
    assert "  /api/support  support: configured ramp\n" in said
    assert "/chat/sse" not in said
    assert "WARNING cutover.wiring.composition" not in said
