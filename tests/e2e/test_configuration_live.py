"""The configuration while the router runs: who serves, and what happens on an edit."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from contract.qa_header import QA_HEADER, sign
from router.stack import StackName
from tests.support.deployment import Deployment, Setup, deployed

pytestmark = pytest.mark.sockets


async def served(place: Deployment, ids: Iterable[str], **more: object) -> list[str]:
    """Ask under some message ids; give who was assigned."""
    answers = [await place.ask({"message_id": one, "content": "Hello"}, **more) for one in ids]
    assert {answer.status for answer in answers} == {200}
    for answer in answers:
        assert answer.headers["x-cutover-served"].startswith(answer.headers["x-cutover-assigned"])
    return [answer.headers["x-cutover-assigned"] for answer in answers]


def some(word: str, count: int = 12) -> list[str]:
    """Make message ids."""
    return [f"{word}{number}" for number in range(count)]


@pytest.mark.untraced
@pytest.mark.slow
async def test_percentages_and_the_switch_are_in_force_at_once(tmp_path: Path) -> None:
    """100, 50, 0 per cent; and `enable_langgraph = false` beats every percentage."""
    async with deployed(tmp_path, Setup(stack="graph")) as place:
        good = place.watched.path.read_text("utf-8")
        assert set(await served(place, some("all"))) == {"graph"}
        place.edit(good.replace("langgraph_percent = 100", "langgraph_percent = 50"))
        assert set(await served(place, some("half"))) == {"legacy", "graph"}
        place.edit(good.replace("langgraph_percent = 100", "langgraph_percent = 0"))
        assert set(await served(place, some("none"))) == {"legacy"}
        place.edit(good)
        assert set(await served(place, some("again"))) == {"graph"}
        place.edit(good.replace("enable_langgraph = true", "enable_langgraph = false"))
        assert set(await served(place, some("off"))) == {"legacy"}
        ready = await place.get("/readyz")
        assert ready["stages"]["chat"] == "off"


async def test_keys_can_be_pinned(tmp_path: Path) -> None:
    """The lists beat the percentage, in both directions, and not the switch."""
    async with deployed(tmp_path) as place:
        good = place.watched.path.read_text("utf-8")
        place.edit(good.replace("shadow_percent", 'force_graph = ["a", "b"]\nshadow_percent', 1))
        assert await served(place, ["a", "b", "c"]) == ["graph", "graph", "legacy"]
        pinned = 'force_legacy = ["a"]\nlanggraph_percent = 100'
        place.edit(good.replace("langgraph_percent = 0", pinned))
        assert await served(place, ["a", "b"]) == ["legacy", "graph"]
        pinned = 'force_graph = ["a"]\nenable_langgraph = false'
        place.edit(good.replace("enable_langgraph = true", pinned))
        assert await served(place, ["a"]) == ["legacy"]


@pytest.mark.untraced
@pytest.mark.parametrize("stack", ["legacy", "graph"])
async def test_a_signed_header_chooses_the_stack(tmp_path: Path, stack: StackName) -> None:
    """Valid for one route key and for a while; forged, expired or foreign it is ignored."""
    assigned: StackName = "legacy" if stack == "graph" else "graph"
    async with deployed(tmp_path, Setup(stack=assigned)) as place:
        now = int(time.time())
        cases = {
            sign(stack, now + 60, "m0", b"qa"): stack,
            sign(stack, now - 1, "m0", b"qa"): assigned,
            sign(stack, now + 60, "m0", b"guessed"): assigned,
            sign(stack, now + 60, "other", b"qa"): assigned,
            f"{stack};exp={now + 60};sig=": assigned,
            stack: assigned,
            "\xff" * 300: assigned,
        }
        for header, expected in cases.items():
            assert await served(place, ["m0"], headers={QA_HEADER: header}) == [expected], header
        assert place.services.router.counts.qa_ignored == 6


@pytest.mark.untraced
async def test_a_bad_edit_is_told_and_the_last_good_one_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """`/readyz` and the log name file, key and what was meant; a good edit ends it."""
    async with deployed(tmp_path, Setup(stack="graph")) as place:
        good = place.watched.path.read_text("utf-8")
        place.edit(good.replace("langgraph_percent", "langgraph_persent"))
        ready = await place.get("/readyz")
        assert ready["status"] == "degraded"
        told = ready["faults"]["configuration"]
        for word in (str(place.watched.path), "flows.chat.langgraph_persent", "langgraph_percent"):
            assert word in told
        assert told in caplog.text
        assert set(await served(place, some("m"))) == {"graph"}
        place.edit("[flows.chat\n")
        assert "not TOML" in (await place.get("/readyz"))["faults"]["configuration"]
        assert await served(place, ["n"]) == ["graph"]
        place.edit(good)
        ready = await place.get("/readyz")
        assert (ready["status"], ready["faults"]) == ("ready", {})


async def test_a_changed_model_answers_the_next_request(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A new name, a new model and a new price; a model whose key is missing changes nothing."""
    caplog.set_level(logging.INFO)
    async with deployed(tmp_path) as place:
        good = place.watched.path.read_text("utf-8")
        ask = {"message_id": "m", "content": "Hello"}
        await place.ask(ask)
        priced = 'model = "sim-other"\ninput_price = 1.0\noutput_price = 1.0'
        new = good.replace('model = "sim-chat"', priced).replace("[models.slow]", "[models.new]")
        place.edit(f"{new}\n[rescue]\nattempts = 1\n")
        assert place.services.model.policy.attempts == 1
        await place.ask(ask)
        answer = await place.ask(ask | {"model_config": {"model_id": "slow"}})
        assert (answer.status, answer.problem["code"]) == (422, "unknown_model")
        first, second, _ = await place.lines()
        assert [run.models[0].model for run in (first, second)] == ["sim-chat", "sim-other"]
        assert (first.cost, bool(second.cost)) == (None, True)
        place.edit(good.replace("CUTOVER_TEST_KEY", "CUTOVER_UNSET_KEY"))
        ready = await place.get("/readyz")
        assert "CUTOVER_UNSET_KEY" in ready["faults"]["models"]
        assert (await place.ask(ask)).steps[-2:] == ["SUCCESS", "END"]
