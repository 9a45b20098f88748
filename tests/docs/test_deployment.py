"""What deploy/ holds fits the project: nothing of it can be run here, so its words are checked."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from contract.flows import SPECS
from cutover.server.serve import stop_seconds
from router.config.loader import parse_settings

ROOT = Path(__file__).parent.parent.parent
DEPLOY = ROOT / "deploy"
NAMED = {"127.0.0.1", "api.openai.com", "simulator", "postgres", "redis", "store", "prometheus"}
"""Hosts that files of deploy/ name: this one, the provider's, services of compose.yaml."""


def instructions() -> list[tuple[str, str]]:
    """Return the container file's instructions, continued lines joined."""
    text = (DEPLOY / "Containerfile").read_text("utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines)]


def those(word: str) -> list[str]:
    """Return the arguments of all instructions of a kind."""
    return [rest for name, rest in instructions() if name == word]


def packages() -> set[str]:
    """Return the packages the project is made of."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    return set(project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])


def test_the_image_is_made_of_every_package_and_no_other_file() -> None:
    """A new package has to be let in, too; tests, keys and captures never are."""
    allowed = set(re.findall(r"^!(\S+)", ignored(), re.MULTILINE))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    told = {"pyproject.toml", project["readme"], *project["license-files"]}
    assert allowed == packages() | told | {"requirements/*.txt"}
    assert ignored().splitlines()[1] == "*"
    assert those("ENTRYPOINT") == ['["cutover"]']
    assert "cutover" in project["scripts"]


def ignored() -> str:
    """Return what the builder leaves out."""
    return (DEPLOY / "Containerfile.dockerignore").read_text("utf-8")


def test_the_image_is_built_from_hashed_pins() -> None:
    """Exactly what was tested, or nothing; the project itself comes from the folder."""
    (pins,) = [line.removeprefix("PINS=") for line in those("ARG") if line.startswith("PINS=")]
    lists = []
    for line in (line for line in those("RUN") if " -m pip " in line):
        if "--requirement" in line:
            assert "--require-hashes" in line
            assert "--no-deps" in line
            lists += re.findall(r"requirements/(\S+)", line)
        else:
            assert "--no-deps" in line
            assert "--no-index" in line or "--no-build-isolation" in line
    assert lists == ["dev.txt", "${PINS}"]
    assert all((ROOT / "requirements" / name).is_file() for name in ("dev.txt", pins))


def test_the_image_has_every_extra_and_no_tools_of_development() -> None:
    """What a configuration may name is there; an extra that is added has to be let in, too."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = dict(project["optional-dependencies"])
    tools, there = names(extras.pop("dev")), pinned("image.txt")
    assert names(extras.pop("prompts")) <= tools  # for those who convert prompts, not for routers
    for elsewhere in ("load", "parquet", "dask"):  # other machines load, and compare
        del extras[elsewhere]
    assert names(line for lines in extras.values() for line in lines) <= there
    assert pinned("run.txt") < there
    assert not tools & (there - pinned("run.txt"))
    (made,) = re.findall(r"((?: --extra [\w-]+)+)", (ROOT / "Makefile").read_text("utf-8"))
    assert made.replace("--extra", "").split() == list(extras)


def test_the_lists_of_pins_agree() -> None:
    """What is in the image is what was tested."""
    tested = lines("dev.txt")
    assert lines("image.txt") <= tested
    assert lines("run.txt") <= tested


def names(said: Iterable[str]) -> set[str]:
    """Return the names of requirements, as lists of pins write them."""
    found = (re.match(r"[\w.-]+", line) for line in said)
    return {one[0].lower().replace("_", "-") for one in found if one}


def lines(file: str) -> set[str]:
    """Return a list's pins, each with its version."""
    text = (ROOT / "requirements" / file).read_text("utf-8")
    return set(re.findall(r"^[\w.-]+==[\w.+]+", text, re.MULTILINE))


def pinned(file: str) -> set[str]:
    """Return the names in a list of pins."""
    return names(lines(file))


def test_the_image_names_no_registry() -> None:
    """Where images come from is the builder's setting; a version is said all the same."""
    assert those("ARG")[0] == "PYTHON=python:3.13-slim"
    assert all(line.startswith("${PYTHON}") for line in those("FROM"))
    paths = (one for one in DEPLOY.rglob("*") if one.suffix not in {".json", ".py", ".pyc"})
    for path in (one for one in paths if one.is_file() and one.name != ".env"):
        hosts = re.findall(r"\w://(?:[^/\n]*@)?([\w.-]+)", path.read_text("utf-8"))
        assert set(hosts) <= NAMED | {"cutover"}, path


def test_the_image_is_not_root_and_tells_its_health() -> None:
    """A number, so that an orchestrator can see that it is not root."""
    (user,) = those("USER")
    assert int(user) > 0
    (health,) = those("HEALTHCHECK")
    (port,) = those("EXPOSE")
    assert f"http://127.0.0.1:{port}/healthz" in health
    assert int(port) == parse_settings("", "defaults", SPECS).server.port


@pytest.mark.parametrize("path", ["Containerfile", "cutover.service"])
def test_what_is_started_is_a_command_there_is(path: str) -> None:
    """With the options it has."""
    text = (DEPLOY / path).read_text("utf-8")
    assert re.search(r'cutover serve --config|"serve", "--config"', text)
    assert set(re.findall(r"--(config|host|workers)\b", text)) <= {"config", "host", "workers"}


def test_the_page_says_how_long_a_stop_takes() -> None:
    """By default."""
    page = (ROOT / "docs" / "deployment.md").read_text("utf-8")
    longest = stop_seconds(parse_settings("", "defaults", SPECS))
    assert f"fifteen seconds: {longest:.0f} seconds by default" in page


def test_nginx_passes_streams_as_they_come_to_every_flow() -> None:
    """Nothing is held back, nothing asked twice, and the limits fit the router's own."""
    text = (DEPLOY / "nginx.conf").read_text("utf-8")
    # Of `error` alone: a POST of which something was sent is not repeated.
    for line in ("proxy_buffering off;", "gzip off;", "proxy_next_upstream error;"):
        assert line in text
    (where,) = re.findall(r"location ~ (\S+) {", text)
    for path in (*_paths(), "/feedback"):
        assert re.fullmatch(where, path)
    (largest,) = re.findall(r"client_max_body_size (\d+)m;", text)
    taken = (size for spec in SPECS.values() for size in spec.body_limits.values())
    assert int(largest) << 20 >= max((parse_settings("", "d", SPECS).server.max_body_bytes, *taken))
    for inside in ("/admin/flows", "/metrics", "/readyz", "/docs"):
        assert not re.fullmatch(where, inside)
    example = parse_settings(
        (ROOT / "examples" / "declared_flow" / "cutover.toml").read_text("utf-8"), "example", SPECS
    )
    (declared,) = (flow.declared for flow in example.flows.values() if flow.declared)
    assert f"location = {declared.path} {{ proxy_pass http://cutover; }}" in text
    # Both inherit all the rest, which stands before them.
    assert not re.search(r"proxy_(?!pass)", text[text.index("location ~") :])
    (limit,) = re.findall(r"proxy_read_timeout (\d+)s;", text)
    provider = parse_settings('[providers.p]\nbase_url = "http://p"', "defaults", SPECS).providers[
        "p"
    ]
    assert float(limit) > provider.total_seconds


def _paths() -> Iterator[str]:
    for spec in SPECS.values():
        yield from spec.requests
        if spec.pausing is not None:
            yield spec.pausing.resume.path
            if spec.pausing.respond is not None:
                yield spec.pausing.respond.path
