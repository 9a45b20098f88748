"""What the simulated model asks of the built-in tools is what they take."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from effects.clock import ManualClock
from effects.memory import InMemoryMemory
from effects.tools import builtin_tools
from effects.tools.units import unit
from loadtests.simulator.tasks import NAMES, SYMBOLS, ZONES, call_rounds, resolved
from tests.loadtests.simulator.asking import ALL

TOOLS = {one.spec.name: one for one in builtin_tools(ManualClock(), InMemoryMemory())}
DEMO = Path(__file__).resolve().parents[3] / "cutover" / "demo_messages.jsonl"
FAULTS = {("no_such_tool", "{}"), ("calculate", '{"expression": ')}
"""What is asked wrongly because the text wants it so."""

NUMBERS = st.sampled_from(["5", "-40", "1.5", "1,250", "0", "98"])
UNITS = st.sampled_from(list(SYMBOLS))
PLACES = st.sampled_from([name for names in ZONES.values() for name in names])
OTHERS = ["结果乘以 3", "add 5 to it", "一直查", "use no such tool", "参数写坏", "几点了"]
TASKS = st.one_of(
    st.builds("{} {} to {}".format, NUMBERS, UNITS, UNITS),
    st.builds("{}{}等于多少{}".format, NUMBERS, UNITS, UNITS),
    st.builds("how many {} is {} {}".format, UNITS, NUMBERS, UNITS),
    st.builds("what time is it in {}".format, PLACES),
    st.builds("{} {} {}".format, NUMBERS, st.sampled_from(["+", "乘以", "minus", "/"]), NUMBERS),
    st.builds("{}% of {}".format, NUMBERS, NUMBERS),
    st.builds("do you remember {}".format, st.text(max_size=120)),
    st.sampled_from(OTHERS),
)
QUESTIONS = st.lists(TASKS, min_size=1, max_size=4).flatmap(
    lambda tasks: st.sampled_from([", ", " then ", "，然后"]).map(lambda by: by.join(tasks))
)


def fits(text: str, previous: str = "-4.5") -> int:
    """Read every call a text leads to as its tool does; gives how many there are."""
    made = [resolved(call, previous) for stage in call_rounds(text, ALL) for call in stage]
    for call in made:
        if (call.name, call.arguments) not in FAULTS:
            TOOLS[call.name].read(call.arguments)
    return len(made)


@given(QUESTIONS)
def test_every_call_fits_its_schema(question: str) -> None:
    """Whatever is asked for, in both languages, alone and in turn."""
    assert fits(question) >= 0


def test_every_call_of_the_demo_fits_its_schema() -> None:
    """All messages there are."""
    lines = DEMO.read_bytes().splitlines()
    assert sum(fits(msgspec.json.decode(line)["content"]) for line in lines) > 20


@pytest.mark.parametrize("symbol", NAMES)
def test_every_unit_is_known(symbol: str) -> None:
    """By the tool, which would have none of it otherwise."""
    assert unit(symbol) is not None
