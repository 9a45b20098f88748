"""Alerts, board and page of operations: they name what the code exports, and all of it."""

from __future__ import annotations

import importlib
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from harness.reference import OPERATIONS, with_metrics
from router.telemetry.metrics import METRICS

DEPLOY = Path(__file__).resolve().parent.parent.parent / "deploy"
NAMES = {one.name for one in METRICS}


def alerts() -> list[dict[str, Any]]:
    """Return the alerts."""
    yaml: Any = importlib.import_module("yaml")
    groups = yaml.safe_load((DEPLOY / "alerts.yml").read_text("utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def expressions() -> list[str]:
    """Return what the panels of the board show."""
    board = json.loads((DEPLOY / "grafana.json").read_text("utf-8"))
    return [one["expr"] for panel in board["panels"] for one in panel.get("targets", [])]


def metrics(expression: str) -> set[str]:
    """Return the metrics that an expression reads."""
    found = re.findall(r"cutover_\w+", re.sub(r'"[^"]*"', "", expression))
    return {re.sub(r"_(bucket|count|sum)$", "", one) for one in found}


def test_the_page_has_the_metrics_of_the_code() -> None:
    """`python -m harness.reference` writes them."""
    page = OPERATIONS.read_text("utf-8")
    assert page == with_metrics(page)


def test_every_alert_reads_what_is_exported_and_has_a_runbook() -> None:
    """Ten alerts, each with what to do."""
    page = OPERATIONS.read_text("utf-8")
    assert len(alerts()) == 10
    for one in alerts():
        assert metrics(one["expr"]) <= NAMES, one["alert"]
        assert f"\n### {one['alert']}\n" in page
        assert one["annotations"]["runbook"] == f"docs/operations.md#{one['alert'].lower()}"
        assert one["labels"]["severity"] in {"critical", "warning"}
    assert re.findall(r"^### (\w+)$", page, re.MULTILINE) == [one["alert"] for one in alerts()]


def test_the_board_shows_every_metric() -> None:
    """And none that is not exported."""
    shown = set().union(*map(metrics, expressions()))
    assert shown == NAMES


@pytest.mark.nightly
def test_prometheus_takes_the_alerts() -> None:
    """Where its tool is installed."""
    tool = shutil.which("promtool")
    if tool is None:
        pytest.skip("promtool is not installed")
    done = subprocess.run(
        [tool, "check", "rules", DEPLOY / "alerts.yml"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
