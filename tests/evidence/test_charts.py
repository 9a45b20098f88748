"""Charts: every place is where its value is, and every axis has round numbers."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evidence.pages.charts import Chart, Sample, cumulative, labels, lines


def drawn(samples: dict[str, Sample]) -> Chart:
    """Draw distributions in milliseconds."""
    return cumulative("TTFT", samples, note="", x_unit="ms")


def test_a_curve_stays_below_what_never_came() -> None:
    """Half of the cases have no value: the curve ends half way up."""
    (curve,) = drawn({"legacy": Sample([100, 200], 4)}).curves
    assert curve.path == "M0,100H50.00V75.00H100.00V50.00H100"


def test_no_values_are_no_curve() -> None:
    """Nor is a name without cases, whose turn had not come; colours stay with their names."""
    assert not drawn({"legacy": Sample([], 3)}).curves
    chart = drawn({"legacy": Sample([], 0), "graph": Sample([0.1], 1)})
    assert [(curve.number, curve.name) for curve in chart.curves] == [(1, "graph")]
    assert not lines("P95", {"legacy": []}, note="", x_unit="s").curves


def test_many_values_make_few_points() -> None:
    """A page of a long run stays small, and still ends where the values end."""
    (curve,) = drawn({"legacy": Sample([n / 1e5 for n in range(100_000)], 100_000)}).curves
    assert len(curve.path) < 10_000
    assert curve.path.endswith("V0.50H100")


def test_a_line_goes_through_its_points_in_order() -> None:
    """Both axes begin at 0; a twentieth of the height stays free."""
    chart = lines("Goodput", {"legacy": [(4, 0), (2, 20)], "graph": []}, note="", x_unit="s")
    (curve,) = chart.curves
    assert curve.path == "M50.00,4.76L100.00,100.00"
    assert chart.y_labels[-1].text == "20"
    assert chart.y_labels[-1].place == pytest.approx(100 / 1.05)


@pytest.mark.parametrize(
    ("end", "texts"),
    [
        (0.6, ["0.0", "0.1", "0.2", "0.3", "0.4", "0.5", "0.6"]),
        (9.1, ["0", "2", "4", "6", "8"]),
        (31.0, ["0", "10", "20", "30"]),
        (52_000.0, ["0", "10,000", "20,000", "30,000", "40,000", "50,000"]),
    ],
)
def test_an_axis_has_round_numbers(end: float, texts: list[str]) -> None:
    """Two places of an axis never have the same text."""
    assert [label.text for label in labels(end)] == texts


@given(st.floats(1e-6, 1e7))
def test_a_label_stands_where_its_number_is(end: float) -> None:
    """However long the axis: three to seven labels, each at its own value."""
    found = labels(end)
    assert 3 <= len(found) <= 7
    for place, text in found:
        assert place == pytest.approx(100 * float(text.replace(",", "")) / end, abs=1e-6)


@given(st.lists(st.floats(0, 1e6), max_size=50), st.integers(0, 10))
def test_a_distribution_never_falls(values: list[float], missing: int) -> None:
    """Its height only grows, up to the share of cases that have a value."""
    sample = Sample(sorted(values), len(values) + missing)
    for curve in drawn({"legacy": sample}).curves:
        heights = [float(y) for y in re.findall(r"V([\d.]+)", curve.path)]
        assert heights == sorted(heights, reverse=True)
        assert all(-0.01 <= height <= 100 for height in heights)
