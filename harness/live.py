"""The settings in force: what a configuration file says, read again when it changes."""

import asyncio
import logging
from collections.abc import Mapping
from functools import cache
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import msgspec

from cutover.errors import Refused
from harness.config import ConfigRefused, Settings, decode, read
from harness.edit import SWITCHES, edit
from router.assign import Shares
from router.endpoint import FlowSettings
from rules.flows import FLOWS

log = logging.getLogger("cutover.configuration")

POLL_SECONDS = 1.0
READ_SECONDS = 5.0
"""After which a file that is still being read, from a file system that hangs, is said to be."""
_CODE = ("cutover", "rules", "effects", "legacy", "graph_impl")
"""Packages, found without importing them."""
_COUNTS = ("flows", "models", "tools", "workers", "embeddings", "timezone", "stacks", "providers")
"""What shows in the answers of flows, beside the salt."""


def versions(settings: Settings, flow: str) -> Mapping[str, str]:
    """Return digests of the settings by which a flow is served, without secrets, and of the code.

    Runs whose digests are equal were drawn and served alike.
    """
    serves = settings.model_copy(update={"flows": {flow: settings.flows[flow]}})
    stated = serves.model_dump_json(
        include={"rollout": {"salt"}, **dict.fromkeys(_COUNTS, True)},
        exclude={one: {"__all__": {"key", "headers"}} for one in ("models", "stacks", "providers")},
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


def flow_settings(settings: Settings, name: str) -> FlowSettings:
    """Return what a flow's requests are served by."""
    table = settings.flows[name]
    return FlowSettings(
        shares=Shares(
            table.enable_langgraph,
            table.langgraph_percent,
            settings.rollout.salt,
            frozenset(table.force_legacy),
            frozenset(table.force_graph),
        ),
        fallback=table.langgraph_fallback,
        shadow_percent=table.shadow_percent,
        options=None if table.paths else msgspec.convert(table.options, FLOWS[name].options),
        route_key=table.route_key,
        sticky=table.sticky,
        qa_key=settings.rollout.qa_key,
        capture_percent=settings.captures.percent if settings.captures else 0.0,
        versions=versions(settings, name),
    )


class LiveSettings:
    """Settings that follow their file, as far as a running server can: switches and shares.

    `flows` are swapped whole, for a content that was read twice alike. A content that is refused
    leaves the last good one in force; `refused` says why, until the file is good again.
    """

    def __init__(self, settings: Settings, path: Path | None = None) -> None:
        self.settings, self.path = settings, path
        self._file = dict(settings.flows)
        self._flags: Mapping[str, Mapping[str, Any]] = {}
        self._refused = {"file": "", "flags": ""}
        self._taken: bytes | str | None = None  # what was read at the start may have changed by now
        self._swap()

    @property
    def refused(self) -> str:
        """Why the newest content, or what a flag provider says, is not in force; "" where it is."""
        return "; ".join(filter(None, self._refused.values()))

    def override(self, flags: Mapping[str, Mapping[str, Any]]) -> None:
        """Put switches and shares of a flag provider, by flow, over those of the file."""
        self._refused["flags"] = ""
        if flags != self._flags:
            self._flags = flags
            self._swap()
            log.info("in force: flags=%s", flags)

    def refuse(self, source: Literal["file", "flags"], why: str) -> None:
        """Keep what is in force: what the file or the flag provider says cannot be."""
        if why != self._refused[source]:
            log.error("refused, in force as before: %s: %s", source, why)
        self._refused[source] = why

    def _swap(self) -> None:
        self.tables = {
            name: one.model_copy(update=dict(self._flags.get(name, {})))
            for name, one in self._file.items()
        }
        now = self.settings.model_copy(update={"flows": self.tables})
        self.flows = {name: flow_settings(now, name) for name in self.tables}

    async def watch(self) -> None:
        """Follow the file until cancelled."""
        if self.path is None:
            return
        seen: bytes | str | None = None
        while True:
            await asyncio.sleep(POLL_SECONDS)
            reading = asyncio.create_task(_content(self.path))
            try:
                while not (await asyncio.wait({reading}, timeout=READ_SECONDS))[0]:
                    self.refuse("file", f"{self.path}: not read within {READ_SECONDS:g} s")
                    self._taken = ""
            finally:
                reading.cancel()
            content = reading.result()
            if content == seen and content != self._taken:
                self._take(content, self.path)
            seen = content

    async def edit(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        """Change switches of the flow that `asked` names, in the file; return those in force.

        Raises `Refused`: 409 without a file, 422 for what the file would be refused with.
        """
        flow, path = str(asked.get("flow", "")), self.path
        if path is None:
            raise Refused(409, "no_file", "this server was started without a file to change")
        changes = {name: one for name, one in asked.items() if name != "flow"}
        try:
            content = await asyncio.to_thread(edit, path, {flow: changes})
        except ConfigRefused as refused:
            raise Refused(422, "bad_flags", refused.problems) from refused
        log.warning("flow=%s changed=%s", flow, changes)
        self._take(content, path)
        if flow not in self.tables:
            raise Refused(409, "not_served", f"{flow} is in the file, and served after a restart")
        return {"flow": flow} | self.tables[flow].model_dump(include=set(SWITCHES))

    def _take(self, content: bytes | str, path: Path) -> None:
        self._taken = content
        try:
            new = content if isinstance(content, str) else decode(content, path)
        except ConfigRefused as refused:
            new = str(refused)
        if isinstance(new, str):
            self.refuse("file", new)
            return
        self._refused["file"] = ""
        later = [
            name
            for name in Settings.model_fields
            if name != "flows" and getattr(new, name) != getattr(self.settings, name)
        ]
        if new.flows.keys() != self.settings.flows.keys():
            later.append("the list of flows")
        if later:
            log.warning("in force after a restart only: %s", ", ".join(later))
        self._file |= {name: one for name, one in new.flows.items() if name in self._file}
        self._swap()
        log.info("in force: %s", path)


async def _content(path: Path) -> bytes | str:
    """Return what a file holds, or why it cannot be read; in a thread: a file system may hang."""
    try:
        return await asyncio.to_thread(read, path)
    except ConfigRefused as refused:
        return str(refused)
