"""Imports as they are typed, and what is in the stores afterwards."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from cutover.cli import app
from tests.docs.transcripts import blocks, pattern, typed
from tests.support.postgres import execute

STORE = "IMPORT_STORE"
PAGE = Path(__file__).parents[2] / "docs" / "import.md"


def type_page(heading: str) -> None:
    """Type the commands that the page shows below a heading; each prints what stands there."""
    for block in blocks(PAGE, heading, "console"):
        for one in typed(block):
            done = CliRunner().invoke(app, one.words[1:])
            assert pattern(one.shown).fullmatch(done.output), done.output


@dataclass(frozen=True, slots=True)
class Target:
    """Stores at an address, configured by a file in a folder."""

    folder: Path
    address: str

    def configure(self, more: str = "") -> None:
        """Write the configuration; the address, with its password, is in the environment."""
        (self.folder / "cutover.toml").write_text(
            f'[captures]\npath = "{self.folder}/captures"\n{more}\n[stores]\n'
            f'conversations = "env:{STORE}"\nmemory = "env:{STORE}"\npauses = "memory://"\n',
            "utf-8",
        )

    def type(self, command: str, *arguments: object) -> tuple[int, str]:
        """Type `cutover` and a command; returns its exit status and everything it printed."""
        config = self.folder / "cutover.toml"
        words = [*command.split(), *map(str, arguments), "--config", str(config)]
        result = CliRunner().invoke(app, words, env={STORE: self.address})
        return result.exit_code, result.output

    async def type_aside(self, command: str, *arguments: object) -> tuple[int, str]:
        """Type a command in a thread: it has a loop of its own."""
        return await asyncio.to_thread(self.type, command, *arguments)

    def rows(self, columns: str, table: str = "turns") -> list[tuple[Any, ...]]:
        """Read a table in the order in which rows were stored; none where nothing was made."""
        if self.address.startswith("sqlite") and not (self.folder / "store.db").exists():
            return []
        return execute(self.address, f"SELECT {columns} FROM {table} ORDER BY seq")
