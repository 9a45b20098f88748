"""What holds the house in shape: ceilings, independence of the stacks, public names."""

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import cutover

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = (
    *(
        "cutover",
        "rules",
        "effects",
        "legacy",
        "graph_impl",
        "router",
        "compare",
        "loadtests",
        "harness",
    ),
    "benchmarks",
)
MOST_LINES = 30_000
"""Lines of Python in all packages."""
MOST_LINES_OF_TESTS = 32_000
"""Lines of Python in the tests; their data stands beside them in TOML and JSON."""
MOST_MODULES = 250
MOST_LINES_OF_TEMPLATES = 1_500
MOST_LINES_OF_CONSOLE = 900
"""Lines of prompts, templates, and scripts that are no part of the product."""


def sources(*packages: str) -> Iterator[tuple[Path, str]]:
    """Yield the modules of packages with their text."""
    for package in packages:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield path, path.read_text("utf-8")


def test_the_house_stays_under_its_ceilings() -> None:
    """Lines count with docstrings and blanks."""
    code = [text.count("\n") for _, text in sources(*PACKAGES)]
    assert sum(code) <= MOST_LINES
    assert len(code) <= MOST_MODULES
    assert sum(text.count("\n") for _, text in sources("tests")) <= MOST_LINES_OF_TESTS
    pages = (
        *("harness/**/*.j2", "harness/console/assets/console.*", "docs/*.py"),
        *("compare/report/*.j2", "compare/report/*.css"),
    )
    templates = [*ROOT.glob("*/prompts/*"), *(one for page in pages for one in ROOT.glob(page))]
    assert sum(one.read_text("utf-8").count("\n") for one in templates) <= MOST_LINES_OF_TEMPLATES


def test_the_console_stays_small() -> None:
    """Its templates, styles and script included; what is not ours lies minified beside them."""
    console = [one for one in (ROOT / "harness/console").rglob("*") if one.is_file()]
    own = [one for one in console if one.suffix in {".py", ".j2"} or one.stem == "console"]
    assert sum(one.read_text("utf-8").count("\n") for one in own) <= MOST_LINES_OF_CONSOLE


def test_rules_are_pure() -> None:
    """No effect, no SDK, nothing asynchronous in what both stacks share."""
    found = []
    for path, text in sources("rules"):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith):
                found.append(f"{path.name}:{node.lineno} is asynchronous")
            if isinstance(node, ast.ImportFrom | ast.Import):
                names = [node.module] if isinstance(node, ast.ImportFrom) else []
                names += [one.name for one in node.names] if isinstance(node, ast.Import) else []
                found += [
                    f"{path.name}:{node.lineno} imports {name}"
                    for name in names
                    if name and name.split(".")[0] in {"effects", "openai", "httpx", "httpx2"}
                ]
    assert found == []


def test_effects_hold_no_prompt_and_no_message() -> None:
    """`"role"` as a key of a dict, and prompts, are the stacks' own."""
    found = []
    for path, text in sources("effects"):
        for node in ast.walk(ast.parse(text)):
            match node:
                case ast.Dict():
                    keys = [one.value for one in node.keys if isinstance(one, ast.Constant)]
                    found += [f"{path.name}:{node.lineno}" for one in keys if one == "role"]
                case ast.Constant(value=str(said)) if re.search(r"\b[Yy]ou are an?\b|你是", said):
                    found.append(f"{path.name}:{node.lineno} {said[:40]!r}")
    assert found == []


def test_the_stacks_share_the_library_the_rules_and_the_world_alone() -> None:
    """What both import of this project is `cutover`, `rules` and `effects`."""
    shared = {"cutover", "rules", "effects"}
    for package in ("legacy", "graph_impl"):
        for path, text in sources(package):
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.ImportFrom) and node.module:
                    top = node.module.split(".")[0]
                    assert top not in set(PACKAGES) - shared - {package}, f"{path.name}: {top}"


CLONE = 8


def test_the_stacks_hold_no_clones() -> None:
    """No eight lines in a row, comments and imports apart, stand in both stacks."""

    def runs(package: str) -> Counter[tuple[str, ...]]:
        found: Counter[tuple[str, ...]] = Counter()
        for _, text in sources(package):
            lines = [line.strip() for line in text.splitlines()]
            lines = [one for one in lines if re.search(r"\w", one)]
            lines = [one for one in lines if not re.match(r"#|from |import ", one)]
            for start in range(len(lines) - CLONE + 1):
                found[tuple(lines[start : start + CLONE])] += 1
        return found

    assert not (runs("legacy").keys() & runs("graph_impl").keys())


def test_public_names_have_docstrings() -> None:
    """What `cutover` exports says what it is, and how it is used."""
    assert len(cutover.__all__) <= 16
    for name in {*cutover.__all__} - {"Event", "Stack"}:  # aliases: their modules describe them
        assert getattr(cutover, name).__doc__, name


def test_arrows_point_one_way() -> None:
    """The import contracts hold."""
    done = subprocess.run(
        [ROOT / ".venv/bin/lint-imports"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_the_library_needs_msgspec_and_httpx_alone() -> None:
    """`import cutover`, `effect` and `Exchange` import nothing else."""
    code = "import cutover, sys; cutover.effect; cutover.Exchange; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True)
    others = {"httpx2", "langgraph", "langchain_core", "openai", "pydantic"}
    assert not others & {*done.stdout.decode().split()}
