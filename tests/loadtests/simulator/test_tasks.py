"""Finding tasks in texts, and not finding them where there are none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from effects.local import ManualClock
from effects.memory import InMemoryMemory
from effects.tools import builtin_tools
from effects.tools.units import unit
from loadtests.simulator.request import FunctionCall
from loadtests.simulator.texts.tasks import (
    NAMES,
    SYMBOLS,
    ZONES,
    call_rounds,
    conversions,
    resolved,
    sums,
)
from tests.loadtests.simulator.asking import ALL


def arguments(call: FunctionCall) -> dict[str, Any]:
    """Read the arguments of a call."""
    read: dict[str, Any] = msgspec.json.decode(call.arguments)
    return read


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("12*7", ["12*7"]),
        ("(1,250 + 3) × 2", ["(1250 + 3) * 2"]),
        ("2^10 and 2 ** 3", ["2**10", "2 ** 3"]),
        ("what is 144/12?", ["144/12"]),
        ("12 x 7", ["12 * 7"]),
        ("15% of 80", ["80 * 15 / 100"]),
        ("80 的 15%", ["80 * 15 / 100"]),
        ("7 times 6", ["7 * 6"]),
        ("20 除以 4", ["20 / 4"]),
        ("((3 + 4)", ["(3 + 4)"]),
        ("multiply the result by 3", ["{previous} * 3"]),
        ("add 5 to it", ["{previous} + 5"]),
        ("再把得数减去 6", ["{previous} - 6"]),
    ],
)
def test_sums_are_found(text: str, found: list[str]) -> None:
    """Signs and words, in both languages, in Python's notation."""
    assert [arguments(call)["expression"] for _, call in sums(text)] == found


@pytest.mark.parametrize(
    "text",
    [
        "on 2026-11-21 at 10:30",
        "call 555/138-0000 or +1 555 0138",
        "what is the extension of 555-0142?",
        "{{7*7}}",
        "open 24/7",
        "v2.0-3",
        "no numbers",
        "what is the plan for 2026-11-21?",
        ")3 + 4(",
    ],
)
def test_what_is_no_sum_is_left_alone(text: str) -> None:
    """Dates, phone numbers, versions and templates are not calculated."""
    found = [arguments(call)["expression"] for _, call in sums(text)]
    assert [it for it in found if it != "3 + 4"] == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("convert 5.5 kilometers to miles", (5.5, "km", "mi")),
        ("How many feet are in 3 metres?", (3, "m", "ft")),
        ("98 华氏度是多少摄氏度", (98, "f", "c")),
        ("-40 °C to fahrenheit", (-40, "c", "f")),
    ],
)
def test_conversions_are_found(text: str, found: tuple[float, str, str]) -> None:
    """Values and units, as symbols."""
    ((_, call),) = conversions(text)
    assert tuple(arguments(call).values()) == found


@pytest.mark.parametrize("text", ["5 minutes to midnight", "I ran 5 km to Anna's house"])
def test_what_is_no_conversion_is_left_alone(text: str) -> None:
    """A number and `to` are not enough."""
    assert conversions(text) == []


def test_calls_come_in_the_order_of_the_text() -> None:
    """What is asked first is called first."""
    (first,) = call_rounds("what time is it in Tokyo and Berlin, and 3 + 4?", ALL)
    assert [call.name for call in first] == ["current_time", "current_time", "calculate"]


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
