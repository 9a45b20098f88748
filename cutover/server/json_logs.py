"""Log lines as JSON, one object each, redacted as the lines for people are."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
import structlog
from structlog.typing import EventDict

from cutover.server.logging import Redactor
from effects.tasks import EXCHANGE
from router.config import PatternTooSlow
from router.telemetry.access_log import FIELDS

_WHOLE = frozenset({"at", "level", "logger", "exchange"})
"""Fields the process writes itself: an id stays whole even where it looks like a number."""


class JsonFormatter(logging.Formatter):
    """Runs structlog's processors over a record; texts are redacted before they are JSON.

    structlog's own formatter copies each record first, which took half of the time.
    """

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        """Format one record."""
        event = _event(record)
        if record.exc_info:
            event["exc_info"] = record.exc_info
            event = structlog.processors.format_exc_info(_LOGGER, record.levelname, event)
        line = _render(_LOGGER, record.levelname, self._redacted(event))
        return line if isinstance(line, str) else line.decode()

    def _redacted(self, event: EventDict) -> EventDict:
        texts: list[str] = []
        _collect_texts(event, texts, _WHOLE)
        if self._redactor.unneeded(texts):
            return event
        whole = {key: value for key, value in event.items() if key in _WHOLE}
        rest = {key: value for key, value in event.items() if key not in _WHOLE}
        return {**whole, **self._redact(rest)}

    def _redact(self, value: Any) -> Any:
        match value:
            case str():
                try:
                    return self._redactor(value)
                except PatternTooSlow as slow:
                    return f"[withheld, {slow}]"
            case dict():
                return {self._redact(key): self._redact(one) for key, one in value.items()}
            case _:
                return value


def _event(record: logging.LogRecord) -> EventDict:
    fields: Mapping[str, Any] = getattr(record, FIELDS, {})
    exchange = fields.get("exchange") or EXCHANGE.get()
    return {
        "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
        "level": record.levelname.lower(),
        "logger": record.name,
        **({"exchange": exchange} if exchange else {}),
        "event": record.getMessage(),
        **fields,
    }


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


def _encode(event: EventDict, **_: object) -> str:
    try:
        return msgspec.json.encode(event, enc_hook=repr).decode()
    except UnicodeEncodeError:
        # Half of a surrogate pair is no UTF-8, and must not make the log fail.
        text = json.dumps(event, default=repr, ensure_ascii=False)
        return text.encode("utf-8", "replace").decode()


_LOGGER = logging.getLogger(__name__)
"""Required by structlog's processors, which do not use it."""
_render = structlog.processors.JSONRenderer(serializer=_encode)
