"""The worker `deploy`: releases of a folder, in folders of their own."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from contract.workers import WorkerCall
from effects.workers import WorkerRegistry
from effects.workers.deployment import Deployment, DeployWorker
from effects.workers.deployment.releases import DeploymentBusy, Releases, SourceTree, read_source
from effects.workers.threads import Stopped, WorkerThreads
from tests.support.patience import PATIENCE_S
from tests.support.process_trees import python, running, tree
from tests.support.worker_calls import instruct, instruct_overdue

ROOT = Path(__file__).parents[3]
NOW = 1_790_000_000.0
PASS = python(
    "import os, pathlib; assert pathlib.Path('version').read_text() == os.environ['RELEASE']"
)
BUILD = python("import os; open('version', 'w').write(os.environ['RELEASE']); print('built')")
LEASE = PATIENCE_S + 61.0


@dataclass
class Place:
    """A source and a root, and the worker of a process that deploys there."""

    deployment: Deployment
    threads: WorkerThreads
    now: float = NOW
    workers: WorkerRegistry = field(init=False)

    def __post_init__(self) -> None:
        self.configure()

    def configure(self, **changed: object) -> None:
        """Go on with other settings, as a process that is started anew does."""
        self.deployment = replace(self.deployment, **changed)  # type: ignore[arg-type]
        worker = DeployWorker(self.threads, self.deployment, wall=lambda: self.now)
        self.workers = WorkerRegistry(worker.actions())

    @property
    def live(self) -> str:
        """What `current` leads to."""
        return (self.deployment.root / "current").resolve(strict=True).name

    @property
    def built(self) -> list[str]:
        """The releases there are."""
        return sorted(one.name for one in (self.deployment.root / "releases").iterdir())

    async def do(self, action: str, release: str = "") -> tuple[list[str], str, Any]:
        """Do an action; returns its progress, its code and its data."""
        arguments = {"release": release} if release else {}
        lines, result = await instruct(self.workers, f"deploy.{action}", **arguments)
        assert result.ok == (not result.code), result
        return lines, result.code, result.data

    async def code(self, action: str, release: str = "") -> str:
        """Do an action; returns its code."""
        return (await self.do(action, release))[1]

    async def deploy(self, release: str) -> str:
        """Build, release and verify; returns the code of the last."""
        assert await self.code("build", release) == ""
        assert await self.code("release", release) == ""
        return await self.code("verify", release)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """Return a place with a source of three files and a link."""
    source, root = tmp_path / "source", tmp_path / "root"
    (source / "static").mkdir(parents=True)
    (source / "app.py").write_text("print()")
    (source / "static" / "page; rm -rf $(HOME)").write_text("page")
    (source / "run").write_text("#!")
    (source / "run").chmod(0o755)
    (source / "latest").symlink_to("static")
    threads = WorkerThreads()
    yield Place(
        Deployment(root, source, BUILD, PASS, check_seconds=PATIENCE_S, grace=0.05), threads
    )
    threads.close()


async def test_a_release_is_planned_built_released_and_verified(place: Place) -> None:
    """Each action by itself; the same source has the same name."""
    lines, code, data = await place.do("plan")
    assert (lines, code) == ([], "")
    name = data["release"]
    assert data == {"release": name, "files": 4, "bytes": 13, "built": False, "live": ""}
    lines, code, _ = await place.do("build", name)
    assert (lines, code) == (["built"], "")
    folder = place.deployment.root / "releases" / name
    assert (folder / "static" / "page; rm -rf $(HOME)").read_text() == "page"
    assert (folder / "latest" / "page; rm -rf $(HOME)").exists()
    assert os.access(folder / "run", os.X_OK)
    assert not (place.deployment.root / "current").exists()
    assert await place.do("release", name) == ([], "", {"release": name, "previous": ""})
    assert place.live == name
    assert await place.code("verify", name) == ""
    _, result = await instruct(place.workers, "deploy.plan")
    assert result.message == f"nothing would change: {name!r} is live"
    for action in ("build", "release", "verify"):
        assert await place.code(action, name) == ""


async def test_after_a_check_that_fails_the_old_release_is_live(place: Place) -> None:
    """And the code says so; before the first one no release is live."""
    place.configure(check=python("import sys; print('no'); sys.exit(3)"))
    lines, code, data = await place.do("build", "a")
    assert (lines, code) == (["built"], "")
    assert await place.code("release", "a") == ""
    lines, code, data = await place.do("verify", "a")
    assert (lines, code) == (["no"], "verify_failed")
    assert data == {"status": 3, "output": "no\n", "left_out": 0, "release": "a", "live": ""}
    assert not (place.deployment.root / "current").is_symlink()
    place.configure(check=PASS)
    assert await place.deploy("b") == ""
    place.configure(check=("no-such-program",))
    assert await place.deploy("c") == "verify_failed"
    assert place.live == "b"
    assert await place.code("verify", "c") == "nothing_to_verify"


@pytest.mark.slow
async def test_a_check_that_hangs_is_ended_with_all_it_started(place: Place) -> None:
    """And the old release is live; `SIGTERM` does not impress it."""
    assert await place.deploy("a") == ""
    place.configure(check=tree())
    assert await place.code("build", "b") == ""
    assert await place.code("release", "b") == ""
    lines, result = await instruct_overdue(place.workers, "deploy.verify", release="b")
    assert result.code == "worker_timeout"
    assert place.live == "a"
    assert running(lines[0]) == []


@pytest.mark.slow
async def test_a_verification_that_is_cancelled_goes_back(place: Place) -> None:
    """At the router's end, say: what is not verified does not stay."""
    assert await place.deploy("a") == ""
    place.configure(check=tree())
    assert await place.code("build", "b") == ""
    assert await place.code("release", "b") == ""
    stream = place.workers.run("", WorkerCall("deploy", "verify", {"release": "b"}))
    line = (await anext(stream)).progress
    await place.workers.aclose()
    await stream.aclose()
    assert place.live == "a"
    assert running(line) == []


