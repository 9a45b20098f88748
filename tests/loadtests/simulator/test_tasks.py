"""Finding tasks in texts, and not finding them where there are none."""

import pytest

from loadtests.simulator.tasks import call_rounds, conversions, expressions
from tests.loadtests.simulator.asking import ALL


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
    assert [sum_ for _, sum_ in expressions(text)] == found


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
    assert [sum_ for _, sum_ in expressions(text) if sum_ != "3 + 4"] == []


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
    ((_, conversion),) = conversions(text)
    assert (conversion.value, conversion.source, conversion.target) == found


@pytest.mark.parametrize("text", ["5 minutes to midnight", "I ran 5 km to Anna's house"])
def test_what_is_no_conversion_is_left_alone(text: str) -> None:
    """A number and `to` are not enough."""
    assert conversions(text) == []


def test_calls_come_in_the_order_of_the_text() -> None:
    """What is asked first is called first."""
    (first,) = call_rounds("what time is it in Tokyo and Berlin, and 3 + 4?", ALL)
    assert [call.name for call in first] == ["current_time", "current_time", "calculate"]
