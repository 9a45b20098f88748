"""Names that say something, and none that belong to one machine."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.project import PACKAGES, ROOT, sources

SAYS_NOTHING = frozenset({"util", "utils", "common", "helper", "helpers", "manager", "misc"})
# A folder of one machine: nothing in the project may depend on where it lies.
SOMEBODYS_FOLDER = re.compile(r"(?<![\w.:/}-])/(?:home|root|Users|work|opt)/[\w.-]")


def tracked_texts() -> dict[str, str]:
    """Return path → text of every file under version control; skip where there is no checkout."""
    git = shutil.which("git")
    if git is None:
        pytest.skip("no git")
    listing = subprocess.run(
        [git, "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listing.returncode:
        pytest.skip("not a git checkout")
    paths = [Path(name) for name in listing.stdout.split("\0") if name]
    return {
        str(path): (ROOT / path).read_text("utf-8", errors="replace")
        for path in paths
        if (ROOT / path).is_file()
    }


def test_modules_are_named_after_a_noun() -> None:
    """No drawer for odds and ends: `utils`, `common`, `helpers`, `manager`."""
    drawers = [
        str(path)
        for path in sources(*PACKAGES, "tests")
        if SAYS_NOTHING.intersection(part for name in path.parts for part in _words(name))
    ]
    assert not drawers


def test_no_file_names_a_folder_of_one_machine() -> None:
    """The project can lie anywhere."""
    named = [
        f"{path}: {hit.group()}"
        for path, text in tracked_texts().items()
        for hit in SOMEBODYS_FOLDER.finditer(text)
    ]
    assert not named


def test_pins_name_no_address() -> None:
    """Where packages come from is each machine's own setting."""
    for pins in sorted((ROOT / "requirements").glob("*.txt")):
        text = pins.read_text("utf-8")
        assert "://" not in text, pins
        assert "--hash=sha256:" in text, pins


def _words(name: str) -> list[str]:
    return re.split(r"[._]", name)
