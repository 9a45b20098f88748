"""`cutover init`: from two addresses to a configuration, by one request to each service."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from yarl import URL

from compare.streams.two_formats import common_parts
from contract.errors import CutoverError, visible
from contract.flows import SPECS
from cutover.cli.setup.findings import format_of, headline, lines_of, rung_lines
from cutover.cli.terminal import refusals, tables
from cutover.first_configuration import (
    MOST_EXAMPLE_BYTES,
    FirstConfiguration,
    flow_name,
    route_keys_in,
    toml,
)
from cutover.flows import DEFAULT_CONFIG, flows_of
from cutover.probe import SECONDS, NoAnswer, ProbeRequest, ask, body_of, headers_of, text_in
from cutover.recognition import Agreement, NoStream, Recognised, agree, recognise
from effects.files import write_whole
from router.config.capabilities import rungs_of
from router.config.loader import parse_settings
from router.config.schema import SHADOW_SAFE, RemoteStackSettings, Settings
from router.remote import endpoint_url
from router.stack import StackName

NOT_WRITTEN, REFUSED = 1, 2

_WHO: Mapping[StackName, str] = {"legacy": "the old service", "graph": "the new service"}


class InitRefused(CutoverError):
    """A first configuration cannot be made of what is given."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is asked where: the flow's name and path, and each service's address and URL."""

    name: str
    path: str
    urls: Mapping[StackName, str]
    addresses: Mapping[StackName, RemoteStackSettings]
    targets: Mapping[StackName, URL]


_Path = Annotated[
    str,
    typer.Option(
        help="Where clients send requests: at the router, and at a service whose address has no "
        "path. Default: the path of URL_OLD."
    ),
]
_Body = Annotated[
    str,
    typer.Option(
        help="One request, as clients send it; asked for if left out.", metavar="FILE|JSON"
    ),
]
_Header = Annotated[
    list[str] | None,
    typer.Option(
        "--header",
        "-H",
        help='A header to send, such as "authorization: Bearer $TOKEN"; neither shown nor written.',
        metavar="NAME:VALUE",
    ),
]
_ShadowSafe = Annotated[
    bool,
    typer.Option(
        "--shadow-safe",
        help=f"You declare of the new service: {SHADOW_SAFE}. Requests are mirrored to it then.",
    ),
]


def init(
    old: Annotated[str, typer.Argument(help="The old service's address.", metavar="URL_OLD")],
    new: Annotated[str, typer.Argument(help="The new service's address.", metavar="URL_NEW")],
    *,
    path: _Path = "",
    body: _Body = "",
    header: _Header = None,
    name: Annotated[str, typer.Option(help="Of the flow; default: after its path.")] = "",
    shadow_safe: _ShadowSafe = False,
    yes: Annotated[bool, typer.Option("--yes", help="Send the request without asking.")] = False,
    seconds: Annotated[float, typer.Option(min=1, help="What an answer may take.")] = SECONDS,
    config: Annotated[Path, typer.Option(help="The file to write.")] = DEFAULT_CONFIG,
    force: Annotated[bool, typer.Option("--force", help="Replace the file.")] = False,
) -> None:
    """Send one request to two services, recognise their streams, and write cutover.toml.

    Each service is asked once, with `x-cutover-role: shadow`, after the request was shown and
    confirmed. Exit 0: written, 1: not sent, or no configuration can be made of the answers, 2:
    refused; then nothing was written.
    """
    console = tables()
    with refusals(REFUSED):
        if config.exists() and not force:
            message = f"{str(config)!r} is there: --force replaces it, --config FILE names another"
            raise InitRefused(message)
        plan = _plan_of(old, new, path, name)
        given = _text_of(body)
        request = ProbeRequest(body_of(given), headers_of(header or ()), seconds)
    _print_lines(_request_lines(plan, request), console)
    if not (yes or _confirmed()):
        _print_lines(["", "nothing was sent; --yes sends it"], console)
        raise typer.Exit(NOT_WRITTEN)
    old_stream, new_stream = (_recognised(stack, plan, request, console) for stack in plan.targets)
    if old_stream is None or new_stream is None:
        _print_lines(["", "nothing was written"], console)
        raise typer.Exit(NOT_WRITTEN)
    agreement = agree(old_stream, new_stream, SPECS)
    with refusals(REFUSED):
        settings = _write(plan, request, agreement, config, shadow_safe=shadow_safe, force=force)
    _print_lines(_written_lines(plan, agreement, settings, config, given), console)
    steps = rung_lines(rungs_of(plan.name, settings))
    _print_lines(["", "what each step gives, and what it takes", *steps], console)
    curl = _curl(plan, settings, request, body)
    suffix = "" if config == DEFAULT_CONFIG else f" --config {shlex.quote(str(config))}"
    commands = [f"cutover serve{suffix}", curl, f"cutover diff captures -o report{suffix}"]
    _print_lines(["", "next", *(escape(f"  {command}") for command in commands)], console)


def _plan_of(old: str, new: str, path: str, name: str) -> _Plan:
    """Read the addresses as a configuration would; raises `CutoverError`."""
    for url in (old, new):
        if "://" not in url:
            message = f"{url!r} is no address: http://HOST:PORT, or http://HOST:PORT/its/path"
            raise InitRefused(message)
    path = path or urlsplit(old).path
    if path.endswith("/") or not path:
        message = "which path do clients send requests to? --path /api/assistant"
        raise InitRefused(message)
    name = name or flow_name(path, SPECS)
    stacks = "".join(
        f"[stacks.{stack}]\nurl = {toml(url)}\nflows = [{toml(name)}]\n"
        for stack, url in (("legacy", old), ("graph", new))
    )
    flow = f'[flows.{toml(name)}]\npath = {toml(path)}\ndialect = "openai"\n'
    settings = parse_settings(stacks + flow, "cutover init", SPECS)
    spec = flows_of(settings)[name]
    urls: dict[StackName, str] = {"legacy": old, "graph": new}
    addresses = {stack: settings.stacks.place(stack) for stack in urls}
    remote = {stack: it for stack, it in addresses.items() if isinstance(it, RemoteStackSettings)}
    targets = {stack: endpoint_url(address, spec) for stack, address in remote.items()}
    return _Plan(name, path, urls, remote, targets)


