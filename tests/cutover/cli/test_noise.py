"""`cutover noise` and `cutover diff --noise` as they are typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cutover.selftest.exchanges import batch, exchange, store
from tests.compare.noise.messages import places
from tests.support.commands import run_command


@pytest.mark.parametrize(
    ("messages", "words", "status", "said"),
    [(4, ("晴", "雨"), 3, "cannot tell"), (30, ("sunny", "windy"), 1, "exceeds")],
)
def test_the_reading_is_the_exit_status(
    tmp_path: Path, messages: int, words: tuple[str, ...], status: int, said: str
) -> None:
    """And two files say how it was come by."""
    graph, legacy = places(tmp_path, messages, words)
    ended, output = run_command("noise", graph, *legacy, "-o", tmp_path / "out")
    assert (ended, said in output) == (status, True)
    written = json.loads((tmp_path / "out" / "noise.json").read_bytes())
    assert written["study"]["messages"] == messages
    assert "How noise was measured" in (tmp_path / "out" / "noise.md").read_text()


def test_captures_without_live_runs_cannot_tell(tmp_path: Path) -> None:
    """No data is not a pass."""
    status, output = run_command("noise", store(tmp_path, batch(exchange())))
    assert status == 3
    assert "1 left out: graph was played the model's answers" in output


def test_a_place_that_is_not_there_exits_2(tmp_path: Path) -> None:
    """In a sentence."""
    status, output = run_command("noise", tmp_path / "nowhere")
    assert (status, "cannot read captures" in output) == (2, True)


def test_captures_of_which_nothing_can_be_read_exit_2(tmp_path: Path) -> None:
    """As they do where they are compared; with something to read beside, damage is counted."""
    broken = store(tmp_path / "broken", b"no batch at all, and longer than a header")
    status, output = run_command("noise", broken)
    assert (status, "line or batch damaged" in output) == (2, True)
    assert run_command("noise", store(tmp_path / "sound", batch(exchange())), broken)[0] == 3


def test_diff_puts_noise_into_its_report(tmp_path: Path) -> None:
    """Among the reasons, and as a section."""
    graph, legacy = places(tmp_path, 3)
    again = [part for place in legacy for part in ("--noise", place)]
    status, output = run_command("diff", graph, *again, "-o", tmp_path / "out")
    assert status == 3
    assert "noise of live model calls, in 3 messages" in " ".join(output.split())
    assert 'id="noise"' in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


def test_noise_is_refused_where_there_are_no_captures(tmp_path: Path) -> None:
    """Two reports hold no runs."""
    status, output = run_command("diff", tmp_path, tmp_path, "--noise", tmp_path)
    assert (status, "noise is measured in captures" in output) == (2, True)
