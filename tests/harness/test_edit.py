"""Edits of the configuration file, by hand over HTTP and by commands."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from harness import root
from harness.config import ConfigRefused, load, parse
from harness.edit import edit
from harness.live import LiveSettings
from tests.support.client import Client
from tests.support.stage import staged

FILE = """# ours
[server]
flag_token = "s3cret"  # nobody else's

[flows.chat]
# raised on Monday
langgraph_percent = 5  # careful
enable_langgraph = true
[flows.ops]
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A configuration file."""
    file = tmp_path / "cutover.toml"
    file.write_text(FILE)
    file.chmod(0o640)
    return file


def test_an_edit_keeps_the_comments_and_the_mode(path: Path) -> None:
    """What changes is the value."""
    edit(path, {"chat": {"langgraph_percent": 10.0}, "ops": {"shadow_percent": 1}})
    text = path.read_text()
    assert text == FILE.replace("= 5 ", "= 10.0 ") + "shadow_percent = 1.0\n"
    assert path.stat().st_mode & 0o777 == 0o640
    assert [one.name for one in path.parent.iterdir()] == ["cutover.toml"]


@pytest.mark.parametrize(
    ("flow", "changes", "problem"),
    [
        ("chat", {"langgraph_percent": 101.0}, "langgraph_percent: .* less than or equal to 100"),
        ("chat", {"langgraph_percent": True}, "langgraph_percent: .* valid number"),
        ("chat", {"langgraph_percent": "5"}, "langgraph_percent: .* valid number"),
        ("chat", {"enable_langgraph": 1}, "enable_langgraph: .* valid boolean"),
        ("chat", {"force_graph": [1]}, r"force_graph.0: .* valid string"),
        ("chat", {"options": {}}, "options: no switch; there are enable_langgraph, "),
        ("session", {"enable_langgraph": True}, "flows.session: not in this file"),
    ],
)
def test_what_would_be_refused_is_not_written(
    path: Path, flow: str, changes: dict[str, Any], problem: str
) -> None:
    """The file is as it was, byte by byte."""
    with pytest.raises(ConfigRefused, match=problem):
        edit(path, {flow: changes})
    assert path.read_text() == FILE


@pytest.mark.parametrize(
    "text",
    [
        "flows.chat.shadow_percent = 1.0\n",
        "flows = {chat = {shadow_percent = 1.0}}\n",
        "[flows.chat]\nshadow_percent = 1.0\n[server]\nport = 1\n[flows.ops]\n",
        "[flows]\nchat.shadow_percent = 1.0\n",
    ],
)
def test_every_spelling_of_a_table_is_edited(path: Path, text: str) -> None:
    """Dotted, inline, out of order."""
    path.write_text(text)
    edit(path, {"chat": {"shadow_percent": 2.0, "force_graph": ["ann"]}})
    table = load(path).flows["chat"]
    assert (table.shadow_percent, table.force_graph) == (2.0, ["ann"])


def test_a_link_stays_a_link(path: Path) -> None:
    """What it points to is edited."""
    link = path.parent / "link.toml"
    link.symlink_to(path)
    edit(link, {"chat": {"enable_langgraph": False}})
    assert link.is_symlink()
    assert not load(path).flows["chat"].enable_langgraph


def test_edits_follow_one_another(path: Path) -> None:
    """None of two at the same time is lost."""

    def raise_one(key: str) -> None:
        for percent in range(20):
            edit(path, {"chat": {key: percent}})

    keys = ("langgraph_percent", "shadow_percent")
    threads = [threading.Thread(target=raise_one, args=(key,)) for key in keys]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    table = load(path).flows["chat"]
    assert (table.langgraph_percent, table.shadow_percent) == (19.0, 19.0)


def test_a_file_that_cannot_be_written_is_refused(path: Path) -> None:
    """With its name and the reason."""
    with pytest.raises(ConfigRefused, match="No such file"):
        edit(path.parent / "away" / "cutover.toml", {"chat": {}})


@pytest.mark.parametrize(
    ("token", "body", "status"),
    [
        ("s3cret", {"flow": "chat", "langgraph_percent": 50}, 200),
        ("s3cret", {"flow": "chat", "langgraph_percent": 500}, 422),
        ("s3cret", {"flow": "chat", "percent": 5}, 422),
        ("s3cret", {"langgraph_percent": 5}, 422),
        ("s3cret", b"[1]", 400),
        ("s3cret", b"{" + b" " * 20_000, 413),
        ("wrong", {"flow": "chat", "langgraph_percent": 50}, 401),
        ("", {"flow": "chat", "langgraph_percent": 50}, 401),
    ],
)
async def test_the_flag_route_changes_the_file_and_what_is_in_force(
    path: Path, token: str, body: Any, status: int
) -> None:
    """At once, for who bears the token; the answer is what is in force."""
    live = LiveSettings(load(path), path)
    async with staged() as stage:
        client = Client(root.application(live, stage.world))
        client.sends["authorization"] = f"Bearer {token}"
        answer = json.loads(await client.post("/cutover/flags", body))
    assert client.status == status
    changed = status == 200
    assert live.flows["chat"].shares.percent == (50.0 if changed else 5.0)
    assert load(path).flows["chat"].langgraph_percent == (50.0 if changed else 5.0)
    if changed:
        assert (answer["langgraph_percent"], answer["enable_langgraph"]) == (50.0, True)


async def test_without_a_token_there_is_no_flag_route(path: Path) -> None:
    """Not even one that refuses."""
    live = LiveSettings(parse({"flows": {"chat": {}}}), path)
    async with staged() as stage:
        client = Client(root.application(live, stage.world))
        await client.post("/cutover/flags", {"flow": "chat", "enable_langgraph": True})
    assert client.status == 404
