"""compose.yaml fits the router, the other files of deploy/, and Compose itself."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from contract.flows import SPECS
from cutover.cli import app
from cutover.server.serve import CLOSING_SECONDS, stop_seconds
from cutover.wiring.addresses import store_addresses
from deploy.local import ROUTERS, Topology, VariableMissing, drawn_secrets, interpolate, seconds
from router.config.loader import load_settings
from tests.conftest import ROOT
from tests.docs.transcripts import blocks
from tests.support.programs import installed, output_of, promtool

DEPLOY = ROOT / "deploy"
TEXT = (DEPLOY / "compose.yaml").read_text("utf-8")
SECRETS = drawn_secrets(TEXT)
SERVICES: dict[str, Any] = yaml.safe_load(interpolate(TEXT, SECRETS))["services"]
CONFIGURATION = DEPLOY / "config" / "cutover.toml"
SETTINGS = load_settings(CONFIGURATION, SPECS)
LASTING = sorted(name for name in SERVICES if name not in {"operator", "bucket"})
LISTENS_NOWHERE = {"shadow-worker"}


def named_variables() -> set[str]:
    """Return the variables that the configuration names."""
    text = CONFIGURATION.read_text("utf-8")
    return {found[0] or found[1] for found in re.findall(r'_env = "(\w+)"|"env:(\w+)"', text)}


@pytest.fixture
def prepared(tmp_path: Path) -> Topology:
    """Return the topology with its files mounted, and nothing started."""
    topology = Topology(tmp_path, "postgresql://nobody@127.0.0.1/none")
    topology.prepare(SECRETS)
    return topology


def compose(folder: Path, variables: dict[str, str], *words: str) -> tuple[int, str, str]:
    """Run Compose with the variables in a file, as deploy/.env."""
    file = folder / "env"
    file.write_text("".join(f"{name}={value}\n" for name, value in variables.items()), "utf-8")
    program = installed("docker-compose", "docker-compose")
    options = ("--env-file", file, "--file", DEPLOY / "compose.yaml")
    ran = output_of(program, *options, *words, folder=folder)
    return ran.returncode, ran.stdout, ran.stderr


@pytest.mark.slow
def test_compose_reads_the_file_as_it_is_read_here(tmp_path: Path) -> None:
    """So that what is started without containers is what Compose starts."""
    status, written, complaint = compose(tmp_path, SECRETS, "config")
    assert (status, complaint) == (0, "")
    as_read = yaml.safe_load(written)["services"]
    assert set(as_read) == set(SERVICES)
    for name, one in as_read.items():
        for key in ("command", "entrypoint", "environment", "image", "tmpfs", "stop_signal"):
            # It writes a dollar doubled.
            value = json.loads(json.dumps(one.get(key)).replace("$$", "$"))
            assert value == SERVICES[name].get(key), (name, key)
        checks = (each.get("healthcheck", {}).get("test") for each in (one, SERVICES[name]))
        assert len({json.dumps(check) for check in checks}) == 1, name


@pytest.mark.slow
def test_compose_starts_nothing_without_a_secret(tmp_path: Path) -> None:
    """It names the first one that is missing."""
    status, _, complaint = compose(tmp_path, {**SECRETS, "GRAFANA_PASSWORD": ""}, "config")
    assert status == 1
    assert "the password of Grafana's user admin, in deploy/.env" in complaint


@pytest.mark.parametrize("name", sorted(SECRETS))
def test_each_secret_is_required(name: str) -> None:
    """An empty password or key would be one, too."""
    with pytest.raises(VariableMissing, match=name):
        interpolate(TEXT, {**SECRETS, name: ""})


def test_no_secret_is_in_the_files() -> None:
    """What is called a key or a password is a variable, and so is what stands in an address."""
    named = re.findall(r"^ +(\w*(?:KEY|PASSWORD|SECRET|TOKEN|USER)\w*): (.*)$", TEXT, re.MULTILINE)
    assert len(named) > 8
    for name, value in named:
        assert re.fullmatch(r"\$\{\w+:\?[^}]+\}", value) or name == "POSTGRES_USER", name
    for password in re.findall(r"://\w*:([^@/\s]+)@", TEXT):
        assert password.startswith("${")
    ignored = (ROOT / ".gitignore").read_text("utf-8").splitlines()
    assert "/deploy/.env" in ignored


@pytest.mark.slow
def test_the_pages_commands_make_every_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Typed into a shell, up to those that start containers; Compose accepts what they wrote."""
    (tmp_path / "deploy").mkdir()
    drawn = [one for one in commands("With Compose") if "deploy/.env" in one]
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    for command in drawn:
        assert output_of(installed("bash", "bash"), "-ec", command, folder=tmp_path).stderr == ""
    file = tmp_path / "deploy" / ".env"
    assert file.stat().st_mode & 0o077 == 0
    given = dict(line.split("=", 1) for line in file.read_text("utf-8").splitlines())
    assert set(given) == set(SECRETS)
    status, _, complaint = compose(tmp_path, given, "config", "--quiet")
    assert (status, complaint) == (0, "")


