"""Memory and descriptors of a router that serves, mirrors and captures for a long time."""

import asyncio
import logging
import os
from itertools import count
from pathlib import Path
from statistics import linear_regression, median

import pytest

from tests.support.crowd import Model, ask, client, provider, text_of
from tests.support.databases import postgresql
from tests.support.processes import RouterProcess, share

pytestmark = [pytest.mark.nightly, pytest.mark.sockets]
log = logging.getLogger(__name__)

MINUTES = float(os.environ.get("CUTOVER_SOAK_MINUTES", "2"))
CLIENTS, PAUSE_SECONDS = 8, 0.5
"""Two cores serve and mirror what so few ask for: no queue grows."""
MOST_MIB, MOST_DESCRIPTORS = 12.0, 8
"""What the last third may hold more than the second."""


async def test_memory_and_descriptors_stay_flat(tmp_path: Path) -> None:
    """With every request mirrored and captured: the last third holds what the second did."""
    samples: list[tuple[float, float, int]] = []
    numbers, loop, model = count(), asyncio.get_running_loop(), Model()
    with postgresql() as database:
        async with provider(model, 2) as sim, client() as session:
            tables = {
                "stores": {"database": database},
                "tools": ["tests.support.breaking:note"],
                "captures": {"url": str(tmp_path / "captures"), "key": "sixteen letters!"},
                "shadow": {"queue_mib": 4},
                "flows": {"chat": share(50.0, shadow_percent=100.0)},
            }
            environment = {"OPENAI_BASE_URL": sim.base_url, "NOTES": str(tmp_path / "notes")}
            async with RouterProcess(tmp_path, tables, environment=environment) as router:
                began = loop.time()
                until = began + MINUTES * 60

                async def ask_on() -> None:
                    while loop.time() < until:
                        number = next(numbers)
                        body = {"message_id": f"m{number}", "content": f"Tell of item {number}"}
                        heard = await ask(session, f"{router.url}/chat/sse", body)
                        assert heard.events[-2]["content"] == text_of(number)
                        await asyncio.sleep(PAUSE_SECONDS)

                asking = [asyncio.create_task(ask_on()) for _ in range(CLIENTS)]
                while loop.time() < until:
                    await asyncio.sleep(1)
                    process = router.process
                    mib = process.memory_info().rss / (1 << 20)
                    samples.append((loop.time() - began, mib, process.num_fds()))
                await asyncio.gather(*asking)
                said = await router.status()
    third = len(samples) // 3
    (second, last), descriptors = (
        [median(mib for _, mib, _ in part) for part in (samples[third:-third], samples[-third:])],
        [max(fds for *_, fds in part) for part in (samples[third:-third], samples[-third:])],
    )
    at, held, _ = zip(*samples[third:], strict=True)
    slope = linear_regression(at, held).slope * 60
    log.info(
        "requests=%d mib=%.0f,%.0f mib_per_minute=%.2f descriptors=%s shadows=%s captures=%s",
        *(next(numbers), second, last, slope, descriptors, said["shadows"], said["captures"]),
    )
    assert last - second < MOST_MIB
    assert descriptors[1] <= descriptors[0] + MOST_DESCRIPTORS
    assert said["shadows"].get("equal", 0) > 10 * MINUTES
    assert said["captures"]["written"] > 20 * MINUTES
    assert not said["captures"]["dropped"]
    assert max(model.calls.values()) == 1
