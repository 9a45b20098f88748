"""Scripts of the stamped target."""

from __future__ import annotations

import pytest

from benchmarks.load_truth import ScriptRefused, StampedScript, parse_script


def test_a_script_is_read_from_words() -> None:
    """What is not said has its default."""
    script = parse_script("first=0.2 gap=0.1 sends=3 end=cut")
    assert script == StampedScript(first=0.2, gap=0.1, sends=3, end="cut")
    assert script.due(2) == pytest.approx(0.4)
    assert script.spoken == 1
    assert parse_script("") == StampedScript()


@pytest.mark.parametrize("text", ["hello", "end=never", "sends=many"])
def test_what_is_no_script_is_refused(text: str) -> None:
    """A typing mistake must not become a measurement."""
    with pytest.raises(ScriptRefused):
        parse_script(text)
