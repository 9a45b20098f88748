"""Captures written by commit 3245704 are read, compared and replayed as that commit did it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.data.earlier_captures import (
    CAPTURES,
    CLUSTERS,
    EXPECTED,
    Json,
    diffed,
    lines,
    replayed,
    spoil,
)

CHECKOUT = Path(__file__).parents[2]
expected = json.loads(EXPECTED.read_text("utf-8"))


def counted(report: Json, earlier: Json) -> Json:
    """Return the exit status and those counts that the earlier version had."""
    return {"exit": report["exit"], **{name: report["counts"][name] for name in earlier["counts"]}}


@pytest.mark.slow
def test_captures_of_both_stacks_are_equal(tmp_path: Path) -> None:
    """All flows, with tools, pauses, failures and refusals, redacted or not."""
    found = diffed(CAPTURES, tmp_path / "report", CHECKOUT)
    assert counted(found, expected["equal"]) == counted(expected["equal"], expected["equal"])
    assert found["clusters"] == []


@pytest.mark.slow
def test_differences_are_found_under_the_same_ids(tmp_path: Path) -> None:
    """Waivers name them: an id must not change from here on.

    Commit 3245704 made other causes of the same pairs; how many differ is the same.
    """
    spoil(CAPTURES, tmp_path / "spoilt.jsonl")
    found = diffed(tmp_path / "spoilt.jsonl", tmp_path / "report", CHECKOUT)
    assert counted(found, expected["spoilt"]) == counted(expected["spoilt"], expected["spoilt"])
    assert found["clusters"] == json.loads(CLUSTERS.read_text("utf-8"))


@pytest.mark.slow
@pytest.mark.parametrize("stack", ["legacy", "graph"])
def test_replays_send_the_same_bytes(tmp_path: Path, stack: str) -> None:
    """Frames with their stamps, the outcome and every call, on the code as it is now."""
    found = replayed(stack, tmp_path / "replay", CHECKOUT)
    assert found == expected["replays"][stack]
    captured = {
        run["exchange"]: run.get("frames", [])
        for run in lines(CAPTURES)
        if run["role"] == "serving" and not run.get("redacted")
    }
    for run in lines(tmp_path / "replay" / "segments"):
        if run["role"] == "replay" and run["exchange"] in captured:
            sent = [frame for _, frame in run.get("frames", [])]
            assert sent == [frame for _, frame in captured[run["exchange"]]], run["exchange"]
