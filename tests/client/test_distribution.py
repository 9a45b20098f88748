"""Two distributions: the client, which needs httpx and nothing of cutover, and cutover itself."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).parents[2]
CLIENT = PROJECT / "client"

SERVICE = """
import sys
import router, rules, effects
from cutover_client import Gateway, effect

assert {router.MINE, rules.MINE, effects.MINE} == {True}
assert not {"contract", "cutover", "msgspec", "langgraph", "starlette"} & sys.modules.keys()

@effect("orders.insert")
def insert(item: str) -> str:
    return item

print(insert("tea"))
"""


def built(folder: Path, beside: Path) -> Path:
    """Build the wheel of a distribution and return its path."""
    building = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(beside)]
    subprocess.run(building, cwd=folder, check=True, capture_output=True)
    [wheel] = beside.glob("*.whl")
    return wheel


def requirements(wheel: Path) -> list[str]:
    """Return what a wheel says it needs."""
    with zipfile.ZipFile(wheel) as files:
        [metadata] = [name for name in files.namelist() if name.endswith("METADATA")]
        described = Parser().parsestr(files.read(metadata).decode())
    return described.get_all("Requires-Dist") or []


def test_what_only_reports_and_load_runs_use_comes_with_extras(tmp_path: Path) -> None:
    """A router is installed without them, `cutover[compare,load]` brings them."""
    found = requirements(built(PROJECT, tmp_path))
    extras = {"deepdiff": {"compare"}, "locust": {"load"}, "pandas": {"load"}}
    for package, wanted in {**extras, "scipy": {"compare", "load"}}.items():
        lines = [line for line in found if line.startswith(f"{package}>")]
        assert {line.partition("extra == ")[2].strip("'") for line in lines} == wanted


def test_it_is_imported_beside_a_users_own_modules(tmp_path: Path) -> None:
    """A user's `router`, `rules` and `effects` stay the user's."""
    wheel = built(CLIENT, tmp_path)
    users = tmp_path / "service"
    users.mkdir()
    for name in ("router", "rules", "effects"):
        (users / f"{name}.py").write_text("MINE = True\n", "utf-8")
    (users / "service.py").write_text(SERVICE, "utf-8")
    with zipfile.ZipFile(wheel) as files:
        files.extractall(users)
    assert requirements(wheel) == ["httpx>=0.28"]
    # Not the project's own folder: the service stands first on the path, then what is installed.
    run = subprocess.run(
        [sys.executable, "service.py"], cwd=users, check=True, capture_output=True, text=True
    )
    assert run.stdout == "tea\n"
