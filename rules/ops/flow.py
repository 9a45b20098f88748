"""The ops flow: intents, instructions, risks, approvals, audit entries and texts of both stacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import replace

from contract.flow import Request
from contract.flows.chat import PromptValue
from contract.flows.ops import (
    ApprovalRequired,
    OpsOptions,
    OpsRequest,
    OpsResult,
    OpsStep,
)
from contract.human import Form, FormField, HumanAnswer, OpenQuestion, values
from contract.model import AssistantMessage, Message, ModelCall, UserMessage
from contract.ports import Effects
from contract.stores import Turn
from contract.workers import (
    AuditContext,
    AuditEntry,
    WorkerAction,
    WorkerArgument,
    WorkerCall,
    WorkerResult,
    WorkerUpdate,
    rfc3339,
)
from rules.conversation import (
    acceptable_messages,
    check_model,
    end_session_turn,
    fixed_text,
    lock_session,
    prompt_messages,
    read_text,
    user_turn,
    window,
)
from rules.ops.instructions import (
    INSTRUCTIONS,
    ROLLBACK,
    STAGES,
    Instruction,
    InstructionOutcome,
    Portion,
    StepDecision,
    next_batch,
    read_decision,
)
from rules.ops.intents import Understood, items_of
from rules.prompts import Render

OpsTurn = Request[OpsRequest, OpsOptions]
"""The request of one turn."""

APPROVAL: Final = "approval"
"""Kind of the questions that ask for an approval."""
NO_RESULT: Final = "no_result"
"""Code of an instruction whose worker ended without one."""
TOO_MANY: Final = "too_many_iterations"
"""Code of a turn that took all of its iterations."""
_DROPPED: Final = WorkerResult(ok=False, message="", code="dropped")
"""Stands for the result of an instruction that a failure before it in its step has dropped."""
_LONGEST_OBSERVATION: Final = 8_000
"""Characters of a result that a model reads."""

PROMPTS: Mapping[str, str] = {
    "system": (
        "你是运维助手，通过工作者执行指令。可用的指令：\n{workers}\n"
        '只输出 JSON。执行：{{"instructions":[{{"worker":"…","action":"…","args":{{}}}}]}}；'
        '结束：{{"final":"…"}}。'
    ),
}
"""Stand in for missing prompt files; in `str.format` syntax."""

TEXTS: Mapping[str, str] = {
    "approval_title": "要执行 {worker}.{action} 吗？（风险：{risk}）",
    "refused": "没有执行 {worker}.{action}：{code}",
    "unavailable": "{worker}.{action} 没有完成：{code}",
    "rejected": "{worker}.{action} 被拒绝，没有执行。",
    "completed": "已完成。",
}
"""Fixed texts."""


def text(request: OpsTurn, which: str, **values: str) -> str:
    """Return a fixed text with `{name}` of each value filled in."""
    return fixed_text(TEXTS, request.options.texts, which, **values)


# The model


async def admit(request: OpsTurn, effects: Effects) -> tuple[Turn, tuple[Turn, ...]]:
    """Check model and session, read the earlier turns, store this one; raises `Refused`.

    Returns the turn and those before it.
    """
    body, options, session = request.body, request.options, request.body.session_id
    await check_model(effects, options.model_id, options.max_tokens)
    await lock_session(effects, session, options.lock_ttl)
    turn = await user_turn(effects, session, body.input)
    earlier = await effects.conversations.history(
        "history", session, before=turn.message_id, limit=options.history_limit
    )
    await effects.conversations.put("message", turn)
    return turn, earlier


def limit(request: OpsTurn) -> int:
    """Return how many iterations the turn may take."""
    return request.body.max_iterations or request.options.max_iterations


def lay_out(
    request: OpsTurn, earlier: Sequence[Turn], turn: Turn, resolved: str, render: Render
) -> tuple[Message, ...]:
    """Lay out the conversation, the message with its references resolved."""
    shown = window(earlier, request.options.history_tokens)
    return prompt_messages(render(prompt()), shown, replace(turn, content=resolved))


def prompt() -> dict[str, PromptValue]:
    """Return the parameters of the system prompt."""
    return {"workers": "\n".join(map(_described, INSTRUCTIONS.values()))}


def _described(action: WorkerAction) -> str:
    described = f"- {action.worker}.{action.name}: {action.meaning}"
    for one in action.arguments:
        default = "" if one.required else f", default {msgspec.json.encode(one.default).decode()}"
        described += f"\n  - {one.name} ({one.type}{default}): {one.meaning}"
    return described


async def decide(
    request: OpsTurn,
    effects: Effects,
    messages: Sequence[Message],
    understood: Understood,
    iteration: int,
) -> StepDecision:
    """Decide on the next step: by the rules if they are certain of the first, else by the model."""
    if understood.certain and iteration == 1:
        return StepDecision(instructions=understood.instructions, certain=True)
    options = request.options
    call = ModelCall(
        model_id=options.model_id,
        messages=acceptable_messages(tuple(messages), ()),
        temperature=options.temperature,
        max_tokens=options.max_tokens or None,
        json_object=True,
    )
    return read_decision(await read_text(effects, "reason", call))


# Carrying out


async def audit(
    request: OpsTurn,
    effects: Effects,
    event: Literal["requested", "approved", "rejected", "refused"],
    instruction: Instruction,
    *,
    by: str = "",
) -> None:
    """Append to the audit log what becomes of an instruction; `by` decided on it."""
    now = await effects.clock.now("audit")
    entry = AuditEntry(
        entry_id=_entry_id(instruction, event) or await effects.ids.new("audit"),
        at=rfc3339(now),
        session_id=request.body.session_id,
        event=event,
        worker=instruction.worker,
        action=instruction.action,
        args=instruction.args,
        risk=instruction.risk,
        by=by,
        code=instruction.refused,
    )
    await effects.audit.append("audit", entry)


def _entry_id(instruction: Instruction, event: str) -> str:
    """Return the id of an entry; "" for one that was refused before anything was logged of it.

    Those of one instruction begin alike. Whoever appends the same one knows its id.
    """
    if event == "requested" or not instruction.id:
        return instruction.id
    return f"{instruction.id}.{event}.{instruction.action}"


async def check_safety(
    request: OpsTurn, effects: Effects, queue: Sequence[Instruction], *, serial: bool
) -> Portion:
    """Assess the instructions of a step; returns those to carry out now, each with its risk.

    What is going to be carried out, or asked for, is in the audit log before.
    """
    batch, now = next_batch(queue, serial=serial), list[Instruction]()
    for assessed in batch.now:
        instruction = assessed
        if not instruction.refused:
            instruction = replace(assessed, id=await effects.ids.new("audit"))
            await audit(request, effects, "requested", instruction)
        now.append(instruction)
    return replace(batch, now=tuple(now))


def step(iteration: int, instruction: Instruction) -> OpsStep:
    """Build the event that announces an instruction."""
    return OpsStep(
        iteration, instruction.worker, instruction.action, instruction.args, instruction.risk
    )


def result_event(outcome: InstructionOutcome) -> OpsResult:
    """Build the event that shows what came of an instruction."""
    instruction, result = outcome.instruction, outcome.result
    return OpsResult(instruction.worker, instruction.action, result.ok, result.message)


def worker_call(request: OpsTurn, instruction: Instruction, *, by: str) -> WorkerCall:
    """Build the call that carries out an instruction, which `by` approved."""
    entry_id = _entry_id(instruction, "executed")
    context = AuditContext(entry_id, request.body.session_id, instruction.risk, by)
    return WorkerCall(instruction.worker, instruction.action, instruction.args, context)


async def refuse(
    request: OpsTurn, effects: Effects, instruction: Instruction
) -> InstructionOutcome:
    """Record that an instruction is not carried out; returns what came of it."""
    await audit(request, effects, "refused", instruction)
    return InstructionOutcome(instruction, refused_result(request, instruction))


async def conclude(
    request: OpsTurn,
    effects: Effects,
    instruction: Instruction,
    last: WorkerUpdate,
    *,
    by: str,
) -> InstructionOutcome:
    """Return what came of an instruction that was carried out, by its `last` update.

    The port has logged it, unless a kill or a fault has cost the result.
    """
    result = last.result or failed_result(request, instruction, NO_RESULT)
    call = worker_call(request, instruction, by=by)
    if not last.audited and call.audit is not None:
        now = await effects.clock.now("audit")
        await effects.audit.append("audit", call.audit.executed(call, result, now))
    return InstructionOutcome(instruction, result)


def failed_result(request: OpsTurn, instruction: Instruction, code: str) -> WorkerResult:
    """Build the result of an instruction whose worker gave none."""
    named = {"worker": instruction.worker, "action": instruction.action, "code": code}
    return WorkerResult(ok=False, message=text(request, "unavailable", **named), code=code)


def refused_result(request: OpsTurn, instruction: Instruction) -> WorkerResult:
    """Build the result of an instruction that is not carried out."""
    code = instruction.refused
    named = {"worker": instruction.worker, "action": instruction.action, "code": code}
    return WorkerResult(ok=False, message=text(request, "refused", **named), code=code)


def stage_of(instruction: Instruction, stage: str, release: str) -> Instruction:
    """Return the instruction of one stage of a deployment; its `release` once that is planned."""
    args: dict[str, WorkerArgument] = {"release": release} if release else instruction.args
    return replace(instruction, action=stage, args=args)


def planned_release(result: WorkerResult) -> str:
    """Return the name of the release that was planned, "" where the result has none."""
    named = result.data.get("release") if isinstance(result.data, dict) else None
    return named if isinstance(named, str) else ""


def next_stage(stage: str, result: WorkerResult) -> str | None:
    """Return the stage after one; None at the end, and after a failure with nothing to undo."""
    if stage == STAGES[-1]:
        return None if result.ok else ROLLBACK
    return STAGES[STAGES.index(stage) + 1] if result.ok and stage != ROLLBACK else None


# Approvals


def asks(request: OpsTurn) -> bool:
    """Whether risky instructions are asked for; without an approver they are refused."""
    return request.options.approvals == "ask"


def unapproved(instruction: Instruction) -> Instruction:
    """Return a risky instruction as refused: there is no approver."""
    return replace(instruction, refused="no_approver")


def approval(request: OpsTurn, iteration: int, instruction: Instruction) -> OpenQuestion:
    """Build the question whether to carry out one instruction; its form holds all of it."""
    shown = {
        "worker": instruction.worker,
        "action": instruction.action,
        "risk": instruction.risk,
        "args": msgspec.json.encode(instruction.args).decode(),
        "iteration": str(iteration),
    }
    fields = (
        FormField(
            name,
            name,
            "text",
            required=True,
            value=value,
        )
        for name, value in shown.items()
    )
    form = Form(text(request, "approval_title", **shown), tuple(fields))
    return OpenQuestion(form, APPROVAL, request.body.session_id)


def approval_required(approval_id: str, instruction: Instruction) -> ApprovalRequired:
    """Build the event that asks for an approval."""
    return ApprovalRequired(
        *(approval_id, instruction.worker, instruction.action, instruction.args, instruction.risk)
    )


async def accept(
    request: OpsTurn,
    effects: Effects,
    iteration: int,
    instruction: Instruction,
    answer: HumanAnswer,
) -> bool:
    """Record the decision on an instruction; whether it approves it, and not a changed one."""
    form = approval(request, iteration, instruction).form
    asked = values(form, HumanAnswer("approve"))
    yes = answer.action == "approve" and values(form, answer) == asked
    await audit(
        request, effects, "approved" if yes else "rejected", instruction, by=answer.by or ""
    )
    return yes


# What follows from it


def observed(
    decision: StepDecision,
    outcomes: Sequence[InstructionOutcome],
    dropped: Sequence[Instruction] = (),
) -> tuple[Message, ...]:
    """Build the messages that let the model know what came of its step, and what was dropped."""
    if not outcomes:
        return AssistantMessage(decision.answer), UserMessage(f"Error: {decision.unclear}")
    whole = [*outcomes, *(InstructionOutcome(one, _DROPPED) for one in dropped)]
    asked = msgspec.json.encode({"instructions": [*map(_shown, whole)]}).decode()
    return (
        AssistantMessage(decision.answer or asked),
        UserMessage("\n".join(map(_observation, whole))),
    )


def _shown(outcome: InstructionOutcome) -> dict[str, Any]:
    instruction = outcome.instruction
    return {
        "worker": instruction.worker,
        "action": instruction.action,
        "args": instruction.args,
    }


def _observation(outcome: InstructionOutcome) -> str:
    whole = {
        **_shown(outcome),
        **msgspec.to_builtins(outcome.result),
    }
    return _clipped(msgspec.json.encode(whole).decode(), _LONGEST_OBSERVATION)


def _clipped(written: str, most: int) -> str:
    return written if len(written) <= most else written[:most] + "…"


Next = Literal["reason", "error", "end"]


class Checked(msgspec.Struct, frozen=True):
    """What follows a step: the instructions `left` of it, or what the model is to know of it.

    Or the turn ends, with a `final` reply or the `code` of an error.
    """

    next: Next
    left: tuple[Instruction, ...] = ()
    observed: tuple[Message, ...] = ()
    final: str = ""
    code: str = ""


def check(
    request: OpsTurn,
    iteration: int,
    decision: StepDecision,
    left: tuple[Instruction, ...],
    outcomes: Sequence[InstructionOutcome],
    *,
    failed: str,
) -> Checked:
    """Decide what follows a step; `outcomes` are those of the step, `left` its instructions.

    `failed` is the code of an effect that failed. After an instruction that did not go well the
    rest of a step is dropped, and the model learns it. A step of which the rules were certain needs
    no reply of the model if it went well.
    """
    if failed:
        return Checked("error", code=failed)
    went_well = bool(outcomes) and all(outcome.result.ok for outcome in outcomes)
    if decision.final:
        return Checked("end", final=decision.final)
    if left and went_well:
        return Checked("reason", left)
    if decision.certain and went_well:
        messages = [one.result.message for one in outcomes if one.result.message.strip()]
        return Checked("end", final="\n".join(messages) or text(request, "completed"))
    if iteration >= limit(request):
        return Checked("error", code=TOO_MANY)
    return Checked("reason", observed=observed(decision, outcomes, left))


async def finish(
    request: OpsTurn,
    effects: Effects,
    turn: Turn,
    final: str,
    iteration: int,
    outcomes: Sequence[InstructionOutcome],
) -> None:
    """Store the reply, beside it what later turns refer to, and release the session."""
    data: dict[str, Any] = {"iteration": iteration}
    if listed := next((it for one in outcomes[::-1] if (it := items_of(one.result.data))), ()):
        data["items"] = list(listed)
    await end_session_turn(effects, request.body.session_id, turn, final, data)


def rejection(request: OpsTurn, instruction: Instruction) -> str:
    """Return what is stored as the reply to a turn whose instruction was rejected."""
    return text(request, "rejected", worker=instruction.worker, action=instruction.action)
