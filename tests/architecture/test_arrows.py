"""The import contracts hold; they are in pyproject.toml, `[tool.importlinter]`."""

import subprocess
import sys

import pytest

from tests.support.project import PACKAGES, ROOT, imports, naming, root_of, sources

MODULES_THAT_ACT = frozenset(
    {
        "asyncio",
        "concurrent",
        "http",
        "io",
        "logging",
        "multiprocessing",
        "os",
        "pathlib",
        "queue",
        "random",
        "secrets",
        "select",
        "selectors",
        "shutil",
        "socket",
        "sqlite3",
        "ssl",
        "subprocess",
        "tempfile",
        "threading",
        "time",
    }
)
GRAPH_ENGINE = frozenset({"langgraph", "langchain_core"})


@pytest.mark.slow
def test_the_import_linter_keeps_every_arrow() -> None:
    """All contracts of pyproject.toml hold, through indirect imports too.

    In a process of its own: the linter's configuration of logging would silence every logger.
    """
    config = str(ROOT / "pyproject.toml")
    command = "import sys; from importlinter.cli import lint_imports as lint\n"
    command += "sys.exit(lint(config_filename=sys.argv[1], no_cache=True))"
    done = subprocess.run(
        [sys.executable, "-c", command, config],
        cwd=ROOT,
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("package", ["contract", "rules"])
def test_a_pure_package_imports_nothing_that_acts(package: str) -> None:
    """No loop, socket, thread, clock, chance or file in contract/ and rules/."""
    acting = [
        f"{path}:{line} imports {module}"
        for path in sources(package)
        for line, module in imports(path)
        if root_of(module) in MODULES_THAT_ACT
    ]
    assert not acting


@pytest.mark.parametrize("package", ["contract", "rules"])
def test_a_pure_package_needs_two_libraries_at_most(package: str) -> None:
    """Beside the standard library: pydantic and msgspec."""
    allowed = sys.stdlib_module_names | {"pydantic", "msgspec", "contract", package}
    foreign = [
        f"{path}:{line} imports {module}"
        for path in sources(package)
        for line, module in imports(path)
        if root_of(module) not in allowed
    ]
    assert not foreign


@pytest.mark.untraced
def test_the_graph_engine_is_named_in_one_place() -> None:
    """No module outside graph_impl/ and its tests imports LangGraph, tests included.

    Tools of a team's own may be LangChain's: one module knows what these are. A team's own graphs
    are run by the client, and by its tests.
    """
    others = [package for package in PACKAGES if package != "graph_impl"]
    leaks = [
        f"{path}:{line} imports {module}"
        for path, line, module in naming(GRAPH_ENGINE, *others, "tests")
        if not (path.is_relative_to("tests/graph_impl") or path.is_relative_to("tests/client"))
        and (str(path), root_of(module)) != ("effects/tools/langchain.py", "langchain_core")
    ]
    assert not leaks


@pytest.mark.untraced
def test_removing_the_legacy_stack_leaves_one_line_to_remove() -> None:
    """`rm -r legacy` breaks a single import, in cutover/."""
    others = [package for package in PACKAGES if package != "legacy"]
    places = [f"{path}:{line}" for path, line, _ in naming(frozenset({"legacy"}), *others)]
    assert len(places) <= 1, places
    assert all(place.startswith("cutover/") for place in places), places
