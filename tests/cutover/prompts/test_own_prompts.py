"""The project's own prompts are what its own command converts the old ones into."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from cutover.cli import app

ROOT = Path(__file__).resolve().parents[3]
OLD = ROOT / "legacy" / "prompts"
NEW = ROOT / "graph_impl" / "prompts"
# As legacy/templates.py makes its environment.
SETTINGS = ("--set", "keep_trailing_newline=true")


@pytest.mark.slow
def test_the_graph_stacks_prompts_are_the_converted_legacy_ones(tmp_path: Path) -> None:
    """Byte for byte; none is missing and there are no others."""
    arguments = ["prompts", "convert", str(OLD), "-o", str(tmp_path), *SETTINGS]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    made = {path.name: path.read_bytes() for path in tmp_path.glob("*.md")}
    assert made == {path.name: path.read_bytes() for path in NEW.glob("*.md")}
    assert len(made) == len(list(OLD.glob("*.j2")))
