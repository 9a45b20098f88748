"""The example with a flow declared in the configuration alone works as its page says."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from contract.records import decode_run
from contract.wire.sse import SseDecoder
from tests.support.deployment import captured
from tests.support.example_processes import EXAMPLES, Example, invoked, running

pytestmark = [pytest.mark.sockets, pytest.mark.slow]

FOLDER = EXAMPLES / "declared_flow"
COMMANDS = {name: (sys.executable, "service.py", "0", name) for name in ("old", "new")}


async def ask(example: Example, ticket: str, said: str = "my lamp") -> tuple[str, list[Any]]:
    """Ask; return the stack that served, and the payloads of its events."""
    body = {
        "model": "desk",
        "metadata": {"ticket": ticket},
        "messages": [{"role": "user", "content": said}],
    }
    async with example.session.post(f"{example.url}/api/support", json=body) as response:
        assert response.status == 200
        events = SseDecoder().feed(await response.read())
    await example.settled()
    assert events[-1].data == b"[DONE]"
    chunks = [msgspec.json.decode(event.data) for event in events[:-1]]
    return response.headers["x-cutover-served"].split()[0], chunks


async def test_the_example_splits_shadows_compares_and_ends_honestly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As its page says, one after the other."""
    monkeypatch.chdir(tmp_path)
    async with running(FOLDER, COMMANDS, tmp_path) as example:
        old, new = example.assigned("support", "legacy"), example.assigned("support", "graph")
        assert (await ask(example, old))[0] == "legacy"
        assert (await ask(example, new))[0] == "graph"
        await example.services.captures.flush()
        said = await invoked("diff", "captures", "-o", "report")
        assert said.exit_code == 1, said.output
        assert "1 of 1 pair differs, from 1 cause" in said.output
        assert "text" in said.output
        doctor = await invoked("doctor")
        assert doctor.exit_code == 0, doctor.output
        assert "/api/support, support (configured: ramp), served by graph" in doctor.output
        assert "declared: sse, ends with [DONE]; broken, it ends in failure" in doctor.output
        assert "/chat/sse" not in doctor.output
        assert "stores.conversations" not in doctor.output, "only built-in flows use it"
        assert "stores.pins" in doctor.output
        served, chunks = await ask(example, old, "a breakdown please")
        assert served == "legacy"
        assert chunks[-1]["error"]["code"] == "internal"
        async with example.session.get(f"{example.url}/openapi.json") as response:
            described = (await response.json())["paths"]
        assert "/api/support" in described
        assert "/chat/sse" not in described
    runs = [decode_run(line) for line in captured(tmp_path).splitlines()]
    assert [(run.role, run.stack, run.outcome) for run in runs] == [
        ("serving", "legacy", "completed"),
        ("shadow", "graph", "completed"),
        ("serving", "graph", "completed"),
        ("serving", "legacy", "truncated"),
        ("shadow", "graph", "truncated"),
    ]
    assert runs[0].request is not None
    assert msgspec.json.decode(runs[0].request.body)["metadata"] == {"ticket": old}
