"""Log lines as JSON: an object each, struck like lines for people, ids whole."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
import pytest

from contract.flows import SPECS
from cutover.server.logging import log_formatter
from effects.tasks import EXCHANGE, exchange_context
from router.config import patterns
from router.config.loader import parse_settings
from router.stack import FIELDS

SECRET = 'a "quoted" key'
ENVIRON = {"QA": SECRET}
LOOKS_LIKE_A_PHONE = "ab13812345678" + "c" * 19


def line(text: str, *arguments: object, more: str = "", **fields: Any) -> dict[str, Any]:
    """Format one record; returns the object."""
    record = logging.LogRecord("a", logging.ERROR, __file__, 1, text, arguments, None)
    setattr(record, FIELDS, fields)
    return formatted(record, more)


def formatted(record: logging.LogRecord, more: str = "") -> dict[str, Any]:
    """Return the object of a record."""
    text = f'[log]\nformat = "json"\n[server]\nqa_key_env = "QA"\n{more}'
    said = log_formatter(parse_settings(text, "x", SPECS), ENVIRON).format(record)
    assert "\n" not in said
    return msgspec.json.decode(said, type=dict[str, Any])


def test_an_ordinary_line_has_its_parts() -> None:
    """Moment, level, logger, message; numbers and structures beside it stay what they are."""
    said = line("exchange %s failed", "x", bucket=7, nodes_ms={"model": 1.5}, cost=None)
    assert said.pop("at").endswith("+00:00")
    assert said == {
        "level": "error",
        "logger": "a",
        "event": "exchange x failed",
        "bucket": 7,
        "nodes_ms": {"model": 1.5},
        "cost": None,
    }


def test_everything_that_is_text_is_struck() -> None:
    """Messages, values at any depth, and their names; secrets also where JSON would escape them."""
    said = line("to %s", "ann@example.org", who={"ann@example.org": "13812345678"}, key=SECRET)
    assert said["event"] == "to [email]"
    assert said["who"] == {"[email]": "[phone]"}
    assert said["key"] == "[secret]"


def test_tracebacks_are_struck_and_stay_in_their_line() -> None:
    """An exception may quote the user."""
    with pytest.raises(ValueError, match="invalid literal") as caught:
        int("ann@example.org")
    info = (caught.type, caught.value, caught.tb)
    said = formatted(logging.LogRecord("a", logging.ERROR, __file__, 1, "crashed", (), info))
    assert said["event"] == "crashed"
    assert "ValueError: invalid literal for int() with base 10: '[email]'" in said["exception"]


def test_the_exchange_of_a_line_is_named_and_whole() -> None:
    """From the task it was said in; one it is about goes before."""
    context = exchange_context(LOOKS_LIKE_A_PHONE)
    assert context.run(line, "hello")["exchange"] == LOOKS_LIKE_A_PHONE
    assert context.run(line, "hello", exchange="another")["exchange"] == "another"
    assert "exchange" not in line("hello")
    assert EXCHANGE.get() == ""


def test_text_that_is_no_unicode_can_be_logged() -> None:
    """A lone surrogate must not make the log fail."""
    assert line("%s", "\ud800 ann@example.org")["event"] == "? [email]"


def test_what_json_cannot_hold_is_described() -> None:
    """A new field must not make the log fail."""
    assert line("x", odd=object)["odd"] == "<class 'object'>"


def test_what_cannot_be_searched_to_the_end_is_withheld(monkeypatch: pytest.MonkeyPatch) -> None:
    """That text alone."""
    monkeypatch.setattr(patterns, "PATIENCE_S", 0.05)
    more = "[captures.redact.patterns]\nendless = '((a{1,100}){1,100}){1,100}b'\n"
    said = line("a" * 3_000, more=more, flow="chat")
    assert said["event"] == "[withheld, pattern 'endless' took over 0.05 s on one text]"
    assert said["flow"] == "chat"
