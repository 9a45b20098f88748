"""The ops flow over HTTP with real workers: files, a deployment, and the log of both."""

from __future__ import annotations

from pathlib import Path

import pytest

from effects.stores import SqlAudit
from router.stack import StackName
from tests.support.companion_client import post
from tests.support.deployment import Answer, Deployment, Setup, deployed

pytestmark = [pytest.mark.sockets, pytest.mark.slow]


def setup(folder: Path, stack: StackName) -> Setup:
    """Return a deployment whose workers are confined to folders, with everything shadowed."""
    store = f"sqlite:///{folder}/store.sqlite"
    more = f"""
[flows.ops]
enable_langgraph = true
langgraph_percent = {100 if stack == "graph" else 0}
shadow_percent = 100
sticky = "none"
[workers]
system = true
root = "{folder}/place"
temporary_root = "{folder}/place/tmp"
[workers.deploy]
root = "{folder}/releases"
source = "{folder}/source"
build = ["sh", "-c", "echo building $RELEASE && echo $RELEASE >> log"]
check = ["grep", "-q", "good", "page"]
"""
    return Setup(others=store, locks=store, more=more)


async def react(place: Deployment, message: str) -> Answer:
    """Take a turn, and approve what it asks for."""
    body = {"session_id": "s", "input": message}
    answer = await post(place.session, f"{place.url}/ops/react", body)
    if answer.events[-1] == {"status": "approval_required"}:
        approval = {"approval_id": answer.events[-2]["approval_id"], "approved": True, "by": "ann"}
        answer = await post(place.session, f"{place.url}/ops/resume", approval)
    await place.settled()
    return answer


def results(answer: Answer) -> list[tuple[str, bool]]:
    """Return action and success of each result of an answer."""
    return [(one["action"], one["ok"]) for one in answer.events if "ok" in one]


@pytest.mark.parametrize("stack", ["legacy", "graph"])
async def test_the_machine_is_looked_at_changed_and_deployed_to(
    tmp_path: Path, stack: StackName
) -> None:
    """Once each, though a shadow runs; a release whose check fails is left for the one before."""
    temporary, source = tmp_path / "place" / "tmp", tmp_path / "source"
    temporary.mkdir(parents=True)
    source.mkdir()
    for name in ("a.log", "b.log", "c"):
        (temporary / name).write_text(name)
    (tmp_path / "a.log").touch()
    (source / "page").write_text("good")
    live = tmp_path / "releases" / "current"
    async with deployed(tmp_path, setup(tmp_path, stack)) as place:
        assert results(await react(place, "check the disks and memory")) == [
            ("disk", True),
            ("memory", True),
        ]
        listed = await react(place, "show the large files")
        assert f"{temporary}/a.log (5 B)" in str(listed.events)
        assert results(await react(place, "delete temporary files *.log")) == [
            ("delete_temporary", True)
        ]
        assert [one.name for one in temporary.iterdir()] == ["c"]
        assert (tmp_path / "a.log").exists()

        deployment = await react(place, "deploy")
        assert all(ok for _, ok in results(deployment))
        first = live.resolve().name
        assert f"building {first}" in [one.get("message") for one in deployment.events]
        assert (live / "log").read_text() == f"{first}\n"
        (source / "page").write_text("bad")
        failed = await react(place, "deploy")
        assert results(failed)[-2:] == [("verify", False), ("rollback", True)]
        assert live.resolve().name == first
        assert place.books() == {"compared(equal)": 8}
    async with SqlAudit.open(f"sqlite:///{tmp_path}/store.sqlite") as log:
        read = await log.read(session_id="s")
    told = [(one.action, one.event, one.by, one.ok) for one in reversed(read)]
    assert [one for one in told if one[0] == "delete_temporary"] == [
        ("delete_temporary", "requested", "", None),
        ("delete_temporary", "approved", "ann", None),
        ("delete_temporary", "executed", "ann", True),
    ]
    assert [ok for action, event, _, ok in told if (action, event) == ("verify", "executed")] == [
        True,
        False,
    ]
