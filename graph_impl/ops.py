"""The ops flow as a graph: reason, check how safe it is, have it approved, execute, check."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import msgspec
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.runtime import Runtime
from langgraph.types import interrupt
from typing_extensions import TypedDict

from cutover import StackFailed, wrap_graph
from effects import conversations, pauses
from effects.conversations import Turn
from effects.workers import audit
from effects.workers.audit import AuditEntry
from effects.workers.registry import Progress, Result
from effects.world import current, new_id, read_clock
from graph_impl.flow import Context, answer, options_of, prompt, replacing, send, stack_of
from graph_impl.model import ask, chat_model, find_model
from rules import intents, risk
from rules.flows import ops as wire
from rules.flows.fields import ErrorEvent
from rules.forms import HumanAnswer
from rules.models import HISTORY, window
from rules.prompts import text


class OpsInput(TypedDict, total=False):
    """The body of a request."""

    input: str
    session_id: str
    max_iterations: int | None


class OpsState(OpsInput, MessagesState, total=False):
    """The state of the loop; `messages` are the session's, and the turn's steps and results.

    `items` are what "the first one" refers to, `error_message` is the code of a turn that failed.
    """

    turn: dict[str, Any]
    reply_id: str
    items: Sequence[str]
    iteration: int
    preprocessed: dict[str, Any]
    current_instruction: dict[str, Any]
    risk_level: wire.Risk
    fault: str | None
    worker_result: dict[str, Any]
    approval_id: str
    approval_granted: bool
    approved_by: str
    task_completed: bool
    final_message: str
    error_message: str


_options = partial(options_of, wire.OpsOptions)


def _instruction(state: OpsState) -> risk.Instruction:
    return msgspec.convert(state["current_instruction"], risk.Instruction)


def _text(state: OpsState, runtime: Runtime[Context], name: str, **values: object) -> str:
    """Return a fixed text about the instruction."""
    step = state["current_instruction"]
    texts, about = _options(runtime).texts, {one: step[one] for one in ("worker", "action")}
    return text("ops", texts, name, **about, **values)


async def preprocess(state: OpsState, runtime: Runtime[Context]) -> dict[str, Any]:
    """Read the session, store the message, and see what it asks for as far as rules can tell."""
    now, turn_id, reply_id = await read_clock(), await new_id("message"), await new_id("message")
    session, content = state["session_id"], state["input"]
    earlier = await conversations.history("ops", session, HISTORY)
    turn = Turn(turn_id, "ops", session, "user", content, at=now)
    await conversations.add(turn)
    replies = [one.data for one in earlier if one.role == "assistant"]
    items = replies[-1].get("items", []) if replies else []
    found = intents.preprocess(content, items)
    shown = window(earlier, _options(runtime).history_tokens)
    return {
        "turn": msgspec.to_builtins(turn),
        "reply_id": reply_id,
        "items": items,
        "preprocessed": msgspec.to_builtins(found),
        "messages": [*replacing(shown), HumanMessage(found.text)],
        "iteration": 0,
        "worker_result": {},
        "task_completed": False,
        "final_message": "",
        "error_message": "",
    }


async def reason(state: OpsState, runtime: Runtime[Context]) -> dict[str, Any]:
    """Decide on the next instruction, or that there is none; the model is asked unless certain."""
    step = state["iteration"] + 1
    if step == 1 and (wished := state["preprocessed"]["instruction"]):
        return {"iteration": step, "current_instruction": wished}
    options = _options(runtime)
    model = chat_model(find_model(options.model_id), temperature=options.temperature)
    system = prompt("ops_system", {"workers": risk.worker_lines()})
    question = [SystemMessage(system), *state["messages"]]
    answer = str((await ask(model, question, shown=False)).content)
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
        "approval_id": await new_id("approval") if needed else "",
        "approval_granted": False,
        "approved_by": risk.ASSISTANT,
    }


def route_after_safety(state: OpsState) -> Literal["approve", "execute"]:
    """Return where an instruction goes by its risk."""
    return "approve" if state["approval_id"] else "execute"


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
    instruction = _instruction(state)
    if state["fault"] is not None:
        result = Result(ok=False, message=_text(state, runtime, "failed", code=state["fault"]))
    else:
        result = await _carry_out(instruction, runtime)
        if result.unknown:
            unknown = _text(state, runtime, "outcome_unknown")
            result = msgspec.structs.replace(result, message=unknown)
        what, ok = ("outcome_unknown", None) if result.unknown else ("executed", result.ok)
        await _log(state, what, state["approved_by"], ok=ok, message=result.message)
    send(runtime, wire.OpsResult(instruction.worker, instruction.action, result.ok, result.message))
    answer = risk.result_message(result.message, result.data, ok=result.ok)
    return {
        "worker_result": msgspec.to_builtins(result),
        "items": intents.items_of(result.data) or state["items"],
        "messages": [AIMessage(risk.instruction_message(instruction)), HumanMessage(answer)],
    }


async def _carry_out(instruction: risk.Instruction, runtime: Runtime[Context]) -> Result:
    result = Result(ok=False, message="")
    reports = current().workers.run(instruction.worker, instruction.action, instruction.args)
    async for report in reports:
        match report:
            case Progress(message):
                send(runtime, wire.OpsProgress(instruction.worker, message))
            case _:
                result = report
    return result


async def _log(state: OpsState, what: Any, who: str, **outcome: Any) -> None:
    line = risk.audit_id(state["turn"]["id"], state["iteration"], what)
    about = state["current_instruction"] | outcome | {"session_id": state["session_id"]}
    entry = AuditEntry(id=line, who=who, what=what, **about)
    await pauses.idempotent(audit.write, entry)


async def check(state: OpsState, runtime: Runtime[Context]) -> dict[str, Any]:
    """See whether the task is done; if so, store and send the reply."""
    reply, following = state["final_message"], "end"
    if not state["task_completed"]:
        result, step = state["worker_result"], state["iteration"]
        reply, unknown = result["message"], result["unknown"]
        following = risk.after_step(
            step,
            state.get("max_iterations") or _options(runtime).max_iterations,
            certain=step == 1 and state["preprocessed"]["instruction"] is not None,
            ok=result["ok"],
            unknown=unknown,
        )
        if following == "error":
            code = "outcome_unknown" if unknown else "too_many_iterations"
            return {"error_message": code, "final_message": reply}
    if following == "reason":
        return {}
    reply = await _keep(state, runtime, reply)
    send(runtime, wire.OpsFinal(reply))
    send(runtime, wire.OpsDone("completed"))
    return {"task_completed": True, "final_message": reply}


def route_after_check(state: OpsState) -> Literal["reason", "error", "__end__"]:
    """Return what follows a step."""
    if state["error_message"]:
        return "error"
    return "__end__" if state["task_completed"] else "reason"


async def error(state: OpsState, runtime: Runtime[Context]) -> dict[str, Any]:
    """End a turn that was rejected, or that broke off."""
    if code := state["error_message"]:
        await _keep(state, runtime, state["final_message"])
        send(runtime, ErrorEvent(code))
        send(runtime, wire.OpsDone("failed"))
        return {}
    reply = await _keep(state, runtime, _text(state, runtime, "rejected"))
    send(runtime, wire.OpsFinal(reply))
    send(runtime, wire.OpsDone("rejected"))
    return {"final_message": reply}


async def _keep(state: OpsState, runtime: Runtime[Context], reply: str) -> str:
    """Store the reply, with what the next turn may refer to, and return it."""
    reply = reply or text("ops", _options(runtime).texts, "completed")
    data = {"iteration": state["iteration"], "items": list(state["items"])}
    turn = state["turn"] | {"id": state["reply_id"], "role": "assistant", "content": reply}
    await pauses.idempotent(conversations.add, Turn(**turn | {"data": data}))
    return reply


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


_taped = wrap_graph(GRAPH, answer=lambda question: answer(question["approval_id"]))
stack = stack_of(_taped, wire.OpsEvent)
"""Runs the graph for a request: what its nodes send, and interrupts, are events as JSON."""
