"""The log: lines of text, or of JSON, in which no secret of the configuration stands."""

import json
import logging
import os
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote, urlsplit

from harness.config import SecretText, Settings

_PLACE = re.compile(r"%%|(?:(\w+)=)?%[-+ #0]*\d*(?:\.\d+)?[a-zA-Z]")
_SHORTEST = 6
"""Characters of a secret from which it is searched for: shorter ones stand in other words."""
_HIDDEN = "***"


class TextLines(logging.Formatter):
    """One line of text for each event, its secrets replaced; tracebacks follow."""

    def __init__(self, secrets: Iterable[str]) -> None:
        super().__init__("%(asctime)s %(name)s %(message)s")
        longest = sorted(set(secrets), key=len, reverse=True)
        spelt = [re.escape(form) for one in longest for form in (one, json.dumps(one)[1:-1])]
        self._secrets = re.compile("|".join(spelt)) if spelt else None

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        line = self.line(record)
        return line if self._secrets is None else self._secrets.sub(_HIDDEN, line)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Return the event in one line, whatever clients and services have said."""
        return super().formatMessage(record).replace("\r", "\\r").replace("\n", "\\n")

    def line(self, record: logging.LogRecord) -> str:
        """Return the line, secrets and all."""
        return super().format(record)


class JsonLines(TextLines):
    """One JSON object for each event: `key=value` in its text is a field of its own, too."""

    def line(self, record: logging.LogRecord) -> str:
        """Return the object of a record, in one line."""
        said = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_facts(record),
        }
        if record.exc_info:
            said["traceback"] = self.formatException(record.exc_info)
        return json.dumps(said, default=str)


def _facts(record: logging.LogRecord) -> dict[str, Any]:
    if not isinstance(record.args, tuple):
        return {}
    places = [one for one in _PLACE.finditer(str(record.msg)) if one.group() != "%%"]
    return {one.group(1): arg for one, arg in zip(places, record.args, strict=False) if one[1]}


def secrets(settings: Settings) -> Iterator[str]:
    """Yield what must stand in no line: secrets that are set, and passwords in addresses."""
    found = [*_secrets_in(settings.model_dump())]
    for model in settings.models.values():
        scheme, _, name = model.key.partition(":")
        found.append(os.environ.get(name, "") if scheme == "env" else model.key)
    for one in found:
        yield from (part for part in (one, _password(one)) if len(part) >= _SHORTEST)


def _secrets_in(value: Any) -> Iterator[str]:
    if isinstance(value, SecretText):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _secrets_in(one)


def _password(value: str) -> str:
    try:
        return unquote(urlsplit(value).password or "")
    except ValueError:
        return ""


def start_logging(settings: Settings) -> None:
    """Log to standard error, as the configuration says, for this process's life."""
    lines = JsonLines if settings.telemetry.log == "json" else TextLines
    handler = logging.StreamHandler()
    handler.setFormatter(lines(secrets(settings)))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("httpx2").setLevel(logging.WARNING)
