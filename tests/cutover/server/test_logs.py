"""Logs: secrets and personal data are struck from lines and tracebacks, the rest stays."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import get_args

import pytest
from pydantic import BaseModel, create_model
from pydantic.fields import FieldInfo

from contract.flows import SPECS
from cutover.server.logging import LogRedaction, log_formatter
from effects.tasks import exchange_context
from router.config import patterns
from router.config.addresses import Variable, variables_of
from router.config.loader import parse_settings
from router.config.schema import Settings

CONFIGURATION = """
[server]
qa_key_env = "QA"
[captures.redact.patterns]
employee = 'EMP-[0-9]{6}'
[stores]
conversations = "env:STORE"
pins = "env:PINS"
[tracing]
endpoint_env = "COLLECTOR"
[providers.p]
base_url = "http://127.0.0.1:1/v1"
key_env = "PROVIDER"
"""
ENVIRON = {
    "QA": "a-signing-key",
    "STORE": "postgresql://cutover:pass-word@127.0.0.1/db",
    "PROVIDER": "a-provider-key",
    "PINS": "redis://:pins-word@127.0.0.1/0",
    "COLLECTOR": "https://user:collector-word@127.0.0.1/v1/traces",
}
HEADERS = {"OTEL_EXPORTER_OTLP_HEADERS": "x-key=collector%20key,authorization=Basic%20YWJjZGVm"}


def line(text: str, *arguments: object) -> str:
    """Format one record."""
    record = logging.LogRecord("a", logging.ERROR, __file__, 1, text, arguments, None)
    return log_formatter(parse_settings(CONFIGURATION, "x", SPECS), ENVIRON | HEADERS).format(
        record
    )


def test_an_ordinary_line_stays() -> None:
    """Time, level, name and message."""
    said = line("exchange %s failed: %s", "0123456789abcdef", "model_auth")
    assert said.endswith(" ERROR a exchange 0123456789abcdef failed: model_auth")


def test_personal_data_is_named_and_struck() -> None:
    """Built-in patterns and configured ones; whole, also where they touch."""
    said = line("%r %r %r", "ann@example.org", "13812345678", "EMP-123456")
    assert said.endswith("'[email]' '[phone]' '[employee]'")


def test_keys_and_passwords_are_struck() -> None:
    """Whatever the configuration names as a secret, wherever it turns up."""
    words = ["pass-word", "pins-word", "collector-word", "collector key", "YWJjZGVm"]
    said = line("%s", " ".join([*ENVIRON.values(), *words, "a-provider-key-and-more"]))
    assert said.endswith(" a" + " [secret]" * 11 + "-and-more")


@pytest.mark.parametrize(
    "section",
    [
        '[conversations]\ntoken_env = "MEMORY"',
        '[gateway]\nenabled = true\nkey_env = "MEMORY"',
        '[embeddings]\nkey_env = "MEMORY"',
        '[workers.deploy]\nenv = ["MEMORY"]',
        '[tools.mcp.files]\ncommand = ["files"]\nenv = ["MEMORY"]',
        '[flags]\nprovider = "a:B"\noptions = { service = { keys = ["env:MEMORY"] } }',
    ],
)
def test_the_secret_of_another_section_is_struck(section: str) -> None:
    """Of a service, of the gateway, of what a program or a source of flags gets."""
    text = f"{CONFIGURATION}{section}\n"
    record = logging.LogRecord("a", logging.ERROR, __file__, 1, "Bearer a-memory-token", (), None)
    environ = ENVIRON | {"MEMORY": "a-memory-token"}
    said = log_formatter(parse_settings(text, "x", SPECS), environ).format(record)
    assert said.endswith("Bearer [secret]")


def test_every_variable_of_the_schema_is_looked_up() -> None:
    """A field whose name ends so, and is of another type, would be missed."""
    named = list(fields_that_name_variables(Settings))
    assert len(named) > 10
    assert [path for path, field in named if field.annotation is not str] == []
    for path, field in named:
        holder: type[BaseModel] = create_model("Holder", secret_env=(Variable, ""))
        assert field.metadata == holder.model_fields["secret_env"].metadata, path
    settings = parse_settings(CONFIGURATION, "x", SPECS)
    assert {*variables_of(settings)} - {""} == {*ENVIRON}


def fields_that_name_variables(section: object, path: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Yield the fields of a schema whose names end in `_env`, of inner sections too."""
    if isinstance(section, type) and issubclass(section, BaseModel):
        for name, field in section.model_fields.items():
            if name.endswith("_env"):
                yield f"{path}{name}", field
            yield from fields_that_name_variables(field.annotation, f"{path}{name}.")
    for inner in get_args(section):
        yield from fields_that_name_variables(inner, path)


