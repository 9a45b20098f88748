"""Every row of docs/rescue.md has a test."""

import re
from pathlib import Path

from tests.docs.rescue_page import PLACE, tables
from tests.support.provider_shapes import SHAPES

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
    faults = PLACE.sub("", PAGE.read_text("utf-8"))
    rows = [line for line in faults.splitlines() if line.startswith("| ")]
    rows = [row for row in rows if not row.endswith("| test |")]
    assert len(rows) > 20
    assert not [row for row in rows if "`test_" not in row]


def test_the_page_shows_the_table_of_shapes() -> None:
    """Run `python -m tests.docs.rescue_page` after changing it."""
    found = PLACE.search(PAGE.read_text("utf-8"))
    assert found is not None
    assert found.group() == tables()


def test_every_provider_of_the_fixtures_is_in_the_table() -> None:
    """A shape is learnt from a provider by name."""
    page = tables()
    assert not [shape.provider for shape in SHAPES if shape.provider not in page]
