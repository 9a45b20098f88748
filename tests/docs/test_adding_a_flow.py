"""`docs/adding-a-flow.md` is true: what it says is written into a copy of the project and run."""

from __future__ import annotations

import os
import re
import shutil
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.project import ROOT
from tests.support.project_copy import ModuleForks, address_of, copy_project, module_forks

PAGE = ROOT / "docs" / "adding-a-flow.md"
_FILE = re.compile(r"```python\n# (?P<path>\S+)\n(?P<text>.*?)```", re.DOTALL)
_DIFF = re.compile(r"```diff\n(?P<text>.*?)```", re.DOTALL)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleForks]:
    """Run modules of a copy of the project with the page's files and changes."""
    root = tmp_path_factory.mktemp("project")
    copy_project(root)
    shutil.copy(ROOT / "pyproject.toml", root)
    page = PAGE.read_text("utf-8")
    for found in _FILE.finditer(page):
        (root / found["path"]).write_text(found["text"], "utf-8")
    for found in _DIFF.finditer(page):
        apply_changes(found["text"], root)
    with module_forks(root, tmp_path_factory.mktemp("written")) as forks:
        yield forks


def apply_changes(text: str, root: Path) -> None:
    """Replace the `-` lines of a diff by the `+` lines below them, each exactly once."""
    path, old, new = root, list[str](), list[str]()
    for line in [*text.splitlines(), "-"]:
        if line.startswith("+"):
            new.append(line[1:])
            continue
        if new:
            source = path.read_text("utf-8")
            assert source.count("\n".join(old)) >= 1, (path.name, old)
            path.write_text(source.replace("\n".join(old), "\n".join(new), 1), "utf-8")
            old, new = [], []
        if line.startswith("--- "):
            path = root / line[4:]
        else:
            old.append(line[1:])


@pytest.mark.slow
def test_both_stacks_echo_alike(copy: ModuleForks) -> None:
    """The page's own test passes."""
    quiet = "ignore:Module already imported:pytest.PytestAssertRewriteWarning"
    done = copy.run(
        "pytest", "-q", "-W", quiet, "-p", "no:cacheprovider", "tests/flows/test_echo.py"
    )
    assert done.status == 0, done.out + done.log
    assert "6 passed" in done.out


@pytest.mark.slow
def test_the_new_flow_is_drawn(copy: ModuleForks) -> None:
    """`cutover graph echo` shows its nodes."""
    done = copy.run("cutover", "graph", "echo")
    assert done.status == 0, done.out + done.log
    assert "words --> done" in done.out


@pytest.mark.slow
def test_the_new_flow_is_served(copy: ModuleForks) -> None:
    """Over HTTP, by the router that knows no flow by name."""
    router = copy.start("cutover", "serve", "--port", "0")
    try:
        url = address_of(router)
        body = b'{"message_id":"m1","message":"Hello there"}'
        with urllib.request.urlopen(f"{url}/echo", body) as answer:  # noqa: S310 - on loopback
            frames = answer.read().decode().split("\n\n")
    finally:
        os.kill(router.pid, signal.SIGTERM)
        copy.wait(router)
    assert frames[:2] == [
        'data: {"type":"word","text":"Hello"}',
        'data: {"type":"word","text":"there"}',
    ]
    assert frames[2].startswith('data: {"type":"done","id":"')
