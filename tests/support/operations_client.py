"""A person at the operations API of a deployment."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tests.support.deployment import Deployment, Setup, deployed

VARIABLE = "CUTOVER_TEST_TOKENS"
ALICE = "alices-own-token-0123456789"
ENVIRON = {VARIABLE: f"alice:{ALICE},ops:{'o' * 20}"}
MORE = f'[admin]\ntoken_env = "{VARIABLE}"\naudit_path = "FOLDER/audit.jsonl"\n'


@asynccontextmanager
async def operated(folder: Path) -> AsyncIterator[Deployment]:
    """Deploy with an operations API, everybody on graph and shadowed."""
    more = MORE.replace("FOLDER", str(folder))
    setup = Setup(stack="graph", shadow=100, more=more, environ=ENVIRON)
    async with deployed(folder, setup) as place:
        yield place


@dataclass(frozen=True)
class Operator:
    """Asks with a token, or without one."""

    place: Deployment
    token: str | None
    scheme: str = "Bearer"

    async def get(self, path: str) -> tuple[int, Any]:
        """Read a page."""
        return await self.ask("GET", path)

    async def post(self, path: str, body: object = None) -> tuple[int, Any]:
        """Ask for a change; bytes are sent as they are."""
        return await self.ask("POST", path, body)

    async def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Return status and answer."""
        given = {} if self.token is None else {"authorization": f"{self.scheme} {self.token}"}
        data = body if isinstance(body, bytes | None) else msgspec.json.encode(body)
        url = f"{self.place.url}/admin{path}"
        async with self.place.session.request(method, url, data=data, headers=given) as response:
            return response.status, json.loads(await response.read())

    def audited(self) -> list[Any]:
        """Return what is on record."""
        path = self.place.folder / "audit.jsonl"
        text = path.read_text("utf-8") if path.exists() else ""
        return [json.loads(line) for line in text.splitlines()]
