"""Every flow is put under load: the built-in ones behind one router, a declared one by itself."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from contract.flows import SPECS
from cutover.cli.compare.load import MessagesDue, bundled
from cutover.flows import declared_at
from loadtests.plan import Engine, LoadPlan
from loadtests.report import LoadReport
from loadtests.requests import ConversationsUnnamed, Target, flow_named, read_messages
from loadtests.runner import run_load
from router.config.schema import RemoteStackSettings
from tests.support.deployment import Setup, deployed
from tests.support.example_processes import EXAMPLES, running
from tests.support.patience import PATIENCE_S

pytestmark = [pytest.mark.sockets, pytest.mark.slow]

SHARES = """
[flows.companion]
enable_langgraph = true

[flows.ops]
enable_langgraph = true

[flows.pipeline]
enable_langgraph = true

[flows.session]
enable_langgraph = true
route_key = "user_id"
"""
STACKS: tuple[Literal["legacy", "graph"], ...] = ("legacy", "graph")
TICKET = b'{"metadata":{"ticket":"t1"},"messages":[{"role":"user","content":"my lamp"}]}\n'


@pytest.fixture(autouse=True)
def _runs_are_brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loadtests.runner.WARM_UP_SECONDS", 0.25)
    few = Path(__file__).parents[1] / "loadtests" / "few_users.py"
    monkeypatch.setattr("loadtests.runner.LOCUSTFILE", few)


async def check(plan: LoadPlan, out: Path) -> LoadReport:
    """Run a plan; every stream is whole, has words, and came from the stack that was asked for."""
    report = await run_load(plan, out)
    assert report.flow == plan.flow
    for stack in report.stacks:
        words = next(metric for metric in stack.metrics if metric.name == "ttft")
        endings = dict(stack.endings)
        # Locust may kill a user between two breaths: such a request is given up, not judged.
        given_up = endings.pop("cancelled", 0) if plan.engine == "locust" else 0
        whole = stack.requests - given_up
        assert (endings, dict(stack.codes)) == ({"complete": whole}, {})
        assert stack.served_elsewhere == 0
        assert whole <= words.n <= stack.requests
    assert [stack.stack for stack in report.stacks] == list(STACKS)
    return report


@pytest.mark.parametrize("flow", sorted(SPECS))
async def test_a_router_is_asked_for_both_of_its_stacks(flow: str, tmp_path: Path) -> None:
    """With the bundled messages, as each flow takes them, and the wish signed for each."""
    messages = bundled(flow, tmp_path)
    assert len(read_messages(SPECS[flow], messages)) > 50
    async with deployed(tmp_path, Setup(more=SHARES)) as deployment:
        targets = tuple(Target(stack=one, url=deployment.url, qa_key="qa") for one in STACKS)
        plan = brief(flow, targets, messages, "open")
        if flow == "session":  # each message opens one, whose name is not known before
            with pytest.raises(ConversationsUnnamed, match="--route-key") as refused:
                await run_load(plan, tmp_path / "out")
            assert str(messages) not in str(refused.value)  # a file that was not named
            plan = msgspec.structs.replace(plan, route_key="user_id")
        await check(plan, tmp_path / "out")


@pytest.mark.parametrize("engine", ["open", "locust"])
async def test_two_services_nobody_knows_are_asked_as_declared(
    engine: Engine, tmp_path: Path
) -> None:
    """The configuration says where, and what of their wire are words and endings."""
    commands = {name: (sys.executable, "service.py", "0", name) for name in ("old", "new")}
    messages = tmp_path / "tickets.jsonl"
    messages.write_bytes(TICKET)
    async with running(EXAMPLES / "declared_flow", commands, tmp_path) as example:
        settings = example.services.router.settings().stacks
        places = ((name, settings.place(name)) for name in STACKS)
        targets = tuple(
            Target(stack=n, url=at.url) for n, at in places if isinstance(at, RemoteStackSettings)
        )
        plan = brief("support", targets, messages, engine, tmp_path / "cutover.toml")
        await check(plan, tmp_path / "out")


def brief(
    flow: str,
    targets: tuple[Target, ...],
    messages: Path,
    engine: Engine,
    config: Path | None = None,
) -> LoadPlan:
    """Plan a pair of short runs; Locust's end with their last request."""
    return LoadPlan(
        targets=targets,
        messages=messages,
        users=4,
        rate=None if engine == "locust" else 20.0,
        seconds=60.0 if engine == "locust" else 1.0,
        think=0.1,
        pairs=1,
        engine=engine,
        flow=flow,
        declared=declared_at(config, flow) if config else None,
        patience=PATIENCE_S,
    )


def test_what_to_ask_a_declared_flow_has_to_be_said(tmp_path: Path) -> None:
    """What it accepts is unknown here, unless the configuration has an example."""
    with pytest.raises(MessagesDue, match="--messages"):
        bundled("support", tmp_path)
    assert bundled("support", tmp_path, '{"q": "hi"}').read_text("utf-8") == '{"q":"hi"}\n'


def test_a_flow_is_declared_where_the_configuration_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file named, or the one at the default place; a built-in flow is declared nowhere."""
    monkeypatch.chdir(tmp_path)
    assert declared_at(None, "support") is None
    assert declared_at(EXAMPLES / "declared_flow" / "cutover.toml", "chat") is None
    text = (EXAMPLES / "declared_flow" / "cutover.toml").read_text("utf-8")
    Path("cutover.toml").write_text(text, "utf-8")
    declared = declared_at(None, "support")
    assert declared is not None
    assert flow_named("support", declared).path == "/api/support"
    assert declared_at(None, "nobody") is None
