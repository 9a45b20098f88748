"""Every row of docs/rescue.md has a test."""

import re
from pathlib import Path

TESTS = Path(__file__).parent.parent
PAGE = TESTS.parent / "docs" / "rescue.md"
FAULTS = TESTS / "effects" / "model"


def test_every_row_names_a_test_there_is() -> None:
    """And the table names every test of its file."""
    named = set(re.findall(r"`(test_\w+)`", PAGE.read_text("utf-8")))
    written = {
        path.name: set(re.findall(r"def (test_\w+)\(", path.read_text("utf-8")))
        for path in FAULTS.glob("test_*.py")
    }
    assert named <= set().union(*written.values())
    assert written["test_rescue.py"] <= named


def test_every_row_of_the_table_has_a_test() -> None:
    """Each row names one."""
    rows = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")]
    assert len(rows) > 20
    assert not [row for row in rows[1:] if "`test_" not in row]
