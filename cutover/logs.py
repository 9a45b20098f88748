"""Logs that keep secrets: the keys in use and personal data are struck from every line."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import msgspec

from cutover.models import KEY
from cutover.tracing import HEADERS
from router.admin.tokens import split_tokens
from router.patterns import Patterns, PatternTooSlow

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from router.settings import Settings

FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"
_HEADER = re.compile(r"=([^,]+)")
"""The values in `name=value,name=value`."""
_STRUCK = "[secret]"
_SHORTEST_SECRET = 6
"""Shorter ones would strike ordinary words, and protect nothing."""


class DiscreetFormatter(logging.Formatter):
    """Formats as usual, tracebacks included, and strikes what nobody may read.

    An exception of a stack may quote what its user said; only the whole text can be searched.
    """

    def __init__(self, patterns: Patterns, secrets: frozenset[str] = frozenset()) -> None:
        super().__init__(FORMAT)
        self._patterns = patterns
        self._secrets = sorted(secrets, key=len, reverse=True)

    def format(self, record: logging.LogRecord) -> str:
        """Format one record."""
        text = super().format(record)
        for secret in self._secrets:
            text = text.replace(secret, _STRUCK)
        try:
            return "".join(self._struck(text))
        except PatternTooSlow as late:
            return f"{record.levelname} {record.name}: [withheld, {late}]"

    def _struck(self, text: str) -> Iterator[str]:
        end = 0
        raw = text.encode("utf-8", "surrogatepass")
        for match in sorted(self._patterns.possible(raw).matches(text)):
            if match.start >= end:
                yield text[end : match.start]
                yield f"[{match.name}]"
            end = max(end, match.end)
        yield text[end:]


def discreet(settings: Settings, environ: Mapping[str, str]) -> DiscreetFormatter:
    """Build the formatter for a configuration: its patterns, and the keys it names."""
    stores = settings.stores
    variables = {provider.key_env for provider in settings.providers.values()}
    variables |= {settings.server.qa_key_env, settings.captures.pseudonym_key_env, KEY}
    variables.add(settings.tracing.endpoint_env)
    for where in msgspec.structs.astuple(stores):
        variables.add(where.removeprefix("env:") if where.startswith("env:") else "")
    values = {environ.get(variable, "") for variable in variables}
    values |= {token for _, token in split_tokens(environ.get(settings.admin.token_env, ""))}
    values |= {password for value in values if (password := _password(value))}
    for variable in HEADERS:
        for value in map(unquote, _HEADER.findall(environ.get(variable, ""))):
            values |= {value, *value.split()}  # "Basic abc" as a whole, and its key alone
    secrets = frozenset(value for value in values if len(value) >= _SHORTEST_SECRET)
    return DiscreetFormatter(settings.patterns, secrets)


def _password(value: str) -> str | None:
    """Give the password of an address, if a value is one and has one."""
    try:
        return urlsplit(value).password
    except ValueError:
        return None