def _text_of(body: str) -> str:
    """Return the text of the request: given, in a file, or asked for."""
    if not body:
        try:
            body = typer.prompt("one request's body, as JSON, or a file", err=True)
        except typer.Abort:
            message = "which request? --body FILE or --body '{…}', as clients send it"
            raise InitRefused(message) from None
    return text_in(body)


def _confirmed() -> bool:
    try:
        return typer.confirm("\nsend it to both?", err=True)
    except typer.Abort:
        return False


def _request_lines(plan: _Plan, request: ProbeRequest) -> Iterator[str]:
    yield "one request to each service:"
    yield ""
    for stack, url in plan.targets.items():
        yield f"  POST {_shown(str(url.with_query(None)))}  [dim]{_WHO[stack]}, {stack}[/]"
    yield "  x-cutover-role: shadow"
    for header, _ in request.headers:
        yield f"  {_shown(header.decode())}: [dim](not shown)[/]"
    yield ""
    yield f"  {_shown(request.body.decode())}"
    yield ""
    yield (
        "It costs what any request costs: models are called, and a service that does not look at "
        "x-cutover-role stores what it always stores."
    )


def _recognised(
    stack: StackName, plan: _Plan, request: ProbeRequest, console: Console
) -> Recognised | None:
    """Ask one service, print what it is, and return it if it is a stream."""
    found: Recognised | NoStream | NoAnswer
    try:
        answer = asyncio.run(ask(plan.addresses[stack], plan.targets[stack], request))
        found = recognise(answer, SPECS, request.value)
    except NoAnswer as error:
        found = error
    _print_lines(["", f"{_WHO[stack]}, {stack}: {headline(found)}", *lines_of(found)], console)
    return found if isinstance(found, Recognised) else None


def _write(
    plan: _Plan,
    request: ProbeRequest,
    agreement: Agreement,
    config: Path,
    *,
    shadow_safe: bool,
    force: bool,
) -> Settings:
    """Write the file; return what it says."""
    short = len(request.body) <= MOST_EXAMPLE_BYTES
    first = FirstConfiguration(
        name=plan.name,
        path=plan.path,
        urls=plan.urls,
        found={"legacy": agreement.old, "graph": agreement.new},
        same=agreement.same,
        route_keys=route_keys_in(request.value),
        example=msgspec.json.encode(request.value).decode() if short else "",
        shadow_safe=shadow_safe,
    )
    text = first.text()
    settings = parse_settings(text, str(config), SPECS)
    write_whole(config, text.encode(), exclusive=not force)
    return settings


def _written_lines(
    plan: _Plan, agreement: Agreement, settings: Settings, config: Path, given: str
) -> Iterator[str]:
    flow = settings.flows[plan.name]
    keys = flow.declared.route_keys if flow.declared else {}
    yield ""
    if agreement.same:
        yield "one format: what the one sends, clients of the other can read"
        yield from (f"  [yellow]?[/] {_shown(note)}" for note in agreement.notes)
    else:
        old, new = format_of(agreement.old), format_of(agreement.new)
        parts = common_parts(agreement.old.dialect, agreement.new.dialect)
        common = ", ".join([*parts, "failures", "ends"]).replace("tool_call", "tool calls")
        yield f"[yellow]two formats:[/] {old} (old) and {new} (new). Their answers are compared in"
        yield f"  what both can say: {common}"
        yield "  Streams are passed on, not translated: clients of the old service cannot read the"
        yield "  new one, so it serves none of them until it streams as the old one does"
    yield ""
    yield f"[green]written[/] {_shown(str(config))}"
    yield f"  flow {plan.name} at {plan.path}"
    for key, place in keys.items():
        yield f"  {key} is {_shown(place)} in the body"
    if not keys:
        yield "  [yellow]?[/] no id found in the body: requests are routed by a digest of it"
    if flow.stage == "off":
        yield "  [yellow]?[/] nothing is mirrored yet, so diff has nothing to compare: run this"
        yield "    with --shadow-safe if, of the new service, this is true:"
        yield f"    {SHADOW_SAFE}"
    if len(given.encode()) <= MOST_EXAMPLE_BYTES:
        yield "  example is the request above, for doctor --probe: remove what others may not see"


def _curl(plan: _Plan, settings: Settings, request: ProbeRequest, body: str) -> str:
    """Return the command that sends the same request to the router."""
    server = settings.server
    from_file = bool(body) and not body.lstrip().startswith("{")
    data = f"@{body}" if from_file else request.body.decode()
    headers = ["content-type: application/json"]
    headers += [f"{name.decode()}: …" for name, _ in request.headers if name != b"content-type"]
    return " ".join(
        [
            f"curl -N http://{server.host}:{server.port}{plan.path}",
            *(f"-H {shlex.quote(header)}" for header in headers),
            f"-d {shlex.quote(data)}",
        ]
    )


def _print_lines(lines: Iterable[str], console: Console) -> None:
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True)


def _shown(text: str) -> str:
    return escape(visible(text))
