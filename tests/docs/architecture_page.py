"""The picture of the packages, drawn from the import contracts in `pyproject.toml`.

Run as a script, it writes the picture into `docs/architecture.md`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "architecture.md"
PLACE = re.compile(r"(?<=<!-- picture -->\n).*(?=<!-- end of picture -->)", re.DOTALL)


def picture() -> str:
    """Return the allowed imports between packages as a Mermaid diagram."""
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    allowed = allowed_imports(linter["root_packages"], linter["contracts"])
    arrows = "".join(f"    {one} --> {other}\n" for one, other in direct(allowed))
    return f"```mermaid\nflowchart TD\n{arrows}```\n"


def allowed_imports(
    packages: Sequence[str], contracts: Sequence[dict[str, Any]]
) -> set[tuple[str, str]]:
    """Return the pairs of packages that no contract forbids."""
    allowed = set(permutations(packages, 2))
    for contract in contracts:
        if contract["type"] == "forbidden":
            sources, targets = contract["source_modules"], contract["forbidden_modules"]
            allowed -= {(source, target) for source in sources for target in targets}
        elif contract["type"] == "independence":
            allowed -= set(permutations(contract["modules"], 2))
    return allowed


def direct(allowed: set[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the arrows that do not follow from two others, in a stable order."""
    implied = {
        (first, last)
        for first, middle in allowed
        for start, last in allowed
        if middle == start and first != last
    }
    return sorted(allowed - implied)


if __name__ == "__main__":
    PAGE.write_text(PLACE.sub(lambda _: picture(), PAGE.read_text("utf-8")), "utf-8")
