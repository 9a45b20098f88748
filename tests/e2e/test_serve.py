"""`cutover serve` as a process, asked over sockets: as the README's first page shows it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.harness.test_imports import LIBRARIES, LISTED, STACKS, packages
from tests.support.processes import ROOT, RouterProcess, share

pytestmark = [pytest.mark.sockets, pytest.mark.slow]

CRASHES = "m0"
"""The message whose stream crashes."""

REQUESTS = {
    "chat": ("/chat/sse", {"message_id": "m1", "content": "What is 12 * 7?"}, '"step":"END"'),
    "companion": ("/chat", {"session_id": "s1", "message": "I am happy today"}, "event: done"),
    "session": ("/api/v1/chat", {"message": "我叫什么？", "user_id": "u"}, '"type":"done"'),
    "pipeline": (
        "/api/chat",
        {"user_id": "u", "session_id": "p1", "message": "还记得我们上次去公园吗？"},
        "event: message",
    ),
    "ops": ("/ops/react", {"session_id": "o1", "input": "check the disk"}, "event: done"),
}


@contextmanager
def serving(folder: Path, percent: float, *options: str) -> Iterator[httpx.Client]:
    """Serve all flows with a share of graph, on the folder's database; yield a client.

    Each module that the process imports is a line of its log.
    """
    flows = {name: share(percent) for name in REQUESTS}
    flows["chat"] |= {"force_graph": [CRASHES]}
    tables = {"stores": {"database": f"sqlite+aiosqlite:///{folder}/world.db"}, "flows": flows}
    arguments = ("--simulate", *options)
    with (
        RouterProcess(folder, tables, arguments=arguments, environment=LISTED) as router,
        httpx.Client(base_url=router.url, timeout=60) as client,
    ):
        assert packages(router.log) >= STACKS | LIBRARIES
        yield client


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, httpx.Client]]:
    """Two processes on one database: legacy serves everything in one, graph in the other.

    In legacy's, graph serves one message, and crashes behind the fourth event.
    """
    folder = tmp_path_factory.mktemp("served")
    with serving(folder, 0.0, "--crash", "4") as legacy, serving(folder, 100.0) as graph:
        yield {"legacy": legacy, "graph": graph}


@pytest.mark.parametrize("stack", ["legacy", "graph"])
def test_five_flows_are_served_by_either_stack(served: dict[str, httpx.Client], stack: str) -> None:
    """Each stream is whole, and says which stack served."""
    for path, body, end in REQUESTS.values():
        answer = served[stack].post(path, json=body)
        assert answer.status_code == 200, answer.text
        assert answer.headers["x-cutover-served"] == stack
        assert end in answer.text.split("\n\n")[-2], answer.text


def test_a_stream_that_crashes_in_the_middle_is_whole(served: dict[str, httpx.Client]) -> None:
    """One stream, one ACCEPT, the whole text: another stack went on after the fourth event."""
    path, body, _ = REQUESTS["chat"]
    answer = served["legacy"].post(path, json={**body, "message_id": CRASHES})
    assert answer.headers["x-cutover-assigned"] == "graph"
    assert ": served-by legacy" in answer.text
    shown = (ROOT / "README.md").read_text("utf-8").split("```")[1].strip().replace("\n", "\n\n")
    assert _steps(answer.text) == _steps(shown)


def _steps(stream: str) -> list[str]:
    """Return a stream's lines without its exchange's id, and without the text on its way."""
    lines = [line for line in stream.split("\n\n") if line and '"SEND","content":"12' not in line]
    return [line if line.startswith("data") else " ".join(line.split()[:3]) for line in lines]


@pytest.mark.parametrize(("asks", "goes_on"), [("legacy", "graph"), ("graph", "legacy")])
def test_a_pause_is_resumed_on_the_other_stack(
    served: dict[str, httpx.Client], asks: str, goes_on: str
) -> None:
    """The question is asked by one process, and its answer acted on by another one."""
    asked = served[asks].post("/ops/react", json={"session_id": asks, "input": "restart web"})
    lines = asked.text.split("\n")
    shown = json.loads(lines[lines.index("event: approval_required") + 1].removeprefix("data: "))
    assert lines[-3] == 'data: {"status":"approval_required"}'
    decision = {"approval_id": shown["approval_id"], "approved": False, "by": "ada"}
    rest = served[goes_on].post("/ops/resume", json=decision)
    assert rest.status_code == 200, rest.text
    assert rest.headers["x-cutover-served"] == goes_on
    assert "event: step" not in rest.text
    assert 'data: {"status":"rejected"}' in rest.text
    assert served[asks].post("/ops/resume", json=decision).status_code == 409
