"""The page of the configuration is what the schema says."""

from __future__ import annotations

from harness.config import TABLES, Settings
from harness.reference import PAGE, PRIVACY, reference, with_kinds


def test_the_page_is_as_it_would_be_written_today() -> None:
    """`python -m harness.reference` writes it."""
    assert PAGE.read_text("utf-8") == reference()
    privacy = PRIVACY.read_text("utf-8")
    assert with_kinds(privacy) == privacy


def test_every_key_says_what_it_means() -> None:
    """And so does each table."""
    for table in TABLES.values():
        assert all(one.description for one in table.model_fields.values())
    described = {name for name, one in Settings.model_fields.items() if one.description}
    assert TABLES.keys() | described == Settings.model_fields.keys()
