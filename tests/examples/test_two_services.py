"""The example with two services works as its page says."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import msgspec
import pytest

from contract.records import decode_run
from contract.wire.sse import SseDecoder
from tests.support.deployment import captured
from tests.support.example_processes import EXAMPLES, Example, invoked, running

pytestmark = [pytest.mark.sockets, pytest.mark.slow]

FOLDER = EXAMPLES / "two_services"
COMMANDS = {
    "old": (sys.executable, "old_service.py", "0"),
    "new": ("node", "new_service.mjs", "0"),
}
WORDS = "You said: hello there"


@pytest.fixture(scope="session", autouse=True)
def node() -> None:
    """Node.js, or a skip; under CI, a failure."""
    if shutil.which("node") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("no node, and CI=true asks for it")
        pytest.skip("no node")


async def ask(example: Example, message_id: str) -> tuple[dict[str, str], str]:
    """Ask; return the stack that was assigned and served, and the reply."""
    body = {"message_id": message_id, "content": "hello there"}
    async with example.session.post(f"{example.url}/chat/sse", json=body) as response:
        assert response.status == 200
        events = SseDecoder().feed(await response.read())
    steps = [msgspec.json.decode(event.data) for event in events]
    assert [steps[0]["step"], steps[-1]["step"]] == ["ACCEPT", "END"]
    said = ("assigned", "served")
    who = {name: response.headers[f"x-cutover-{name}"].split()[0] for name in said}
    return who, steps[-2]["content"]


async def test_the_example_splits_shadows_and_falls_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As its page says, one after the other."""
    monkeypatch.chdir(tmp_path)
    async with running(FOLDER, COMMANDS, tmp_path) as example:
        old, new = example.assigned("chat", "legacy"), example.assigned("chat", "graph")
        assert await ask(example, old) == ({"assigned": "legacy", "served": "legacy"}, WORDS)
        await example.settled()
        assert await ask(example, new) == ({"assigned": "graph", "served": "graph"}, WORDS)
        await example.settled()
        books = {line.state: line.reason for line in example.services.router.ledger.counts}
        assert books == {"compared": "different", "not_sampled": "cannot"}
        await example.services.captures.flush()
        said = await invoked("diff", "captures", "-o", "report")
        assert said.exit_code == 0, "white space in JSON is no difference\n" + said.output
        await example.stop("new")
        assert await ask(example, new) == ({"assigned": "graph", "served": "legacy"}, WORDS)
        await example.settled()
    runs = [decode_run(line) for line in captured(tmp_path).splitlines()]
    assert [(run.role, run.stack, run.outcome) for run in runs] == [
        ("serving", "legacy", "completed"),
        ("shadow", "graph", "completed"),
        ("serving", "graph", "completed"),
        ("serving", "graph", "failed"),
        ("fallback", "legacy", "completed"),
    ]
