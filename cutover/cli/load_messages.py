"""What a load asks where it is not told: the bundled messages, as each built-in flow takes them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from contract.errors import CutoverError
from contract.flows.chat import CHAT
from contract.flows.companion import COMPANION
from contract.flows.session import SESSION
from cutover.demo.messages import BUNDLED

if TYPE_CHECKING:
    from collections.abc import Callable


class MessagesDue(CutoverError):
    """There are no bundled messages for a flow."""

    def __init__(self, flow: str) -> None:
        super().__init__(f"say what to ask the flow {flow!r}: --messages, a JSON object a line")


def bundled(flow: str, folder: Path) -> Path:
    """Give a file of messages for a flow, written to `folder`; raises `MessagesDue`."""
    if flow not in _BODIES:
        raise MessagesDue(flow)
    rows = msgspec.json.Decoder(dict[str, Any]).decode_lines(BUNDLED.read_bytes())
    path = folder / "messages.jsonl"
    path.write_bytes(msgspec.json.Encoder().encode_lines(map(_BODIES[flow], rows)))
    return path


def _chat(row: dict[str, Any]) -> dict[str, Any]:
    return row


def _visit(row: dict[str, Any]) -> dict[str, Any]:
    return {"session_id": row.get("chat_id", row["message_id"]), **_turn(row)}


def _turn(row: dict[str, Any]) -> dict[str, Any]:
    """Say it in a session that begins with it: one nobody knows is refused."""
    return {"message": row["content"], "user_id": row.get("user_name") or row["message_id"]}


_BODIES: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    CHAT.name: _chat,
    COMPANION.name: _visit,
    SESSION.name: _turn,
}
