"""The tools every deployment has."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.model import ToolCall, ToolResult
from contract.stores import MemoryEntry
from effects.local import ManualClock
from effects.memory import InMemoryMemory
from effects.tools import BadArguments, ToolRegistry, builtin_tools
from effects.tools.builtin import BUILT_IN, MAX_BITS, calculate
from effects.tools.units import UNITS, convert, unit


def memory() -> InMemoryMemory:
    """Return a memory that knows one thing of one user."""
    return InMemoryMemory([MemoryEntry(memory_id="1", user_id="u1", text="喜欢喝茶")])


async def run(name: str, arguments: object, user_id: str | None = None) -> ToolResult:
    """Call a built-in tool on a clock that stands at noon UTC."""
    clock = ManualClock(datetime(2026, 11, 5, 20, 30, tzinfo=UTC))
    registry = ToolRegistry(builtin_tools(clock, memory()))
    call = ToolCall("call_1", name, msgspec.json.encode(arguments).decode())
    return await registry.for_user(user_id).run("tools", call)


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("12*7", "84"),
        ("84/1", "84"),
        ("7/2", "3.5"),
        ("1/3", "0.333333333333"),
        ("0.1+0.2", "0.3"),
        ("2**10", "1024"),
        ("2^10", "1024"),
        ("2**-1", "0.5"),
        ("-2**2", "-4"),
        ("(1 + 2) * -3", "-9"),
        ("17//5", "3"),
        ("17%5", "2"),
        ("sqrt(16)", "4"),
        ("sqrt(2)", "1.41421356237"),
        ("abs(-3.50)", "3.5"),
        ("round(2.567, 2)", "2.57"),
        ("round(2.5)", "2"),
        ("max(1, 2, 3) - min(4, 5)", "-1"),
        ("2*pi", "6.28318530718"),
        ("e", "2.71828182846"),
        ("（3 × 4）÷ 6 − 1", "1"),
        ("10**30/10", "1" + "0" * 29),
        ("1e20", "1e+20"),
        ("1e-7", "1e-07"),
        ("3.0", "3"),
        ("-0.0", "0"),
        ("123456789*1000", "123456789000"),
        ("+".join(["1"] * 100), "100"),
    ],
)
def test_arithmetic_is_written_as_people_write_it(expression: str, result: str) -> None:
    """Whole results have no point, others up to twelve digits."""
    assert calculate(expression) == result


@pytest.mark.parametrize(
    "expression",
    [
        *("", "hello", "1 +", "1 2", "()", "1, 2", "1\0", "١+١"),
        *("__import__('os')", "pi.real", "x:=1", "[1]", "True", "1 < 2", "1if 2else 3"),
        *("sqrt", "sqrt()", "sqrt(1, 2)", "min(1)", "max(*1)", "e(1)"),
        *("round(1, 2, 3)", "round(1, 0.5)", "round(1, 10**6)"),
        *("0x10", "1_000", "007", "1j"),
        *("(" * 240 + "1" + ")" * 240, "-" * 300 + "1", "1" + "+1" * 250),
    ],
)
def test_what_is_no_arithmetic_is_refused(expression: str) -> None:
    """No name, attribute, text or statement gets through."""
    with pytest.raises(BadArguments):
        calculate(expression)


@pytest.mark.parametrize(
    "expression",
    ["1/0", "1%0", "0**-1", "sqrt(-1)", "(-8)**0.5", "9**9**9", "9**9999", "1e308*10", "2.0**5000"],
)
def test_what_has_no_result_or_too_large_a_one_is_an_error(expression: str) -> None:
    """And ends at once, instead of filling the memory."""
    with pytest.raises(ArithmeticError):
        calculate(expression)


@given(st.text(alphabet="0123456789.+-*/%()e pisqrtabmxound,^", max_size=60))
def test_no_expression_raises_anything_else(expression: str) -> None:
    """Whatever a model writes: a short text, or one of two errors, without a warning."""
    try:
        result = calculate(expression)
    except (BadArguments, ArithmeticError):
        return
    assert 0 < len(result) <= MAX_BITS


async def test_calculate_answers_and_fails_by_code() -> None:
    """Bad expressions are bad arguments, impossible ones failures."""
    assert await run("calculate", {"expression": "12*7"}) == ToolResult("84")
    assert (await run("calculate", {"expression": "import os"})).error == "bad_arguments"
    assert (await run("calculate", {"expression": "1/0"})).error == "tool_failed"
    assert (await run("calculate", {"expression": 84})).error == "bad_arguments"
    assert (await run("calculate", {"expression": "1", "x": 1})).error == "bad_arguments"


async def test_the_current_time_is_the_clock_s() -> None:
    """In UTC unless a zone is named."""
    assert await run("current_time", {}) == ToolResult(
        '{"date":"2026-11-05","time":"20:30:00","weekday":"Thursday","zone":"UTC"}'
    )
    assert await run("current_time", {"zone": "Asia/Shanghai"}) == ToolResult(
        '{"date":"2026-11-06","time":"04:30:00","weekday":"Friday","zone":"Asia/Shanghai"}'
    )


@pytest.mark.parametrize("zone", ["Nowhere/City", "../../etc/passwd", "/etc/passwd", "Asia", "", 8])
async def test_an_unknown_zone_is_a_bad_argument(zone: object) -> None:
    """A zone is a name of a table, not of a file."""
    assert (await run("current_time", {"zone": zone})).error == "bad_arguments"


@pytest.mark.parametrize(
    ("value", "given", "wanted", "result"),
    [
        (1, "mile", "km", "1.609344 km"),
        (5, "公里", "米", "5000 m"),
        (10, "斤", "公斤", "5 kg"),
        (100, "摄氏度", "华氏度", "212 °F"),
        (-40, "°F", "°C", "-40 °C"),
        (0, "K", "C", "-273.15 °C"),
        (1, "gallon", "L", "3.785411784 L"),
        (36, "km/h", "m/s", "10 m/s"),
        (1, "公顷", "亩", "15 亩"),
        (90, "分钟", "小时", "1.5 h"),
        (1, "GiB", "MB", "1073.741824 MB"),
        (8, "Mb", "MB", "1 MB"),
        (1, "square meter", "cm2", "10000 cm2"),
        (3, "尺", "米", "1 m"),
        (2, "KM", "Meters", "2000 m"),
        (1, "tb", "gb", "1000 GB"),
    ],
)
async def test_units_are_converted(value: float, given: str, wanted: str, result: str) -> None:
    """English or Chinese, whatever their case."""
    arguments = {"value": value, "from_unit": given, "to_unit": wanted}
    assert await run("convert_units", arguments) == ToolResult(result)


@pytest.mark.parametrize(
    ("given", "wanted"), [("km", "kg"), ("parsec", "km"), ("km", "小狗"), ("", "km")]
)
async def test_units_that_do_not_fit_are_bad_arguments(given: str, wanted: str) -> None:
    """Unknown ones, and those of another dimension."""
    arguments = {"value": 1, "from_unit": given, "to_unit": wanted}
    assert (await run("convert_units", arguments)).error == "bad_arguments"


@given(st.sampled_from(sorted(UNITS)), st.sampled_from(sorted(UNITS)), st.floats(-1e6, 1e6))
def test_converting_there_and_back_changes_nothing(here: str, there: str, value: float) -> None:
    """For every pair of one dimension, to nine digits."""
    left, right = UNITS[here], UNITS[there]
    if left.dimension != right.dimension:
        return
    back = convert(convert(value, left, right), right, left)
    assert back == pytest.approx(value, rel=1e-9, abs=1e-6)


def test_a_symbol_finds_its_own_unit() -> None:
    """No name is taken twice by accident."""
    assert all(unit(found.symbol) == found for found in UNITS.values())


async def test_memory_is_searched_for_the_exchange_s_user() -> None:
    """Without a user there is nothing to find."""
    assert await run("search_memory", {"query": "茶"}, "u1") == ToolResult('["喜欢喝茶"]')
    assert await run("search_memory", {"query": "茶"}, "u2") == ToolResult("[]")
    assert await run("search_memory", {"query": "茶"}) == ToolResult("[]")
    assert (await run("search_memory", {"query": ""}, "u1")).error == "bad_arguments"


def test_every_built_in_tool_is_read_only() -> None:
    """A live shadow may call them; without a memory there is none to search."""
    clock = ManualClock()
    names = [one.spec.name for one in builtin_tools(clock, memory()) if one.read_only]
    assert names == list(BUILT_IN)
    assert [one.spec.name for one in builtin_tools(clock)] == names[:3]
