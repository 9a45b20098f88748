"""The bench of the transport: what it measures goes through the tape, and is a few calls here."""

from __future__ import annotations

import pytest

from benchmarks.parts.transports import measure
from loadtests.simulator import Profile, running

pytestmark = [pytest.mark.slow, pytest.mark.sockets]


async def test_both_rows_are_measured_against_their_targets() -> None:
    """A chat completion and another API; the figures themselves are the bench's."""
    async with running(Profile()) as provider:
        rows = await measure(1, provider.url)
    targets = {row.name: row.target for row in rows}
    assert targets == {"transport.chat.first_token": 1.0, "transport.other_api.first_token": 1.0}
