"""The manifests of deploy/kubernetes/ follow the schemas, and fit the router."""

from __future__ import annotations

import re
import tomllib
from copy import deepcopy
from http import HTTPStatus
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from contract.flows import SPECS
from cutover.server.serve import CLOSING_SECONDS, stop_seconds
from router.config.loader import load_settings, parse_settings
from router.config.watcher import SettingsWatcher
from router.telemetry.instruments import INSTRUMENTS
from tests.conftest import ROOT
from tests.deploy.test_compose import CONFIGURATION, DEPLOY, SERVICES, named_variables
from tests.docs.transcripts import blocks
from tests.support.deployment import deployed
from tests.support.programs import promtool

VERSIONS = ("1.33", "1.37")
"""Of Kubernetes: the oldest and the newest that the manifests are checked for."""
MANIFESTS: list[dict[str, Any]] = [
    manifest
    for path in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    for manifest in yaml.safe_load_all(path.read_text("utf-8"))
]
NAMES = [f"{one['kind']}/{one['metadata']['name']}" for one in MANIFESTS]
DEPLOYMENTS = {one["metadata"]["name"]: one for one in MANIFESTS if one["kind"] == "Deployment"}
SETTINGS = load_settings(CONFIGURATION, SPECS)
PAGE = ROOT / "docs" / "deployment.md"


def the(kind: str) -> dict[str, Any]:
    """Return the one manifest of a kind."""
    (found,) = (one for one in MANIFESTS if one["kind"] == kind)
    return found


def container(name: str) -> dict[str, Any]:
    """Return the one container of a deployment."""
    (found,) = DEPLOYMENTS[name]["spec"]["template"]["spec"]["containers"]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("manifest", MANIFESTS, ids=NAMES)
def test_each_manifest_follows_its_schema(manifest: dict[str, Any], version: str) -> None:
    """Strictly: a misspelt key is refused."""
    assert kubernetes_validate.validate(manifest, version, strict=True) == version


def test_a_misspelt_key_is_refused() -> None:
    """Or the check above would prove little."""
    manifest = the("PodDisruptionBudget")
    misspelt = {**manifest, "spec": {**manifest["spec"], "maxUnavailible": 1}}
    with pytest.raises(kubernetes_validate.ValidationError, match="maxUnavailible"):
        kubernetes_validate.validate(misspelt, VERSIONS[-1], strict=True)


def test_the_configuration_is_the_one_of_compose() -> None:
    """Word for word, and it is the file that the routers are started with."""
    assert the("ConfigMap")["data"] == {"cutover.toml": CONFIGURATION.read_text("utf-8")}
    for name in DEPLOYMENTS:
        mounted = {one["name"]: one["mountPath"] for one in container(name)["volumeMounts"]}
        command, *args = container(name)["args"]
        assert command == {"cutover-router": "serve"}.get(name, name.removeprefix("cutover-"))
        assert args[args.index("--config") + 1] == f"{mounted['configuration']}/cutover.toml"


def test_an_edit_of_the_config_map_is_seen(tmp_path: Path) -> None:
    """The kubelet replaces a link to a folder, beside which the file's name is a link into it."""
    for number, percent in enumerate((5, 0)):
        (tmp_path / f"..{number}").mkdir()
        text = f"[flows.chat]\nenable_langgraph = true\nlanggraph_percent = {percent}\n"
        (tmp_path / f"..{number}" / "cutover.toml").write_text(text, "utf-8")
    (tmp_path / "..data").symlink_to("..0")
    (tmp_path / "cutover.toml").symlink_to("..data/cutover.toml")
    watched = SettingsWatcher(tmp_path / "cutover.toml", SPECS)
    (tmp_path / "..new").symlink_to("..1")
    (tmp_path / "..new").rename(tmp_path / "..data")
    watched.poll_once()  # notices
    watched.poll_once()  # takes what has stayed the same
    assert watched.settings().flows["chat"].langgraph_percent == 0


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_pods_have_the_variables_that_the_configuration_names(name: str) -> None:
    """From one secret, each under its own name; the page says how to make it."""
    given = {one["name"]: one for one in container(name)["env"]}
    assert named_variables() <= set(given)
    page = PAGE.read_text("utf-8")
    for variable, one in given.items():
        if "valueFrom" in one:
            assert one["valueFrom"]["secretKeyRef"] == {"name": "cutover", "key": variable}
            assert variable in page
        else:
            assert not re.search("KEY|PASSWORD|SECRET|TOKEN", variable)


