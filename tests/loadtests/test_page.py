"""What the distributions of a load say of their values."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtests.page import BOTTOM, HEIGHT, LEFT, NAME_HEIGHT, RIGHT, WIDTH, Curve, distribution
from loadtests.page import ticks as ticks_to

END = WIDTH - RIGHT


def moments(drawn: str) -> list[tuple[float, float]]:
    """Read the labels below the axis: where each stands, and what it says."""
    found = re.findall(r'class="tick mid" x="([\d.]+)" y="\d+">([\d.]+)<', drawn)
    return [(float(place), float(said)) for place, said in found]


def names(drawn: str) -> dict[str, float]:
    """Read how far down the curves' names stand."""
    return {
        name: float(y) for y, name in re.findall(r'class="s\d" x="\d+" y="([\d.]+)">(\w+)', drawn)
    }


@pytest.mark.parametrize(
    ("milliseconds", "said"),
    [
        (0.6, ["0.0", "0.1", "0.2", "0.3", "0.4", "0.5", "0.6"]),
        (9.1, ["0", "2", "4", "6", "8"]),
        (31.0, ["0", "10", "20", "30"]),
        (52_000.0, ["0", "10000", "20000", "30000", "40000", "50000"]),
    ],
)
def test_an_axis_has_round_figures(milliseconds: float, said: list[str]) -> None:
    """Two places of an axis never say the same."""
    assert [label for _, label in ticks_to(milliseconds / 1_000)] == said


@given(st.floats(1e-9, 1e4))
def test_a_label_stands_where_what_it_says_is(end: float) -> None:
    """However long the axis: three to seven labels, each at its own value."""
    drawn = distribution("TTFT", {"legacy": Curve([end], 1)})
    found = moments(drawn)
    assert 3 <= len(found) <= 7
    for place, said in found:
        assert place == pytest.approx(LEFT + said / 1_000 / end * (END - LEFT), abs=0.1)


@given(st.integers(0, 100), st.integers(0, 100))
def test_names_of_curves_never_lie_on_each_other(legacy: int, graph: int) -> None:
    """Nor on the unit below the axis, wherever the curves end."""
    drawn = distribution(
        "TTFT", {"legacy": Curve([0.1] * legacy, 100), "graph": Curve([0.1] * (graph or 1), 100)}
    )
    found = names(drawn)
    assert abs(found["legacy"] - found["graph"]) >= NAME_HEIGHT - 0.1
    assert max(found.values()) <= HEIGHT - BOTTOM + 4


def test_a_stack_without_requests_has_no_curve() -> None:
    """A load that was broken off says nothing of a stack whose turn had not come."""
    drawn = distribution("TTFT", {"legacy": Curve([], 0), "graph": Curve([0.1], 1)})
    assert names(drawn).keys() == {"graph"}
    assert drawn.count('class="curve s1"') == 1
    assert "curve s0" not in drawn
