"""Shadows that ask the provider themselves, from the request to the comparison."""

from __future__ import annotations

from pathlib import Path

import pytest

from compare.captures import Question, compare_captures
from contract.flows import SPECS
from tests.support.deployment import Setup, deployed, until

pytestmark = [pytest.mark.sockets, pytest.mark.slow]

LIVE = """
[shadow]
mode = "live"
tokens_per_day = 100000
model_calls = 2
"""


async def test_the_provider_is_asked_twice_and_the_stores_are_written_once(tmp_path: Path) -> None:
    """Each on connections of its own; what the shadow's answer brings about is no finding."""
    async with deployed(tmp_path, Setup(shadow=100, more=LIVE)) as place:
        answer = await place.ask({"message_id": "m", "content": "Hello", "chat_id": "c"})
        assert answer.steps[-1] == "END"
        serving, shadow = await place.lines()
        models = place.services.model, place.services.shadow_model.model
        assert [sum(model.counts.attempts.values()) for model in models] == [1, 1]
        assert place.services.router.shadows.budget.tokens > 0
    assert (serving.outcome, shadow.outcome) == ("completed", "completed")
    assert {play.how for play in shadow.plays if play.op == "stream"} == {"live"}
    assert {play.how for play in shadow.plays if play.op != "stream"} <= {"exact", "nearest"}
    tally = compare_captures(str(tmp_path / "captures"), Question(SPECS))
    assert (tally.pairs, tally.equal, tally.own_answers) == (1, 1, 1)


async def test_edited_models_are_the_shadows_too(tmp_path: Path) -> None:
    """Registered for both at once, and so is the policy of rescues."""
    async with deployed(tmp_path, Setup(shadow=100, more=LIVE)) as place:
        text = place.watched.path.read_text("utf-8")
        place.edit(text.replace("[models.slow]", "[rescue]\nattempts = 1\n[models.other]"))
        shadow = place.services.shadow_model
        await until(lambda: "other" in shadow.registry.entries)
        assert shadow.model.policy.attempts == 1
