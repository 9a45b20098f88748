"""The demonstration, act by act, and the router and provider it starts."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

import aiohttp
import msgspec

from compare.report import Report
from contract.errors import CutoverError
from cutover.demo.client import (
    MARK,
    AnsweredQuestion,
    ApprovedInstruction,
    Body,
    DemoStream,
    answer_question,
    approve_instruction,
    send,
    send_all,
)
from cutover.reports import compare_and_write
from cutover.wiring.models import KEY
from loadtests.plan import LoadPlan
from loadtests.processes import server_process
from loadtests.report import LoadReport
from loadtests.requests import Target
from loadtests.runner import run_load
from loadtests.simulator import Profile, spawn
from router.routing.assignment import bucket

CONFIG = "cutover.toml"
_TEMPORARY = "temporary"
"""The folder, beside it, in which workers may delete."""
_PROFILE = Profile(ttft_ms=60, rate=400)
_SETTLED_WITHIN = 20.0
SALT = "cutover-demo"
PERCENT = 30
QA_KEY = "CUTOVER_DEMO_QA_KEY"
_GRAPH_BELOW = PERCENT * 1_000

WRITTEN = "# Written by `cutover demo`."
"""The first words of the file; a folder without it is not overwritten."""

_TEMPLATE = """\
{written} Change a value while the router runs: it is in force in a second.
[rollout]
salt = "{salt}"

[flows.chat]
enable_langgraph = true
langgraph_percent = {percent}.0
langgraph_fallback = true
shadow_percent = 100.0

[flows.chat.options]
yield_interval = 0.1
timezone = "Asia/Shanghai"

[flows.companion]
enable_langgraph = true
langgraph_percent = 100.0
shadow_percent = 100.0

[flows.ops]
enable_langgraph = true
langgraph_percent = 100.0
shadow_percent = 100.0

[workers]
temporary_root = "{folder}/{temporary}"

[server]
qa_key_env = "{qa_key}"

[shadow]
queue = 2048

[stacks]
graph = "cutover.demo.faulty_stack:FLOWS"

[captures]
path = "{folder}/captures"

[captures.redact.patterns]
demo_phone = '555[/-]\\d{{3}}-\\d{{4}}'

[stores]
conversations = "sqlite:///{folder}/conversations.sqlite"
memory = "sqlite:///{folder}/memory.sqlite"
history = ""
pauses = "sqlite:///{folder}/pauses.sqlite"
"""

_MODEL = """
[providers.simulator]
base_url = "{base_url}"

[models."gpt-4.1"]
provider = "simulator"
input_price = 2.0
output_price = 8.0
"""


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """What is sent, for how long, and where the results go."""

    folder: Path
    messages: list[Body]
    load_seconds: float
    users: int


@dataclass(slots=True)
class DemoOutcome:
    """The results of the acts."""

    url: str = ""
    answers: list[DemoStream] = field(default_factory=list)
    crash: DemoStream | None = None
    question: AnsweredQuestion | None = None
    approval: ApprovedInstruction | None = None
    simulated: bool = True
    load: LoadReport | None = None
    readiness: dict[str, Any] = field(default_factory=dict)
    report: Report | None = None


class ForeignFolder(CutoverError):
    """The folder holds files that no demonstration has written."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"{str(folder)!r} holds what no demonstration wrote: name another --out")


