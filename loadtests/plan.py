"""What is sent under load, and in which order: flows, messages under fresh ids, pairs of runs."""

import json
import random
import re
import tomllib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from cutover.errors import Unusable
from cutover.wire import Dialect, find_dialect, read_dialect
from cutover.wire.dialect import find
from loadtests.meter import Asked

BUILT_IN: Final = Path(__file__).parent / "flows"
STACKS: Final = ("legacy", "graph")
ID, TURN, MESSAGE = "{id}", "{turn}", "{message}"
"""What stands in a request for a conversation's id, one that was never used, and a message."""
_ANSWERED: Final = re.compile(r'"\{answer\.(\w+)\}"')
"""What stands for an id that the last answers gave, by its kind in the dialect; else null."""
_Line = str | dict[str, Any] | list[str | dict[str, Any]]


@dataclass(frozen=True, slots=True)
class LoadFlow:
    """A flow as clients know it: a request with `{id}` and `{message}` in it, and a dialect.

    A conversation has one message or several, each a text or a whole body.
    """

    name: str
    method: str
    target: str
    headers: Mapping[str, str]
    body: str
    dialect: Dialect
    conversations: Sequence[Sequence[Any]]

    def request(
        self, host: str, message: Any, headers: Mapping[str, str], ids: Mapping[str, Any]
    ) -> Asked:
        """Return the request with a message; `ids` are its conversation's, and of its answers."""
        fresh, text = str(uuid.uuid4()), json.dumps(message)
        body = self.body.replace(MESSAGE, text[1:-1]) if isinstance(message, str) else text
        body = _ANSWERED.sub(lambda found: json.dumps(ids.get(found[1])), body)

        def fill(text: str) -> str:
            return text.replace(ID, ids["id"]).replace(TURN, fresh)

        return Asked(
            method=self.method,
            url=host.rstrip("/") + fill(self.target),
            headers={**{k: fill(v) for k, v in self.headers.items()}, **headers},
            body=fill(body).encode(),
        )


def load_flows(
    config: Path | None = None, name: str = "", messages: Path | None = None, think: float = 0.0
) -> Mapping[str, LoadFlow]:
    """Return the flows that a `cutover.toml` names, without one the built-in ones; or `name` alone.

    `messages` is a file of JSON lines; without it, with time to `think` built-in conversations
    of several turns are taken. Raises `Unusable` and `DialectRefused`.
    """
    kind = "talks" if think else "messages"
    try:
        known = tomllib.loads((BUILT_IN / "flows.toml").read_text("utf-8"))["flows"]
        declared = tomllib.loads(config.read_text("utf-8")).get("flows") if config else None
        tables = declared or dict.fromkeys(known)
        if name and name not in tables:
            raise Unusable(
                where="--flow", reason=f"no flow {name!r}: there are {', '.join(tables)}"
            )
        return {
            one: _flow(one, table, Path(), messages, kind)
            if table and table.get("paths")
            else _flow(one, known.get(one, {}), BUILT_IN, messages, kind)
            for one, table in tables.items()
            if name in {"", one}
        }
    except (OSError, ValueError) as error:
        raise Unusable(where=config or messages, reason=str(error)) from error


def _flow(
    name: str, table: Mapping[str, Any], base: Path, messages: Path | None, kind: str
) -> LoadFlow:
    """Return a flow that asks for its example, each conversation under an id of its own."""
    if not table.get("paths") or not (messages or table.get("example")):
        raise Unusable(where=f"flow {name!r}", reason="has no example, as init writes it")
    example = str(table.get("example") or f"POST {table['paths'][0]}")
    head, _, body = example.partition("\n\n")
    first, *lines = head.strip().splitlines()
    method, _, target = first.partition(" ")
    parted = (line.partition(":") for line in lines or ["content-type: application/json"])
    headers = {key.strip().lower(): value.strip() for key, _, value in parted}
    where, _, place = table.get("keys", {}).get(table.get("sticky", ""), "").partition(".")
    if where == "header":
        headers[place.lower()] = ID
    elif where == "path":
        steps = zip(table["paths"][0].split("/"), target.split("/"), strict=False)
        target = "/".join(ID if step == f"{{{place}}}" else given for step, given in steps)
    elif where == "body" and body.startswith("{"):
        decoded = json.loads(body)
        for holder, step, _ in find(decoded, place):
            holder[step] = ID
        body = json.dumps(decoded)
    found: Sequence[Any] = ("",)
    if messages or MESSAGE in body:
        path = messages or BUILT_IN / table.get(kind, f"{kind}.jsonl")
        found = msgspec.json.Decoder(_Line).decode_lines(path.read_bytes())
    talks = [one if isinstance(one, list) else [one] for one in found]
    texts = any(isinstance(one, str) for talk in talks for one in talk)
    if not talks or not all(talks) or (messages and MESSAGE not in body and texts):
        raise Unusable(where=messages, reason=f"flow {name!r} needs a body in each line")
    named = str(table.get("dialect", "chat-completions"))
    own = (base / named).read_text("utf-8") if Path(named).suffix else ""
    dialect = read_dialect(own, named) if own else find_dialect(named)
    return LoadFlow(name, method, target, headers, body.strip(), dialect, talks)


class PlannedRun(msgspec.Struct, frozen=True):
    """A run of one stack; the runs of a pair share the `seed`, by which their requests are due."""

    number: int
    pair: int
    stack: str
    seed: int


def interleaved(pairs: int, seed: int) -> tuple[PlannedRun, ...]:
    """Return pairs of runs, each the mirror of the one before (A B B A); the first is drawn."""
    chance = random.Random(seed)
    order, runs = chance.sample(STACKS, len(STACKS)), []
    for pair in range(pairs):
        due = chance.getrandbits(32)
        runs += [PlannedRun(2 * pair + place, pair, one, due) for place, one in enumerate(order)]
        order.reverse()
    return tuple(runs)
