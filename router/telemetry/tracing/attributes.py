"""What spans say: names, codes, times and counts. Never a prompt, an answer or an argument.

Names are those of OpenTelemetry's conventions for generative AI and HTTP where these have one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from contract import operations as ops
from router.telemetry.names import name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from contract.records import RunRecord
    from effects.tape import Entry
    from router.context import Charge, ExchangeContext, LedgerLine

    Attributes = dict[str, str | int | float | bool | tuple[str, ...]]

EXCHANGE = "cutover.exchange"
_US = 1_000_000


class _ToolAsked(msgspec.Struct):
    id: str = ""
    name: str = ""


class _ModelAsked(msgspec.Struct):
    temperature: float | None = None
    max_tokens: int | None = None


_tool = msgspec.json.Decoder(_ToolAsked)
_model = msgspec.json.Decoder(_ModelAsked)


def of_exchange(context: ExchangeContext, line: LedgerLine) -> Attributes:
    """Describe an exchange: its route, who was assigned and served, and where its shadow ended."""
    said: Attributes = {
        "http.request.method": "POST",
        "http.route": context.spec.path,
        EXCHANGE: context.exchange,
        "cutover.flow": context.spec.name,
        "cutover.assigned": context.assignment.stack,
        "cutover.served": context.served,
        "cutover.reason": name(context.reason),
        "cutover.bucket": context.assignment.bucket,
        "cutover.configuration": context.config,
        "cutover.lost": context.lost_us / _US,
        "cutover.shadow.state": line.state,
        "cutover.shadow.reason": line.reason,
    }
    status = _status(context)
    if status is not None:
        said["http.response.status_code"] = status
    return said


def of_run(run: RunRecord) -> Attributes:
    """Describe a run: its role and stack, how it ended, what its nodes took and its calls cost."""
    said: Attributes = {
        EXCHANGE: run.exchange,
        "cutover.role": run.role,
        "cutover.stack": run.stack,
        "cutover.code": run.code,
        "cutover.outcome": run.outcome,
        "cutover.frames": len(run.frames),
        "cutover.sent": run.sent,
    }
    if run.error is not None:
        said["error.type"] = name(run.error.code)
    if run.cost is not None:
        said["cutover.cost"] = run.cost
    for node, spent in run.nodes.items():
        said[f"cutover.node.{name(node)}"] = spent / _US
    return said


def of_effect(entry: Entry, charge: Charge | None) -> tuple[str, Attributes]:
    """Name and describe a call that was made: of a model, of a tool, or of a store."""
    operation = entry.operation
    said: Attributes = {
        "cutover.effect": operation.label,
        "cutover.site": name(entry.site),
        "cutover.end": entry.end,
    }
    if entry.fault is not None:
        said["error.type"] = name(entry.fault.code)
    if charge is not None:
        return _model_call(entry, charge, said)
    if operation is ops.TOOLS_RUN:
        return _tool_call(entry, said)
    return operation.label, said


def of_play(site: str, how: str) -> Mapping[str, str]:
    """Describe a call that took no time: answered on the spot, or from the tape."""
    return {"cutover.site": name(site), "cutover.how": how}


def _model_call(entry: Entry, charge: Charge, said: Attributes) -> tuple[str, Attributes]:
    asked, use = _model.decode(entry.args), charge.use
    model = name(charge.requested)
    said |= {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": model,
        "gen_ai.request.stream": True,
    }
    if asked.temperature is not None:
        said["gen_ai.request.temperature"] = asked.temperature
    if asked.max_tokens is not None:
        said["gen_ai.request.max_tokens"] = asked.max_tokens
    if use.model:
        said["gen_ai.response.model"] = name(use.model)
    if use.finish:
        said["gen_ai.response.finish_reasons"] = (name(use.finish),)
    if use.usage is not None:
        said["gen_ai.usage.input_tokens"] = use.usage.prompt_tokens
        said["gen_ai.usage.output_tokens"] = use.usage.completion_tokens
    first = entry.items[0] if entry.items else None
    if first is not None:
        said["gen_ai.response.time_to_first_chunk"] = (first.at - entry.at) / _US
    if charge.cost is not None:
        said["cutover.cost"] = charge.cost
    return f"chat {model}", said


def _tool_call(entry: Entry, said: Attributes) -> tuple[str, Attributes]:
    asked = _tool.decode(entry.args)
    tool = name(asked.name)
    said |= {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": tool,
        "gen_ai.tool.call.id": name(asked.id),
        "gen_ai.tool.type": "function",
    }
    result = entry.items[0] if entry.items else None
    if result is not None and result.error is not None:
        said["error.type"] = result.error
    return f"execute_tool {tool}", said


def _status(context: ExchangeContext) -> int | None:
    """Give the status the client saw, where the exchange tells it."""
    if context.committed:
        return 200
    outcome = context.outcome
    return outcome.refusal.status if outcome and outcome.refusal else None
