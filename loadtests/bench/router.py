"""Routers for the bench: a configuration in a folder of its own, and the process that serves it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from loadtests.bench.process import Server, serving

MODEL = "gpt-4.1"


@dataclass(frozen=True, slots=True)
class Rollout:
    """Who serves and who shadows; shares in per cent."""

    graph: float = 0.0
    shadow: float = 0.0


def configuration(folder: Path, provider: str, rollout: Rollout) -> str:
    """Write a `cutover.toml` that keeps everything it makes in `folder`."""
    return f"""
[flows.chat]
enable_langgraph = true
langgraph_percent = {rollout.graph}
shadow_percent = {rollout.shadow}

[flows.companion]
enable_langgraph = true
langgraph_percent = {rollout.graph}
shadow_percent = {rollout.shadow}

[flows.session]
enable_langgraph = true
langgraph_percent = {rollout.graph}
shadow_percent = {rollout.shadow}

[flows.session.options]
unknown_session = "create"

[captures]
path = "{folder}/captures"

[stores]
conversations = "sqlite:///{folder}/cutover.sqlite"
memory = "sqlite:///{folder}/cutover.sqlite"
history = ""
checkpoints = "sqlite:///{folder}/threads.sqlite"
pauses = "sqlite:///{folder}/cutover.sqlite"

[providers.simulated]
base_url = "{provider}/v1"

[models."{MODEL}"]
provider = "simulated"
"""


@contextmanager
def routing(name: str, folder: Path, provider: str, rollout: Rollout) -> Iterator[Server]:
    """Serve a router with the simulated provider at `provider`."""
    own = folder / name
    own.mkdir()
    path = own / "cutover.toml"
    path.write_text(configuration(own, provider, rollout), encoding="utf-8")
    options = ("serve", "--config", str(path), "--port", "0")
    with serving(name, "cutover", *options, log=own / "log") as server:
        yield server


@contextmanager
def plain(folder: Path, provider: str) -> Iterator[Server]:
    """Serve the baseline with the simulated provider at `provider`."""
    own = folder / "plain"
    own.mkdir()
    options = ("--provider", f"{provider}/v1", "--model", MODEL, "--store", f"{own}/turns.sqlite")
    with serving("plain", "loadtests.bench.plain", *options, log=own / "log") as server:
        yield server
