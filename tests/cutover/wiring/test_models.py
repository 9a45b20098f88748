"""From settings to the models: who is asked, how far a rescue goes, what an answer costs."""

from __future__ import annotations

import pytest

from contract.flows import SPECS
from contract.model import Usage
from cutover.wiring.models import model_entries, rescue_policy
from effects.model import BreakerPolicy, ModelRegistry, RescuePolicy
from router.config.loader import parse_settings

CONFIGURATION = """
[providers.here]
base_url = "http://127.0.0.1:1/v1"
[models."gpt-4.1"]
provider = "here"
input_price = 1.0
output_price = 1.0
fallbacks = ["mini", "gone"]
[models.mini]
provider = "here"
model = "gpt-4.1-mini"
input_price = 0.5
output_price = 0.5
[models.gone]
provider = "here"
model = "gpt"
"""
MILLION = Usage(1_000_000, 0, 1_000_000)


@pytest.mark.parametrize(
    ("answered", "cost"), [("gpt-4.1", 1.0), ("mini", 0.5), ("gone", None), ("unknown", None)]
)
def test_an_answer_costs_what_the_model_costs_that_gave_it(
    answered: str, cost: float | None
) -> None:
    """By its id here: two providers may call their models by one name."""
    registry = ModelRegistry(model_entries(parse_settings(CONFIGURATION, "here", SPECS), {}))
    assert registry.price(answered, MILLION) == cost


def test_the_defaults_of_a_rescue_are_the_ports_own() -> None:
    """Said twice, equal."""
    assert rescue_policy(parse_settings("", "nothing", SPECS).rescue) == RescuePolicy()


def test_a_rescue_is_configured() -> None:
    """Every key reaches the port."""
    text = """
    [rescue]
    attempts = 2
    first_wait_seconds = 0.1
    longest_wait_seconds = 3
    breaker_window_seconds = 60
    breaker_calls = 5
    breaker_ratio = 0.25
    breaker_rest_seconds = 20
    """
    breaker = BreakerPolicy(window=60, calls=5, ratio=0.25, rest=20)
    expected = RescuePolicy(attempts=2, first_wait=0.1, longest_wait=3, breaker=breaker)
    assert rescue_policy(parse_settings(text, "here", SPECS).rescue) == expected
