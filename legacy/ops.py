"""The ops flow, written by hand: one instruction a step, and a person's word on the risky ones."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import asdict

from cutover import Request, StackFailed
from cutover.tape import timed
from effects import conversations, pauses
from effects.conversations import Turn
from effects.workers import audit
from effects.workers.audit import AuditEntry
from effects.workers.registry import Progress, Result
from effects.world import current, new_id, read_clock
from legacy.model import Message, ask, render
from rules import intents, risk
from rules.flows import ops as wire
from rules.flows.fields import ErrorEvent
from rules.models import HISTORY, window
from rules.prompts import text


@dataclass(slots=True)
class Session:
    """A turn of a session, and where it stands; `items` are what "the first one" refers to."""

    id: str
    options: wire.OpsOptions
    now: str
    turn: str
    reply: str
    messages: list[Message]
    items: Sequence[str] = ()
    step: int = 0
    who: str = risk.ASSISTANT
    rejected: bool = False
    result: Result = field(default_factory=lambda: Result(ok=False, message=""))

    def say(self, name: str, instruction: risk.Instruction, **values: object) -> str:
        """Return a fixed text about an instruction."""
        place = {"worker": instruction.worker, "action": instruction.action}
        return text("ops", self.options.texts, name, **place, **values)

    async def log(self, what: Any, instruction: risk.Instruction, **outcome: Any) -> None:
        """Add a line to the audit log."""
        key, about = risk.audit_id(self.turn, self.step, what), asdict(instruction) | outcome
        line = AuditEntry(id=key, session_id=self.id, who=self.who, what=what, **about)
        await pauses.idempotent(audit.write, line)

    async def keep(self, content: str) -> None:
        """Store the reply, with what the next turn may refer to."""
        data = {"iteration": self.step, "items": list(self.items)}
        reply = Turn(self.reply, "ops", self.id, "assistant", content, at=self.now, data=data)
        await pauses.idempotent(conversations.add, reply)


async def ops(request: Request[wire.OpsRequest, wire.OpsOptions]) -> AsyncIterator[wire.OpsEvent]:
    """Work on one request until it is done, refused by a person, or out of steps."""
    body, options = request.body, request.options
    with timed("preprocess"):
        session, history = await _open(body, options)
        wish = intents.preprocess(body.input, session.items)
        session.messages = _messages(history, wish.text, options)
    limit = body.max_iterations or options.max_iterations
    following, closing = "reason", ""
    while following == "reason":
        certain = wish.instruction is not None and session.step == 0
        with timed("reason"):
            decision = wish.instruction if certain else await _decide(session)
        if not isinstance(decision, risk.Instruction):
            closing = decision.message if decision else ""
            break
        session.step += 1
        with timed("safety"):
            level, fault = risk.risk_of(decision), risk.instruction_fault(decision)
            yield wire.OpsStep(session.step, decision.worker, decision.action, decision.args, level)
        session.who = risk.ASSISTANT
        if level in risk.NEEDS_APPROVAL and not fault:
            async for question in _approve(session, decision, level):
                yield question
        if session.rejected:
            following, closing = "error", session.say("rejected", decision)
            break
        with timed("execute"):
            async for event in _execute(session, decision, fault):
                yield event
        with timed("check"):
            result, closing = session.result, session.result.message
            following = risk.after_step(
                *(session.step, limit), certain=certain, ok=result.ok, unknown=result.unknown
            )
    with timed("error" if following == "error" else "check"):
        closing = closing or text("ops", options.texts, "completed")
        await session.keep(closing)
        if following == "error" and not session.rejected:
            yield ErrorEvent("outcome_unknown" if session.result.unknown else "too_many_iterations")
            yield wire.OpsDone("failed")
        else:
            yield wire.OpsFinal(closing)
            yield wire.OpsDone("rejected" if session.rejected else "completed")


async def _open(body: wire.OpsRequest, options: wire.OpsOptions) -> tuple[Session, list[Turn]]:
    """Read the session and store the message; every id is drawn before the first question."""
    now, turn, reply = await read_clock(), await new_id("message"), await new_id("message")
    history = await conversations.history("ops", body.session_id, HISTORY)
    await conversations.add(Turn(turn, "ops", body.session_id, "user", body.input, at=now))
    replies = [one.data for one in history if one.role == "assistant"]
    items = replies[-1].get("items", []) if replies else []
    return Session(body.session_id, options, now, turn, reply, [], items), history


def _messages(history: Sequence[Turn], wish: str, options: wire.OpsOptions) -> list[Message]:
    shown = window(history, options.history_tokens)
    return [
        {"role": "system", "content": render("ops_system", {"workers": risk.worker_lines()})},
        *({"role": one.role, "content": one.content} for one in shown),
        {"role": "user", "content": wish},
    ]


async def _decide(session: Session) -> risk.Instruction | risk.Finish:
    """Ask the model what to do next."""
    options = session.options
    entry = current().models.find(options.model_id)
    answer = await ask(entry, session.messages, temperature=options.temperature)
    decision = risk.read_decision(answer.text)
    if decision is None:
        raise StackFailed(code="bad_instruction", blame="world", detail=answer.text[:200])
    return decision


async def _approve(
    session: Session, instruction: risk.Instruction, level: wire.Risk
) -> AsyncIterator[wire.OpsApproval]:
    """Put an instruction to a person, who answers for it from then on."""
    approval = await new_id("approval")
    yield wire.OpsApproval(
        approval, instruction.worker, instruction.action, instruction.args, level
    )
    with timed("approve"):
        answer = await pauses.answer(approval)
        session.who, session.rejected = answer.by, answer.action != "approve"
        await session.log("rejected" if session.rejected else "approved", instruction)


async def _execute(
    session: Session, instruction: risk.Instruction, fault: str | None
) -> AsyncIterator[wire.OpsEvent]:
    """Have an instruction carried out, log it, and tell the model."""
    worker, action, workers = instruction.worker, instruction.action, current().workers
    result = Result(ok=False, message=session.say("failed", instruction, code=fault))
    if fault is None:
        async for report in workers.run(worker, action, instruction.args):
            if isinstance(report, Progress):
                yield wire.OpsProgress(worker, report.message)
            else:
                result = report
        message = result.message
        if result.unknown:
            message = session.say("outcome_unknown", instruction)
            result = Result(ok=False, message=message, unknown=True)
            await session.log("outcome_unknown", instruction, message=message)
        else:
            await session.log("executed", instruction, ok=result.ok, message=message)
    session.result, session.items = result, intents.items_of(result.data) or session.items
    yield wire.OpsResult(worker, action, result.ok, result.message)
    report_text = risk.result_message(result.message, result.data, ok=result.ok)
    session.messages += [
        {"role": "assistant", "content": risk.instruction_message(instruction)},
        {"role": "user", "content": report_text},
    ]
