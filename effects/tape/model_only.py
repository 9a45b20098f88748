"""An exchange of one run, which can call the model and nothing else."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NoReturn, cast

from contract.errors import CutoverError
from contract.ports import Effects, Model
from effects.tape.exchange import Exchange
from effects.tape.tape import Tape


class OutOfReach(CutoverError):
    """A run that may call the model alone has called another port."""

    def __init__(self, port: str, name: str) -> None:
        super().__init__(f"{port}.{name}: this run may call the model, and nothing else")


class _RefusedPort:
    def __init__(self, port: str) -> None:
        self._port = port

    def __getattr__(self, name: str) -> NoReturn:
        raise OutOfReach(self._port, name)


def own_exchange(model: Model, monotonic: Callable[[], float], after: int) -> Exchange:
    """Open an exchange with the model as its only port; its stamps go on from `after`.

    Its tape ends with the run, and is bounded by what a model answers.
    """
    others = {port: _RefusedPort(port) for port in Effects.__dataclass_fields__ if port != "model"}
    live = Effects(model=model, **cast("dict[str, Any]", others))
    return Exchange(live, Tape(limit=sys.maxsize), monotonic=monotonic, after=after)
