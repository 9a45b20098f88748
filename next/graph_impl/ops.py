"""The ops flow as a graph: reason, check how safe it is, have it approved, execute, check."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, Final, Literal

import msgspec
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
)
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.runtime import Runtime
from langgraph.types import interrupt
from typing_extensions import TypedDict

from cutover import Request, StackFailed, wrap_graph
from effects import conversations, pauses
from effects.conversations import Turn
from effects.workers import Progress, Result, audit
from effects.workers.audit import AuditEntry
from effects.world import current, new_id, read_clock
from graph_impl.flow import Context, options_of, prompt, send, streamed
from graph_impl.model import ask, chat_model, find_model
from rules import intents, risk
from rules.flows import ops as wire
from rules.forms import HumanAnswer
from rules.models import HISTORY, window
from rules.prompts import text


class OpsInput(TypedDict, total=False):
    """What begins a turn; `max_iterations` as the request and the options have it."""

    user_input: str
    session_id: str
    max_iterations: int


class OpsState(OpsInput, MessagesState, total=False):
    """The state of the loop; `messages` are the session's, and the turn's steps and results."""

    turn: dict[str, Any]
    iteration: int
    preprocessed: dict[str, Any]
    current_instruction: dict[str, Any]
    risk_level: wire.Risk
    fault: str | None
    worker_result: dict[str, Any]
    needs_approval: bool
    approval_id: str
    approval_granted: bool
    approved_by: str
    task_completed: bool
    is_error: bool
    final_message: str
    error_message: str


FRESH: Final[dict[str, Any]] = {
    "messages": [RemoveMessage(REMOVE_ALL_MESSAGES)],
    "iteration": 0,
    "worker_result": {},
    "task_completed": False,
    "is_error": False,
    "final_message": "",
    "error_message": "",
}
"""What every turn begins with, also on a thread that a saver has kept."""


def _options(runtime: Runtime[Context]) -> wire.OpsOptions:
    return options_of(runtime, wire.OpsOptions)


def _instruction(state: OpsState) -> risk.Instruction:
    return msgspec.convert(state["current_instruction"], risk.Instruction)


def _named(state: OpsState) -> dict[str, Any]:
    """Return what names the instruction in events, texts and the audit log."""
    return {one: state["current_instruction"][one] for one in ("worker", "action")}


async def preprocess(state: OpsState, runtime: Runtime[Context]) -> dict[str, Any]:
    """Read the session, store the message, and see what it asks for as far as rules can tell."""
    session = state["session_id"]
    started_at = await read_clock()
    asked, answered = await new_id("message"), await new_id("message")
    earlier = await conversations.history("ops", session, HISTORY)
    last = next((one for one in reversed(earlier) if one.role == "assistant"), None)
    items = last.data.get("items", []) if last is not None else []
    found = intents.preprocess(state["user_input"], items)
    message = Turn(
        id=asked,
        flow="ops",
        chat_id=session,
        role="user",
        content=state["user_input"],
        at=started_at,
    )
    await conversations.add(message)
    budget = _options(runtime).history_tokens
    shown = window(earlier, budget)
    return {
        **FRESH,
        "turn": {"id": asked, "reply_id": answered, "at": started_at, "items": items},
        "preprocessed": msgspec.to_builtins(found) | {"certain": found.certain},
        "messages": [*FRESH["messages"], *map(_message, shown), HumanMessage(found.text)],
    }


def _message(turn: Turn) -> AnyMessage:
    kind = AIMessage if turn.role == "assistant" else HumanMessage
    return kind(turn.content)


async def reason(state: OpsState, runtime: Runtime[Context]) -> dict[str, Any]:
    """Decide on the next instruction, or that there is none; the model is asked unless certain."""
    step = state["iteration"] + 1
    certain = step == 1 and state["preprocessed"]["certain"]
    if certain:
        return {"iteration": step, "current_instruction": state["preprocessed"]["instruction"]}
    options = _options(runtime)
    model = chat_model(find_model(options.model_id), temperature=options.temperature)
    system = prompt("ops_system", {"workers": risk.worker_lines()})
    answer = str((await ask(model, [SystemMessage(system), *state["messages"]])).content)
    match risk.read_decision(answer):
        case risk.Finish(message):
            return {"task_completed": True, "final_message": message}
        case risk.Instruction() as decided:
            return {"iteration": step, "current_instruction": msgspec.to_builtins(decided)}
        case None:
            raise StackFailed(code="bad_instruction", blame="world", detail=answer[:200])


def route_after_reason(state: OpsState) -> Literal["safety", "check"]:
    """Return where a decision leads."""
    return "check" if state["task_completed"] else "safety"


async def safety(state: OpsState, runtime: Runtime[Context]) -> dict[str, Any]:
    """Rate the instruction; the id of the approval it may need is drawn here, once."""
    instruction = _instruction(state)
    level, fault = risk.risk_of(instruction), risk.instruction_fault(instruction)
    send(runtime, wire.OpsStep(state["iteration"], risk=level, **state["current_instruction"]))
    needed = level in risk.NEEDS_APPROVAL and fault is None
    return {
        "risk_level": level,
        "fault": fault,
        "needs_approval": needed,
        "approval_id": await new_id("approval") if needed else "",
        "approval_granted": False,
        "approved_by": risk.ASSISTANT,
    }


def route_after_safety(state: OpsState) -> Literal["approve", "execute"]:
    """Return where an instruction goes by its risk."""
    return "approve" if state["needs_approval"] else "execute"


async def approve(state: OpsState) -> dict[str, Any]:
    """Wait for a person's decision and log it."""
    question = {
        "event": "approval_required",
        "approval_id": state["approval_id"],
        "risk": state["risk_level"],
    }
    decision = interrupt(question | state["current_instruction"])
    answer = msgspec.convert(decision, HumanAnswer)
    granted = answer.action == "approve"
    await _log(state, "approved" if granted else "rejected", answer.by)
    return {"approval_granted": granted, "approved_by": answer.by}


