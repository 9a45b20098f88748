"""Rules of a turn of ops: what follows a step, what the model reads of it, stages, texts."""

from __future__ import annotations

import pytest

from contract.flow import Request
from contract.flows.ops import TEXT_NAMES, OpsOptions, OpsRequest
from contract.model import AssistantMessage, UserMessage
from contract.workers import WorkerResult
from rules.ops import flow as ops
from rules.ops.instructions import (
    INSTRUCTIONS,
    ROLLBACK,
    STAGES,
    Instruction,
    InstructionOutcome,
    StepDecision,
)

REQUEST = Request(OpsRequest(input="hm", session_id="s"), OpsOptions(max_iterations=2))
DISK = Instruction("system", "disk", risk="low")
WELL = InstructionOutcome(DISK, WorkerResult(ok=True, message="two disks", data=[1]))
UNWELL = InstructionOutcome(DISK, WorkerResult(ok=False, message="no disks", code="worker_timeout"))
STEP = StepDecision("{}", (DISK,))
RULED = StepDecision(instructions=(DISK,), certain=True)


@pytest.mark.parametrize(
    ("decision", "left", "outcomes", "iteration", "expected"),
    [
        (StepDecision("…", final="done"), (), (), 1, ("end", "done")),
        (STEP, (), (WELL,), 1, ("reason", "")),
        (STEP, (DISK,), (WELL,), 2, ("reason", "")),  # the rest of the last step
        (STEP, (DISK,), (UNWELL,), 1, ("reason", "")),
        (STEP, (), (WELL,), 2, ("error", "too_many_iterations")),
        (StepDecision("what"), (), (), 1, ("reason", "")),
        (StepDecision("what"), (), (), 2, ("error", "too_many_iterations")),
        (RULED, (), (WELL, WELL), 1, ("end", "two disks\ntwo disks")),
        (RULED, (), (WELL, UNWELL), 1, ("reason", "")),
    ],
)
def test_what_follows_a_step(
    decision: StepDecision,
    left: tuple[Instruction, ...],
    outcomes: tuple[InstructionOutcome, ...],
    iteration: int,
    expected: tuple[str, str],
) -> None:
    """A failure drops what is left; what the rules were certain of, and went well, is the reply."""
    found = ops.check(REQUEST, iteration, decision, left, outcomes, failed="")
    assert (found.next, found.final or found.code) == expected
    went_well = bool(outcomes) and all(one.result.ok for one in outcomes)
    assert found.left == (left if went_well else ())
    assert bool(found.observed) == (found.next == "reason" and not found.left)
    broken = ops.check(REQUEST, iteration, decision, left, outcomes, failed="audit_unavailable")
    assert (broken.next, broken.code) == ("error", "audit_unavailable")


def test_the_model_reads_what_came_of_its_step() -> None:
    """Line by line, within bounds; what was dropped, and why an answer was unclear."""
    asked, told = ops.observed(StepDecision('{"worker":"system"}'), (WELL, UNWELL), (DISK,))
    assert asked == AssistantMessage('{"worker":"system"}')
    assert isinstance(told, UserMessage)
    assert told.content == (
        '{"worker":"system","action":"disk","args":{},"ok":true,"message":"two disks","data":[1]}\n'
        '{"worker":"system","action":"disk","args":{},"ok":false,"message":"no disks",'
        '"code":"worker_timeout"}\n'
        '{"worker":"system","action":"disk","args":{},"ok":false,"message":"","code":"dropped"}'
    )
    asked, told = ops.observed(StepDecision(), (WELL,), (DISK,))
    assert isinstance(asked, AssistantMessage)
    assert str(asked.content).count('"worker":"system"') == 2
    long = InstructionOutcome(DISK, WorkerResult(ok=True, message="x" * 99_999))
    assert len(str(ops.observed(StepDecision(), (long,))[1].content)) < 9_000
    unclear = StepDecision("what", unclear="no instruction and no final")
    assert ops.observed(unclear, ())[1].content == "Error: no instruction and no final"


def test_a_deployment_goes_from_stage_to_stage() -> None:
    """A failure ends it; one to verify is rolled back, and that is the end."""
    well, unwell = WELL.result, UNWELL.result
    assert [ops.next_stage(stage, well) for stage in STAGES] == [*STAGES[1:], None]
    assert [ops.next_stage(stage, unwell) for stage in STAGES] == [None, None, None, ROLLBACK]
    assert ops.next_stage(ROLLBACK, well) is None
    assert ops.next_stage(ROLLBACK, unwell) is None


def test_the_prompt_names_every_instruction_and_every_text_has_a_name() -> None:
    """With the arguments, and what they are where they are left out."""
    workers = str(ops.prompt()["workers"])
    for action in INSTRUCTIONS.values():
        assert f"- {action.worker}.{action.name}: {action.meaning}" in workers
    assert "  - count (integer, default 10): " in workers
    assert "  - host (string): " in workers
    assert ops.TEXTS.keys() == TEXT_NAMES
    changed = Request(REQUEST.body, OpsOptions(texts={"rejected": "no {action}"}))
    assert ops.rejection(changed, DISK) == "no disk"