class Demonstration:
    """Runs the acts in order, and ends the processes it starts."""

    def __init__(self, plan: DemoPlan, on_share: Callable[[str, float], None]) -> None:
        self.plan = plan
        self.outcome = DemoOutcome()
        self._on_share = on_share
        self._key = secrets.token_hex(16)
        self._processes = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Start simulator and router on free ports."""
        _create_empty(self.plan.folder)
        try:
            self._start()
        except BaseException:
            await self._processes.aclose()
            raise
        return self

    def _start(self) -> None:
        simulator = None if os.environ.get(KEY) else self._processes.enter_context(spawn(_PROFILE))
        self.outcome.simulated = simulator is not None
        config = self.plan.folder / CONFIG
        config.write_text(configuration(self.plan.folder, simulator), "utf-8")
        log = self.plan.folder / "router.log"
        options = ("serve", "--config", str(config), "--port", "0")
        router = server_process("cutover", *options, log=log, **{QA_KEY: self._key})
        self.outcome.url = self._processes.enter_context(router).url

    async def __aexit__(self, *_: object) -> None:
        """End what was started; captures are flushed on the way."""
        await self._processes.aclose()

    async def converse(self) -> None:
        """Send the messages, some on graph, everything shadowed."""
        self.outcome.answers = await send_all(
            self.outcome.url, self.plan.messages, partial(self._on_share, "messages")
        )

    async def crash(self) -> None:
        """Let the graph stack crash in the middle of an answer, once."""
        async with aiohttp.ClientSession() as session:
            url = f"{self.outcome.url}/chat/sse"
            self.outcome.crash = await send(session, url, crashing_message())
        self._on_share("takeover", 1.0)

    async def ask(self) -> None:
        """Be asked by graph, roll the flow back, and continue on legacy."""
        self.outcome.question = await answer_question(self.outcome.url, self.plan.folder / CONFIG)
        self._on_share("question", 1.0)

    async def approve(self) -> None:
        """Instruct a worker on graph, and approve what is risky."""
        folder = self.plan.folder / _TEMPORARY
        self.outcome.approval = await approve_instruction(self.outcome.url, folder)
        self._on_share("approval", 1.0)

    async def load(self) -> None:
        """Load both stacks in turn, for a short while."""
        plan, url = self.plan, self.outcome.url
        bodies = plan.folder / "messages.jsonl"
        bodies.write_bytes(msgspec.json.Encoder().encode_lines(plan.messages))
        targets = tuple(
            Target(stack=stack, url=url, qa_key=self._key) for stack in ("legacy", "graph")
        )
        load = LoadPlan(
            targets=targets,
            messages=bodies,
            users=plan.users,
            seconds=plan.load_seconds,
            think=0.2,
        )
        self.outcome.load = await run_load(
            load, plan.folder / "load", lambda progress: self._on_share("load", progress.share)
        )

    async def settle(self) -> None:
        """Wait until every shadow has run and is written down, and read `/readyz`."""
        until = time.monotonic() + _SETTLED_WITHIN
        async with aiohttp.ClientSession() as session:
            while True:
                async with session.get(f"{self.outcome.url}/readyz") as response:
                    self.outcome.readiness = await response.json()
                readiness = self.outcome.readiness
                unsettled = readiness["ledger"]["open"]
                left = unsettled + readiness["captures"]["waiting"]
                if not left or time.monotonic() > until:
                    return
                self._on_share("shadows", 1 - unsettled / max(1, readiness["counts"]["requests"]))
                await asyncio.sleep(0.2)

    async def compare(self) -> None:
        """Compare what was captured and write the report."""
        self._on_share("shadows", 1.0)
        self.outcome.report = await asyncio.to_thread(
            compare_and_write,
            str(self.plan.folder / "captures"),
            self.plan.folder / "report",
            partial(self._on_share, "report"),
        )


def _create_empty(folder: Path) -> None:
    """Create a folder, or empty that of an earlier demonstration; raises `ForeignFolder`."""
    if folder.exists():
        if not folder.is_dir() or (any(folder.iterdir()) and not _is_demo(folder)):
            raise ForeignFolder(folder)
        shutil.rmtree(folder)
    folder.mkdir(parents=True)


def _is_demo(folder: Path) -> bool:
    config = folder / CONFIG
    return config.is_file() and config.read_text("utf-8", "replace").startswith(WRITTEN)


def configuration(folder: Path, simulator: str | None) -> str:
    """Return the demonstration's cutover.toml; without a simulator the real provider answers."""
    text = _TEMPLATE.format(
        written=WRITTEN,
        salt=SALT,
        percent=PERCENT,
        folder=folder.resolve().as_posix(),
        qa_key=QA_KEY,
        temporary=_TEMPORARY,
    )
    return text if simulator is None else text + _MODEL.format(base_url=f"{simulator}/v1")


def crashing_message() -> Body:
    """Return a message that is assigned to graph and long enough to crash in its middle."""
    message_id = next(
        f"{MARK}-{number}"
        for number in range(1_000)
        if bucket(SALT, f"{MARK}-{number}") < _GRAPH_BELOW
    )
    content = "What is 12 * 7, and what time is it in UTC? Then tell me about takeovers."
    return {"message_id": message_id, "content": content, "user_name": "Ada"}
