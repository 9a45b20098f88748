"""How long a worker that died is left alone."""

from __future__ import annotations

import pytest

from cutover.server.workers.patience import STEADY_SECONDS, deaths_in_a_row, pause


def test_the_first_death_costs_nothing_and_each_further_one_twice_as_much() -> None:
    """Up to half a minute: a fault that stays must not eat the machine."""
    assert [pause(deaths) for deaths in range(1, 10)] == [0, 0.5, 1, 2, 4, 8, 16, 30, 30]
    assert pause(10_000) == 30


@pytest.mark.parametrize(
    ("before", "lived", "deaths"),
    [(0, 0.1, 1), (3, 0.1, 4), (3, STEADY_SECONDS, 1), (0, STEADY_SECONDS, 1)],
)
def test_who_lived_long_has_not_died_of_its_start(before: int, lived: float, deaths: int) -> None:
    """Only deaths in a row count."""
    assert deaths_in_a_row(before, lived) == deaths
