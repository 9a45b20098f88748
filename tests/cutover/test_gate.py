"""The gate on captures."""

from __future__ import annotations

from pathlib import Path

import pytest

from cutover.flows import settings_at
from cutover.gate import decide
from loadtests.requests import FlowUnknown


def test_an_empty_folder_cannot_tell(tmp_path: Path) -> None:
    """No data is a decision, not an error."""
    decision = decide(tmp_path, settings_at(None), "chat", to=25)
    assert (decision.verdict, decision.to) == ("cannot_tell", 25)
    assert decision.reasons


def test_an_unknown_flow_is_refused(tmp_path: Path) -> None:
    """The names that are known are in the error."""
    with pytest.raises(FlowUnknown, match="'chat'"):
        decide(tmp_path, settings_at(None), "chta", to=25)