@pytest.mark.sockets
async def test_the_probes_are_what_the_router_answers(tmp_path: Path) -> None:
    """Alive: the process runs; ready: it does not drain."""
    router = container("cutover-router")
    (port,) = router["ports"]
    assert port["containerPort"] == SETTINGS.server.port
    paths = {
        kind: router[kind]["httpGet"]
        for kind in ("startupProbe", "readinessProbe", "livenessProbe")
    }
    for probe in paths.values():
        assert probe["port"] == port["name"]
    assert [probe["path"] for probe in paths.values()] == ["/healthz", "/readyz", "/healthz"]
    (target,) = the("Service")["spec"]["ports"]
    assert target["targetPort"] == port["name"]
    async with deployed(tmp_path) as place:
        for probe in paths.values():
            async with place.session.get(place.url + probe["path"]) as response:
                assert response.status == HTTPStatus.OK


def test_no_stream_is_cut_by_an_update() -> None:
    """A new router is ready first; an old one gets no request before it stops, and its time."""
    spec = DEPLOYMENTS["cutover-router"]["spec"]
    assert spec["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    pod, router = spec["template"]["spec"], container("cutover-router")
    before = router["lifecycle"]["preStop"]["sleep"]["seconds"]
    ready = router["readinessProbe"]
    assert before >= ready["periodSeconds"] * ready["failureThreshold"]
    assert pod["terminationGracePeriodSeconds"] >= before + stop_seconds(SETTINGS)
    assert "replicas" not in spec, "an apply would undo what the autoscaler decided"


def test_shadow_workers_have_the_time_to_store_what_they_have_begun() -> None:
    """On the same stores, with the variables of the routers."""
    pod = DEPLOYMENTS["cutover-shadow-worker"]["spec"]["template"]["spec"]
    needed = SETTINGS.server.drain_seconds + CLOSING_SECONDS
    assert pod["terminationGracePeriodSeconds"] >= needed
    assert container("cutover-shadow-worker")["env"] == container("cutover-router")["env"]


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_pods_are_confined(name: str) -> None:
    """Not root, nothing writable but empty folders, as the image's user."""
    pod, confined = DEPLOYMENTS[name]["spec"]["template"]["spec"], container(name)
    (user,) = re.findall(
        r"^USER (\d+)$", (DEPLOY / "Containerfile").read_text("utf-8"), re.MULTILINE
    )
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == int(user)
    assert confined["securityContext"]["readOnlyRootFilesystem"] is True
    assert confined["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert {"cpu", "memory"} <= set(confined["resources"]["requests"])
    assert "memory" in confined["resources"]["limits"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert confined["image"] == f"cutover:{project['version']}"


def test_memory_fits_the_limits_of_the_router() -> None:
    """Tapes and bodies are at most a third of what a pod, or a container, may use."""
    (allowed,) = re.findall(
        r"^(\d+)Mi$", container("cutover-router")["resources"]["limits"]["memory"]
    )
    limits = SETTINGS.limits
    assert 3 * (limits.total_bytes + limits.body_bytes) <= int(allowed) << 20
    assert SERVICES["router-1"]["mem_limit"] == f"{allowed}m"


def test_selectors_find_their_pods() -> None:
    """Of the service, of the budget and of the spread."""
    template = DEPLOYMENTS["cutover-router"]["spec"]["template"]
    labels = template["metadata"]["labels"].items()
    assert the("Service")["spec"]["selector"].items() <= labels
    assert the("PodDisruptionBudget")["spec"]["selector"]["matchLabels"].items() <= labels
    for spread in template["spec"]["topologySpreadConstraints"]:
        assert spread["labelSelector"]["matchLabels"].items() <= labels
    assert the("HorizontalPodAutoscaler")["spec"]["scaleTargetRef"]["name"] in DEPLOYMENTS


def test_the_autoscaler_reads_a_metric_that_is_exported() -> None:
    """Under the name that the adapter's rule on the page gives it."""
    pods = the("HorizontalPodAutoscaler")["spec"]["metrics"][0]["pods"]
    name = pods["metric"]["name"]
    (kind,) = (one.kind for one in INSTRUMENTS if one.name == name)
    assert kind == "gauge"
    _, adapter, _ = blocks(PAGE, "Kubernetes", "yaml")
    (rule,) = yaml.safe_load(adapter)["rules"]["custom"]
    assert rule["seriesQuery"].startswith(f"{name}{{")
    assert "as" not in rule.get("name", {}), "the metric keeps its name"
    assert set(rule["resources"]["overrides"]) == {"namespace", "pod"}


def test_the_pages_addresses_of_gateways_fit_a_pod() -> None:
    """A variable may name one before it, and the configuration takes what comes of it."""
    *_, given = blocks(PAGE, "Kubernetes", "yaml")
    manifest = deepcopy(DEPLOYMENTS["cutover-router"])
    (found,) = manifest["spec"]["template"]["spec"]["containers"]
    found["env"] += yaml.safe_load(given)
    assert kubernetes_validate.validate(manifest, VERSIONS[-1], strict=True) == VERSIONS[-1]
    own, advertised = yaml.safe_load(given)
    assert advertised["value"] == f"$({own['name']}):8081"
    text = CONFIGURATION.read_text("utf-8") + (
        '[gateway]\nenabled = true\nlisten = "0.0.0.0:8081"\nkey_env = "CUTOVER_GATEWAY_KEY"\n'
        f'advertise = "env:{advertised["name"]}"\n'
    )
    assert parse_settings(text, "page", SPECS).gateway.advertise == "env:CUTOVER_ADVERTISE"


@pytest.mark.slow
def test_prometheus_reads_the_pages_scrape(tmp_path: Path) -> None:
    """It finds the pods by their label and port, and adds the labels that the adapter asks for."""
    scrape, adapter, _ = blocks(PAGE, "Kubernetes", "yaml")
    document = yaml.safe_load(scrape)
    (job,) = document["scrape_configs"]
    assert job["job_name"] == "cutover"
    # Debian's Prometheus is built without it.
    assert job.pop("kubernetes_sd_configs") == [{"role": "pod"}]
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(document), "utf-8")
    ran = promtool("check", "config", "prometheus.yml", folder=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    kept = [one["regex"] for one in job["relabel_configs"] if one.get("action") == "keep"]
    template = DEPLOYMENTS["cutover-router"]["spec"]["template"]
    (port,) = container("cutover-router")["ports"]
    assert kept == [template["metadata"]["labels"]["app.kubernetes.io/part-of"], port["name"]]
    added = {one["target_label"] for one in job["relabel_configs"] if "target_label" in one}
    (rule,) = yaml.safe_load(adapter)["rules"]["custom"]
    assert added == set(rule["resources"]["overrides"])


def test_the_pages_commands_name_what_there_is() -> None:
    """Manifests, deployments, the secret's keys."""
    shown = "\n".join(blocks(PAGE, "Kubernetes", "console"))
    assert "kubectl apply --filename deploy/kubernetes/" in shown
    for name in re.findall(r"deployment/([\w-]+)", shown):
        assert name in DEPLOYMENTS