def test_tracebacks_are_searched_too() -> None:
    """An exception may quote the user."""
    with pytest.raises(ValueError, match="invalid literal") as caught:
        int("ann@example.org with a-provider-key")
    info = (caught.type, caught.value, caught.tb)
    record = logging.LogRecord("a", logging.ERROR, __file__, 1, "crashed", (), info)
    said = log_formatter(parse_settings(CONFIGURATION, "x", SPECS), ENVIRON).format(record)
    assert "ValueError: invalid literal for int() with base 10: '[email] with [secret]'" in said


def test_a_line_that_cannot_be_searched_to_the_end_is_withheld(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A pattern without an end delays no request and lets nothing through."""
    monkeypatch.setattr(patterns, "PATIENCE_S", 0.05)
    endless = "employee = '((a{1,100}){1,100}){1,100}b'"
    text = CONFIGURATION.replace("employee = 'EMP-[0-9]{6}'", endless)
    record = logging.LogRecord("a", logging.ERROR, __file__, 1, "a" * 3_000, (), None)
    said = log_formatter(parse_settings(text, "x", SPECS), ENVIRON).format(record)
    assert said == "ERROR a: [withheld, pattern 'employee' took over 0.05 s on one text]"


def test_text_that_is_no_unicode_can_be_logged() -> None:
    """A lone surrogate must not make the log fail."""
    assert line("%s", "\ud800 ann@example.org").endswith("\ud800 [email]")


def test_the_exchange_stands_at_the_end_of_the_first_line() -> None:
    """Whole, also where it looks like a phone number; the traceback follows."""
    exchange = "ab13812345678" + "c" * 19
    said = exchange_context(exchange).run(line, "crashed\nby ann@example.org")
    assert said.endswith(f" a crashed exchange={exchange}\nby [email]")


def test_an_id_in_a_line_stays_whole() -> None:
    """Where its digits look like a number, and that number itself is struck."""
    exchange = "ab13812345678" + "c" * 19
    said = line("exchange %s of 13812345678, %s", exchange, f"x{exchange}")
    assert said.endswith(f" exchange {exchange} of [phone], xab[phone]{'c' * 19}")


def test_keys_of_a_new_configuration_are_struck_and_those_of_the_old_one_too() -> None:
    """A provider that is added while the router runs; one that is gone was in use a moment ago."""
    environ = ENVIRON | {"ADDED": "an-added-key"}
    handler = logging.StreamHandler()
    discretion = LogRedaction(handler, environ)
    discretion(parse_settings(CONFIGURATION, "x", SPECS))
    added = CONFIGURATION.replace("PROVIDER", "ADDED") + '[log]\nformat = "json"\n'
    words = ("a-provider-key an-added-key",)
    record = logging.LogRecord("a", logging.ERROR, __file__, 1, "%s", words, None)
    assert handler.format(record).endswith(" ERROR a [secret] an-added-key")
    discretion(parse_settings(added, "x", SPECS))
    assert handler.format(record).endswith(" ERROR a [secret] [secret]")
