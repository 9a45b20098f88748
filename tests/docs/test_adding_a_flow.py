"""`docs/adding-a-flow.md` is true: what it says is written into a copy of the project and run."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.project import PACKAGES, ROOT

PAGE = ROOT / "docs" / "adding-a-flow.md"
_FILE = re.compile(r"```python\n# (?P<path>\S+)\n(?P<text>.*?)```", re.DOTALL)
_DIFF = re.compile(r"```diff\n(?P<text>.*?)```", re.DOTALL)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the project with the page's files and changes."""
    root = tmp_path_factory.mktemp("project")
    for name in (*PACKAGES, "tests"):
        shutil.copytree(ROOT / name, root / name)  # with bytecode: each process would compile
    shutil.copy(ROOT / "pyproject.toml", root)
    page = PAGE.read_text("utf-8")
    for found in _FILE.finditer(page):
        (root / found["path"]).write_text(found["text"], "utf-8")
    for found in _DIFF.finditer(page):
        apply_changes(found["text"], root)
    return root


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


def run(copy: Path, *arguments: str) -> str:
    """Run a module of the copy and return its output."""
    done = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=copy, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_both_stacks_echo_alike(copy: Path) -> None:
    """The page's own test passes."""
    output = run(copy, "pytest", "-q", "-p", "no:cacheprovider", "tests/flows/test_echo.py")
    assert "6 passed" in output


@pytest.mark.slow
def test_the_new_flow_is_drawn(copy: Path) -> None:
    """`cutover graph echo` shows its nodes."""
    output = run(copy, "cutover", "graph", "echo")
    assert "words --> done" in output


@pytest.mark.slow
def test_the_new_flow_is_served(copy: Path) -> None:
    """Over HTTP, by the router that knows no flow by name."""
    script = (
        "import subprocess, sys, urllib.request\n"
        "serve = [sys.executable, '-m', 'cutover', 'serve', '--port', '0']\n"
        "with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as router:\n"
        "    try:\n"
        "        url = router.stdout.readline().split()[-1]\n"
        '        body = b\'{"message_id":"m1","message":"Hello there"}\'\n'
        "        with urllib.request.urlopen(url + '/echo', body) as answer:\n"
        "            print(answer.read().decode())\n"
        "    finally:\n"
        "        router.terminate()\n"
    )
    (copy / "request_echo.py").write_text(script, "utf-8")
    frames = run(copy, "request_echo").split("\n\n")
    assert frames[:2] == [
        'data: {"type":"word","text":"Hello"}',
        'data: {"type":"word","text":"there"}',
    ]
    assert frames[2].startswith('data: {"type":"done","id":"')
