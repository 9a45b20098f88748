"""Instructions to workers: how they are read from a model's answer, checked, and their risks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from contract.errors import visible
from contract.workers import (
    WORKER_ACTIONS,
    BadWorkerArguments,
    Risk,
    WorkerAction,
    WorkerArgument,
    WorkerResult,
    complete_arguments,
)
from rules.memories import json_values

MOST_INSTRUCTIONS: Final = 10
"""Instructions of one step; those beyond are refused."""
TOO_MANY: Final = "too_many_instructions"
"""Code of those beyond."""
MOST_READ: Final = 50
"""Instructions that are read from one answer; with more of them it is unclear."""

DEPLOYMENT: Final = ("deploy", "run")
"""The instruction that is carried out stage by stage."""
STAGES: Final = ("plan", "build", "release", "verify")
ROLLBACK: Final = "rollback"
"""Follows a `verify` that failed."""

INSTRUCTIONS: Final[Mapping[tuple[str, str], WorkerAction]] = {
    **{
        key: action
        for key, action in WORKER_ACTIONS.items()
        # A stage alone would release what was not verified.
        if key not in {("deploy", "build"), ("deploy", "release"), ("deploy", "verify")}
    },
    DEPLOYMENT: WorkerAction(
        *DEPLOYMENT,
        "plan, build, release and verify; back to the release before where that fails",
        changes=True,
        arguments=WORKER_ACTIONS["deploy", "plan"].arguments,
    ),
}
"""What the model may instruct, by (worker, action)."""


class RiskRule(NamedTuple):
    """The risk of an action; with an `argument`, only where the `pattern` matches all of it."""

    worker: str
    action: str
    risk: Risk
    argument: str = ""
    pattern: str = ""


RISKS: Final = (
    RiskRule("system", "disk", "low"),
    RiskRule("system", "memory", "low"),
    RiskRule("system", "processes", "low"),
    RiskRule("system", "large_files", "low"),
    RiskRule("system", "delete_temporary", "critical", "pattern", r"[*?.]*"),
    RiskRule("system", "delete_temporary", "high"),
    # Where clouds tell a machine its credentials.
    RiskRule(
        *("network", "reach", "high", "host"),
        r"(::ffff:)?(169\.254\..*|100\.100\.100\.200|168\.63\.129\.16|192\.0\.0\.192)"
        r"|fe[89ab].:.*|fd00:0?ec2:.*|fd20:0?0?ce::254|metadata(\..*)?",
    ),
    RiskRule("network", "reach", "low"),
    RiskRule("container", "list", "low"),
    RiskRule("container", "logs", "medium"),
    RiskRule(
        *("container", "restart", "critical", "name"),
        r".*(db|sql|postgres|maria|mongo|redis|kafka|rabbit|etcd|vault|proxy|nginx).*",
    ),
    RiskRule("container", "restart", "high"),
    RiskRule("deploy", "plan", "low"),
    RiskRule("deploy", "run", "high"),
    RiskRule("deploy", "rollback", "high"),
)
"""The first rule that fits decides; what no rule names is critical."""

RISKY: Final = frozenset({"high", "critical"})
"""Risks that need an approval."""

_LONGEST_NAME: Final = 64
_LONGEST_ARGUMENT: Final = 200
_MOST_ARGUMENTS: Final = 20


class Instruction(msgspec.Struct, frozen=True):
    """One thing to do; `refused` is the code by which it is not.

    Once it is in the audit log, `id` is that of its first entry.
    """

    worker: str
    action: str
    args: dict[str, WorkerArgument] = {}
    risk: Risk = "critical"
    refused: str = ""
    id: str = ""

    @property
    def risky(self) -> bool:
        """Whether it is carried out only if it was approved."""
        return self.risk in RISKY and not self.refused

    @property
    def deploys(self) -> bool:
        """Whether it is carried out stage by stage."""
        return (self.worker, self.action) == DEPLOYMENT and not self.refused


class InstructionOutcome(msgspec.Struct, frozen=True):
    """An instruction, or a stage of a deployment, and what came of it."""

    instruction: Instruction
    result: WorkerResult


def risk_of(worker: str, action: str, args: Mapping[str, WorkerArgument]) -> Risk:
    """Return the risk of an instruction, by the first rule that fits."""
    for rule in RISKS:
        if (rule.worker, rule.action) != (worker, action):
            continue
        value = str(args.get(rule.argument, ""))
        if not rule.argument or (
            value and re.fullmatch(rule.pattern, value, re.IGNORECASE | re.DOTALL)
        ):
            return rule.risk
    return "critical"


def assessed(instruction: Instruction) -> Instruction:
    """Return an instruction with complete arguments and its risk, or the code of its refusal."""
    worker, name = instruction.worker, instruction.action
    if instruction.refused:
        return _refused(instruction, instruction.refused)
    action = INSTRUCTIONS.get((worker, name))
    if action is None:
        known = any(worker == one for one, _ in INSTRUCTIONS)
        return _refused(instruction, "unknown_action" if known else "unknown_worker")
    try:
        args = complete_arguments(action, instruction.args)
    except BadWorkerArguments:
        return _refused(instruction, "bad_arguments")
    return replace(instruction, args=args, risk=risk_of(worker, name, args))


def _refused(instruction: Instruction, code: str) -> Instruction:
    """Return what may be shown and logged of an instruction that no worker understands."""
    args = {
        visible(name)[:_LONGEST_NAME]: (
            visible(value)[:_LONGEST_ARGUMENT] if isinstance(value, str) else value
        )
        for name, value in islice(instruction.args.items(), _MOST_ARGUMENTS)
    }
    return Instruction(
        visible(instruction.worker)[:_LONGEST_NAME],
        visible(instruction.action)[:_LONGEST_NAME],
        args,
        refused=code,
    )


class Portion(msgspec.Struct, frozen=True):
    """The instructions to carry out now, side by side, and those `left` of their step.

    A step with a risky instruction is `serial`: they are carried out strictly one by one.
    """

    now: tuple[Instruction, ...] = ()
    left: tuple[Instruction, ...] = ()
    serial: bool = False

    @property
    def asks(self) -> bool:
        """Whether what is to be carried out needs an approval."""
        return any(instruction.risky for instruction in self.now)

    @property
    def deploys(self) -> bool:
        """Whether it is carried out stage by stage."""
        return any(instruction.deploys for instruction in self.now)


def next_batch(queue: Sequence[Instruction], *, serial: bool) -> Portion:
    """Assess instructions, and take those to carry out now; `serial` if the step was so far."""
    found = tuple(map(assessed, queue))
    if serial or any(instruction.risky for instruction in found):
        return Portion(found[:1], found[1:], serial=True)
    return Portion(found)


class StepDecision(msgspec.Struct, frozen=True):
    """What to do next: instructions, or the reply that ends the turn; or why it is `unclear`.

    `answer` is what the model wrote; it wrote none where the rules were `certain`.
    """

    answer: str = ""
    instructions: tuple[Instruction, ...] = ()
    final: str = ""
    certain: bool = False
    unclear: str = ""


def read_decision(answer: str) -> StepDecision:
    """Read a model's answer: JSON, in a fence or in prose.

    Instructions are a list under a usual name, one object, or a list; they come before a `final`.
    """
    for value in json_values(answer):
        found = _listed(value)
        if len(found) > MOST_READ:
            return StepDecision(answer, unclear=f"more than {MOST_INSTRUCTIONS} instructions")
        if found:
            within, beyond = found[:MOST_INSTRUCTIONS], found[MOST_INSTRUCTIONS:]
            refused = [replace(_instruction(one), refused=TOO_MANY) for one in beyond]
            return StepDecision(answer, (*map(_instruction, within), *refused))
        final = value.get("final") if isinstance(value, dict) else None
        if isinstance(final, str) and final.strip():
            return StepDecision(answer, final=final)
    return StepDecision(answer, unclear="no instruction and no final")


def _listed(value: Any) -> list[Any]:
    """Return what is instructed; [] where nothing there names a worker."""
    if isinstance(value, dict):
        value = next((value[key] for key in ("instructions", "steps") if key in value), value)
    listed = value if isinstance(value, list) else [value]
    named = (isinstance(one, dict) and isinstance(one.get("worker"), str) for one in listed)
    return listed if any(named) else []


def _instruction(one: Any) -> Instruction:
    """Read one instruction; what is none is refused, so that the model learns of it."""
    fields = one if isinstance(one, dict) else {}
    worker, action, args = fields.get("worker"), fields.get("action"), fields.get("args") or {}
    given = args if isinstance(args, dict) else {"args": args}
    plain = {name: value for name, value in given.items() if value is not None}
    nested = [name for name, value in plain.items() if isinstance(value, dict | list)]
    named = isinstance(worker, str) and isinstance(action, str | None)
    return Instruction(
        str(worker or ""),
        str(action or ""),
        plain | {name: str(plain[name]) for name in nested},
        refused="" if named and given is args and not nested else "bad_arguments",
    )
