"""Flag services that a ramp writes: flagd's file, and an HTTP service as an example of your own."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp

from cutover.ramp.flags import (
    PERCENT,
    SWITCH,
    FlagsChanged,
    FlagsReadOnly,
    FlagsUnavailable,
    read_flags,
)
from cutover.ramp.machine import Flags
from router.admin.config_file import NotWritten, only_writer, replace_text
from router.config.errors import ConfigRefused
from router.config.loader import read_config_text

SECONDS = 10.0
"""How long an HTTP service may take to answer."""


class FlagdFile:
    """Flags in a JSON file that flagd watches: https://flagd.dev/reference/flag-definitions.

    A flag is called `<flow>.<key>`. What it returns by default is read, and changed by choosing
    another variant, which is added where it is missing. A flag with targeting rules, or one that
    is disabled, cannot be read: its value depends on the request, or is the file's.
    """

    def __init__(self, flow: str, path: str) -> None:
        self._flow = flow
        self._path = Path(path)

    def check(self) -> None:
        """Raise `FlagsReadOnly` where the file cannot be replaced by one that holds JSON."""
        target = self._path.resolve()
        if not (os.access(target, os.W_OK) and os.access(target.parent, os.W_OK)):
            raise FlagsReadOnly(self._path, "cannot be replaced")

    def read(self) -> Flags:
        """Return what the two flags return by default."""
        return self._flags(self._document(self._text()))

    def write(self, expected: Flags, new: Flags) -> None:
        """Choose the variants with these values, whole or not at all."""
        target = self._path.resolve()
        try:
            with only_writer(target):
                text = self._text()
                document = self._document(text)
                if (found := self._flags(document)) != expected:
                    raise FlagsChanged(str(self._path), found)
                self._choose(document, SWITCH, new.enabled)
                self._choose(document, PERCENT, new.percent)
                replace_text(
                    target, text, json.dumps(document, indent=2, ensure_ascii=False) + "\n"
                )
        except (NotWritten, ConfigRefused, OSError) as error:
            raise FlagsUnavailable(self._path, f"cannot be written: {error}") from error

    def _text(self) -> str:
        try:
            return read_config_text(self._path.resolve())
        except (ConfigRefused, OSError) as error:
            raise FlagsUnavailable(self._path, f"cannot be read: {error}") from error

    def _document(self, text: str) -> dict[str, Any]:
        try:
            document = json.loads(text)
        except ValueError as error:
            raise FlagsUnavailable(self._path, f"holds no JSON: {error}") from error
        if not (isinstance(document, dict) and isinstance(document.get("flags"), dict)):
            raise FlagsUnavailable(self._path, 'has no "flags"')
        return document

    def _flags(self, document: Mapping[str, Any]) -> Flags:
        return read_flags(
            str(self._path), self._default(document, SWITCH), self._default(document, PERCENT)
        )

    def _default(self, document: Mapping[str, Any], key: str) -> object:
        name = f"{self._flow}.{key}"
        flag = document["flags"].get(name)
        if not isinstance(flag, dict):
            raise FlagsUnavailable(self._path, f"has no flag {name!r}")
        if flag.get("state") != "ENABLED" or flag.get("targeting"):
            why = "must be ENABLED, and have no targeting"
            raise FlagsUnavailable(self._path, f"{name!r} {why}")
        variants, chosen = flag.get("variants"), flag.get("defaultVariant")
        if not (isinstance(variants, dict) and chosen in variants):
            raise FlagsUnavailable(self._path, f"{name!r} has no default variant")
        found: object = variants[chosen]
        return found

    def _choose(self, document: dict[str, Any], key: str, value: object) -> None:
        flag = document["flags"][f"{self._flow}.{key}"]
        variants = flag["variants"]
        same = (
            name for name, one in variants.items() if one == value and _kind(one) == _kind(value)
        )
        name = next(same, None)
        if name is None:
            name = f"{value:g}" if isinstance(value, float) else ("on" if value else "off")
            while name in variants:
                name += "_"
            variants[name] = value
        flag["defaultVariant"] = name


class HttpFlags:
    """Flags behind one address, with compare-and-set by ETag; `{flow}` in it is the flow's name.

    GET answers `{"enable_langgraph": true, "langgraph_percent": 25.0}` with an `ETag`, and with an
    `Allow` header without PUT where flags are read-only. PUT gets the same with `If-Match`, and
    answers 200, 201 or 204, or 412 where the flags have another tag by then.
    """

    def __init__(self, flow: str, url: str, token: str = "") -> None:
        self._url = url.replace("{flow}", flow)
        self._headers = {"authorization": f"Bearer {token}"} if token else {}

    def check(self) -> None:
        """Raise `FlagsReadOnly` where the service allows no PUT."""
        _, _, allowed = asyncio.run(self._get())
        if allowed and "PUT" not in {one.strip().upper() for one in allowed.split(",")}:
            raise FlagsReadOnly(self._url, f"allows {allowed}, not PUT")

    def read(self) -> Flags:
        """Return the flags of the service."""
        return asyncio.run(self._get())[0]

    def write(self, expected: Flags, new: Flags) -> None:
        """Put flags, if those there are the expected ones."""
        asyncio.run(self._put(expected, new))

    async def _put(self, expected: Flags, new: Flags) -> None:
        found, tag, _ = await self._get()
        if found != expected:
            raise FlagsChanged(self._url, found)
        body = {SWITCH: new.enabled, PERCENT: new.percent}
        status, _, _ = await self._request("PUT", body, {"if-match": tag})
        if status == HTTPStatus.PRECONDITION_FAILED:
            raise FlagsChanged(self._url, "another tag")
        if status not in {HTTPStatus.OK, HTTPStatus.CREATED, HTTPStatus.NO_CONTENT}:
            raise FlagsUnavailable(self._url, f"answers {status}")

    async def _get(self) -> tuple[Flags, str, str]:
        """Return the flags, their tag, and the methods allowed."""
        status, headers, body = await self._request("GET", None, {})
        tag = headers.get("etag", "")
        if status != HTTPStatus.OK or not tag:
            raise FlagsUnavailable(self._url, f"answers {status}, {'with' if tag else 'no'} ETag")
        if tag.startswith("W/"):
            raise FlagsUnavailable(self._url, f"answers the weak ETag {tag}: If-Match takes none")
        try:
            values = json.loads(body)
            flags = read_flags(self._url, values.get(SWITCH), values.get(PERCENT))
        except (ValueError, AttributeError) as error:
            raise FlagsUnavailable(self._url, "answers no JSON object") from error
        return flags, tag, headers.get("allow", "")

    async def _request(
        self, method: str, body: Mapping[str, object] | None, headers: Mapping[str, str]
    ) -> tuple[int, Mapping[str, str], bytes]:
        timeout = aiohttp.ClientTimeout(SECONDS)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, headers=self._headers) as session,
                session.request(
                    method,
                    self._url,
                    json=body,
                    headers=headers,
                    allow_redirects=method == "GET",  # a PUT that is led to a page writes nothing
                ) as response,
            ):
                return response.status, response.headers, await response.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            why = f"does not answer ({type(error).__name__})"
            raise FlagsUnavailable(self._url, why) from error


def _kind(value: object) -> bool:
    """Whether a value is a switch: True == 1 in Python."""
    return isinstance(value, bool)
