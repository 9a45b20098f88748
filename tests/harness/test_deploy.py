"""What `deploy/` holds names what the code has, and all of it; the programs it is for read it."""

import importlib
import json
import re
import shutil
import subprocess
import sys
import tomllib
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from docs.reference import DOCS
from harness.config import Settings, StackTable, load
from router.telemetry.metrics import METRICS
from tests.conftest import reachable

DEPLOY = Path(__file__).resolve().parent.parent.parent / "deploy"
NAMES = {one.name for one in METRICS}


def alerts() -> list[dict[str, Any]]:
    """Return the alerts."""
    yaml: Any = importlib.import_module("yaml")
    groups = yaml.safe_load((DEPLOY / "alerts.yml").read_text("utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def expressions() -> list[str]:
    """Return what the panels of the board show."""
    board = json.loads((DEPLOY / "grafana" / "board.json").read_text("utf-8"))
    return [one["expr"] for panel in board["panels"] for one in panel.get("targets", [])]


def metrics(expression: str) -> set[str]:
    """Return the metrics that an expression reads."""
    found = re.findall(r"cutover_\w+", re.sub(r'"[^"]*"', "", expression))
    return {re.sub(r"_(bucket|count|sum)$", "", one) for one in found}


def test_every_alert_reads_what_is_exported_and_has_a_runbook() -> None:
    """Ten alerts, each with what to do."""
    page = (DOCS / "operations.md").read_text("utf-8")
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


def read_yaml(name: str) -> list[dict[str, Any]]:
    """Return the documents of a file."""
    yaml: Any = importlib.import_module("yaml")
    return list(yaml.safe_load_all((DEPLOY / name).read_text("utf-8")))


def variables() -> set[str]:
    """Return the variables that the configuration names."""
    return set(re.findall(r'"env:(\w+)"', (DEPLOY / "cutover.toml").read_text("utf-8")))


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Return the configuration that the routers read."""
    for name in variables():
        monkeypatch.setenv(name, "a value of sixteen or more")
    monkeypatch.setenv("CUTOVER_PAUSE_KEY", b64encode(bytes(32)).decode())
    return load(DEPLOY / "cutover.toml")


def test_routers_have_the_time_that_they_drain(settings: Settings) -> None:
    """Ten seconds more, and a sleep of ten in pods: docs/operations.md, Stopping."""
    needed = settings.server.drain_seconds + 10
    services = read_yaml("compose.yaml")[0]["services"]
    for name in ("router-1", "router-2", "nginx"):
        assert int(services[name]["stop_grace_period"].rstrip("s")) >= needed
    pod = read_yaml("kubernetes.yaml")[0]["spec"]["template"]["spec"]
    sleep = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod["terminationGracePeriodSeconds"] >= needed + sleep
    unit = (DEPLOY / "cutover.service").read_text("utf-8")
    assert int(re.findall(r"TimeoutStopSec=(\d+)", unit)[0]) >= needed
    reading = re.findall(r"proxy_read_timeout (\d+)s", (DEPLOY / "nginx.conf").read_text("utf-8"))
    assert int(reading[0]) > StackTable(url="http://127.0.0.1").total_seconds


def test_every_variable_of_the_configuration_is_given_to_the_routers() -> None:
    """And an empty one stops Compose before anything starts."""
    services = read_yaml("compose.yaml")[0]["services"]
    given = services["router-1"]["environment"]
    assert variables() <= set(given)
    secrets = [value for key, value in given.items() if key.endswith(("KEY", "TOKEN", "DATABASE"))]
    assert all(":?" in one for one in secrets)


def test_the_image_has_the_packages_of_the_wheel() -> None:
    """What the build does not see is not in it."""
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text("utf-8"))
    packages = set(project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])
    seen = (DEPLOY / "Containerfile.dockerignore").read_text("utf-8")
    assert set(re.findall(r"^!([a-z_]+)$", seen, re.MULTILINE)) == packages


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("promtool", ("check", "rules", DEPLOY / "alerts.yml")),
        ("promtool", ("check", "config", "--syntax-only", DEPLOY / "prometheus.yml")),
        ("systemd-analyze", ("verify", "--man=no", "cutover.service")),
    ],
)
def test_programs_read_what_is_for_them(
    tmp_path: Path, program: str, words: tuple[str | Path, ...]
) -> None:
    """Without a complaint of ours."""
    found = shutil.which(program)
    reachable(program, ok=found is not None)
    unit = (DEPLOY / "cutover.service").read_text("utf-8")
    unit = unit.replace("/srv/cutover/.venv/bin", str(Path(sys.executable).parent))
    (tmp_path / "cutover.service").write_text(unit)
    done = subprocess.run(
        [str(found), *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    ours = [line for line in done.stderr.splitlines() if "cutover.service" in line]
    assert (done.returncode, ours) == (0, []), done.stdout + done.stderr
