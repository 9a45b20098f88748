"""What a line of the log says, and what it never says."""

import json
import logging
from typing import Any

import pytest

from harness.config import parse
from harness.server.logs import JsonLines, TextLines, secrets

SECRETS: dict[str, Any] = {
    "server": {"flag_token": "env:CUTOVER_TEST_TOKEN"},
    "stores": {"database": "postgresql+psycopg://ann:pass%20word@db/cutover"},
    "captures": {"url": "captures", "key": "0123456789abcdef"},
    "stacks": {"legacy": {"url": "http://legacy:1", "headers": {"x-key": "header-key"}}},
    "models": {"m": {"key": "env:CUTOVER_TEST_KEY"}, "n": {"key": "sk-written-here"}},
    "flows": {"chat": {}},
}


def record(message: str, *args: Any, error: str = "") -> logging.LogRecord:
    """Return a record of a logger, with the traceback of an error."""
    raised: Any = None
    if error:
        with pytest.raises(ZeroDivisionError) as caught:
            raise ZeroDivisionError(error)
        raised = (caught.type, caught.value, caught.tb)
    return logging.LogRecord("cutover.exchange", logging.INFO, "", 1, message, args, raised)


def test_key_value_pairs_are_fields_of_a_json_line() -> None:
    """With their types; what stands without a key is in the message."""
    line = JsonLines(()).format(record("exchange=%s %s ms=%.1f 100%% calls=%d", "e", "x", 1.25, 3))
    said = json.loads(line)
    assert (said["exchange"], said["ms"], said["calls"]) == ("e", 1.25, 3)
    assert said["message"] == "exchange=e x ms=1.2 100% calls=3"
    assert (said["level"], said["logger"]) == ("info", "cutover.exchange")


def test_a_traceback_stays_in_its_line() -> None:
    """Line ends in what was raised or said start no new one."""
    line = JsonLines(()).format(record("a=%s", "b\nc", error="x"))
    assert "\n" not in line
    assert "ZeroDivisionError" in json.loads(line)["traceback"]
    assert TextLines(()).format(record("a=%s", "b\nc")).endswith("a=b\\nc")


@pytest.mark.parametrize("form", [TextLines, JsonLines])
def test_no_secret_of_the_configuration_is_logged(
    form: type[TextLines], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the environment or the file, whole or as the password of an address, in tracebacks."""
    monkeypatch.setenv("CUTOVER_TEST_TOKEN", 'to"ken-1')
    monkeypatch.setenv("CUTOVER_TEST_KEY", "sk-from-environment")
    hidden = ['to"ken-1', "pass word", "0123456789abcdef", "header-key", "sk-written-here"]
    hidden.append("sk-from-environment")
    lines = form(secrets(parse(SECRETS)))
    line = lines.format(record("said=%s", " ".join(hidden), error=" ".join(hidden)))
    for one in hidden:
        assert one not in line
        assert json.dumps(one)[1:-1] not in line
    assert "***" in line


def test_defaults_are_no_secrets() -> None:
    """The name of the built-in database may be said, and so may short words."""
    settings = parse({"flows": {"chat": {}}, "rollout": {"qa_key": "qa"}})
    assert "sqlite+aiosqlite:///cutover.db" not in set(secrets(settings))
    assert "qa" not in set(secrets(settings))