@pytest.mark.slow
@pytest.mark.parametrize("outcome", ["pass", "fail"])
async def test_killed_at_any_change_the_next_action_goes_back(tmp_path: Path, outcome: str) -> None:
    """Whichever it is; a whole release is live all the time, and the next one can be deployed."""
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.support.killed_deployments", str(tmp_path), outcome),
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )
    killed, _ = await program.communicate()
    assert program.returncode == 0
    assert int(killed) > 25


async def test_going_back_from_an_abandoned_release_is_told(place: Place) -> None:
    """In the progress of whatever is done next."""
    assert await place.deploy("a") == ""
    assert await place.code("build", "b") == ""
    assert await place.code("release", "b") == ""
    place.now += LEASE
    lines, code, _ = await place.do("build", "c")
    assert lines[0] == "'b' was released and never verified: 'a' is live again"
    assert (code, place.live) == ("", "a")


async def test_a_killed_release_can_still_be_verified(place: Place) -> None:
    """By name, as an exchange that goes on elsewhere does; what was not switched cannot."""
    assert await place.deploy("a") == ""
    assert await place.code("build", "b") == ""
    assert await place.code("release", "b") == ""
    place.now += LEASE
    assert await place.do("verify", "b") == ([], "", {"release": "b", "live": "b"})
    assert place.live == "b"


async def test_while_one_waits_for_its_check_no_other_deploys(place: Place) -> None:
    """Until the time of its check is over; then it counts as abandoned."""
    assert await place.deploy("a") == ""
    assert await place.code("build", "b") == ""
    assert await place.code("release", "b") == ""
    for action in ("plan", "build", "release"):
        assert await place.code(action, "b") == "busy"
    assert await place.code("verify", "a") == "busy"
    assert place.live == "b"
    place.now += LEASE
    lines, code, _ = await place.do("plan")
    assert (len(lines), code, place.live) == (1, "", "a")


