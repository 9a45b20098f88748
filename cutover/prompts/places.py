"""Things of the team's own code, named by where they are imported from."""

from __future__ import annotations

from importlib import import_module

from contract.errors import CutoverError


class NotThere(CutoverError):
    """What the settings name cannot be imported."""

    def __init__(self, key: str, place: str, why: str) -> None:
        super().__init__(f"prompts.{key} = {place!r}: {why}")


def imported(key: str, place: str) -> object:
    """Import `package.module:name`; raises `NotThere`. This runs the module, as an import does."""
    module, colon, name = place.partition(":")
    if not (module and colon and name):
        raise NotThere(key, place, "package.module:name is due")
    try:
        found: object = import_module(module)
        for step in name.split("."):
            found = getattr(found, step)
    except Exception as error:
        raise NotThere(key, place, f"{type(error).__name__}: {error}") from error
    return found
