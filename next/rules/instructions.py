"""Instructions as the model writes them, and what it is told of their results."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from rules.extraction import read_json
from rules.risk import Instruction


class Finish(NamedTuple):
    """The model has nothing more to be done; `message` is its reply."""

    message: str


def read_decision(answer: str) -> Instruction | Finish | None:
    """Return what a model's answer decides; None where it is neither instruction nor reply."""
    value = read_json(answer)
    if not isinstance(value, dict):
        return None
    if isinstance(final := value.get("final"), str):
        return Finish(final)
    with suppress(msgspec.ValidationError):
        return msgspec.convert(value, Instruction)
    return None


def instruction_message(instruction: Instruction) -> str:
    """Return an instruction as it stands in the assistant's message."""
    return msgspec.json.encode(instruction).decode()


def result_message(message: str, data: Mapping[str, Any], *, ok: bool) -> str:
    """Return what the model is told of a result; rows come with their numbers."""
    told = {"ok": ok, "message": message}
    return msgspec.json.encode(told | {"data": data} if data else told).decode()


def audit_id(turn_id: str, iteration: int, what: str) -> str:
    """Return the id of a line of the audit log: one of its kind for each step of a turn."""
    return f"{turn_id}:{iteration}:{what}"
