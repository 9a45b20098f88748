"""The page on imports: what it shows is typed in a folder, and comes as it stands there."""

from __future__ import annotations

from pathlib import Path

import pytest

from contract.stores import Turn
from tests.docs.transcripts import blocks
from tests.support.imports import PAGE, type_page
from tests.support.postgres import execute

FILES = {"toml": "cutover.toml", "csv": "messages.csv", "json": "facts.jsonl"}

OLD = (
    "CREATE TABLE sessions (id TEXT, user_id INTEGER)",
    "CREATE TABLE messages (id INTEGER, session_id TEXT, role TEXT, content TEXT, created_at TEXT)",
    "INSERT INTO sessions VALUES ('s9', 7)",
    "INSERT INTO messages VALUES (12, 's9', 'assistant', 'ho', '2026-01-02 03:04:06')",
    "INSERT INTO messages VALUES (11, 's9', 'user', 'hi', '2026-01-02 03:04:05')",
)


def test_what_the_page_shows_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files and their import, its repetition, and a query; threads are imported elsewhere."""
    monkeypatch.chdir(tmp_path)
    for language, name in FILES.items():
        (content,) = blocks(PAGE, "Try it", language)
        (tmp_path / name).write_text(content, "utf-8")
    old = f"sqlite:///{tmp_path}/old.sqlite"
    monkeypatch.setenv("OLD_DB", old)
    for statement in OLD:
        execute(old, statement)
    for heading in ("Try it", "Sources"):
        type_page(heading)
    assert '"line":5' in (tmp_path / "rejects.jsonl").read_text("utf-8")


def test_the_page_names_every_column_of_a_turn() -> None:
    """Those that are made included."""
    page = PAGE.read_text("utf-8").partition("## Columns")[2].partition("## Threads")[0]
    assert [name for name in Turn.__struct_fields__ if f"`{name}`" not in page] == []
