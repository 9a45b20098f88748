"""Stacks: the implementations a router can hand a request to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from contract.flow import Flow
    from router.rollout import Stack as StackName


@dataclass(frozen=True, slots=True)
class Stack:
    """A stack in this process: its flows by name, and the fingerprint of its code."""

    name: StackName
    flows: Mapping[str, Flow]
    fingerprint: str
