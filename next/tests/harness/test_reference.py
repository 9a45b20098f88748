"""The pages say what the code does."""

from __future__ import annotations

from harness import reference as pages
from harness.config import TABLES, Settings


def test_the_pages_are_as_they_would_be_written_today() -> None:
    """`python -m harness.reference` writes them."""
    assert pages.PAGE.read_text("utf-8") == pages.reference()
    for page, written in (
        (pages.PRIVACY, pages.with_kinds),
        (pages.OPERATIONS, pages.with_metrics),
        (pages.ARCHITECTURE, pages.with_diagrams),
    ):
        text = page.read_text("utf-8")
        assert written(text) == text, page


def test_every_key_says_what_it_means() -> None:
    """And so does each table."""
    for table in TABLES.values():
        assert all(one.description for one in table.model_fields.values())
    described = {name for name, one in Settings.model_fields.items() if one.description}
    assert TABLES.keys() | described == Settings.model_fields.keys()
