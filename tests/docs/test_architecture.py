"""`docs/architecture.md` is true: its picture, and the functions on its two walks."""

from __future__ import annotations

import ast
import re

from tests.docs.architecture_page import PAGE, PLACE, ROOT, allowed_imports, direct, picture

_STEP = re.compile(r"^\| \d+ \| `(?P<file>[\w/]+\.py)` \| `(?P<name>[\w.]+)` \|", re.MULTILINE)


def defined(path: str) -> set[str]:
    """Return the functions and methods of a file by qualified name."""
    found = set[str]()

    def collect(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found.add(prefix + node.name)
                collect(node.body, f"{prefix}{node.name}.")

    collect(ast.parse((ROOT / path).read_text("utf-8")).body, "")
    return found


def test_the_picture_is_drawn_from_the_import_contracts() -> None:
    """`python tests/docs/architecture_page.py` draws it again."""
    found = PLACE.search(PAGE.read_text("utf-8"))
    assert found is not None
    assert found.group() == picture()


def test_implied_arrows_are_left_out() -> None:
    """An arrow that follows from two others is not drawn."""
    contracts = [{"type": "forbidden", "source_modules": ["a"], "forbidden_modules": ["b", "c"]}]
    contracts += [{"type": "forbidden", "source_modules": ["b"], "forbidden_modules": ["c"]}]
    assert direct(allowed_imports(["a", "b", "c"], contracts)) == [("b", "a"), ("c", "b")]


def test_each_step_of_the_walks_exists() -> None:
    """Two walks, each on one page; every step names a file and a function in it."""
    steps = _STEP.findall(PAGE.read_text("utf-8"))
    assert 20 <= len(steps) <= 60
    assert [f"{path}: {name}" for path, name in steps if name not in defined(path)] == []
