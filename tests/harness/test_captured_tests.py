"""Captures as tests: what `cutover diff --sample` keeps, and what `pytest --cutover` says of it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from cutover.errors import Left
from cutover.records import RunRecord, encode
from harness.cli import cli
from router.captures import CaptureReader, Store
from tests.compare.captured import KEY, Capturing, captured, texts

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
TOOL, PLAIN = "What is 12 * 7?", "Write to anna@example.com"
LOUDER = """
import graph_impl
from graph_impl import chat
stack, prompt, loud = graph_impl.STACKS["chat"], chat.prompt, []
async def louder(request):
    loud[:] = ["Shout."] if "12" in request.body.content else []
    async for event in stack(request):
        yield event
graph_impl.STACKS["chat"] = louder
chat.prompt = lambda *given: prompt(*given) + "".join(loud)
"""
"""Changes the prompt of questions that need a tool."""


async def _serve(capturing: Capturing) -> None:
    """Serve eight exchanges, two of which the shadow answered otherwise."""
    for number in range(8):
        wrong = texts(lambda text: f"{text}.") if number in {2, 5} else None
        await capturing.exchange(PLAIN if number % 2 else TOOL, wrong)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with captures, a configuration, and the plugin as an installation has it."""
    folder = tmp_path_factory.mktemp("project")
    asyncio.run(captured(folder / "captures", _serve))
    table = f'[captures]\nurl = "unused"\nkey = "{KEY}"\n[flows.chat]\n'
    (folder / "cutover.toml").write_text(table)
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    ((name, module),) = declared["project"]["entry-points"]["pytest11"].items()
    installed = folder / "site" / "cutover_plugin-1.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: cutover-plugin\nVersion: 1\n")
    (installed / "entry_points.txt").write_text(f"[pytest11]\n{name} = {module}\n")
    return folder


def lines(folder: Path) -> list[RunRecord]:
    """Return the lines of captures: each run that served beside its shadow's."""
    return list(CaptureReader(Store(str(folder))))


def put(folder: Path, *lines: RunRecord) -> None:
    """Write lines into a file."""
    Store(str(folder)).replace("flow=chat/date=2026-11-28/1.jsonl.zst", [encode(x) for x in lines])


def sample(project: Path, captures: str, out: str) -> tuple[int, str]:
    """Run the command in the project; return its exit status and what it printed."""
    words = f"diff {project / captures} --sample 5 --by cause -o {project / out}"
    config = ["--config", str(project / "cutover.toml")]
    done = CliRunner().invoke(cli, [*words.split(), *config])
    return done.exit_code, done.output


def run(project: Path, *options: str) -> tuple[int, str]:
    """Run pytest in the project; return its exit status, and its output with what it imported."""
    words = [sys.executable, "-W", "ignore", "-X", "importtime", "-m", "pytest", "-rs", *options]
    env = {**os.environ, "PYTHONPATH": f"{project / 'site'}{os.pathsep}{ROOT}"}
    done = subprocess.run(words, cwd=project, env=env, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.nightly
def test_a_sample_passes_until_the_graph_changes(project: Path) -> None:
    """It is the same each time, and redacted; a louder prompt fails it with the difference."""
    assert {sample(project, "captures", name)[0] for name in ("kept", "more")} == {0}
    kept, more = (
        [(one.name, one.read_bytes()) for one in sorted((project / name).rglob("*.zst"))]
        for name in ("kept", "more")
    )
    assert kept == more
    stored = lines(project / "kept")
    assert (len(kept), len(stored)) == (5, 10)
    assert any(one.exchange[-1] == "3" for one in stored), "the first of a cause"
    assert any(one.redacted and "<email:" in one.request for one in stored)
    status, said = run(project, "--cutover", "kept")
    assert (status, "5 passed" in said, "router.captures" in said.split()) == (0, True, True), said
    (project / "conftest.py").write_text(LOUDER)
    status, said = run(project, "--cutover", "kept")
    (project / "conftest.py").unlink()
    assert (status, "3 failed, 2 passed" in said, "Traceback" in said) == (1, True, False), said
    assert "call changed: model.chat at messages[].content [" in said
    assert "_ chat-00000000000000000000000000000003 _" in said
    assert "{+Shout.+}" in said


@pytest.mark.nightly
def test_what_cannot_be_replayed_is_skipped_and_damage_fails(project: Path) -> None:
    """Each with its reason; where there is no exchange, that is an error."""
    served = next(one for one in lines(project / "captures") if one.role == "serving")
    put(
        project / "odd",
        replace(served, exchange="left", outcome=Left()),
        replace(served, exchange="taped", tape=None),
        replace(served, exchange="torn", frames=served.frames[:-1]),
        replace(served, exchange="lost", role="shadow"),
        replace(served, exchange="else", flow="else"),
    )
    status, said = run(project, "--cutover", "odd")
    assert (status, "3 failed, 2 skipped" in said, "Traceback" in said) == (1, True, False), said
    assert all(f"not replayed: {why}" in said for why in ("cut short", "no tape")), said
    (project / "none").mkdir()
    status, said = run(project, "--cutover", "none")
    assert (status, "there is no exchange" in said) == (2, True), said


def test_what_holds_personal_data_is_not_kept(project: Path) -> None:
    """Nor is a folder written to that holds anything, nor an empty sample."""
    pair = lines(project / "captures")[:2]
    raw = {"redacted": False, "request": f'{{"content":"{PLAIN}"}}'}
    put(project / "raw", *(replace(one, **raw) for one in pair))
    for source, out, why in (
        ("raw", "new", "it holds personal data"),
        ("captures", "raw", "it is not empty"),
        ("site", "new", "there is no pair"),
    ):
        status, said = sample(project, source, out)
        assert (status, why in said, (project / "new").exists()) == (64, True, False), said


def test_the_plugin_imports_nothing_without_its_option(project: Path) -> None:
    """Its options are known all the same."""
    status, said = run(project, "--help")
    assert (status, "--cutover=FOLDER" in said) == (0, True)
    assert not {"msgspec", "typer", "compare.pairs", "router.captures"} & {*said.split()}