def route_after_approve(state: OpsState) -> Literal["execute", "error"]:
    """Return where a decision of a person leads."""
    return "execute" if state["approval_granted"] else "error"


async def execute(state: OpsState, runtime: Runtime[Context]) -> dict[str, Any]:
    """Have the worker carry the instruction out, and log how it ended."""
    name, texts = _named(state), _options(runtime).texts
    if state["fault"] is not None:
        message = text("ops", texts, "failed", code=state["fault"], **name)
        result = Result(ok=False, message=message)
    else:
        result = await _carried_out(state, runtime)
        if result.unknown:
            unknown = text("ops", texts, "outcome_unknown", **name)
            result = msgspec.structs.replace(result, message=unknown)
        what = "outcome_unknown" if result.unknown else "executed"
        ok = None if result.unknown else result.ok
        await _log(state, what, state["approved_by"], ok=ok, message=result.message)
    send(runtime, wire.OpsResult(ok=result.ok, message=result.message, **name))
    told = risk.result_message(result.message, result.data, ok=result.ok)
    return {
        "worker_result": msgspec.to_builtins(result),
        "messages": [
            AIMessage(risk.instruction_message(_instruction(state))),
            HumanMessage(told),
        ],
    }


async def _carried_out(state: OpsState, runtime: Runtime[Context]) -> Result:
    instruction, result = _instruction(state), Result(ok=False, message="")
    reports = current().workers.run(instruction.worker, instruction.action, instruction.args)
    async for report in reports:
        match report:
            case Progress(message):
                send(runtime, wire.OpsProgress(instruction.worker, message))
            case _:
                result = report
    return result


async def _log(state: OpsState, what: Any, who: str, **outcome: Any) -> None:
    entry = AuditEntry(
        id=risk.audit_id(state["turn"]["id"], state["iteration"], what),
        session_id=state["session_id"],
        who=who,
        what=what,
        **state["current_instruction"],
        **outcome,
    )
    await pauses.idempotent(audit.write, entry)