async def test_while_one_holds_the_lock_every_other_is_busy(place: Place) -> None:
    """Also in another process: the system holds it."""
    place.configure(patience=0.0)
    lock = Releases(place.deployment.root).lock()
    for action in ("plan", "build", "release", "verify", "rollback"):
        assert await place.code(action, "b") == "busy"
    os.close(lock)
    assert await place.code("plan") == ""


async def test_the_lock_is_waited_for(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others hold it for a moment only, however often they do: a release must not fail for that."""
    loop, tried, take = asyncio.get_running_loop(), asyncio.Event(), Releases.lock

    def lock(releases: Releases) -> int:
        try:
            return take(releases)
        except DeploymentBusy:
            loop.call_soon_threadsafe(tried.set)
            raise

    monkeypatch.setattr(Releases, "lock", lock)
    held = Releases(place.deployment.root).lock()
    building = asyncio.create_task(place.code("build", "a"))
    await tried.wait()
    os.close(held)
    assert await building == ""


async def test_a_plan_reads_the_source_without_the_lock(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That takes long, and a release that waits for its check must not."""

    def read(source: Path, stopped: Stopped) -> SourceTree:
        os.close(Releases(place.deployment.root).lock())
        return read_source(source, stopped)

    monkeypatch.setattr("effects.workers.deployment.worker.read_source", read)
    assert await place.code("plan") == ""


async def test_on_a_full_disk_the_old_release_is_live_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The link back was made before; what cannot be noted is repaired by the next action."""
    assert await place.deploy("a") == ""
    place.configure(check=python("raise SystemExit(1)"))
    assert await place.code("build", "b") == ""
    assert await place.code("release", "b") == ""

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as disk:
        disk.setattr(os, "symlink", full)
        disk.setattr("effects.workers.deployment.releases.write_whole", full)
        assert await place.code("verify", "b") == "verify_failed"
        assert place.live == "a"
        assert await place.code("release", "b") == "worker_failed"
        assert place.live == "a"
    assert await place.code("plan") == ""
    assert place.live == "a"
    place.configure(check=PASS)
    assert await place.code("release", "b") == ""
    assert await place.code("verify", "b") == ""


@pytest.mark.parametrize("left", [["a"], []])
async def test_where_the_release_before_is_gone_the_one_before_that_is_live(
    place: Place, left: list[str]
) -> None:
    """Never a link that leads nowhere."""
    for name in ("a", "b"):
        assert await place.deploy(name) == ""
    place.configure(check=python("raise SystemExit(1)"))
    assert await place.code("build", "c") == ""
    assert await place.code("release", "c") == ""
    for name in {"a", "b"} - set(left):
        shutil.rmtree(place.deployment.root / "releases" / name)
    _, result = await instruct(place.workers, "deploy.verify", release="c")
    if left:
        assert (result.code, place.live) == ("verify_failed", "a")
        assert result.message.endswith("'a' is live again")
    else:
        assert (result.code, place.live) == ("state_damaged", "c")


@pytest.mark.parametrize("target", ["../elsewhere/v1", "/elsewhere/v1", "releases/a/x", ""])
async def test_what_cutover_did_not_make_live_is_not_replaced(place: Place, target: str) -> None:
    """There would be no way back to it."""
    assert await place.code("build", "a") == ""
    current = place.deployment.root / "current"
    current.symlink_to(target) if target else current.mkdir()
    for action in ("plan", "release", "verify", "rollback"):
        assert await place.code(action, "a") == "state_damaged"
    assert current.is_symlink() == bool(target)


async def test_other_things_among_the_releases_stay(place: Place) -> None:
    """They make no release fail that has passed its check."""
    place.configure(keep=1)
    assert await place.deploy("a") == ""
    others = place.deployment.root / "releases"
    (others / "link").symlink_to("nowhere")
    (others / "file").touch()
    (others / "lost+found").mkdir()
    for name in ("b", "c"):
        assert await place.deploy(name) == ""
    assert place.built == ["b", "c", "file", "link", "lost+found"]


async def test_old_releases_that_cannot_be_removed_stay(place: Place) -> None:
    """What is verified stays so; the progress says why."""
    place.configure(keep=1)
    for name in ("a", "b"):
        assert await place.deploy(name) == ""
    assert await place.code("build", "c") == ""
    assert await place.code("release", "c") == ""
    (place.deployment.root / ".building").rmdir()
    (place.deployment.root / ".building").touch()
    lines, code, _ = await place.do("verify", "c")
    assert (lines, code) == (["older releases stay: File exists"], "")
    assert place.live == "c"


async def test_nothing_is_built_behind_a_link(place: Place, tmp_path: Path) -> None:
    """Nor removed there, though the folder of builds is emptied."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").touch()
    place.deployment.root.mkdir()
    (place.deployment.root / ".building").symlink_to(outside)
    assert await place.code("build", "a") == "state_damaged"
    assert [one.name for one in outside.iterdir()] == ["file"]


