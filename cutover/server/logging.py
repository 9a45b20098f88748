"""Logs that keep secrets: the keys in use and personal data are struck from every line."""

from __future__ import annotations

import logging
import re
from importlib import import_module
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import msgspec

from cutover.server.redaction import Striking
from cutover.wiring.models import KEY
from cutover.wiring.telemetry import HEADERS
from effects.tasks import EXCHANGE
from router.admin.tokens import split_tokens
from router.config import PatternTooSlow

if TYPE_CHECKING:
    from collections.abc import Mapping

    from router.config import LogSettings, Settings

FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"
_HEADER = re.compile(r"=([^,]+)")
"""The values in `name=value,name=value`."""
_SHORTEST_SECRET = 6
"""Shorter ones would strike ordinary words, and protect nothing."""


class DiscreetFormatter(logging.Formatter):
    """Formats as usual, tracebacks included, and strikes what nobody may read.

    An exception of a stack may quote what its user said; only the whole text can be searched.
    """

    def __init__(self, striking: Striking) -> None:
        super().__init__(FORMAT)
        self._striking = striking

    def format(self, record: logging.LogRecord) -> str:
        """Format one record; the exchange it is of stands at the end of its first line."""
        exchange = EXCHANGE.get()
        try:
            text = self._striking(super().format(record))
        except PatternTooSlow as late:
            text = f"{record.levelname} {record.name}: [withheld, {late}]"
        if not exchange:
            return text
        # After the striking: an id may look like somebody's number.
        first, end, rest = text.partition("\n")
        return f"{first} exchange={exchange}{end}{rest}"


class Discretion:
    """Keeps a handler discreet while the configuration changes; called with each new one.

    Keys that are in use no more stay secret. The format stays that of the first.
    """

    def __init__(self, handler: logging.Handler, environ: Mapping[str, str]) -> None:
        self._handler = handler
        self._environ = environ
        self._secrets: frozenset[str] = frozenset()
        self._log: LogSettings | None = None

    def __call__(self, settings: Settings) -> None:
        """Take a configuration."""
        self._log = self._log or settings.log
        self._secrets |= _secrets(settings, self._environ)
        settings = msgspec.structs.replace(settings, log=self._log)
        self._handler.setFormatter(discreet(settings, self._environ, self._secrets))


def discreet(
    settings: Settings, environ: Mapping[str, str], also: frozenset[str] = frozenset()
) -> logging.Formatter:
    """Build the formatter for a configuration: its patterns, the keys it names, and others."""
    striking = Striking(settings.patterns, _secrets(settings, environ) | also)
    if settings.log.format == "text":
        return DiscreetFormatter(striking)
    # Imported where it is wanted: structlog takes longer than the rest of this module.
    formatter: logging.Formatter = import_module("cutover.server.json_logs").JsonFormatter(striking)
    return formatter


def _secrets(settings: Settings, environ: Mapping[str, str]) -> frozenset[str]:
    stores = settings.stores
    variables = {provider.key_env for provider in settings.providers.values()}
    variables |= {settings.server.qa_key_env, settings.captures.pseudonym_key_env, KEY}
    variables.add(settings.tracing.endpoint_env)
    variables |= {name for one in settings.tools.mcp.values() for name in (*one.env, one.token_env)}
    for where in msgspec.structs.astuple(stores):
        variables.add(where.removeprefix("env:") if where.startswith("env:") else "")
    values = {environ.get(variable, "") for variable in variables}
    values |= {one.strip() for one in environ.get(settings.pauses.key_env, "").split(",")}
    values |= {token for _, token in split_tokens(environ.get(settings.admin.token_env, ""))}
    values |= {password for value in values if (password := _password(value))}
    for variable in HEADERS:
        for value in map(unquote, _HEADER.findall(environ.get(variable, ""))):
            values |= {value, *value.split()}  # "Basic abc" as a whole, and its key alone
    return frozenset(value for value in values if len(value) >= _SHORTEST_SECRET)


def _password(value: str) -> str | None:
    """Give the password of an address, if a value is one and has one."""
    try:
        return urlsplit(value).password
    except ValueError:
        return None
