"""`cutover init`: a first configuration for two services, made from one answer of each."""

import difflib
import json
import re
import secrets
import shlex
import sys
import tomllib
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

import httpx
import tomlkit
import typer
from jinja2 import Environment, FileSystemLoader

from cutover.errors import Completed, Unusable
from cutover.flow import ClientRequest
from cutover.wire import Dialect, read_dialect, recognise
from harness.config import parse
from harness.server.apps import started
from harness.setup.draft import draft
from harness.setup.trial import (
    CREDENTIALS,
    Example,
    Shape,
    Trial,
    ask,
    open_client,
    shapes_for,
    told,
)
from router.services import ServiceFlow

FLOW = "main"
FULL_SHARE = 100.0
"""Percent: the last step of a rollout."""
SHOWN, SHOWN_BYTES, SHOWN_LINES = 60, 1_000, 6
LONGEST_PATH = 256
NONE = "-"
WITHOUT = (
    "without a conversation's id the turns of one conversation may go to different services, "
    "and a service that keeps the history itself then lacks some of them"
)
ADAPT = "Let NEW take the same and stream as OLD does (docs/services.md, 'Another API')"
_GIVEN = re.compile(r"\{(\w+)(?:=([^}]*))?\}")
_IN_TARGET = "/?&=%:@!$'()*+,;~[]"
_NOT_HERE = frozenset({404, 405, 501})
_CONVERSATIONS = ("thread", "conversation", "session", "chat")
_USERS = ("user", "customer", "account", "tenant")


@dataclass(frozen=True, slots=True)
class Asking:
    """What is known of a request before the services are asked."""

    path: str = ""
    method: str = "POST"
    body: str = ""
    """A file, or the text itself."""
    headers: Sequence[tuple[str, str]] = ()
    conversation: str = ""
    """Where its id stands, `-` for nowhere, "" to be asked for."""
    user: str = ""


Choose = Callable[[str], str]
"""Returns where the conversation's id stands, given what was found; "" for nowhere."""
Tell = Callable[[str], object]


def choose_at_terminal(found: str) -> str:
    """Return where the conversation's id stands: asked at a terminal, elsewhere what was found."""
    if not sys.stdin.isatty():
        return found
    typer.echo(f"Where in the request is the conversation's id? {WITHOUT[0].upper()}{WITHOUT[1:]}.")
    given: str = typer.prompt("body., query., header. or path., - for nowhere", found or NONE)
    return "" if given == NONE else given


@asynccontextmanager
async def side(named: str) -> AsyncIterator[str]:
    """Yield a URL where a stack answers: its address, or that of an app that is started.

    Raises `Unusable`.
    """
    if "://" in named:
        yield named.rstrip("/")
        return
    if not re.fullmatch(r"[\w.]+:[\w.]+", named) or named.partition(":")[2].isdigit():
        why = "neither a URL, as http://127.0.0.1:9001, nor an app, as module:app"
        raise Unusable(where=named, reason=why)
    async with started(named) as url:
        yield url


@dataclass(frozen=True, slots=True)
class Discovery:
    """What was found out of two services: all that their configuration says."""

    sides: Mapping[str, str]
    """URLs and apps by stack."""
    path: str
    example: Example
    dialect: str
    drafted: str
    """The text of the dialect's file, where it is no built-in one."""
    read: bool
    """Whether the dialect finds a text and an end in both answers."""
    keys: Mapping[str, str]