async def test_sources_that_differ_have_different_names(place: Place) -> None:
    """In a mode, in a name, or in whether a link leads to a text or a file holds it."""
    one, found = place.deployment.source / "one", set[str]()

    async def name() -> None:
        found.add((await place.do("plan"))[2]["release"])
        one.rmdir() if one.is_dir() and not one.is_symlink() else one.unlink()

    for mode, text in ((0o777, "run"), (0o700, "abc"), (0o070, "0abc"), (0o700, "0abc")):
        one.write_text(text)
        one.chmod(mode)
        await name()
    one.symlink_to("run")
    await name()
    one.mkdir()
    await name()
    assert len(found) == 6


async def test_rolling_back_leads_to_the_verified_release_before(place: Place) -> None:
    """From the one named, if that is live, so that it can be done twice; then there is none."""
    for name in ("a", "b", "c"):
        assert await place.deploy(name) == ""
    assert await place.do("rollback", "c") == ([], "", {"left": "c", "live": "b"})
    assert await place.do("rollback", "c") == ([], "", {"live": "b"})
    assert await place.deploy("d") == ""
    for name in ("b", "a"):
        assert await place.code("rollback") == ""
        assert place.live == name
    assert await place.code("rollback") == "nothing_to_roll_back"
    assert place.live == "a"


async def test_an_unverified_release_is_left_for_the_one_before(place: Place) -> None:
    """Not for the one before that."""
    for name in ("a", "b"):
        assert await place.deploy(name) == ""
    assert await place.code("build", "c") == ""
    assert await place.code("release", "c") == ""
    assert await place.do("rollback") == ([], "", {"left": "c", "live": "b"})


async def test_old_releases_are_removed_once_a_new_one_is_verified(place: Place) -> None:
    """Neither the live one nor the one before, however few are to stay."""
    place.configure(keep=1)
    for name in ("a", "b", "c"):
        assert await place.deploy(name) == ""
    assert place.built == ["b", "c"]
    assert await place.code("rollback") == ""
    assert place.live == "b"
    assert await place.code("rollback") == "nothing_to_roll_back"
    assert not list((place.deployment.root / ".building").iterdir())


async def test_a_build_that_fails_leaves_nothing(place: Place) -> None:
    """It names its status, and shows the end of its output."""
    place.configure(build=python("print('x' * 300_000); raise SystemExit(9)"), most=10)
    _, code, data = await place.do("build", "a")
    assert code == "build_failed"
    assert data == {"status": 9, "output": "x" * 9 + "\n", "left_out": 299_991}
    assert place.built == []
    assert not list((place.deployment.root / ".building").iterdir())
    place.configure(build=("no-such-program",))
    assert await place.code("build", "a") == "not_found"
    assert await place.code("release", "a") == "not_found"


@pytest.mark.slow
async def test_a_build_that_hangs_is_ended_with_all_it_started(place: Place) -> None:
    """Nothing of it runs, nothing of it is there; what a killed build leaves goes with the next."""
    place.configure(build=tree())
    lines, result = await instruct_overdue(place.workers, "deploy.build", release="a")
    assert result.code == "worker_timeout"
    assert running(lines[0]) == []
    assert place.built == []
    (place.deployment.root / ".building" / "a.killed").mkdir()
    place.configure(build=BUILD)
    assert await place.code("build", "a") == ""
    assert not list((place.deployment.root / ".building").iterdir())


