"""The project's own files as the architecture tests read them."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

PACKAGES = (
    "contract",
    "rules",
    "effects",
    "legacy",
    "graph_impl",
    "router",
    "compare",
    "evidence",
    "loadtests",
    "benchmarks",
    "cutover",
)


def sources(*folders: str) -> Iterator[Path]:
    """Yield the Python files below the folders, named from the root, in a stable order."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path.relative_to(ROOT)


@cache
def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a file named from the root."""
    return ast.parse((ROOT / path).read_text("utf-8"), filename=str(path))


def imports(path: Path) -> list[tuple[int, str]]:
    """Return (line, module) of every absolute import of a file, deferred ones too."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.append((node.lineno, node.module))
    return found


def root_of(module: str) -> str:
    """Return the top-level package of a dotted module name."""
    return module.partition(".")[0]


def naming(roots: frozenset[str], *folders: str) -> Iterator[tuple[Path, int, str]]:
    """Yield (file, line, module) of every import of these top-level packages."""
    for path in sources(*folders):
        text = (ROOT / path).read_text("utf-8")
        if any(root in text for root in roots):  # few do, and parsing takes its time
            for line, module in imports(path):
                if root_of(module) in roots:
                    yield path, line, module
