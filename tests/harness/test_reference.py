"""The pages say what the code does."""

from docs.reference import BLOCKS, DOCS, PAGES, written
from harness.config import TABLES, Settings


def test_the_pages_are_as_they_would_be_written_today() -> None:
    """`python -m docs.reference` writes them."""
    for name in PAGES:
        text = (DOCS / name).read_text("utf-8")
        assert written(text) == text, name
    blocks = "".join((DOCS / name).read_text("utf-8") for name in PAGES)
    assert all(f"<!-- end of {one} -->" in blocks for one in BLOCKS)


def test_every_key_says_what_it_means() -> None:
    """And so does each table."""
    for table in TABLES.values():
        assert all(one.description for one in table.model_fields.values())
    described = {name for name, one in Settings.model_fields.items() if one.description}
    assert TABLES.keys() | described == Settings.model_fields.keys()
