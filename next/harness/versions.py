"""The versions that captures name: of the settings in force, and of the code."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path

from harness.config import Settings

_CODE = ("cutover", "rules", "effects", "legacy", "graph_impl")
"""Packages, found without importing them."""
_COUNTS = ("flows", "models", "tools", "workers", "embeddings", "timezone")
"""What shows in the answers of flows, beside the salt."""


def versions(settings: Settings, flow: str) -> Mapping[str, str]:
    """Return digests of the settings by which a flow is served, without secrets, and of the code.

    Runs whose digests are equal were drawn and served alike.
    """
    serves = settings.model_copy(update={"flows": {flow: settings.flows[flow]}})
    stated = serves.model_dump_json(
        include={"rollout": {"salt"}, **dict.fromkeys(_COUNTS, True)},
        exclude={"models": {"__all__": {"key"}}},
    )
    return {"config": _digest(stated.encode()), "code": code_version()}


@cache
def code_version() -> str:
    """Return a digest of the stacks' code and prompts as this process found them."""
    parts: list[bytes] = []
    for spec in filter(None, map(find_spec, _CODE)):
        folder = Path(spec.origin or "").parent
        for one in sorted(folder.rglob("*")):
            if one.suffix != ".pyc" and one.is_file():
                parts += [str(one.relative_to(folder)).encode(), one.read_bytes()]
    return _digest(*parts)


def _digest(*parts: bytes) -> str:
    digest = blake2b(digest_size=6)
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()
