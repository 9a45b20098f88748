"""The bench of transport and gateway: what it measures goes through the tape; a few calls here."""

from __future__ import annotations

import pytest

from benchmarks.parts.transports import measure
from loadtests.simulator import Profile, running

pytestmark = [pytest.mark.slow, pytest.mark.sockets]


async def test_each_row_is_measured_against_its_target() -> None:
    """A chat completion in process and over HTTP, another API; the figures are the bench's."""
    async with running(Profile()) as provider:
        rows = await measure(1, provider.url)
    targets = {row.name: row.target for row in rows}
    assert targets == {
        "transport.chat.first_token": 1.0,
        "transport.other_api.first_token": 1.0,
        "gateway.chat.first_token": 1.0,
    }
