"""Mutation: which changes are offered, and that each makes another module."""

import ast
from pathlib import Path

import pytest

import graph_impl
from cutover.selftest.mutation import modules_in, mutants_of, mutated

FOLDER = Path(str(graph_impl.__file__)).parent

CHANGES = [
    ("n = 1", ["1 → 2", "1 → 0"]),
    ("n = True", ["True → False"]),
    ("n = 'a'", ["'a' → 'a!'"]),
    ("n = a < b", ["a < b → a <= b", "a < b → not a < b"]),
    ("n = a is b", ["a is b → a is not b"]),
    ("n = a and b", ["a and b → a or b"]),
    ("n = not a", ["not a → a"]),
    ("n = a + b", ["a + b → a - b"]),
    ("n = a if b else c", ["a if b else c → a if not b else c"]),
    ("n = f(a, b=c)", ["f(a, b=c) → f(a) (without b)"]),
    ("n = {**a, b: c}", ["{**a, b: c} → {b: c} (without **a)", "{**a, b: c} → {**a} (without b)"]),
    ("n = a[b:]", ["a[b:] → a"]),
    ("def f():\n    a()", ["a() → pass"]),
    ("def f():\n    return a", ["return a → pass"]),
    ("def f():\n    raise a", ["raise a → pass"]),
    ("def f():\n    if a:\n        pass", ["if a: → if not a:"]),
    ("async def f():\n    await a()", ["await a() → pass"]),
]
NOTHING = [
    '"""Says something."""',
    "import a",
    "__all__ = ['a']",
    "T = TypeVar('T')",
    "ToModel = Command[Literal['model']]",
    "class A:\n    a: int",
    "def f(a: Literal['x']) -> Literal['y']:\n    '''Says.'''",
    "if TYPE_CHECKING:\n    from a import b",
]


@pytest.mark.parametrize(("source", "changes"), CHANGES)
def test_a_change_is_offered(source: str, changes: list[str]) -> None:
    """Each kind of change, said as code."""
    assert [mutant.change for mutant in mutants_of("m", source)] == changes


@pytest.mark.parametrize("source", NOTHING)
def test_what_does_nothing_is_not_changed(source: str) -> None:
    """Docstrings, imports, annotations, types."""
    assert mutants_of("m", source) == []


def test_a_mutant_of_the_graph_stack_is_another_module() -> None:
    """One in 25 can be compiled and differs from its origin; the command tries them all."""
    for name, source in modules_in(FOLDER).items():
        sound = ast.dump(ast.parse(source))
        for mutant in mutants_of(name, source)[::25]:
            tree = mutated(source, mutant.number)
            compile(tree, name, "exec")
            assert ast.dump(tree) != sound, mutant


def test_equal_changes_of_a_function_are_told_apart() -> None:
    """The second of its kind says so: an explanation is of one mutant."""
    twins = mutants_of("m", "def f():\n    a()\n    a()")
    assert [mutant.change for mutant in twins] == ["a() → pass", "a() → pass [2]"]


def test_no_two_mutants_have_one_key() -> None:
    """File, function and change name a mutant, wherever its line has gone."""
    for name, source in modules_in(FOLDER).items():
        keys = [(mutant.function, mutant.change) for mutant in mutants_of(name, source)]
        assert len(set(keys)) == len(keys)
