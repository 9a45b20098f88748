"""An answer in one piece, put together from the events of a streamed one."""

from __future__ import annotations

from typing import Any, Final

from router.gateway.said import encoded, said_in

_SAID_ONCE: Final = frozenset({"role", "type", "id", "name", "index"})
"""Texts that are said whole; some providers say them with every event."""


class WholeAnswer:
    """Takes the data of events, gives a `chat.completion`."""

    def __init__(self) -> None:
        self._head: dict[str, Any] = {}
        self._choice: dict[str, Any] = {"index": 0, "finish_reason": None}
        self._message: dict[str, Any] = {}

    def take(self, data: bytes) -> None:
        """Take the data of one event; what is no chunk is passed over."""
        said = said_in(data)
        choices = said.pop("choices", None)
        self._head.update({name: value for name, value in said.items() if value is not None})
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict) and not choice.get("index"):
                self._take_choice(choice)

    def body(self) -> bytes:
        """Encode what has come."""
        message = {"role": "assistant", "content": None, **self._message}
        if isinstance(calls := message.get("tool_calls"), list):  # some say null in every delta
            message["tool_calls"] = [_call(one) for one in calls if isinstance(one, dict)]
        choice = {**self._choice, "message": message}
        answer = {**self._head, "object": "chat.completion", "choices": [choice]}
        return encoded(answer)

    def _take_choice(self, choice: dict[str, Any]) -> None:
        delta = choice.pop("delta", None)
        if isinstance(delta, dict):
            _merge(self._message, delta)
        _merge(self._choice, choice)


def _call(call: dict[str, Any]) -> dict[str, Any]:
    """Give a call as it stands in a whole answer: without its index, with arguments."""
    said = call.get("function")
    function = said if isinstance(said, dict) else {}
    whole = {**call, "function": {**function, "arguments": function.get("arguments") or ""}}
    whole.pop("index", None)
    return whole


def _merge(into: dict[str, Any], delta: dict[str, Any]) -> None:
    """Add what a delta says: texts and lists grow, anything else is replaced."""
    for name, value in delta.items():
        known = into.get(name)
        if value is None:
            into.setdefault(name, None)
        elif isinstance(value, str) and isinstance(known, str) and name not in _SAID_ONCE:
            into[name] = value if name == "finish_reason" else known + value
        elif isinstance(value, dict) and isinstance(known, dict):
            _merge(known, value)
        elif isinstance(value, list):
            into[name] = _joined(known if isinstance(known, list) else [], value)
        else:
            into[name] = value


def _joined(known: list[Any], more: list[Any]) -> list[Any]:
    """Join lists; elements with an index are pieces of the element of that index."""
    for piece in more:
        index = _index(piece)
        same = next((one for one in known if index is not None and _index(one) == index), None)
        if same is None:
            known.append(piece)
        else:
            _merge(same, piece)
    return known


def _index(piece: Any) -> Any:
    return piece.get("index") if isinstance(piece, dict) else None
