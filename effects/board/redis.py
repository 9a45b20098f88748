"""A board many processes and hosts share, in Redis, by whose clock its notes hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from effects.board.store import KEEP_SECONDS, SPENT_SECONDS, Note, Phase, Post, Spent, total
from effects.codes import STORE_CODES
from effects.redis import LIMIT, RedisServer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# KEYS[1]: the notes. ARGV[1]: for how long one is kept; then six for each post, "*" expecting any.
_POST = """
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for at = 2, #ARGV, 6 do
    local key, expected, mark = ARGV[at], ARGV[at + 1], ARGV[at + 2]
    local held, known = redis.call('hget', KEYS[1], key), ''
    if held then
        local note = cjson.decode(held)
        if note[3] > now - ARGV[1] then known = note[1] end
    end
    if known ~= mark and (expected == '*' or expected == known) then
        local note = {mark, ARGV[at + 3], now + ARGV[at + 4], tonumber(ARGV[at + 5])}
        redis.call('hset', KEYS[1], key, cjson.encode(note))
        redis.call('pexpire', KEYS[1], ARGV[1] + ARGV[at + 4] + 86400000)
    end
end
return {now, redis.call('hgetall', KEYS[1])}
"""
_ANY = "*"
_KEEP_MS = round(KEEP_SECONDS * 1_000)

_Kept = tuple[str, Phase, float, int]
_note = msgspec.json.Decoder(_Kept)
_spent = msgspec.json.Decoder(Spent)
_encoder = msgspec.json.Encoder()


class RedisBoard:
    """A board in Redis at an address (`redis://host:6379/0`).

    `limit` in seconds for connecting and for each reply. Redis out of reach is the fault
    `store_unavailable`, a value that is none of the board's `store_failed`.
    """

    def __init__(self, url: str, *, prefix: str = "cutover:board:", limit: float = LIMIT) -> None:
        self._server = RedisServer(url, STORE_CODES, limit=limit)
        self._post = self._server.client.register_script(_POST)
        self._prefix = prefix

    async def post(self, posts: Sequence[Post]) -> Mapping[str, Note]:
        """Put up those notes whose place is as expected; gives all that are up then."""
        args = [_KEEP_MS, *(word for one in posts for word in _words(one))]
        with self._server.translated():
            now, flat = await self._post(keys=[f"{self._prefix}notes"], args=args)
            pairs = zip(flat[::2], flat[1::2], strict=True)
            kept = {key.decode(): _note.decode(value) for key, value in pairs}
        return {
            key: Note(mark, phase, max(until - now, 0.0) / 1_000, well)
            for key, (mark, phase, until, well) in kept.items()
            if until > now - _KEEP_MS
        }

    async def spend(self, day: int, who: str, own: Spent) -> Spent:
        """Say what one has spent in a day, all told; gives what all have."""
        key = f"{self._prefix}spent:{day}"
        with self._server.translated():
            async with self._server.client.pipeline(transaction=True) as asked:
                asked.hset(key, who, _encoder.encode(own))
                asked.expire(key, SPENT_SECONDS)
                asked.hvals(key)
                *_, values = await asked.execute()
            return total([_spent.decode(value) for value in values])

    async def aclose(self) -> None:
        """Disconnect; idempotent."""
        await self._server.aclose()


def _words(post: Post) -> tuple[str | int, ...]:
    note, expected = post.note, _ANY if post.expected is None else post.expected
    return post.key, expected, note.mark, note.phase, int(note.left * 1_000), note.well
