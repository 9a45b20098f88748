"""`cutover retire legacy`: each thing that is left, and nothing once all is done."""

from __future__ import annotations

import asyncio
import html
import json
import re
from pathlib import Path
from typing import Any

import pytest

from cutover.cli import USAGE
from cutover.retirement import LAST_STEP
from effects.stores import Pin, SqlPins
from router.admin.audit import now
from tests.support.commands import run_command
from tests.support.deployment import Setup, deployed

DAY_US = 86_400_000_000
WAIVER = """
[waiver.f00000000001]
owner = "ann"
reason = "wording"
until = 2999-01-01
"""


def retire(folder: Path, *options: object) -> tuple[int, str]:
    """Run `cutover retire legacy`; returns its status and its output."""
    waivers = folder / "waivers.toml"
    waivers.touch()
    config = ("--config", folder / "cutover.toml", "--waivers", waivers)
    return run_command("retire", "legacy", *config, *options)


def tasks(folder: Path, *options: object) -> dict[str, Any]:
    """Return what is reported of each task, by name and flow."""
    _, said = retire(folder, "--json", *options)
    return {f"{one['name']} {one['flow']}".strip(): one for one in json.loads(said)["tasks"]}


async def serve(folder: Path, percent: float, *, retired: bool) -> None:
    """Serve two messages by a deployment whose stores are in the folder."""
    setup = Setup(percent=percent, shadow=0, pins=f"sqlite:///{folder}/pins.sqlite")
    async with deployed(folder, setup) as place:
        if retired:
            text = place.watched.path.read_text("utf-8")
            place.edit(text.replace("[flows.chat]\n", "[flows.chat]\nlanggraph_fallback = false\n"))
        for number in range(2):
            answer = await place.ask({"message_id": f"m{number}", "content": "Hello"})
            assert answer.status == 200
        await place.lines()


@pytest.mark.sockets
@pytest.mark.slow
async def test_nothing_is_left_where_graph_serves_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flows that are off and unused do not count; the last step is given to the letter."""
    await serve(tmp_path, 100, retired=True)
    monkeypatch.setattr("cutover.cli.operate.retire.now", lambda: now() + 13 * DAY_US)
    status, said = await asyncio.to_thread(retire, tmp_path)
    assert status == 0, said
    assert "to do" not in said
    assert "unknown" not in said
    assert "legacy can be removed; the last step:" in said
    for step in LAST_STEP:
        assert step in said


@pytest.mark.sockets
@pytest.mark.slow
async def test_captures_of_an_hour_do_not_prove_two_weeks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor do captures of which a part cannot be read: legacy may have served what is missing."""
    await serve(tmp_path, 100, retired=True)
    served = (await asyncio.to_thread(tasks, tmp_path))["served chat"]
    assert served["done"] is None
    assert "the captures reach back 0.0 of 14 days" in served["detail"]
    monkeypatch.setattr("cutover.cli.operate.retire.now", lambda: now() + 13 * DAY_US)
    (segment,) = (tmp_path / "captures").glob("flow=chat/*/*.zst")
    (segment.parent / "torn.jsonl.zst").write_bytes(segment.read_bytes()[:-9])
    served = (await asyncio.to_thread(tasks, tmp_path))["served chat"]
    assert served["done"] is None
    assert "1 parts of the captures cannot be read" in served["detail"]


@pytest.mark.sockets
@pytest.mark.slow
async def test_everything_that_is_left_is_named(tmp_path: Path) -> None:
    """Share, fallback, who served, captures, waivers and pins, each with what to do."""
    await serve(tmp_path, 0, retired=False)
    async with SqlPins.open(tmp_path / "pins.sqlite") as store:
        await store.hold("chat", "c1", Pin("legacy", "v", 1), 60.0)
    (tmp_path / "waivers.toml").write_text(WAIVER, "utf-8")
    found = await asyncio.to_thread(tasks, tmp_path)
    left = {name for name, one in found.items() if not one["done"]}
    assert left == {
        *("share chat", "configuration chat", "served chat"),
        *("captures", "waivers", "pins chat"),
    }
    assert found["share chat"]["advice"] == "cutover ramp chat"
    assert found["configuration chat"]["advice"] == "in [flows.chat]: langgraph_fallback = false"
    assert found["served chat"]["detail"].startswith("legacy served 2 of 2 exchanges")
    assert found["pins chat"]["advice"] == "cutover pins release chat --stack legacy"
    page = tmp_path / "retire.html"
    status, said = await asyncio.to_thread(retire, tmp_path, "--page", page)
    assert (status, "6 left; then:" in said) == (1, True)
    shown = html.unescape(re.sub(r"<[^>]+>", "", page.read_text("utf-8")))
    for text in (*LAST_STEP, *(found[name][key] for name in left for key in ("detail", "advice"))):
        assert text in shown
    assert "6 left before legacy goes" in shown
    tiles = re.findall(r'"(\w*)">\s*<dt>([^<]+)</dt><dd>([^<]+)</dd>', page.read_text("utf-8"))
    assert [(name, count) for state, name, count in tiles if state == "alarm"] == [
        ("flows not at 100 %", "1"),
        ("exchanges legacy served", "2"),
        ("waivers in force", "1"),
        ("captures of legacy", "2"),
        ("conversations on legacy", "1"),
    ]


def test_what_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    """Captures that are gone are no proof that legacy is not needed."""
    text = f"""
[flows.chat]
enable_langgraph = true
langgraph_percent = 100
langgraph_fallback = false
[captures]
path = "{tmp_path}/gone"
[stores]
pauses = "sqlite:///{tmp_path}/store.sqlite"
"""
    (tmp_path / "cutover.toml").write_text(text, "utf-8")
    found = tasks(tmp_path)
    assert [found[name]["done"] for name in ("captures", "served chat", "pauses")] == [
        *(None, None, True)
    ]
    assert [found[name]["left"] for name in ("captures", "served chat", "pauses")] == [
        *(None, None, 0)
    ]
    assert not (tmp_path / "store.sqlite").exists()
    assert retire(tmp_path)[0] == 1


def test_another_stack_and_an_unreadable_file_are_refused(tmp_path: Path) -> None:
    """Only legacy goes; nothing is guessed from a configuration no router would follow."""
    (tmp_path / "cutover.toml").write_text("[sevrer]\n", "utf-8")
    assert retire(tmp_path)[0] == 2
    assert run_command("retire", "graph")[0] == USAGE