async def look(old: str, new: str, asking: Asking, tell: Tell, choose: Choose) -> Discovery:
    """Ask both services once with the same request, and say what came.

    Raises `Unusable` where they cannot stand behind one router.
    """
    async with side(old) as old_url, side(new) as new_url, open_client() as client:
        path, example, conversation, before = await _first(client, old_url, asking)
        after = await ask(client, new_url, example)
    tell(f"asked {example.method} {example.target} {example.body[:SHOWN]}")
    both = {f"OLD {old}": before, f"NEW {new}": after}
    if not after.accepted:
        does = "does not take the same request" if after.status else "does not answer"
        raise Unusable(where=f"NEW {new}", reason=f"{does}: {_saw(after)}. {ADAPT}")
    form, drafted = _dialect(before, after)
    for service, trial in both.items():
        tell(f"  {service}: {_saw(trial, form)}")
    keys = _keys(example.received(path), form, asking, conversation, choose)
    tell(f"conversation: {keys.get('conversation', f'none; {WITHOUT}')}")
    if (name := _likely(before.headers, _CONVERSATIONS)) and "conversation" not in keys:
        tell(f"OLD answers with a header {name}: if clients send it, give --header '{name}: c1'")
    sides = {"legacy": old, "graph": new}
    read = all(trial.read_whole(form) for trial in both.values())
    return Discovery(sides, path, example, form.name, drafted, read, keys)


def refuse_existing(out: Path) -> None:
    """Raise `Unusable` for a file that is there, before anything is asked."""
    if out.exists():
        raise Unusable(where=out, reason="is there already: move it, or name another by --out")


def write(found: Discovery, out: Path, tell: Tell) -> Sequence[str]:
    """Write the configuration; return the commands that come next.

    Raises `ConfigRefused` where it would not carry to 100 %, and then nothing is written.
    """
    dialect = str(out.with_name("dialect.toml")) if found.drafted else found.dialect
    taken = {urlsplit(named).port for named in found.sides.values()}
    port, gateway, console = [one for one in range(8080, 8090) if one not in taken][:3]
    text = _rendered(
        "cutover.toml.j2",
        found=found,
        dialect=dialect,
        port=port,
        gateway=gateway,
        console=console,
        without=WITHOUT,
        secret=secrets.token_hex(16),
    )
    check_full_share(tomllib.loads(text), FLOW)
    if found.drafted:
        Path(dialect).write_text(found.drafted, "utf-8")
        todo = "see that the texts above are right, or correct it" if found.read else "complete it"
        tell(f"no built-in dialect reads these streams; {dialect} was made from one: {todo}")
    out.write_text(text, "utf-8")
    tell(f"wrote {out}: valid up to {FULL_SHARE:g} %")
    return [
        f"cutover doctor --config {out}   # what works in this set-up, and what it still needs",
        f"cutover serve --config {out}    # OLD serves; the file says how to mirror, and raise NEW",
        _curl(f"http://127.0.0.1:{port}", found.example),
    ]


async def _first(
    client: httpx.AsyncClient, url: str, asking: Asking
) -> tuple[str, Example, str, Trial]:
    """Return path, request, where its API has the conversation's id ("": unknown), and answer."""
    template, _, query = asking.path.partition("?")
    given, template = dict(_GIVEN.findall(template)), _GIVEN.sub(r"{\1}", template)
    body, media = _body(asking.body)
    tries: Iterable[tuple[str, Shape | None]] = shapes_for(template)
    if body or asking.method == "GET":
        tries = dict.fromkeys((path, None) for path, _ in tries)
    else:
        media = "application/json"
    headers = list(asking.headers)
    if media and not any(name.lower() == "content-type" for name, _ in headers):
        headers.append(("content-type", media))
    absent, refused = set[str](), list[str]()
    for path, shape in tries:
        if path in absent:
            continue
        target = _GIVEN.sub(lambda one: given.get(one[1]) or str(uuid.uuid4()), path)
        if shape:
            body = await _filled(shape, client, url, headers)
        target = quote(target + (query and f"?{query}"), safe=_IN_TARGET)
        example = Example(asking.method, target, headers, body)
        trial = await ask(client, url, example)
        if trial.accepted:
            return path, example, shape.conversation if shape else "", trial
        if not trial.status or trial.status in {401, 403}:
            reason = f"does not answer {asking.method} {target}: {_saw(trial)}"
            raise Unusable(where=url, reason=reason)
        if trial.status in _NOT_HERE:
            absent.add(path)
        if "GET" in trial.headers.get("allow", "") and asking.method != "GET":
            refused.append(f"{path} takes GET: --method GET --path '{path}?q=hello'")
        elif trial.status not in _NOT_HERE:
            by = f" ({shape.name})" if shape else ""
            refused.append(f"{asking.method} {path}{by}: {_saw(trial)}")
    why = "; ".join(refused[-3:]) or f"there is nothing at {template or 'the paths of known APIs'}"
    usage = 'Give the path and a body that it takes: --path /chat --body \'{"message": "hello"}\''
    usage = "Look into its log" if "status 5" in why else usage
    offered = await _offered(client, url)
    raise Unusable(where=url, reason=f"takes none of the requests tried: {why}.{offered} {usage}")


