"""Turns of chats, in the database or in a Memory service over HTTP.

The database has them in the order in which they were first added. A service answers the three
requests of docs/architecture.md. The same turn again (id, flow, chat, role, content, user) is no
conflict. Ids are percent-encoded as one segment of the path. Answers that are not in the table
there, redirects among them, and silence raise `httpx.HTTPError`.
"""

from collections.abc import Collection
from http import HTTPStatus
from typing import Any, Literal
from urllib.parse import quote

import httpx
import msgspec
from sqlalchemy import or_, select, tuple_

from cutover import effect
from cutover.errors import CutoverError
from effects.database import Database, TurnRow
from effects.world import current

Chat = tuple[str, str]
"""A flow, and the id of a chat in it."""
ALL = 100_000
"""The most turns of one chat that `messages` returns."""


class Turn(msgspec.Struct, frozen=True):
    """One message of a chat; `id` is unique in its flow.

    A turn whose `chat_id` is "" belongs to no chat: it is found by its id, and in no history. `at`
    is ISO 8601. An assistant's turn has the `user_id` of the user it answers, so that it is
    forgotten with that user. `data` is JSON that a flow keeps beside the text.
    """

    id: str
    flow: str
    chat_id: str
    role: Literal["user", "assistant"]
    content: str
    name: str | None = None
    user_id: str | None = None
    at: str = ""
    data: dict[str, Any] = {}


class TurnDiffers(CutoverError):
    """The id of a turn belongs to another turn of the flow."""

    def __init__(self, turn_id: str) -> None:
        super().__init__(turn_id)  # alone in `args`: the tape raises it anew from them

    def __str__(self) -> str:
        return f"turn {self.args[0]!r} is stored with other content: send a new id"


class NotForgotten(CutoverError):
    """Turns cannot be removed, because a Memory service holds them."""

    def __init__(self) -> None:
        super().__init__("the Memory service holds the turns: remove them there")


@effect("conversations.history")
async def history(flow: str, chat_id: str, limit: int) -> list[Turn]:
    """Return the newest `limit` turns of a chat, the oldest of them first; none of chat ""."""
    return await _newest(flow, chat_id, limit)


async def messages(flow: str, chat_id: str) -> list[Turn]:
    """Return all turns of a chat, the oldest first; not on the tape."""
    return await _newest(flow, chat_id, ALL)


async def _newest(flow: str, chat_id: str, limit: int) -> list[Turn]:
    if not chat_id or limit <= 0:
        return []
    world = current()
    if world.http is not None:
        path, query = f"chats/{_segment(chat_id)}/messages", {"flow": flow, "limit": str(limit)}
        answer = await _asked(world.http, "GET", path, params=query)
        return msgspec.json.decode(answer.raise_for_status().content, type=list[Turn])
    of_chat = _turns.where(TurnRow.flow == flow, TurnRow.chat_id == chat_id)
    newest = of_chat.order_by(TurnRow.seq.desc()).limit(limit)
    async with world.database.engine.connect() as connection:
        rows = (await connection.execute(newest)).mappings().all()
    return [msgspec.convert(row, Turn) for row in reversed(rows)]


@effect("conversations.find")
async def find(flow: str, message_id: str) -> Turn | None:
    """Return the turn of that id, None where the flow has none."""
    world = current()
    if world.http is not None:
        path = f"messages/{_segment(message_id)}"
        answer = await _asked(world.http, "GET", path, params={"flow": flow})
        if answer.status_code == HTTPStatus.NOT_FOUND:
            return None
        return msgspec.json.decode(answer.raise_for_status().content, type=Turn)
    wanted = _turns.where(TurnRow.flow == flow, TurnRow.id == message_id)
    async with world.database.engine.connect() as connection:
        row = (await connection.execute(wanted)).mappings().first()
    return None if row is None else msgspec.convert(row, Turn)


@effect("conversations.add", writes=True, raises=(TurnDiffers,))
async def add(turn: Turn) -> None:
    """Store a turn, once; raises `TurnDiffers` where its id belongs to another of the flow."""
    world, fields = current(), msgspec.structs.asdict(turn)
    if world.http is not None:
        path, query = f"messages/{_segment(turn.id)}", {"flow": turn.flow}
        answer = await _asked(world.http, "PUT", path, params=query, json=fields)
        if answer.status_code == HTTPStatus.CONFLICT:
            raise TurnDiffers(turn.id)
        answer.raise_for_status()
        return
    insert = world.database.insert_new(TurnRow, **fields)
    same = [getattr(TurnRow, name) == fields[name] for name in _IDENTITY]
    async with world.database.engine.begin() as connection:
        if (await connection.execute(insert)).first() is not None:
            return
        if (await connection.execute(select(TurnRow.seq).where(*same))).first() is None:
            raise TurnDiffers(turn.id)


async def _asked(http: httpx.AsyncClient, method: str, path: str, **sent: Any) -> httpx.Response:
    """Ask the service; once more where the connection was lost, which does no request any harm."""
    try:
        return await http.request(method, path, **sent)
    except (httpx.NetworkError, httpx.RemoteProtocolError):
        return await http.request(method, path, **sent)


async def users(user_id: str) -> dict[Chat, set[str]]:
    """Return a user's chats, each with the ids of all its users; raises `NotForgotten`."""
    own = select(TurnRow.flow, TurnRow.chat_id).where(TurnRow.user_id == user_id)
    shared = select(TurnRow.flow, TurnRow.chat_id, TurnRow.user_id).distinct()
    shared = shared.where(tuple_(TurnRow.flow, TurnRow.chat_id).in_(own), TurnRow.chat_id != "")
    found: dict[Chat, set[str]] = {}
    async with _own_database().engine.connect() as connection:
        for flow, chat_id, user in await connection.execute(shared):
            found.setdefault((flow, chat_id), set()).update([user] if user else [])
    return found


async def forget(
    chats: Collection[Chat], users: Collection[str] = (), *, dry_run: bool = False
) -> int:
    """Remove chats, and what users said elsewhere; return the number of turns.

    Raises `NotForgotten`.
    """
    of_chats = tuple_(TurnRow.flow, TurnRow.chat_id).in_(chats)
    either = or_(of_chats, TurnRow.user_id.in_(users))
    return await _own_database().remove(TurnRow, either, dry_run=dry_run)


def _own_database() -> Database:
    world = current()
    if world.http is not None:
        raise NotForgotten
    return world.database


_IDENTITY = ("id", "flow", "chat_id", "role", "content", "user_id")
"""What makes two turns one message: a turn that is stored again may have a later time."""

_turns = select(TurnRow.__table__)


def _segment(name: str) -> str:
    # A segment of dots alone would be a step up the path.
    return quote(name, safe="").replace(".", "%2E")
