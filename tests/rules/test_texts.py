"""Fixed texts, and what a deployment may change of them."""

from __future__ import annotations

import pytest

from contract.flows.chat import TEXT_NAMES
from rules import prompts


def test_the_notices_are_the_documented_ones() -> None:
    """Word for word."""
    assert prompts.ending_notice("content_filter", {}) == "赤尾有点不想讨论这个话题呢~"
    assert prompts.ending_notice("length", {}) == "(后续内容被截断)"


@pytest.mark.parametrize("finish", ["stop", "tool_calls", "", "something_new"])
def test_a_reply_that_ended_by_itself_gets_no_notice(finish: str) -> None:
    """Also for unknown finish reasons, and with any overrides."""
    assert prompts.ending_notice(finish, {finish: "odd"}) == ""


def test_every_text_can_be_configured() -> None:
    """What the options take is what there is."""
    assert prompts.DEFAULTS.keys() == TEXT_NAMES


def test_a_text_can_be_overridden_by_its_name() -> None:
    """With an empty one as well; the others stay."""
    assert prompts.ending_notice("length", {"length": "(cut)"}) == "(cut)"
    assert prompts.ending_notice("length", {"length": ""}) == ""
    assert prompts.text("content_filter", {"length": "(cut)"}) == "赤尾有点不想讨论这个话题呢~"


def test_an_unknown_text_is_a_mistake_of_ours() -> None:
    """Names are constants of this module."""
    with pytest.raises(KeyError):
        prompts.text("farewell", {})


def test_the_default_prompt_takes_exactly_the_built_in_parameters() -> None:
    """It stands in for a missing file, so nothing else may be asked of it."""
    prompt = prompts.DEFAULT_SYSTEM_PROMPT.format(
        current_time="12:00:00", current_date="2026-01-01"
    )
    assert "12:00:00" in prompt
    assert "2026-01-01" in prompt
    assert "{" not in prompt
