"""Traces: sent where the configuration says, as OTLP; sent nowhere without it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from contract.errors import MissingExtra
from cutover.wiring import telemetry
from cutover.wiring.telemetry import open_tracing
from router.config.errors import ConfigRefused
from router.config.schema import TracingSettings
from tests.support.deployment import Setup, deployed
from tests.support.span_collector import collecting

ALL = "[tracing]\npercent = 100\n"
NAMED = f'{ALL}endpoint_env = "COLLECTOR"\n'


@pytest.mark.slow
@pytest.mark.sockets
@pytest.mark.parametrize("how", ["configured", "OpenTelemetry's own variable"])
async def test_traces_are_sent_when_the_router_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """At the latest: what was served last is not lost."""
    async with collecting() as collector:
        if how == "configured":
            setup = Setup(more=NAMED, environ={"COLLECTOR": f"{collector.url}/v1/traces"})
        else:
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
            setup = Setup(more=ALL, environ={"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url})
        async with deployed(tmp_path, setup) as place:
            await place.ask({"message_id": "m", "content": "I am ann@example.org"})
            await place.settled()
        assert ("cutover", "POST /chat/sse") in collector.spans
        assert ("cutover", "chat gpt-4.1") in collector.spans
        assert b"ann@example.org" not in b"".join(
            one.SerializeToString() for one in collector.received
        )


async def opened(section: TracingSettings, environ: Mapping[str, str]) -> bool:
    """Whether there is an observer that sends traces."""
    async with AsyncExitStack() as stack:
        return open_tracing(section, environ, stack) is not None


async def test_nothing_is_sent_unless_it_is_configured() -> None:
    """Whatever else is set."""
    assert not await opened(TracingSettings(), {"OTEL_SERVICE_NAME": "x", "COLLECTOR": "http://x"})


async def test_a_variable_that_is_not_set_is_refused() -> None:
    """Missing traces must not be noticed only later."""
    with pytest.raises(ConfigRefused, match="COLLECTOR: not set"):
        await opened(TracingSettings(endpoint_env="COLLECTOR"), {})


async def test_without_the_extra_what_is_configured_is_refused(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A platform's variable alone is a warning: this service is not configured to trace."""

    def missing(_: str) -> None:
        raise ModuleNotFoundError(name="opentelemetry")

    monkeypatch.setattr(telemetry, "import_module", missing)
    with pytest.raises(MissingExtra, match="'otel'"):
        await opened(TracingSettings(endpoint_env="COLLECTOR"), {"COLLECTOR": "http://x"})
    assert not await opened(TracingSettings(), {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"})
    assert "no traces are sent" in caplog.text
