"""Instructions to workers: as the model writes them, how risky each is, and what follows a step."""

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import msgspec

from rules.extraction import read_json
from rules.flows.ops import Risk


class Instruction(msgspec.Struct, frozen=True):
    """One thing for a worker to do; `args` is a JSON object."""

    worker: str
    action: str
    args: dict[str, Any] = {}


class WorkerAction(msgspec.Struct, frozen=True):
    """An action of a worker: its risk, what it does, its arguments with what they mean.

    `raised` names another risk where the whole of an argument, "" if it is left out, matches.
    """

    worker: str
    action: str
    risk: Risk
    meaning: str
    args: dict[str, str] = {}
    raised: tuple[Risk, str, str] | None = None


ACTIONS: Final = msgspec.toml.decode(
    (Path(__file__).parent / "actions.toml").read_bytes(), type=dict[str, tuple[WorkerAction, ...]]
)["actions"]
"""Every action that a worker can be told to carry out."""

NEEDS_APPROVAL: Final[frozenset[Risk]] = frozenset({"high", "critical"})
"""Risks of instructions that are carried out only after an approval."""

ASSISTANT: Final = "assistant"
"""Who decides on the other instructions, in the audit log."""


def risk_of(instruction: Instruction) -> Risk:
    """Return the risk of an instruction; of one that no action fits, critical."""
    action = _action(instruction)
    if action is None:
        return "critical"
    if action.raised is not None:
        risk, argument, pattern = action.raised
        value = str(instruction.args.get(argument, ""))
        if re.fullmatch(pattern, value, re.IGNORECASE | re.DOTALL):
            return risk
    return action.risk


def instruction_fault(instruction: Instruction) -> str | None:
    """Return why an instruction cannot be carried out, None where it can.

    `unknown_worker`, `unknown_action`, or `bad_arguments` for arguments that the action does not
    have, and for arrays and objects; the worker checks their values.
    """
    action = _action(instruction)
    if action is None:
        known = any(one.worker == instruction.worker for one in ACTIONS)
        return "unknown_action" if known else "unknown_worker"
    plain = all(isinstance(value, str | int | float) for value in instruction.args.values())
    return None if plain and instruction.args.keys() <= action.args.keys() else "bad_arguments"


def _action(instruction: Instruction) -> WorkerAction | None:
    name = (instruction.worker, instruction.action)
    return next((one for one in ACTIONS if (one.worker, one.action) == name), None)


def worker_lines() -> list[str]:
    """Return the actions as the prompt's `workers` lists them."""
    return [
        f"{one.worker}.{one.action}: {one.meaning}"
        + "".join(f"; {name}: {meaning}" for name, meaning in one.args.items())
        for one in ACTIONS
    ]


def after_step(
    iteration: int, limit: int, *, certain: bool, ok: bool, unknown: bool = False
) -> Literal["reason", "error", "end"]:
    """Return what follows an executed instruction of the `iteration`-th step.

    One that the rules were certain of ends the turn, with its result's message as the reply, if it
    went well; after the last step the turn ends in the error `too_many_iterations`. One whose
    outcome is unknown ends it in the error `outcome_unknown`: the model would try it again.
    """
    if unknown:
        return "error"
    if certain and ok:
        return "end"
    return "error" if iteration >= limit else "reason"


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
