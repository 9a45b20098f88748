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


def test_texts_may_be_late_and_fall_silent() -> None:
    """Jitter stays within its bound; the second half comes after a silence."""
    script = parse_script("first=0 gap=0.1 sends=10 jitter=0.05 silence=2")
    late = [script.due(number) - number * 0.1 for number in range(10)]
    assert all(0 <= each < 0.05 for each in late[:5])
    assert all(2 <= each < 2.05 for each in late[5:])
    assert len(set(late)) == 10


@pytest.mark.parametrize("text", ["hello", "end=never", "sends=many"])
def test_what_is_no_script_is_refused(text: str) -> None:
    """A typing mistake must not become a measurement."""
    with pytest.raises(ScriptRefused):
        parse_script(text)
