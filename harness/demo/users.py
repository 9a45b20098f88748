"""The users of the demo and the model that they talk to, as `talks.toml` scripts both."""

import asyncio
import re
import tomllib
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec

from loadtests.simulator import Answer, FunctionCall, ModelRequest, Simulator

TALKS: Final = tomllib.loads((Path(__file__).parent / "talks.toml").read_text("utf-8"))
AT_ONCE: Final = 6
"""Conversations at the same time."""
_turns, _talks = count(1), count(1)


class Heard(msgspec.Struct, frozen=True):
    """What a client received; `served` is the stack, "" for operations beside the streams."""

    flow: str
    status: int
    served: str
    stream: str


async def ask_all(client: httpx.AsyncClient, talks: Sequence[Mapping[str, Any]]) -> list[Heard]:
    """Hold some conversations at the same time, each turn by turn; return what was received."""
    places = asyncio.Semaphore(AT_ONCE)

    async def hold(talk: Mapping[str, Any]) -> list[Heard]:
        async with places:
            return await _hold(client, talk)

    return [one for heard in await asyncio.gather(*map(hold, talks)) for one in heard]


async def _hold(client: httpx.AsyncClient, talk: Mapping[str, Any]) -> list[Heard]:
    flow, heard = TALKS["flows"][talk["flow"]], list[Heard]()
    known = {"talk": f"demo-{talk['flow']}-{next(_talks)}", "user": talk["user"]}
    for text, *_ in talk["turns"]:
        values = {**known, "turn": f"demo-{next(_turns)}", "text": text}
        heard.append(await _post(client, talk["flow"], flow["path"], flow["body"], values))
        asked = re.search(rf'"{flow.get("asks", "-")}":"(\w+)"', heard[-1].stream)
        for path, body in flow.get("resume", ()) if asked else ():
            answered = {**values, "question": asked[1] if asked else ""}
            heard.append(await _post(client, talk["flow"], path, body, answered))
    return heard


async def _post(
    client: httpx.AsyncClient, flow: str, path: str, body: Any, values: Mapping[str, str]
) -> Heard:
    answer = await client.post(path, json=_filled(body, values))
    return Heard(flow, answer.status_code, answer.headers.get("x-cutover-served", ""), answer.text)


def _filled(body: Any, values: Mapping[str, str]) -> Any:
    if isinstance(body, dict):
        return {name: _filled(value, values) for name, value in body.items()}
    return values.get(body.strip("{}"), body) if isinstance(body, str) else body


def script(model: Simulator) -> None:
    """Have the simulated model answer as the talks say."""
    for one in TALKS["calls"]:
        model.on(_asks(one["when"]), _calling(one))
    for one in TALKS["streams"]:
        model.on(_asks(one["when"]), Answer(raw=one["raw"]))
    for talk in (*TALKS["alone"], *TALKS["mirrored"]):
        for question, *text in talk["turns"]:
            if text:
                model.on(_asks(question), Answer(text=text[0]))


def _asks(question: str) -> Any:
    """Return whether a request is for the answer to a question, and not for a judgement on it."""
    return lambda request: re.sub(r"^\[[^\]]*\]: ", "", request.question) == question


def _calling(one: Mapping[str, str]) -> Any:
    def answer(request: ModelRequest) -> Answer:
        results = [message.text for message in request.turn if message.role == "tool"]
        if results:
            return Answer(text=one["text"].format(*results))
        return Answer(tool_calls=(FunctionCall(one["tool"], one["arguments"]),))

    return answer