async def _filled(
    shape: Shape, client: httpx.AsyncClient, url: str, headers: Sequence[tuple[str, str]]
) -> str:
    """Return the body of a shape, with the first graph that a LangGraph server lists."""
    body = dict(shape.body)
    if "assistant_id" in body:
        trial = await ask(client, url, Example("POST", "/assistants/search", headers, "{}"))
        for graph in (trial.decoded(list[dict[str, Any]]) or [])[:1]:
            body["assistant_id"] = graph.get("graph_id", body["assistant_id"])
    return json.dumps(body, ensure_ascii=False)


async def _offered(client: httpx.AsyncClient, url: str) -> str:
    trial = await ask(client, url, Example("GET", "/openapi.json"))
    paths = (trial.decoded(dict[str, Any]) or {}).get("paths")
    posts = [path for path, methods in paths.items() if "post" in methods] if paths else []
    return f" Its openapi.json offers POST {', '.join(posts[:6])}." if posts else ""


def _body(given: str) -> tuple[str, str]:
    """Return a body and its media type; raises `Unusable` for a file that is no text."""
    if not given:
        return "", ""
    try:
        named = len(given) < LONGEST_PATH and Path(given).is_file()
        text = Path(given).read_text("utf-8") if named else given
    except (OSError, UnicodeDecodeError) as error:
        raise Unusable(where=given, reason=f"cannot be read as --body: {error}") from error
    try:
        json.loads(text)
    except ValueError:
        return text, "application/x-www-form-urlencoded" if "=" in text else "text/plain"
    return text, "application/json"


def _dialect(before: Trial, after: Trial) -> tuple[Dialect, str]:
    """Return the dialect of both services' streams, and the text of its draft, if it is one.

    Raises `Unusable` where each has its own: none could go on with a stream of the other.
    """
    if not (before.streams or after.streams):
        return recognise(b"x", "text/plain")[0], ""  # passed on whole, whatever the dialect
    one, other = (recognise(trial.raw, trial.media) for trial in (before, after))
    both = [form for form in one if form in other]
    if both:
        return both[0], ""
    if one or other:
        old, new = (form[0].name if form else "a dialect of its own" for form in (one, other))
        speak = f"OLD speaks {old} ({before.media}), NEW {new} ({after.media})"
        raise Unusable(where=speak, reason=f"a client understands one of them. {ADAPT}")
    text = _skeleton(before)
    return read_dialect(text, "dialect.toml", "dialect.toml"), text


def _skeleton(trial: Trial) -> str:
    """Return a dialect to be looked at; raises `Unusable` where events are no JSON."""
    sse = trial.media == "text/event-stream"
    form = draft(trial.raw, sse=sse)
    if form is None:
        stream = f"no dialect reads a stream that begins {trial.raw[:SHOWN]!r}"
        why = "SSE and lines with JSON in them are read, and plain text sent as text/plain"
        raise Unusable(where=stream, reason=f"its events are no JSON: {why}")
    shown = [one for one in trial.raw[:SHOWN_BYTES].decode("ascii", "replace").splitlines() if one]
    began = [one if one.isprintable() else ascii(one)[1:-1] for one in shown[:SHOWN_LINES]]
    return _rendered("dialect.toml.j2", framing="sse" if sse else "ndjson", began=began, form=form)