@pytest.mark.parametrize("name", ["../a", "a/b", "/a", "..", "."])
async def test_a_name_is_no_path(place: Place, name: str) -> None:
    """Whatever the action."""
    for action in ("plan", "build", "release", "verify", "rollback"):
        assert await place.code(action, name) == "outside_root"


@pytest.mark.parametrize("name", ["-a", ".a", "a b", "$(id)", "a;b", "a\n", "ä", "x" * 65])
async def test_a_name_has_plain_characters(place: Place, name: str) -> None:
    """Which need no quotes anywhere."""
    for action in ("plan", "build", "release", "verify", "rollback"):
        assert await place.code(action, name) == "bad_arguments"


@pytest.mark.parametrize(
    "target", ["/etc/passwd", "../outside", "static/../../outside", "static/.."]
)
async def test_a_source_with_a_link_out_of_it_is_refused(place: Place, target: str) -> None:
    """Also where `..` stands behind what may be a link itself."""
    (place.deployment.source / "static" / "link").symlink_to(target)
    if target == "../outside":
        assert await place.code("plan") == ""
        (place.deployment.source / "link").symlink_to(target)
    assert await place.code("plan") == "outside_root"
    assert await place.code("build", "a") == "outside_root"
    assert place.built == []


async def test_a_release_that_is_a_link_is_none(place: Place, tmp_path: Path) -> None:
    """However it came there."""
    assert await place.code("plan") == ""
    (place.deployment.root / "releases" / "evil").symlink_to(tmp_path)
    assert await place.code("release", "evil") == "not_found"


@pytest.mark.parametrize("previous", ["../../outside", "/", "..", "a/../../../outside"])
async def test_a_note_leads_to_releases_alone(place: Place, tmp_path: Path, previous: str) -> None:
    """A build or a check can write it: `current` never leads elsewhere."""
    (tmp_path / "outside").mkdir()
    assert await place.code("build", "a") == ""
    assert await place.code("release", "a") == ""
    state = place.deployment.root / "deployment.json"
    note = json.loads(state.read_text())
    note["unverified"]["previous"] = previous
    state.write_text(json.dumps(note))
    assert await place.code("rollback") == "state_damaged"
    assert place.live == "a"


async def test_a_damaged_note_is_told(place: Place) -> None:
    """Nothing is switched on a guess."""
    assert await place.deploy("a") == ""
    (place.deployment.root / "deployment.json").write_text("{")
    for action in ("plan", "verify", "rollback"):
        assert await place.code(action, "a") == "state_damaged"
    assert place.live == "a"


@asynccontextmanager
async def answering(statuses: list[int]) -> AsyncIterator[str]:
    """Serve these statuses, one a request, the last one again and again; yields the URL."""

    async def answer(_: web.Request) -> web.Response:
        status = statuses.pop(0) if len(statuses) > 1 else statuses[0]
        return web.Response(status=status, headers={"location": "/elsewhere"})

    runner = web.AppRunner(web.Application())
    runner.app.router.add_get("/healthz", answer)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/healthz"
    finally:
        await runner.cleanup()


@pytest.mark.sockets
@pytest.mark.virtual
@pytest.mark.parametrize(("statuses", "code"), [([503, 302, 204], ""), ([500], "worker_timeout")])
async def test_a_release_is_verified_by_its_own_answer(
    place: Place, statuses: list[int], code: str
) -> None:
    """A GET is repeated until it is answered with 2xx; redirects are not followed."""
    first = statuses[0]
    async with answering(statuses) as url:
        place.configure(build=(), check=(), check_url=url, check_seconds=1.2)
        assert await place.code("build", "a") == ""
        assert await place.code("release", "a") == ""
        lines, found, _ = await place.do("verify", "a")
    assert found == code
    assert lines[0] == f"{url} answers {first}"
