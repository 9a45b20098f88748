"""The example services as they are on a rung: their files with the diffs, and a configuration."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal

EXAMPLES: Final = Path(__file__).parents[2] / "examples"

Name = Literal["openai_service", "langgraph_service", "node_service"]
Rung = Literal[1, 2, 3]
"""What a service shares: its clients; its model's answers, too; its effects, too."""
_EFFECTS: Final = 3

PATH: Final = "/api/assistant"
DIFFS: Final = {2: "gateway.diff", 3: "effects.diff"}
"""What takes an example to a rung from the one below."""
KEY: Final = "key-of-the-gateway"
_GATEWAY: Final = "http://127.0.0.1:8081"
_SHOP: Final = "http://127.0.0.1:9100"
"""Where the examples and their diffs say that the gateway and the shop's server are."""
_CONFIGURATION: Final = """
[stacks.legacy]
url = "http://127.0.0.1:%(legacy)d/"
flows = [%(names)s]
paths = { %(legacy_paths)s }
resumable = true
shadow_safe = true
%(limits)s

[stacks.graph]
url = "http://127.0.0.1:%(graph)d/"
flows = [%(names)s]
paths = { %(graph_paths)s }
resumable = true
shadow_safe = true
%(limits)s

[gateway]
enabled = true
listen = "127.0.0.1:%(gateway)d"
key_env = "GATEWAY_KEY"
effects = %(effects)s
tool_servers = %(tool_servers)s

[tools.mcp.shop]
url = "http://127.0.0.1:%(shop)d/mcp"

[providers.simulated]
base_url = "%(provider)s"
key_env = "OPENAI_API_KEY"

[models."gpt-4.1-mini"]
provider = "simulated"
model = "%(model)s"
"""
_FLOW: Final = """
[flows.%(name)s]
path = "/%(name)s"
route_keys = { session_id = "conversation_id" }
history = "%(history)s"
enable_langgraph = true
fallback_to_graph = true
langgraph_percent = %(graph)s
shadow_percent = %(shadow)s

[flows.%(name)s.dialect]
terminal = ["done"]
text = { token = "text" }
errors = { events = ["error"], code = "code" }
failure = [{ event = "error", data = '{"code":"{code}"}' }]
"""


@dataclass(frozen=True, slots=True)
class Ports:
    """Where each process listens, on loopback."""

    router: int
    gateway: int
    legacy: int
    graph: int
    shop: int

    @property
    def places(self) -> dict[str, str]:
        """What the examples say of the others' addresses, and where these are."""
        return {
            _GATEWAY: f"http://127.0.0.1:{self.gateway}",
            _SHOP: f"http://127.0.0.1:{self.shop}",
        }


@dataclass(frozen=True, slots=True)
class Shares:
    """Shares of requests that graph serves and that are shadowed, in per cent."""

    graph: float
    shadow: float


def configuration(
    ports: Ports,
    provider: str,
    shares: Shares,
    *,
    flows: Mapping[str, str] = MappingProxyType({"clean": PATH}),
    rung: Rung = 3,
    model: str = "sim-chat",
    history: Literal["shared", "own"] = "shared",
    limits: str = "",
) -> str:
    """Return a `cutover.toml` for two services on a rung.

    `flows` have by name their path at legacy; `limits` are more keys of both stacks.
    """
    facts = {
        **asdict(ports),
        "names": ", ".join(f'"{flow}"' for flow in flows),
        "legacy_paths": ", ".join(f'{flow} = "{path}"' for flow, path in flows.items()),
        "graph_paths": ", ".join(f'{flow} = "{PATH}"' for flow in flows),
        "provider": provider,
        "model": model,
        "effects": str(rung == _EFFECTS).lower(),
        "tool_servers": '["shop"]' if rung == _EFFECTS else "[]",
        "limits": limits,
    }
    tables = [_FLOW % {"name": flow, "history": history, **asdict(shares)} for flow in flows]
    return _CONFIGURATION % facts + "".join(tables)


def patched(name: Name, folder: Path, rung: Rung, places: Mapping[str, str]) -> Path:
    """Copy an example into a folder and take it to a rung; returns the service's file.

    Each of `places` is replaced by where it is.
    """
    (folder / name).mkdir()
    source = EXAMPLES / name
    for file in (*source.glob("*.py"), *source.glob("*.ts")):
        shutil.copy(file, folder / name)
    if (source / "package.json").exists():
        (folder / name / "node_modules").symlink_to(source / "node_modules")
    for step in range(2, rung + 1):
        diff = (source / DIFFS[step]).read_bytes()
        subprocess.run(["patch", "--quiet", "-p1"], input=diff, cwd=folder, check=True)  # noqa: S607
    file = next((folder / name).glob("service.*"))
    text = file.read_text("utf-8")
    for place, here in places.items():
        text = text.replace(place, here)
    file.write_text(text, "utf-8")
    return file


def command(name: Name, file: Path, port: int) -> list[str]:
    """Return what starts a service whose file `patched` has made."""
    if name == "node_service":
        tsx = file.parent / "node_modules" / "tsx" / "dist" / "loader.mjs"
        return ["node", "--import", str(tsx), str(file), str(port)]
    serve = [sys.executable, "-m", "uvicorn", "--app-dir", str(file.parent), "service:app"]
    return [*serve, "--port", str(port)]


def shop_command(port: int) -> list[str]:
    """Return what starts the shop's MCP server."""
    return [sys.executable, str(EXAMPLES / "shop_server" / "server.py"), str(port)]
