"""The flows a load run knows how to ask and to read."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from contract.errors import CutoverError
from contract.flows.chat import CHAT
from contract.flows.companion import COMPANION
from contract.flows.declared import declared_spec
from contract.flows.session import SESSION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from contract.flow import FlowSpec
    from contract.flows.declared import DeclaredFlow

FLOWS: Mapping[str, FlowSpec] = MappingProxyType(
    {spec.name: spec for spec in (CHAT, COMPANION, SESSION)}
)
"""The built-in ones."""


class FlowUnknown(CutoverError):
    """No flow has that name."""

    def __init__(self, name: str) -> None:
        known = ", ".join(map(repr, FLOWS))
        super().__init__(f"no flow {name!r}; there are {known}, and those a configuration declares")


def flow_named(name: str, declared: DeclaredFlow | None = None) -> FlowSpec:
    """Give a flow by what declares it, or by its name alone; raises `FlowUnknown`."""
    if declared is not None:
        return declared_spec(name, declared)
    try:
        return FLOWS[name]
    except KeyError as error:
        raise FlowUnknown(name) from error