async def check(state: OpsState, runtime: Runtime[Context]) -> dict[str, Any]:
    """See whether the task is done; if so, store and send the reply."""
    result, step = state["worker_result"], state["iteration"]
    items = list(intents.items_of(result.get("data")) or state["turn"]["items"])
    turn = state["turn"] | {"items": items}
    done, reply = state["task_completed"], state["final_message"]
    if not done:
        certain = step == 1 and state["preprocessed"]["certain"]
        ok, unknown, reply = result["ok"], result["unknown"], result["message"]
        limit = state.get("max_iterations") or _options(runtime).max_iterations
        following = risk.after_step(step, limit, certain=certain, ok=ok, unknown=unknown)
        if following == "error":
            code = "outcome_unknown" if unknown else "too_many_iterations"
            return {"turn": turn, "is_error": True, "error_message": code, "final_message": reply}
        done = following == "end"
    if done:
        reply = reply or text("ops", _options(runtime).texts, "completed")
        await _keep(state | {"turn": turn}, reply)
        send(runtime, wire.OpsFinal(reply))
        send(runtime, wire.OpsDone("completed"))
    return {"turn": turn, "task_completed": done, "final_message": reply if done else ""}


def route_after_check(state: OpsState) -> Literal["reason", "error", "__end__"]:
    """Return what follows a step."""
    if state["is_error"]:
        return "error"
    return "__end__" if state["task_completed"] else "reason"


async def error(state: OpsState, runtime: Runtime[Context]) -> dict[str, Any]:
    """End a turn that was rejected, or that broke off."""
    texts = _options(runtime).texts
    if state["is_error"]:
        reply = state["final_message"] or text("ops", texts, "completed")
        await _keep(state, reply)
        send(runtime, wire.OpsError(state["error_message"]))
        send(runtime, wire.OpsDone("failed"))
        return {}
    reply = text("ops", texts, "rejected", **_named(state))
    await _keep(state, reply)
    send(runtime, wire.OpsFinal(reply))
    send(runtime, wire.OpsDone("rejected"))
    return {"final_message": reply}


async def _keep(state: OpsState, content: str) -> None:
    turn = state["turn"]
    reply = Turn(
        id=turn["reply_id"],
        flow="ops",
        chat_id=state["session_id"],
        role="assistant",
        content=content,
        at=turn["at"],
        data={"iteration": state["iteration"], "items": turn["items"]},
    )
    await pauses.idempotent(conversations.add, reply)


builder = StateGraph(OpsState, context_schema=Context, input_schema=OpsInput)
builder.add_sequence([preprocess, reason])
builder.add_node(safety)
builder.add_node(approve)
builder.add_sequence([execute, check])
builder.add_node(error)
builder.add_edge(START, "preprocess")
builder.add_conditional_edges("reason", route_after_reason)
builder.add_conditional_edges("safety", route_after_safety)
builder.add_conditional_edges("approve", route_after_approve)
builder.add_conditional_edges("check", route_after_check)
builder.add_edge("error", END)

GRAPH = builder.compile()


async def _answer(question: dict[str, Any]) -> dict[str, Any]:
    """Return a person's decision; raises `Paused` while there is none."""
    decision: dict[str, Any] = msgspec.to_builtins(await pauses.answer(question["approval_id"]))
    return decision


_taped = wrap_graph(GRAPH, answer=_answer)


def stack(request: Request[wire.OpsRequest, wire.OpsOptions]) -> AsyncIterator[wire.OpsEvent]:
    """Run the graph for a request: what its nodes send, and interrupts, are events as JSON."""
    body = request.body
    limit = body.max_iterations or request.options.max_iterations
    given = {"user_input": body.input, "session_id": body.session_id, "max_iterations": limit}
    return streamed(_taped, request, ("custom", "updates"), _events, given=given)


def _events(part: Any) -> Iterator[wire.OpsEvent]:
    yield msgspec.convert(part, wire.OpsEvent)
