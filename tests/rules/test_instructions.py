"""Instructions: how answers are read, what is refused, which risks they have."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.workers import LONGEST_ARGUMENT, WORKER_ACTIONS, Risk, WorkerArgument
from effects.workers.network import METADATA
from rules.ops.instructions import (
    DEPLOYMENT,
    INSTRUCTIONS,
    MOST_INSTRUCTIONS,
    MOST_READ,
    RISKS,
    RISKY,
    TOO_MANY,
    Instruction,
    StepDecision,
    assessed,
    next_batch,
    read_decision,
    risk_of,
)

DISK = Instruction("system", "disk")
RESTART = Instruction("container", "restart", {"name": "web"})
TWO = '{"instructions":[{"worker":"system","action":"disk"},{"worker":"container",'
TWO += '"action":"restart","args":{"name":"web"}}]}'
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize(
    "answer",
    [
        TWO,
        f"Sure:\n```json\n{TWO}\n```",
        f"I will do {TWO} now.",
        TWO.replace("instructions", "steps"),
        TWO.removeprefix('{"instructions":').removesuffix("}"),
    ],
)
def test_instructions_are_read_however_they_are_wrapped(answer: str) -> None:
    """In a fence, in prose, under either name, or as a plain list."""
    assert read_decision(answer) == StepDecision(answer, (DISK, RESTART))


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ('{"worker":"system","action":"disk"}', StepDecision(instructions=(DISK,))),
        ('{"final":"all is well"}', StepDecision(final="all is well")),
        ('{"final":"later","worker":"system","action":"disk"}', StepDecision(instructions=(DISK,))),
        ('{"final":" "}', StepDecision()),
        ('{"instructions":[{"action":"disk"},7]}', StepDecision()),
        ('{"instructions":{"worker":"system","action":"disk"}}', StepDecision("", (DISK,))),
        ('{"worker":"system","action":"disk","args":null}', StepDecision("", (DISK,))),
        ("two disks are full", StepDecision()),
        ("", StepDecision()),
        ("{" * 9_999, StepDecision()),
    ],
)
def test_an_answer_instructs_or_finishes_or_is_unclear(answer: str, expected: StepDecision) -> None:
    """Instructions come before a final reply."""
    found = read_decision(answer)
    assert (found.instructions, found.final) == (expected.instructions, expected.final)
    assert bool(found.unclear) == (expected == StepDecision())


def listed(count: int) -> str:
    """List the same instruction several times."""
    one = '{"worker":"system","action":"disk"}'
    return f"[{','.join([one] * count)}]"


def test_a_step_has_only_so_many_instructions() -> None:
    """Those beyond are refused; an answer with very many is none."""
    found = read_decision(listed(MOST_READ)).instructions
    assert found[:MOST_INSTRUCTIONS] == (DISK,) * MOST_INSTRUCTIONS
    assert {one.refused for one in found[MOST_INSTRUCTIONS:]} == {TOO_MANY}
    assert len(found) == MOST_READ
    flood = read_decision(listed(MOST_READ + 1))
    assert (flood.instructions, flood.unclear) == ((), "more than 10 instructions")


@pytest.mark.parametrize("other", ['{"action":"disk"}', "7", '"disk"', '{"worker":7}', "null"])
def test_what_is_no_instruction_among_others_is_refused(other: str) -> None:
    """The model took it for one, and learns that nothing was done."""
    first, second = read_decision(f'[{{"worker":"system","action":"disk"}},{other}]').instructions
    assert first == DISK
    assert assessed(second).refused == "bad_arguments"


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ('{"worker":"shell","action":"run","args":{"command":"rm -rf /"}}', "unknown_worker"),
        ('{"worker":"system","action":"reboot"}', "unknown_action"),
        ('{"worker":"deploy","action":"release","args":{"release":"r"}}', "unknown_action"),
        ('{"worker":"container","action":"restart"}', "bad_arguments"),
        ('{"worker":"container","action":"restart","args":{"name":["web"]}}', "bad_arguments"),
        ('{"worker":"container","action":"restart","args":"web"}', "bad_arguments"),
        ('{"worker":"container","action":{}}', "bad_arguments"),
        ('{"worker":"network","action":"reach","args":{"host":"a","port":0}}', "bad_arguments"),
        ('{"worker":"system","action":"disk","args":{"path":"/"}}', "bad_arguments"),
    ],
)
def test_what_no_worker_takes_is_refused(answer: str, code: str) -> None:
    """By a stable code; no approval is asked for."""
    (instruction,) = read_decision(answer).instructions
    found = assessed(instruction)
    assert (found.refused, found.risky) == (code, False)
    assert assessed(found) == found


def test_what_is_refused_is_shown_in_part() -> None:
    """Whatever a model has written there; a person could not read it either."""
    long = Instruction("container", "restart", {"name": "a" * (LONGEST_ARGUMENT + 1)})
    assert assessed(long).refused == "bad_arguments"
    assert assessed(long).args == {"name": "a" * 200}
    many = Instruction("system", "disk", {f"a{number}": number for number in range(99)})
    assert len(assessed(many).args) == 20
    fits = Instruction("container", "restart", {"name": "a" * LONGEST_ARGUMENT})
    assert assessed(fits).risky


@given(JSON, st.text(), st.text())
def test_no_answer_of_a_model_breaks_the_rules(args: object, worker: str, action: str) -> None:
    """What is refused can be shown, logged and stored, whatever it was."""
    written = {"worker": worker, "action": action, "args": args}
    for one in read_decision(msgspec.json.encode(written).decode()).instructions:
        found = assessed(one)
        assert found.refused
        assert "\0" not in msgspec.json.encode(found).decode()
        assert len(found.worker) <= 64


@pytest.mark.parametrize(
    ("name", "args", "risk"),
    [
        (("system", "disk"), {}, "low"),
        (("system", "delete_temporary"), {"path": "a.log", "pattern": ""}, "high"),
        (("system", "delete_temporary"), {"path": "", "pattern": "*.log"}, "high"),
        (("system", "delete_temporary"), {"path": "", "pattern": "*"}, "critical"),
        (("network", "reach"), {"host": "db", "port": 1}, "low"),
        (("network", "reach"), {"host": "169.254.169.254", "port": 80}, "high"),
        (("container", "logs"), {"name": "web"}, "medium"),
        (("container", "restart"), {"name": "web"}, "high"),
        (("container", "restart"), {"name": "Orders-DB-1"}, "critical"),
        (("deploy", "run"), {"release": ""}, "high"),
        (("shell", "run"), {}, "critical"),
    ],
)
def test_risks_go_by_worker_action_and_arguments(
    name: tuple[str, str], args: dict[str, WorkerArgument], risk: Risk
) -> None:
    """The first rule that fits."""
    assert risk_of(*name, args) == risk


@pytest.mark.parametrize("network", METADATA, ids=str)
def test_where_clouds_give_credentials_is_risky(network: IPv4Network | IPv6Network) -> None:
    """Each address that the worker connects to only where it is named itself."""
    for address in (network[0], network[-1]):
        assert risk_of("network", "reach", {"host": str(address), "port": 80}) == "high"
    assert risk_of("network", "reach", {"host": "fd00::1", "port": 80}) == "low"


def test_every_instruction_has_a_risk_and_what_changes_something_is_risky() -> None:
    """No rule names what there is not."""
    assert {(rule.worker, rule.action) for rule in RISKS} == INSTRUCTIONS.keys()
    assert INSTRUCTIONS.keys() - WORKER_ACTIONS.keys() == {DEPLOYMENT}
    for rule in RISKS:
        changes = INSTRUCTIONS[rule.worker, rule.action].changes
        assert rule.risk in RISKY or not changes


def test_a_risky_step_is_carried_out_one_by_one() -> None:
    """Also what follows the risky one; other steps at once."""
    batch = next_batch((DISK, RESTART, DISK), serial=False)
    assert ([one.action for one in batch.now], len(batch.left)) == (["disk"], 2)
    assert (batch.serial, batch.asks) == (True, False)
    batch = next_batch(batch.left, serial=batch.serial)
    assert [one.action for one in batch.now] == ["restart"]
    assert batch.asks
    last = next_batch((*batch.left, *batch.left), serial=batch.serial)
    assert len(last.now) == 1
    assert len(next_batch((DISK, DISK), serial=False).now) == 2
