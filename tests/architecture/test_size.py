"""Small files, small functions."""

import ast
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

from tests.architecture.tree import PACKAGES, ROOT, parsed, sources

MOST_LINES_OF_A_FILE = 400
MOST_LINES_OF_A_FUNCTION = 50
MEDIAN_LINES_OF_A_FUNCTION = 12


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Yield (place, lines from `def` to its end) of every function of a file."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            yield f"{path}:{node.lineno} {node.name}", lines


def test_no_file_is_long() -> None:
    """One noun a file: about 250 lines, never above 400; tests too."""
    long = {
        str(path): lines
        for path in sources(*PACKAGES, "tests")
        if (lines := len((ROOT / path).read_text("utf-8").splitlines())) > MOST_LINES_OF_A_FILE
    }
    assert not long


@pytest.mark.untraced
def test_no_function_is_long() -> None:
    """A function fits on a screen, its docstring included."""
    long = {
        place: lines
        for path in sources(*PACKAGES)
        for place, lines in functions(path)
        if lines > MOST_LINES_OF_A_FUNCTION
    }
    assert not long


@pytest.mark.untraced
def test_the_usual_function_is_short() -> None:
    """Half of all functions stay within a dozen lines."""
    sizes = [lines for path in sources(*PACKAGES) for _, lines in functions(path)]
    assert median(sizes or [0]) <= MEDIAN_LINES_OF_A_FUNCTION
