"""Looking into a Redis: whether it answers, and lets one in."""

from __future__ import annotations

import asyncio

from effects.extras import MissingExtra
from effects.looks import LOOK_SECONDS, Look

try:
    from redis.asyncio import Redis
    from redis.exceptions import AuthenticationError, RedisError, ResponseError
    from redis.exceptions import ConnectionError as NotConnected
    from redis.exceptions import TimeoutError as NoReply
except ImportError as missing:  # pragma: no cover (the extra is installed where tests run)
    raise MissingExtra(adapter="Redis", extra="redis") from missing


async def look_into_redis(url: str) -> Look | None:
    """Look; None where nobody was there to say anything. Raises `ValueError` for no address."""
    client: Redis = Redis.from_url(url, retry=None)
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            await client.execute_command("PING")  # type: ignore[no-untyped-call] # the client's own
    except AuthenticationError:
        return Look(good=False, said="its password is refused, or it asks for one")
    except ResponseError:
        return Look(good=False, said="it has no such database, or does not let this user in")
    except (NotConnected, NoReply, TimeoutError, OSError):
        return None
    except RedisError as failure:
        return Look(good=False, said=f"it cannot be asked ({type(failure).__name__})")
    finally:
        await client.aclose()
    return Look(good=True, said="answers")
