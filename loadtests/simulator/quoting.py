"""The answer after tool rounds: what the tools said, quoted."""

import msgspec

from loadtests.simulator.language import Language
from loadtests.simulator.prose import BANK
from loadtests.simulator.request import Message

LONGEST = 200


class Answered(msgspec.Struct, frozen=True):
    """What the tool `ask_human` says: what the user did, and the values of the form."""

    action: str
    data: dict[str, object] = {}


ANSWERED = msgspec.json.Decoder(Answered)


def quoted(turn: tuple[Message, ...], language: Language) -> str:
    """Quote every tool result of a turn, in the order of the messages."""
    names = {call.id: call.function.name for said in turn for call in said.tool_calls or ()}
    space = " " if language == "en" else ""
    told = [message for message in turn if message.role == "tool"]
    return space.join(_quote(message, names, language) for message in told)


def last_result(turn: tuple[Message, ...]) -> str:
    """Return the text of the last tool message; empty when there is none."""
    told = [message.text for message in turn if message.role == "tool"]
    return told[-1] if told else ""


def _quote(message: Message, names: dict[str, str], language: Language) -> str:
    name, text = names.get(message.tool_call_id or "", "other"), message.text
    kind = "error" if text.startswith("Error:") else name
    if kind == "ask_human":
        kind, text = _answered(text)
    phrases = BANK[language]
    pattern = getattr(phrases, f"quote_{kind}", phrases.quote_other)
    return str(pattern).replace("{result}", text[:LONGEST])


def _answered(text: str) -> tuple[str, str]:
    """Read the user's answer: how it is quoted, and its values."""
    try:
        answer = ANSWERED.decode(text)
    except msgspec.MsgspecError:
        return "other", text
    if answer.action == "reject":
        return "refused", ""
    return "ask_human", ", ".join(map(_value, answer.data.values()))


def _value(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
