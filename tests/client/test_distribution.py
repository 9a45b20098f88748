"""The client as a distribution of its own: it needs httpx, and nothing of cutover."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

CLIENT = Path(__file__).parents[2] / "client"

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


def test_it_is_imported_beside_a_users_own_modules(tmp_path: Path) -> None:
    """A user's `router`, `rules` and `effects` stay the user's."""
    building = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(building, cwd=CLIENT, check=True, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    users = tmp_path / "service"
    users.mkdir()
    for name in ("router", "rules", "effects"):
        (users / f"{name}.py").write_text("MINE = True\n", "utf-8")
    (users / "service.py").write_text(SERVICE, "utf-8")
    with zipfile.ZipFile(wheel) as files:
        files.extractall(users)
        [metadata] = [name for name in files.namelist() if name.endswith("METADATA")]
        described = Parser().parsestr(files.read(metadata).decode())
    assert described.get_all("Requires-Dist") == ["httpx>=0.28"]
    # Not the project's own folder: the service stands first on the path, then what is installed.
    run = subprocess.run(
        [sys.executable, "service.py"], cwd=users, check=True, capture_output=True, text=True
    )
    assert run.stdout == "tea\n"