def commands(heading: str) -> Iterator[str]:
    """Yield what is typed below a heading of the page."""
    for block in blocks(ROOT / "docs" / "deployment.md", heading, "console"):
        for one in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            yield one.strip()


def test_the_pages_commands_name_services_and_commands() -> None:
    """Each `run --rm` is a command line of cutover; each service is one of the file."""
    typed = [*commands("With Compose"), *commands("Rolling upgrade with Compose")]
    for words in (shlex.split(one) for one in typed if one.startswith("docker compose ")):
        assert words[2:4] == ["--file", "deploy/compose.yaml"]
        what, *rest = words[4:]
        if what == "run":
            assert rest[:2] == ["--rm", "operator"]
            # An option that does not exist is refused before the help is shown.
            assert CliRunner().invoke(app, [*rest[2:], "--help"]).exit_code == 0
        else:
            assert what in {"up", "build", "exec"}
            assert {word for word in rest if word in SERVICES} or "--no-deps" not in rest


def test_the_pages_upgrade_marks_one_router_and_takes_the_mark_back(tmp_path: Path) -> None:
    """With the commands that it shows; nginx is told after each."""
    folder = tmp_path / "deploy" / "compose" / "nginx"
    folder.mkdir(parents=True)
    upstream = folder / "upstream.conf"
    whole = (DEPLOY / "compose" / "nginx" / "upstream.conf").read_text("utf-8")
    upstream.write_text(whole, "utf-8")
    typed = list(commands("Rolling upgrade with Compose"))
    edits = [one for one in typed if one.startswith("sed ")]
    marked = []
    for command in edits:
        assert output_of(installed("bash", "bash"), "-ec", command, folder=tmp_path).stderr == ""
        marked.append(re.findall(r"^server (\S+):.* down;$", upstream.read_text(), re.MULTILINE))
    assert marked == [["router-1"], []]
    assert upstream.read_text("utf-8") == whole
    for edit in edits:
        assert typed[typed.index(edit) + 1].endswith("exec balancer nginx -s reload")


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_images_are_pinned_and_name_no_host(name: str) -> None:
    """A version, which is never `latest`; where it comes from is the engine's setting."""
    image, _, tag = SERVICES[name]["image"].rpartition(":")
    assert re.search(r"\d", tag)
    assert not re.search(r"[.:]", image)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert image != "cutover" or tag == project["version"]


def test_ports_are_published_on_loopback_alone() -> None:
    """Those of the balancer and of the dashboard."""
    published = {name: one["ports"] for name, one in SERVICES.items() if "ports" in one}
    assert set(published) == {"balancer", "grafana"}
    assert all(port.startswith("127.0.0.1:") for ports in published.values() for port in ports)
    for name in ("postgres", "redis", "store", "prometheus"):
        assert SERVICES[name]["networks"] == ["inside"]


@pytest.mark.parametrize("name", LASTING)
def test_services_are_watched_and_started_again(name: str) -> None:
    """What is to run always has a health check, and comes back after a crash and a reboot."""
    assert SERVICES[name]["restart"] == "unless-stopped"
    # Without NONE it would have that of the image, which asks a router.
    kind = "NONE" if name in LISTENS_NOWHERE else "CMD"
    assert SERVICES[name]["healthcheck"]["test"][0] == kind


