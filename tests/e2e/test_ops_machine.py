"""The ops flow over HTTP with real workers: files, a deployment, and the log of both."""

from __future__ import annotations

from pathlib import Path

import pytest

from effects.stores import SqlAudit
from tests.e2e.ops import approval_of, react, results, resume, setup
from tests.support.deployment import Answer, Deployment, deployed

pytestmark = [pytest.mark.sockets, pytest.mark.slow]


def workers(folder: Path) -> str:
    """Confine workers to folders."""
    return f"""
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


async def approved(place: Deployment, message: str) -> Answer:
    """Take a turn, and approve what it asks for."""
    answer = await react(place, message)
    if answer.events[-1] == {"status": "approval_required"}:
        answer = await resume(place, approval_of(answer))
    await place.settled()
    return answer


@pytest.mark.parametrize("percent", [0, 100], ids=["legacy", "graph"])
async def test_the_machine_is_looked_at_changed_and_deployed_to(
    tmp_path: Path, percent: float
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
    async with deployed(tmp_path, setup(tmp_path, percent, workers(tmp_path))) as place:
        assert results(await approved(place, "check the disks and memory")) == [
            ("disk", True),
            ("memory", True),
        ]
        listed = await approved(place, "show the large files")
        assert f"{temporary}/a.log (5 B)" in str(listed.events)
        assert results(await approved(place, "delete temporary files *.log")) == [
            ("delete_temporary", True)
        ]
        assert [one.name for one in temporary.iterdir()] == ["c"]
        assert (tmp_path / "a.log").exists()

        deployment = await approved(place, "deploy")
        assert all(ok for _, ok in results(deployment))
        first = live.resolve().name
        assert f"building {first}" in [one.get("message") for one in deployment.events]
        assert (live / "log").read_text() == f"{first}\n"
        (source / "page").write_text("bad")
        failed = await approved(place, "deploy")
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
