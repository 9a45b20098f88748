"""The commands of docs/gateway.md, as they stand there."""

import asyncio
import os
import re
from pathlib import Path

import pytest

from tests.support.gateway import gateway_stage

pytestmark = [pytest.mark.sockets, pytest.mark.slow]

DOCUMENT = Path(__file__).parents[3] / "docs" / "gateway.md"


async def test_every_command_answers_what_is_said() -> None:
    """In order: a command, and its answer behind `# `; `$OTHER` is a new run each time."""
    blocks = re.findall(r"```sh\n(.*?)\n# (.*?)\n```", DOCUMENT.read_text("utf-8"), re.DOTALL)
    assert len(blocks) == 5
    async with gateway_stage(key="secret") as stage:
        first, address = stage.run()
        environment = {"RUN": address, "KEY": "secret", "PROVIDER": stage.sim.url}
        for command, answer in blocks:
            other, environment["OTHER"] = stage.run()
            process = await asyncio.create_subprocess_exec(
                *("sh", "-c", command),
                env={**os.environ, **environment},
                stdout=asyncio.subprocess.PIPE,
            )
            said, _ = await process.communicate()
            assert said.decode().strip() == answer, command
            assert other.ended is None or "write_differs" in answer
        assert stage.names == ["model.chat", "orders.create"]
        assert first.ended is None
