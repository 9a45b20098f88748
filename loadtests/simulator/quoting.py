"""The answer after tool rounds: what the tools said, quoted."""

from loadtests.simulator.language import Language
from loadtests.simulator.prose import BANK
from loadtests.simulator.request import Message

LONGEST = 200


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
    name = names.get(message.tool_call_id or "", "other")
    kind = "error" if message.text.startswith("Error:") else name
    phrases = BANK[language]
    pattern = getattr(phrases, f"quote_{kind}", phrases.quote_other)
    return str(pattern).replace("{result}", message.text[:LONGEST])
