"""The flows a load run knows how to ask and to read."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from contract.chat import CHAT
from contract.errors import CutoverError

if TYPE_CHECKING:
    from contract.flow import FlowSpec

FLOWS: Mapping[str, FlowSpec] = MappingProxyType({spec.name: spec for spec in (CHAT,)})


class FlowUnknown(CutoverError):
    """No flow has that name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no flow {name!r}; there are {', '.join(map(repr, FLOWS))}")


def flow_named(name: str) -> FlowSpec:
    """Find a flow; raises `FlowUnknown`."""
    try:
        return FLOWS[name]
    except KeyError as error:
        raise FlowUnknown(name) from error
