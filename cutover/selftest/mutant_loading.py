"""Loading a mutant: its package imported anew, in memory, beside the real one."""

from __future__ import annotations

import importlib
import sys
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator, Mapping, Sequence
    from types import CodeType, ModuleType

    from contract.flow import Flow


class _TreeLoader(SourceFileLoader):
    """Runs a tree instead of what is in the file; nothing is written, no bytecode either."""

    def __init__(self, fullname: str, path: str, tree: ast.Module) -> None:
        super().__init__(fullname, path)
        self._tree = tree

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002 - the loader's protocol
        """Compile the tree."""
        return compile(self._tree, self.path, "exec", dont_inherit=True)


class _Finder(MetaPathFinder):
    """Finds the changed module; every other one is where it always was."""

    def __init__(self, fullname: str, tree: ast.Module) -> None:
        self._fullname = fullname
        self._tree = tree

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Give the changed module's spec; None for all others."""
        if fullname != self._fullname:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None:
            return None
        spec.loader = _TreeLoader(fullname, spec.origin, self._tree)
        return spec


@contextmanager
def loaded(package: str, module: str, tree: ast.Module) -> Iterator[Mapping[str, Flow]]:
    """Import a package with one module changed; gives its flows. Raises whatever importing does.

    It stands in for the real one until the context ends: annotations of its types are looked up in
    the imported modules, and as late as with the first value.
    """
    fullname = package if module == "__init__" else f"{package}.{module}"
    with _set_aside(package), _found_by(_Finder(fullname, tree)):
        yield importlib.import_module(package).FLOWS


@contextmanager
def _set_aside(package: str) -> Iterator[None]:
    """Take a package's modules out of the imported ones, and put them back."""
    kept = {name: module for name, module in sys.modules.items() if _of(package, name)}
    for name in kept:
        del sys.modules[name]
    try:
        yield
    finally:
        for name in [name for name in sys.modules if _of(package, name)]:
            del sys.modules[name]
        sys.modules.update(kept)


@contextmanager
def _found_by(finder: MetaPathFinder) -> Iterator[None]:
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def _of(package: str, name: str) -> bool:
    return name == package or name.startswith(f"{package}.")
