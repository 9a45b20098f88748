"""A run's own exchange: it asks the model there, and can reach nothing else."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NoReturn, cast

from contract.errors import CutoverError
from contract.ports import Effects
from effects.tape import Exchange, Tape

if TYPE_CHECKING:
    from collections.abc import Callable

    from contract.ports import Model


class OutOfReach(CutoverError):
    """A run that may ask the model alone has tried something else."""

    def __init__(self, port: str, name: str) -> None:
        super().__init__(f"{port}.{name}: this run may ask the model, and nothing else")


class _Nothing:
    """Stands for a port that leads nowhere."""

    def __init__(self, port: str) -> None:
        self._port = port

    def __getattr__(self, name: str) -> NoReturn:
        raise OutOfReach(self._port, name)


def own_exchange(model: Model, monotonic: Callable[[], float], after: int) -> Exchange:
    """Open an exchange of which the model is the whole world; its stamps go on from `after`.

    What it holds ends with the run: it is bounded by what a model answers.
    """
    others = {port: _Nothing(port) for port in Effects.__dataclass_fields__ if port != "model"}
    live = Effects(model=model, **cast("dict[str, Any]", others))
    return Exchange(live, Tape(limit=sys.maxsize), monotonic=monotonic, after=after)
