"""The alerting rules: each is tested in Prometheus' engine, and has its runbook."""

import re

import pytest

from router.telemetry.instruments import INSTRUMENTS, Instrument
from tests.conftest import ROOT
from tests.support.promtool import promtool

DEPLOY = ROOT / "deploy"
RULES = (DEPLOY / "alerts.yml").read_text("utf-8")
TESTS = (DEPLOY / "alerts_test.yml").read_text("utf-8")
RUNBOOKS = (ROOT / "docs" / "runbooks.md").read_text("utf-8")
ALERTS = dict(re.findall(r"- alert: (\w+)\n(.*?)(?=\n\n|\Z)", RULES, re.DOTALL))
KNOWN = {one.name: one for one in INSTRUMENTS}
SERIES = re.compile(r"(cutover_[a-z_]+)(?:{([^}]*)})?")
OF_PROMETHEUS = {"le", "instance", "job"}
"""Labels that a scrape adds, and that of buckets."""


def instrument(series: str) -> Instrument:
    """Return the instrument of a series; of a histogram there are only parts."""
    found = KNOWN.get(series)
    if found is not None and found.kind != "histogram":
        return found
    found = KNOWN[re.sub(r"_(bucket|count|sum)$", "", series)]
    assert found.kind == "histogram"
    return found


def test_prometheus_evaluates_each_rule_as_its_tests_expect() -> None:
    """The rules and their tests are run by Prometheus' own engine."""
    ran = promtool("test", "rules", "alerts_test.yml", folder=DEPLOY)
    assert (ran.returncode, ran.stdout + ran.stderr) == (0, ran.stdout + ran.stderr)


@pytest.mark.parametrize("alert", ALERTS)
def test_each_alert_is_tested_firing_and_silent(alert: str) -> None:
    """Once with what it says, once without an alert, though there are series."""
    found = re.findall(rf"alertname: {alert}\b(.*?)(?=alertname:|\Z)", TESTS, re.DOTALL)
    assert any("exp_labels" in one for one in found)
    assert any("exp_alerts: []" in one for one in found)


@pytest.mark.parametrize("alert", ALERTS)
def test_each_alert_has_its_runbook(alert: str) -> None:
    """Its section says what it means, what to look at and what to do."""
    assert f"runbook_url: docs/runbooks.md#{alert.lower()}\n" in ALERTS[alert] + "\n"
    (section,) = re.findall(rf"^## {alert}\n(.*?)(?=^## |\Z)", RUNBOOKS, re.DOTALL | re.MULTILINE)
    for part in ("Means", "Look at", "Do"):
        assert re.search(rf"^- \*\*{part}:\*\* \S", section, re.MULTILINE)


def test_each_runbook_is_that_of_an_alert() -> None:
    """In the order of the rules."""
    assert re.findall(r"^## (\w+)$", RUNBOOKS, re.MULTILINE) == list(ALERTS)


@pytest.mark.parametrize("alert", ALERTS)
def test_each_alert_reads_metrics_that_exist(alert: str) -> None:
    """With labels they have; and it says how urgent it is."""
    text = ALERTS[alert]
    (severity,) = re.findall(r"severity: (\w+)", text)
    assert severity in {"critical", "warning"}
    labels = set(OF_PROMETHEUS)
    for name, selected in SERIES.findall(text):
        own = set(instrument(name).labels)
        assert set(re.findall(r"(\w+)(?:=~|!~|!=|=)\"", selected)) <= own
        labels |= own
    grouped = ",".join(re.findall(r"by \(([^)]*)\)", text)).replace(" ", "").split(",")
    shown = re.findall(r"\$labels\.(\w+)", text)
    assert {*grouped, *shown} - {""} <= labels


@pytest.mark.parametrize("name", sorted(set(SERIES.findall(TESTS))))
def test_the_tests_use_series_a_router_has(name: tuple[str, str]) -> None:
    """With no label that it has not, so that no test passes on series that never come."""
    own = set(instrument(name[0]).labels) | OF_PROMETHEUS
    assert set(re.findall(r"(\w+)=\"", name[1])) <= own


def test_the_runbooks_ask_for_metrics_that_exist() -> None:
    """In the queries they suggest."""
    for name, selected in SERIES.findall(RUNBOOKS):
        own = set(instrument(name).labels)
        assert set(re.findall(r"(\w+)(?:=~|!~|!=|=)\"", selected)) <= own
