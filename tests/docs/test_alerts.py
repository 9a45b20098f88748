"""The alerting rules: each is tested in Prometheus' engine, and has its runbook."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from router.telemetry.instruments import INSTRUMENTS, Instrument
from tests.conftest import ROOT
from tests.support.programs import promtool

DEPLOY = ROOT / "deploy"
RULES = (DEPLOY / "alerts.yml").read_text("utf-8")
TESTS = (DEPLOY / "alerts_test.yml").read_text("utf-8")
RUNBOOKS = (ROOT / "docs" / "runbooks.md").read_text("utf-8")
ALERTS = dict(re.findall(r"- alert: (\w+)\n(.*?)(?=\n\n|\Z)", RULES, re.DOTALL))
KNOWN = {one.name: one for one in INSTRUMENTS}
SERIES = re.compile(r"(cutover_[a-z_]+)(?:{([^}]*)})?")
NOTHING_RAISED = '''
async def test_it():
    """CutoverA."""
    # CutoverB
    found = {"CutoverC"}
    assert "CutoverD" not in found
    assert found != {"CutoverD"}
    assert found == {"CutoverE"}

async def helper(found):
    assert found == {"CutoverF"}
'''
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


def expected_alerts(path: Path) -> Iterator[str]:
    """Yield the alerts that the assertions of a file's tests expect to fire."""
    for test in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not (isinstance(test, ast.AsyncFunctionDef) and test.name.startswith("test_")):
            continue
        for one in (it.test for it in ast.walk(test) if isinstance(it, ast.Assert)):
            if isinstance(one, ast.Compare) and isinstance(one.ops[0], ast.Eq | ast.LtE | ast.In):
                constants = (it for it in ast.walk(one) if isinstance(it, ast.Constant))
                yield from (it.value for it in constants if isinstance(it.value, str))


@pytest.mark.parametrize("alert", ALERTS)
def test_each_alert_is_raised_by_a_fault_that_is_made(alert: str) -> None:
    """In a test that runs a router to its fault, and scrapes it."""
    folder = ROOT / "tests" / "e2e"
    raised = {one for path in folder.glob("test_alerts*.py") for one in expected_alerts(path)}
    assert alert in raised


def test_an_alert_that_no_assertion_expects_is_not_raised(tmp_path: Path) -> None:
    """A name in a comment, a docstring, or an assertion that it does not fire, is no fault made."""
    path = tmp_path / "test_alerts_of_nothing.py"
    path.write_text(NOTHING_RAISED, "utf-8")
    assert set(expected_alerts(path)) == {"CutoverE"}


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