def _saw(trial: Trial, form: Dialect | None = None) -> str:
    if trial.fault and not trial.status:
        return trial.fault
    start = trial.raw[:SHOWN].decode("utf-8", "replace")
    if form is None or not trial.streams:
        kept = ", no stream: it is passed on whole, and compared as one event" if form else ""
        to = f" to {where}" if (where := trial.headers.get("location")) else ""
        return f"status {trial.status}{to} {trial.media}{kept}: {start!r}"
    size, text, ending = trial.reading(form)
    end = "whole" if isinstance(ending, Completed) else f"not whole ({told(ending)})"
    return (
        f"{trial.status} {trial.media}, {form.name}, {size}, first after "
        f"{trial.first:.1f} s, all after {trial.total:.1f} s, {end}: {text[:SHOWN]!r}"
    )


def _keys(
    asked: ClientRequest, form: Dialect, asking: Asking, conversation: str, choose: Choose
) -> Mapping[str, str]:
    """Return where the ids of conversation and user stand; raises `Unusable` where they do not.

    The first key is what requests are split by.
    """
    known = dict(_places(asked, ServiceFlow(FLOW, {}, form).body(asked).decoded))
    places = {
        "user": asking.user or _likely(known, _USERS),
        "conversation": asking.conversation
        or choose(conversation or _likely(known, _CONVERSATIONS)),
    }
    keys = {name: place for name, place in places.items() if place not in {"", NONE}}
    flow = ServiceFlow(FLOW, {}, form, keys)
    for name, place in keys.items():
        if not flow.key(flow.body(asked), name):
            near = difflib.get_close_matches(place, known, 3, 0.1) or list(known)[:3]
            has = ", ".join(near) or "no ids"
            why = f"the request has nothing there; it has {has}"
            raise Unusable(where=f"--{name} {place}", reason=why)
    return keys


def _places(asked: ClientRequest, decoded: Any) -> Iterator[tuple[str, str]]:
    yield from ((f"path.{name}", str(value)) for name, value in asked.params.items())
    yield from ((f"query.{name}", one) for name, one in parse_qsl(urlsplit(asked.target).query))
    yield from _leaves(decoded, "body")
    yield from ((f"header.{name}", one) for name, one in asked.headers if name not in CREDENTIALS)


def _leaves(value: Any, place: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, one in value.items():
            if "." not in key:
                yield from _leaves(one, f"{place}.{key}")
    elif isinstance(value, str | int) and not isinstance(value, bool):
        yield place, str(value)


def _likely(known: Mapping[str, str], names: Sequence[str]) -> str:
    """Return the place whose last step begins like one of some names, "" without one."""
    for place in known:
        last = re.sub(r"[^a-z]", "", place.rpartition(".")[2].lower()).removeprefix("x")
        if any(last in {name, f"{name}id", f"{name}key"} for name in names):
            return place
    return ""


def check_full_share(tables: Mapping[str, Any], flow: str) -> None:
    """Raise `ConfigRefused` for a configuration that is not valid with all of a flow on graph."""
    flows = tables.get("flows", {})  # a file without any serves the built-in ones
    raised = flows.get(flow, {}) | {"enable_langgraph": True, "langgraph_percent": FULL_SHARE}
    parse({**tables, "flows": {**flows, flow: raised}})


def _rendered(template: str, **values: Any) -> str:
    environment = Environment(
        autoescape=False,  # noqa: S701 - it is no HTML
        keep_trailing_newline=True,
        loader=FileSystemLoader(Path(__file__).parent),
    )
    environment.filters["toml"] = lambda text, **how: tomlkit.string(text, **how).as_string()
    return environment.get_template(template).render(values)


def _curl(base: str, example: Example) -> str:
    parts = ["curl", "-N", base + example.target]
    if example.method != ("POST" if example.body else "GET"):
        parts += ["-X", example.method]
    for name, value in example.headers:
        shown = "..." if name.lower() in CREDENTIALS else value
        parts += ["-H", f"{name}: {shown}"]
    if example.body:
        parts += ["-d", example.body]
    return shlex.join(parts)
