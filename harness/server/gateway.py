"""The gateway beside the router: its providers, its connections, its own listener."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from harness.config import Settings
from harness.server.listener import serving_beside
from router.gateway import Gateway, GatewaySettings, Provider, open_connections
from router.gateway.runs import OpenRuns

_OPENAI = "https://api.openai.com/v1"


@asynccontextmanager
async def serving_gateway(
    settings: Settings, runs: OpenRuns, *, replays: bool = False
) -> AsyncIterator[Gateway | None]:
    """Serve the gateway until the block ends, None where it is off; raises `ConfigRefused`."""
    if (table := settings.gateway) is None:
        yield None
        return
    providers = [
        Provider(
            name,
            one.base_url or os.environ.get("OPENAI_BASE_URL", _OPENAI),
            one.key,
            one.silence_seconds,
        )
        for name, one in settings.providers.items()
    ]
    asked = GatewaySettings(
        providers, table.key, frozenset(table.origins), table.body_bytes, replays
    )
    async with open_connections() as session:
        gateway = Gateway(asked, runs, session)
        async with serving_beside(gateway, "gateway", table.host, table.port):
            yield gateway
