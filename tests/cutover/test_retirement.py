"""Retiring legacy: `rm -r legacy` and its one line, and what is left lints, passes and serves."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

import msgspec
import pytest

from loadtests.simulator import Profile, spawn
from tests.support.patience import PATIENCE_S
from tests.support.project_copy import (
    ModuleForks,
    address_of,
    copy_command,
    copy_environment,
    copy_project,
    module_forks,
)

pytestmark = [pytest.mark.slow, pytest.mark.sockets, pytest.mark.untraced]

ROOT = Path(__file__).parents[2]
LINE = '    "legacy": "legacy:FLOWS",\n'
REST = ("contract", "rules", "effects/tape")
"""Tests that need no legacy stack: a representative selection."""
TOKEN = "retired-" * 4
CONFIG = """
[providers.p]
base_url = "{url}/v1"
[models."gpt-4.1"]
provider = "p"
[stores]
history = ""
[captures]
percent = 0
[admin]
token_env = "ADMIN"
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleForks]:
    """Run modules of a copy of the project without `legacy/` and without its line."""
    tree = tmp_path_factory.mktemp("retired")
    copy_project(tree, without={"legacy"})
    stacks = tree / "cutover" / "wiring" / "stacks.py"
    text = stacks.read_text("utf-8")
    assert text.count(LINE) == 1
    stacks.write_text(text.replace(LINE, ""), "utf-8")
    # The contracts of the import linter name every package there is.
    head, mark, contracts = (
        (ROOT / "pyproject.toml").read_text("utf-8").partition("[tool.importlinter]")
    )
    (tree / "pyproject.toml").write_text(head + mark + re.sub(r'"legacy",\s*', "", contracts))
    with module_forks(tree, tmp_path_factory.mktemp("written")) as forks:
        yield forks


def test_the_linters_pass(tree: ModuleForks) -> None:
    """Nothing that is left names a module that is gone."""
    checked = subprocess.run(
        [str(Path(sys.executable).parent / "ruff"), "check", "--no-cache", "--quiet", "."],
        cwd=tree.root,
        check=False,
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 0, checked.stdout
    linter = "from importlinter.cli import lint_imports_command as lint\n\nlint()\n"
    done = tree.run_text("lint_the_copy", linter)
    assert done.status == 0, done.out
    assert "0 broken" in done.out


def test_tests_that_need_no_legacy_pass(tree: ModuleForks) -> None:
    """A representative selection of the suite."""
    folders = (str(Path("tests") / folder) for folder in REST)
    quick = "not slow and not sockets and not untraced"
    # In an interpreter of its own: these tests need little of what a fork has imported.
    done = subprocess.run(
        copy_command("pytest", "-m", quick, "-p", "no:cacheprovider", "-qx", *folders),
        cwd=tree.root,
        env=copy_environment(tree.root),
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-2_000:]


def test_commands_say_what_one_stack_cannot_do(tree: ModuleForks) -> None:
    """None promises what legacy would have done, none ends in a traceback; the benchmarks start."""
    calls = {
        ("rollback", "chat"): (2, "'chat' cannot be rolled back: there is no legacy stack"),
        ("selftest", "--pairs=1"): (2, "stack 'legacy' cannot be loaded"),
        ("doctor",): (1, "chat: served by graph, the only stack"),
    }
    program = f"""
import json
from typer.testing import CliRunner
import benchmarks.__main__
from cutover.cli import app
done = [CliRunner().invoke(app, call) for call in {list(calls)!r}]
print(json.dumps([(one.exit_code, repr(one.exception), one.output) for one in done]))
"""
    ran = tree.run_text("type_the_commands", program, COLUMNS="300")
    assert ran.status == 0, ran.log
    for found, (status, said) in zip(json.loads(ran.out), calls.values(), strict=True):
        assert found[:2] == [status, f"SystemExit({status})"]
        assert said in found[2]


def test_flows_that_are_off_go_to_the_stack_that_is_left(tree: ModuleForks, tmp_path: Path) -> None:
    """Graph serves, and the admin API refuses a rollback with its reason."""
    with spawn(Profile(ttft_ms=1, rate=1_000)) as provider, served(tree, tmp_path, provider) as url:
        body = msgspec.json.encode({"message_id": "1", "content": "hi"})
        answer, stream = post(f"{url}/chat/sse", body)
        assert answer.status == 200, stream
        assert answer.headers["x-cutover-assigned"] == "graph"
        assert answer.headers["x-cutover-served"].startswith("graph ")
        assert b'"END"' in stream
        headers = {"authorization": f"Bearer {TOKEN}"}
        refused, problem = post(f"{url}/admin/flows/chat/rollback", b"", **headers)
        assert refused.status == 409, problem
        assert msgspec.json.decode(problem)["code"] == "no_legacy_stack"


def post(url: str, body: bytes = b"", **headers: str) -> tuple[HTTPResponse, bytes]:
    """Send a request and read the whole response."""
    parts = urllib.parse.urlsplit(url)
    with closing(HTTPConnection(parts.netloc, timeout=PATIENCE_S)) as connection:
        kind = {"content-type": "application/json"}
        connection.request("POST", parts.path, body, kind | headers)
        response = connection.getresponse()
        return response, response.read()


@contextmanager
def served(tree: ModuleForks, folder: Path, provider: str) -> Iterator[str]:
    """Run `cutover serve` in the copy; yields its address."""
    config = folder / "cutover.toml"
    config.write_text(CONFIG.format(url=provider), "utf-8")
    command = ("cutover", "serve", "--config", str(config), "--port", "0")
    router = tree.start(*command, ADMIN=f"tester:{TOKEN}")
    try:
        yield address_of(router)
    finally:
        os.kill(router.pid, signal.SIGTERM)
        tree.wait(router)
