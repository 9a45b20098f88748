"""What a process imports: a router before services no stack, a command's help next to nothing.

That both stacks would be found is seen in `tests/e2e/test_serve.py`.
"""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.origin import Origin, Reply
from tests.support.processes import ROOT, RouterProcess, free_port

STACKS = {"legacy", "graph_impl"}
LIBRARIES = {"langgraph", "langchain_core", "openai", "tiktoken", "docker", "numpy"}
ANSWER = Reply(
    [b'data: {"choices":[{"delta":{"content":"tea"}}]}\n\n', b"data: [DONE]\n\n"],
    "text/event-stream",
)
LISTED = {"PYTHONPROFILEIMPORTTIME": "1"}
"""Has Python write a line for each module that it imports."""


def packages(log: str) -> set[str]:
    """Return the packages whose modules a log lists."""
    return set(re.findall(r"^import time: +\d+ \| +\d+ \| +(\w+)", log, re.MULTILINE))


@pytest.mark.sockets
@pytest.mark.slow
async def test_a_router_before_services_imports_no_stack(tmp_path: Path) -> None:
    """Neither when it starts nor for a request that is pinned and captured, nor for feedback."""
    flow = {"paths": ["/ask"], "keys": {"chat": "body.chat"}, "sticky": "chat"}
    async with Origin() as service:
        tables: dict[str, Any] = {
            "stacks": {"legacy": {"url": service.script(ANSWER).url}},
            "flows": {"mine": flow},
            "gateway": {"port": free_port()},
            "captures": {"url": str(tmp_path / "captures"), "key": "k" * 16},
        }
        async with (
            RouterProcess(tmp_path, tables, environment=LISTED) as router,
            httpx.AsyncClient() as client,
        ):
            answer = await client.post(f"{router.url}/ask", json={"chat": "c"})
            assert answer.content.endswith(b"data: [DONE]\n\n")
            feedback = {"exchange_id": answer.headers["x-cutover-exchange"], "score": 1}
            assert (await client.post(f"{router.url}/feedback", json=feedback)).is_success
    imported = packages(router.log)
    assert imported >= {"harness", "router", "effects"}
    assert imported & (STACKS | LIBRARIES) == set()
    assert not (tmp_path / "cutover.threads.db").exists()


COMMANDS = ["serve", "replay", "init", "doctor", "forget", "diff", "waive", "demo", "prompts"]
HELP = """
from typer.testing import CliRunner
from harness.cli import cli
for command in sys.argv[1:]:
    print(CliRunner().invoke(cli, [*command.split(), "--help"]).output)
"""


@pytest.mark.slow
def test_help_imports_the_command_line_alone() -> None:
    """A command imports what it runs when it runs; all of them in one process."""
    asked = [sys.executable, "-X", "importtime", "-c", f"import sys{HELP}", "", *COMMANDS]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.count("Usage") == 1 + len(COMMANDS)
    imported = packages(done.stderr)
    assert imported >= {"harness", "typer"}
    assert imported & (STACKS | LIBRARIES | {"effects", "router", "sqlalchemy", "fastapi"}) == set()
