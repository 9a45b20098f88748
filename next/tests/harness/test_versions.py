"""The versions that captures name."""

from __future__ import annotations

from typing import Any

import pytest

from harness.config import parse
from harness.live import versions

FILE: dict[str, Any] = {
    "flows": {"chat": {"langgraph_percent": 5.0}, "ops": {}},
    "models": {"m": {"base_url": "http://localhost/v1", "key": "sk-one"}},
}


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        ({"flows": {"chat": {"langgraph_percent": 6.0}, "ops": {}}}, True),
        ({"rollout": {"salt": "new"}}, True),
        ({"timezone": "Asia/Shanghai"}, True),
        ({"models": {"m": {"base_url": "http://localhost/v2", "key": "sk-one"}}}, True),
        ({"models": {"m": {"base_url": "http://localhost/v1", "key": "sk-two"}}}, False),
        ({"flows": {"chat": {"langgraph_percent": 5.0}, "ops": {"enable_langgraph": True}}}, False),
        ({"rollout": {"qa_key": "secret"}}, False),
        ({"server": {"port": 1}}, False),
    ],
)
def test_settings_by_which_a_flow_is_served_alike_have_one_digest(
    change: dict[str, Any], *, differs: bool
) -> None:
    """Another flow's settings, secrets and ports do not count."""
    before, after = versions(parse(FILE), "chat"), versions(parse(FILE | change), "chat")
    assert (before["config"] != after["config"]) == differs
    assert before["code"] == after["code"]
