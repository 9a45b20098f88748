"""Links between the project's pages lead somewhere, headings included."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("examples/*/*.md")])
_LINK = re.compile(r"\]\((?P<path>[^)#\s]*)(?P<heading>#[^)\s]+)?\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def headings(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    return {
        "#" + re.sub(r"[^\w\- ]", "", text.lower()).strip().replace(" ", "-")
        for text in _HEADING.findall(page.read_text("utf-8"))
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """To a file that exists, and to a heading in it."""
    broken = []
    for path, heading in _LINK.findall(page.read_text("utf-8")):
        if "://" in path:
            continue
        target = page.parent / path if path else page
        if not target.exists() or (heading and heading not in headings(target)):
            broken.append(path + heading)
    assert broken == []
