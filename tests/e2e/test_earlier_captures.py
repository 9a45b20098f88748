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
from tests.support.commands import run_command

pytestmark = [pytest.mark.slow, pytest.mark.untraced]

expected = json.loads(EXPECTED.read_text("utf-8"))


@pytest.fixture(autouse=True)
def _inside_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*arguments: str) -> int:
    """Run a command of the code as it is now; returns its exit status."""
    status, _ = run_command(*arguments)
    return status


def counted(report: Json, earlier: Json) -> Json:
    """Return the exit status and those counts that the earlier version had."""
    return {"exit": report["exit"], **{name: report["counts"][name] for name in earlier["counts"]}}


def test_captures_of_both_stacks_are_equal(tmp_path: Path) -> None:
    """All flows, with tools, pauses, failures and refusals, redacted or not."""
    found = diffed(CAPTURES, tmp_path / "report", run)
    assert counted(found, expected["equal"]) == counted(expected["equal"], expected["equal"])
    assert found["clusters"] == []


def test_differences_are_found_under_the_same_ids(tmp_path: Path) -> None:
    """Waivers name them: an id must not change from here on.

    Commit 3245704 made other causes of the same pairs; how many differ is the same.
    """
    spoil(CAPTURES, tmp_path / "spoilt.jsonl")
    found = diffed(tmp_path / "spoilt.jsonl", tmp_path / "report", run)
    assert counted(found, expected["spoilt"]) == counted(expected["spoilt"], expected["spoilt"])
    assert found["clusters"] == json.loads(CLUSTERS.read_text("utf-8"))


@pytest.mark.parametrize("stack", ["legacy", "graph"])
def test_replays_send_the_same_bytes(tmp_path: Path, stack: str) -> None:
    """Frames with their stamps, the outcome and every call, on the code as it is now."""
    found = replayed(stack, tmp_path / "replay", run)
    assert found == expected["replays"][stack]
    captured = {
        line["exchange"]: line.get("frames", [])
        for line in lines(CAPTURES)
        if line["role"] == "serving" and not line.get("redacted")
    }
    for line in lines(tmp_path / "replay" / "segments"):
        if line["role"] == "replay" and line["exchange"] in captured:
            sent = [frame for _, frame in line.get("frames", [])]
            assert sent == [frame for _, frame in captured[line["exchange"]]], line["exchange"]