@pytest.mark.parametrize("name", ROUTERS)
def test_routers_have_the_time_they_may_take_to_stop(name: str) -> None:
    """And what waits for their streams has it, too; what they need is healthy before they start."""
    service = SERVICES[name]
    assert seconds(service["stop_grace_period"]) >= stop_seconds(SETTINGS)
    assert seconds(SERVICES["balancer"]["stop_grace_period"]) > SETTINGS.server.drain_seconds
    assert SERVICES["balancer"]["stop_signal"] == "SIGQUIT"
    assert SERVICES["balancer"]["depends_on"][name] == {"condition": "service_healthy"}
    assert {one: on["condition"] for one, on in service["depends_on"].items()} == {
        "bucket": "service_completed_successfully",
        "postgres": "service_healthy",
        "redis": "service_healthy",
    }
    assert "/readyz" in service["healthcheck"]["test"][-1]
    assert service["read_only"] is True


def test_shadow_workers_have_the_time_to_store_what_they_have_begun() -> None:
    """And they read the stream that the routers write."""
    worker = SERVICES["shadow-worker"]
    needed = SETTINGS.server.drain_seconds + CLOSING_SECONDS
    assert seconds(worker["stop_grace_period"]) >= needed
    assert SETTINGS.shadow.broker == "env:CUTOVER_REDIS"


def test_the_configuration_leaves_nothing_to_one_router() -> None:
    """Stores, locks and pins are in servers, captures in the store; variables say where."""
    environ = SERVICES["router-1"]["environment"]
    assert named_variables() <= set(environ)
    stores = store_addresses(SETTINGS, environ, workers=2)
    shared = {name: value.partition("://")[0] for name, value in stores.model_dump().items()}
    assert shared.pop("history") == ""
    assert set(shared.values()) == {"postgresql", "redis"}
    assert SETTINGS.captures.path.startswith("s3://")
    assert (
        f"makedirs('{SETTINGS.captures.path.split('/')[2]}'" in SERVICES["bucket"]["entrypoint"][-1]
    )
    for name in ("router-2", "shadow-worker", "operator"):
        assert SERVICES[name]["environment"] == environ


def test_the_services_know_each_other() -> None:
    """Each host that a file names is a service that it can reach."""
    texts = [TEXT, *(path.read_text("utf-8") for path in (DEPLOY / "compose").rglob("*.*"))]
    upstream, prometheus = (
        (DEPLOY / "compose" / name).read_text("utf-8")
        for name in ("nginx/upstream.conf", "prometheus.yml")
    )
    named = {host for text in texts for host in re.findall(r"//(?:[^@/\s]+@)?([\w-]+):\d", text)}
    assert named <= {*SERVICES, "cutover", "127"}
    assert re.findall(r"^server ([\w-]+):8080 ", upstream, re.MULTILINE) == list(ROUTERS)
    (job,) = yaml.safe_load(prometheus)["scrape_configs"]
    assert job["job_name"] == "cutover"
    (targets,) = (one["targets"] for one in job["static_configs"])
    assert targets == [f"{name}:8080" for name in ROUTERS]
    assert SETTINGS.metrics.enabled


def test_grafana_finds_its_dashboard_and_its_source() -> None:
    """Both are provisioned from files."""
    mounted = dict(volume.split(":")[:2] for volume in SERVICES["grafana"]["volumes"])
    (provider,) = yaml.safe_load((DEPLOY / "compose" / "dashboards.yml").read_text())["providers"]
    assert mounted["./grafana.json"].startswith(f"{provider['options']['path']}/")
    (source,) = yaml.safe_load((DEPLOY / "compose" / "datasource.yml").read_text())["datasources"]
    assert (source["type"], source["url"]) == ("prometheus", "http://prometheus:9090")


@pytest.mark.slow
def test_nginx_reads_its_configuration(prepared: Topology) -> None:
    """As it is mounted."""
    installed("nginx", "nginx-light")
    words = prepared.command(prepared.services["balancer"])
    ran = output_of(*words, "-t", folder=prepared.folder)
    assert "test is successful" in ran.stderr, ran.stderr


@pytest.mark.slow
def test_prometheus_reads_its_configuration(prepared: Topology) -> None:
    """With the rules beside it."""
    folder = prepared.services["prometheus"].root / "etc" / "prometheus"
    ran = promtool("check", "config", "prometheus.yml", folder=folder)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    alerts = len(re.findall(r"- alert:", (DEPLOY / "alerts.yml").read_text("utf-8")))
    assert f"{alerts} rules found" in ran.stdout + ran.stderr
