"""Log lines as text or JSON, without secrets: keys and personal data are replaced."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from cutover.wiring.models import KEY
from cutover.wiring.telemetry import HEADERS
from effects.tasks import EXCHANGE
from router.admin.auth import split_tokens
from router.config.addresses import variables_of
from router.config.patterns import Patterns, PatternTooSlow
from router.config.schema import LogSettings, Settings
from router.stack import FIELDS

FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"
REPLACEMENT = "[secret]"
_HEADER = re.compile(r"=([^,]+)")
"""The values in `name=value,name=value`."""
_SHORTEST_SECRET = 6
"""Shorter ones would replace ordinary words, and protect nothing."""
_WORD = re.compile(r"""[^\s"'=]+""")
_EXCHANGE_ID = re.compile(r"(?<![0-9A-Za-z])[0-9a-f]{32}(?:[0-9a-f]{8})?(?![0-9A-Za-z])")
"""Stays whole even where its digits look like a phone number; earlier versions' had 32 digits."""


class LogRedactor:
    """Replaces secrets by value and personal data by pattern."""

    def __init__(self, patterns: Patterns, secrets: frozenset[str] = frozenset()) -> None:
        self._patterns = patterns
        self._secrets = sorted(secrets, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        """Return the text without them; raises `PatternTooSlow`: then no part of it may be read."""
        for secret in self._secrets:
            text = text.replace(secret, REPLACEMENT)
        return "".join(self._redacted(text))

    def unneeded(self, texts: Iterable[str]) -> bool:
        """Whether no text can hold anything to replace; one search is cheaper than many."""
        joined = "\n".join(texts)
        raw = joined.encode("utf-8", "surrogatepass")
        return not (
            any(secret in joined for secret in self._secrets) or self._patterns.possible(raw)
        )

    def _redacted(self, text: str) -> Iterator[str]:
        end = 0
        raw = text.encode("utf-8", "surrogatepass")
        found = sorted(self._patterns.possible(raw).matches(text))
        ids = [one.span() for one in _EXCHANGE_ID.finditer(text)] if found else ()
        for match in found:
            if any(start <= match.start and match.end <= stop for start, stop in ids):
                continue
            if match.start >= end:
                yield text[end : match.start]
                yield f"[{match.name}]"
            end = max(end, match.end)
        yield text[end:]


class TextFormatter(logging.Formatter):
    """Formats as usual, facts and tracebacks included, and redacts the whole text.

    An exception of a stack may quote what its user wrote.
    """

    def __init__(self, redactor: LogRedactor) -> None:
        super().__init__(FORMAT)
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        """Format one record; its facts and the exchange's id end its first line."""
        facts: Mapping[str, Any] = getattr(record, FIELDS, {})
        exchange = facts.get("exchange") or EXCHANGE.get()
        shown = "".join(
            f" {key}={_fact(value)}"
            for key, value in facts.items()
            if key != "exchange" and value not in _NOTHING
        )
        first, end, rest = super().format(record).partition("\n")
        try:
            text = self._redactor(f"{first}{shown}{end}{rest}")
        except PatternTooSlow as slow:
            text = f"{record.levelname} {record.name}: [withheld, {slow}]"
        if not exchange:
            return text
        # After the redaction: an id may look like a phone number.
        first, end, rest = text.partition("\n")
        return f"{first} exchange={exchange}{end}{rest}"


_NOTHING: tuple[object, ...] = (None, "", [], {})
"""Facts that a line for people leaves out."""


def _fact(value: object) -> str:
    """Return a value as text, in quotes where it is not one word; what is several with commas."""
    match value:
        case str():
            text = value
        case list():
            text = ",".join(map(str, value))
        case dict():
            text = ",".join(f"{key}:{one}" for key, one in value.items())
        case _:
            text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if _WORD.fullmatch(text) else json.dumps(text, ensure_ascii=False)


_WHOLE = frozenset({"at", "level", "logger", "exchange"})
"""Fields the process writes itself: an id stays whole even where it looks like a phone number."""


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object; each text is redacted before it is encoded."""

    def __init__(self, redactor: LogRedactor) -> None:
        super().__init__()
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        """Format one record."""
        fields: Mapping[str, Any] = getattr(record, FIELDS, {})
        exchange = fields.get("exchange") or EXCHANGE.get()
        event: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            **({"exchange": exchange} if exchange else {}),
            "event": record.getMessage(),
            **fields,
        }
        if record.exc_info:
            event["exception"] = self.formatException(record.exc_info)
        texts: list[str] = []
        _collect_texts(event, texts, _WHOLE)
        if not self._redactor.unneeded(texts):
            whole = {key: event.pop(key) for key in list(event) if key in _WHOLE}
            event = {**whole, **self._redacted(event)}
        try:
            return msgspec.json.encode(event, enc_hook=repr).decode()
        except UnicodeEncodeError:
            # Half of a surrogate pair is no UTF-8, and must not make the log fail.
            text = json.dumps(event, default=repr, ensure_ascii=False)
            return text.encode("utf-8", "replace").decode()

    def _redacted(self, value: Any) -> Any:
        match value:
            case str():
                try:
                    return self._redactor(value)
                except PatternTooSlow as slow:
                    return f"[withheld, {slow}]"
            case dict():
                return {self._redacted(key): self._redacted(one) for key, one in value.items()}
            case _:
                return value


def _collect_texts(
    value: Mapping[str, Any], texts: list[str], excluded: frozenset[str] = frozenset()
) -> None:
    """Append all texts to a list: a recursive generator took half as long as all the rest."""
    for key, one in value.items():
        if key in excluded:
            continue
        texts.append(key)
        if isinstance(one, str):
            texts.append(one)
        elif isinstance(one, dict):
            _collect_texts(one, texts)


class LogRedaction:
    """Sets a handler's formatter; called with each new configuration.

    Keys that are no longer in use stay secret. The format stays that of the first configuration.
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
        settings = settings.model_copy(update={"log": self._log})
        self._handler.setFormatter(log_formatter(settings, self._environ, self._secrets))


def log_formatter(
    settings: Settings, environ: Mapping[str, str], secrets: frozenset[str] = frozenset()
) -> logging.Formatter:
    """Return the formatter of a configuration: its patterns, the keys it names, more secrets."""
    redactor = LogRedactor(settings.patterns, _secrets(settings, environ) | secrets)
    return (TextFormatter if settings.log.format == "text" else JsonFormatter)(redactor)


def _secrets(settings: Settings, environ: Mapping[str, str]) -> frozenset[str]:
    values = {environ.get(variable, "") for variable in (KEY, *variables_of(settings))}
    for listed in (settings.pauses.key_env, settings.server.receipt_key_env):
        values |= {one.strip() for one in environ.get(listed, "").split(",")}
    values |= {token for _, token in split_tokens(environ.get(settings.admin.token_env, ""))}
    values |= {password for value in values if (password := _password(value))}
    for variable in HEADERS:
        for value in map(unquote, _HEADER.findall(environ.get(variable, ""))):
            values |= {value, *value.split()}  # "Basic abc" as a whole, and its key alone
    return frozenset(value for value in values if len(value) >= _SHORTEST_SECRET)


def _password(value: str) -> str | None:
    try:
        return urlsplit(value).password
    except ValueError:
        return None
