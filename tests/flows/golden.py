"""Golden tapes: what a client must be told, and the tape on which any stack must tell it.

`python -m tests.flows.golden` records the tapes anew, half of them by each stack.
"""

import asyncio
import sys
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec

from cutover.errors import Failed, Refusal
from cutover.records import TapeRecord
from cutover.tape import tape_record
from effects.pauses import Pauses
from router.takeover import Sent
from rules.forms import HumanAnswer
from tests.flows.golden_case import SETTINGS, Case, cases_of, odd_cases, quoted
from tests.support.stage import Stage, Told, read, staged

FOLDER = Path(__file__).parent / "golden"
STACKS = ("legacy", "graph")
CASES: dict[str, Case] = {
    case.name: case for case in (*odd_cases(), *cases_of(FOLDER.with_suffix(".toml")))
}
"""All cases by name."""


class Golden(msgspec.Struct, frozen=True):
    """A recorded case: the stack that recorded it, a digest of its whole stream, and its tape."""

    case: str
    recorded_by: str
    told: str
    tape: TapeRecord


def digest(sent: Sent) -> str:
    """Return a hash of a stream: its marks, and its text joined per channel."""
    told = msgspec.json.encode(sent, enc_hook=dict, order="sorted")
    return blake2b(told, digest_size=8).hexdigest()


def load() -> dict[str, Golden]:
    """Return the recorded tapes by the name of their case."""
    lines = [
        line for path in sorted(FOLDER.glob("*.jsonl")) for line in path.read_bytes().splitlines()
    ]
    found = [msgspec.json.decode(line, type=Golden) for line in lines]
    return {one.case: one for one in found}


def lines_of(frames: list[bytes]) -> list[str]:
    """Return what a client was told, one line an event, as the cases expect it."""
    out: list[str] = []
    spoken = ""
    for name, data in filter(None, map(read, frames)):
        kind = name or data.get("step") or data.get("type")
        inner = data.get("data", data)
        if kind in {"text", "token"} and "content" in inner:
            spoken += inner["content"]
            continue
        if spoken:
            out.append(f"text {quoted(spoken)}")
            spoken = ""
        if (line := _line(str(kind), inner)) is not None:
            out.append(line)
    return out


def _line(kind: str, data: dict[str, Any]) -> str | None:
    match kind:
        case "SEND":
            feedback = data.get("tool_call_feedback")
            return feedback and f"SEND {feedback['tool']} {feedback['status']}"
        case "SUCCESS":
            return f"SUCCESS {quoted(data['content'])}"
        case "emotion":
            return f"emotion {data['primary']}"
        case "tool_result":
            return f"tool_result {data['tool']} {data['ok']} {data['content']!r}"
        case "hitl":
            return f"hitl {data['form']['title']}"
        case "message":
            errors = [f"{one['node']}:{one['code']}" for one in data["errors"]]
            said = quoted(data["message"])
            return f"message {data['token_info']['action']} {said} {errors}"
        case "step":
            act = f"{data['worker']}.{data['action']}"
            return f"step {data['iteration']} {act} {data['risk']}"
        case "approval_required":
            return f"{kind} {data['worker']}.{data['action']} {data['risk']}"
        case "result":
            return f"result {data['worker']}.{data['action']}"
        case "final":
            return f"final {quoted(data['message'])}"
        case "error":
            return f"error {data['code']}"
        case "done" if "final_message" in data:
            return f"done {quoted(data['final_message']['content'])}"
        case "done":
            return f"done {data['status']}"
        case "progress":
            return None
        case _:
            return kind


async def record(stage: Stage, case: Case, stack: str) -> tuple[Told, list[str]]:
    """Serve a case by a stack; return the exchange and what its client was told."""
    for body, answers in case.before:
        stage.sim.script(answers)
        await stage.tell(case.flow, stage.request(case.flow, dict(body)), [stack])
    stage.sim.script(case.answers)
    request = stage.request(case.flow, dict(case.body), case.path, **case.options)
    told = await stage.tell(case.flow, request, [stack])
    frames = told.frames
    if case.decide is not None and (question := told.exchange.tape.question):
        if case.flow == "ops":
            decision: dict[str, Any] = {"approval_id": question, **case.decide}
        else:
            table = Pauses(stage.world.database, stage.world.clock)
            await table.answer(question, msgspec.convert(case.decide, HumanAnswer))
            decision = {"hitl_id": question}
        asked = frames[:-1]
        told = await stage.resume(case.flow, decision, [stack])
        frames = [*asked, *told.frames]
    if isinstance(told.outcome, Refusal):
        return told, [f"refused {told.outcome.status} {told.outcome.code}"]
    if isinstance(told.outcome, Failed) and not frames:
        return told, [f"not served {told.outcome.code}"]
    return told, lines_of(frames)


async def record_all() -> Iterator[str]:
    """Record every case and write the files; return what is not as expected."""
    recorded: dict[str, list[bytes]] = {}
    wrong: list[str] = []
    for number, case in enumerate(CASES.values()):
        stack = STACKS[number % 2]
        async with staged(**SETTINGS) as stage:
            told, lines = await record(stage, case, stack)
            if lines != list(case.expected):
                wrong.append(f"{case.name} by {stack}:\n  {lines}\n  {list(case.expected)}")
            tape = tape_record(told.exchange.tape)
        whole = digest(told.exchange.sent)
        line = msgspec.json.encode(Golden(case.name, stack, whole, tape))
        recorded.setdefault(case.flow, []).append(line)
    FOLDER.mkdir(exist_ok=True)
    for flow, lines_ in recorded.items():
        (FOLDER / f"{flow}.jsonl").write_bytes(b"\n".join(lines_) + b"\n")
    return iter(wrong)


if __name__ == "__main__":
    unexpected = list(asyncio.run(record_all()))
    print("\n".join(unexpected) or f"{len(CASES)} recorded")  # noqa: T201 - a command
    sys.exit(bool(unexpected))
