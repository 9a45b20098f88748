"""`cutover ops audit`: what the log holds, as a table or as JSON."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from contract.stores import DataSubject
from effects.stores import SqlAudit
from tests.support.commands import run_command
from tests.support.records import an_audit_entry

HERS: dict[str, Any] = {"session_id": "hers", "by": "ann"}


def configured(folder: Path, stores: str = "") -> Path:
    """Write a configuration whose pauses are in a folder, and with them the log."""
    config = folder / "cutover.toml"
    pauses = f'pauses = "sqlite:///{folder}/store.sqlite"'
    config.write_text(f"[stores]\n{stores or pauses}\n", "utf-8")
    return config


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Return the configuration of a log with three entries."""

    async def fill() -> None:
        async with SqlAudit.open(tmp_path / "store.sqlite") as log:
            for number, fields in enumerate((HERS, {"by": "", "ok": None}, {**HERS, "ok": False})):
                entry = an_audit_entry(entry_id=f"e-{number}", args={"name": "[red]\x1b"}, **fields)
                await log.append("audit", entry)

    asyncio.run(fill())
    return configured(tmp_path)


def shown(*arguments: object) -> list[str]:
    """Return the lines of a listing."""
    status, output = run_command("ops", "audit", *arguments)
    assert status == 0
    return output.splitlines()


def test_the_log_is_listed_newest_first(config: Path) -> None:
    """As a table, of a session or a person, and page by page; control characters are spelt out."""
    head, *rows = shown("--config", config)
    assert " ".join(head.split()) == "when (UTC) session event instruction risk who result"
    assert len(rows) == 3
    assert "[red]\\u001b" in rows[0]
    assert len(shown("--config", config, "--session", "hers")) == 3
    assert len(shown("--config", config, "--by", "ann", "--before", "e-2")) == 2
    assert shown("--config", config, "--session", "nobody's") == ["nothing is logged"]


def test_a_narrow_terminal_gets_two_lines_an_entry(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Instead of a table whose cells are cut off."""
    monkeypatch.setenv("COLUMNS", "60")
    lines = shown("--config", config, "--limit", 1)
    assert len(lines) == 2
    assert "hers: executed by ann" in lines[0]


def test_json_has_every_field(config: Path) -> None:
    """One line each; an erased name is its pseudonym."""
    newest, *_ = map(json.loads, shown("--config", config, "--json"))
    assert (newest["entry_id"], newest["by"], newest["ok"]) == ("e-2", "ann", False)

    async def erase() -> None:
        async with SqlAudit.open(config.with_name("store.sqlite")) as log:
            await log.erase(DataSubject("user", "ann"))

    asyncio.run(erase())
    newest, *_ = map(json.loads, shown("--config", config, "--json"))
    assert newest["by"].startswith("person-")
    assert len(shown("--config", config, "--json", "--by", newest["by"])) == 2


def test_a_log_that_is_not_there_is_empty_and_one_in_memory_is_refused(tmp_path: Path) -> None:
    """Reading makes no file."""
    assert shown("--config", configured(tmp_path)) == ["nothing is logged"]
    assert not (tmp_path / "store.sqlite").exists()
    for address, reason in (("memory://", "ends with the process"), ("env:NOT_SET", "NOT_SET")):
        status, output = run_command(
            "ops", "audit", "--config", configured(tmp_path, f'audit = "{address}"')
        )
        assert status == 2
        assert reason in " ".join(output.split())
    (tmp_path / "store.sqlite").write_text("this is no database, is it?" * 99, "utf-8")
    status, output = run_command("ops", "audit", "--config", configured(tmp_path))
    assert (status, "not a database" in output) == (2, True)
