"""The command line: each command imports what it runs, so that `--help` waits for none of it."""

import asyncio
import re
import statistics
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
import typer
from typer.core import TyperCommand

from cutover.errors import CutoverError, Unusable

cli = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

WRONG: Final = 64
"""The exit status for a command line or a file that cannot be meant: EX_USAGE of sysexits.h."""
FAULT: Final = 70
"""The exit status for a fault of the program's own, which is no verdict: EX_SOFTWARE."""
_UNITS: Final = {"m": 60, "h": 3_600, "d": 86_400}


@contextmanager
def _judging() -> Iterator[None]:
    """End with `WRONG` where a command cannot be carried out, and with `FAULT` where it breaks."""
    try:
        yield
    except typer.TyperException as error:
        error.exit_code = WRONG
        raise
    except (CutoverError, OSError, ImportError) as error:
        extra = "; install the extra, such as cutover[compare], load, dask or s3"
        more = extra if isinstance(error, ImportError) else ""
        typer.echo(f"cutover: {error}{more}", err=True)
        raise typer.Exit(WRONG) from error
    except (typer.Exit, typer.Abort):
        raise
    except Exception as error:
        traceback.print_exc()
        raise typer.Exit(FAULT) from error


class Deciding(TyperCommand):
    """A command whose exit status is a verdict: 1 and 2 are none of an error's."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the command line."""
        with _judging():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with _judging():
            return super().invoke(ctx)


def moment(text: str) -> int:
    """Return a moment in microseconds since 1970: `2h`, `3d` or `30m` ago, or ISO 8601, UTC.

    Raises `typer.BadParameter`.
    """
    if ago := re.fullmatch(r"(\d{1,6})([mhd])", text):
        return time.time_ns() // 1_000 - int(ago[1]) * _UNITS[ago[2]] * 1_000_000
    try:
        read = datetime.fromisoformat(text)
    except ValueError as error:
        message = f"{text!r} is no time: 2h, 3d, 2026-11-28 or 2026-11-28T10:30"
        raise typer.BadParameter(message) from error
    return round((read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp() * 1e6)


_Here = Annotated[
    Path | None,
    typer.Option(
        default_factory=lambda: next(Path().glob("cutover.toml"), None),
        show_default="cutover.toml, if there is one; else the five flows",
        help="the configuration that is served with",
    ),
]
_Captures = Annotated[str, typer.Argument(help="a folder, or a bucket such as s3://b/captures")]
_Config = Annotated[Path, typer.Option(help="cutover.toml, as it is served with")]
_Flow = Annotated[str | None, typer.Option(help="needed where there are several")]
_Report = Annotated[Path | None, typer.Option(help="cutover diff's: causes not waived hold")]
_Scheduler = Annotated[str, typer.Option(help="address of Dask's scheduler: its workers")]
_Headers = Annotated[list[str] | None, typer.Option(help="as 'authorization: Bearer ...'")]


def _headers(lines: list[str] | None) -> list[tuple[str, str]]:
    parted = (line.partition(":") for line in lines or ())
    return [(name.strip(), value.strip()) for name, _, value in parted]


@cli.callback()
def commands() -> None:
    """Replace the pipeline behind a streaming chat without its users noticing."""


@cli.command("serve")
def serve_command(
    *,
    config: _Here,
    simulate: Annotated[bool, typer.Option(help="answer with a simulated model")] = False,
    crash: Annotated[int, typer.Option(help="let graph crash behind its n-th event")] = 0,
) -> None:
    """Serve the flows."""
    from harness.server.serve import serve

    serve(config, simulate=simulate, crash=crash)


@cli.command("replay")
def replay_command(
    captures: _Captures,
    *,
    stack: Annotated[str, typer.Option(help="what replays: legacy or graph")],
    flow: Annotated[str | None, typer.Option(help="this flow alone")] = None,
    config: _Here,
    follow: Annotated[
        bool, typer.Option(help="go on with what is captured, until stopped")
    ] = False,
    part: Annotated[str, typer.Option(help="a share of the exchanges, such as 2/8")] = "1/1",
    scheduler: _Scheduler = "",
    out: Annotated[str, typer.Option(help="where the lines go, if not to the captures")] = "",
    live_after: Annotated[int, typer.Option(min=0, help="fork: ask models from call N on")] = 0,
    model: Annotated[str, typer.Option(help="which model a fork asks then")] = "",
    perform: Annotated[list[str] | None, typer.Option(help="a write that a fork may make")] = None,
) -> None:
    """Run a stack on the tapes of captures; nothing is performed, unless --live-after forks them.

    Exit status: 0 equal, 1 different, 2 refused or not stored, 3 nothing was replayed, 4 mostly
    unreadable.
    """
    from cutover.tape import Fork
    from harness.commands.replay import job_of, replay
    from harness.config import load
    from harness.server.logs import start_logging

    if not live_after and (model or perform):
        raise Unusable(where="--model, --perform", reason="a replay asks nothing: add --live-after")
    fork = Fork(live_after, model, frozenset(perform or ())) if live_after else None
    settings = load(config)
    start_logging(settings)
    job = job_of(captures, stack, flow, part, settings, out, fork)
    raise typer.Exit(replay(job, scheduler, follow=follow).status)


@cli.command("init")
def init_command(
    old: Annotated[str, typer.Argument(help="the service that serves: its URL, or module:app")],
    new: Annotated[str, typer.Argument(help="the service that is to: its URL, or module:app")],
    path: Annotated[str, typer.Option(help="as /chat, /threads/{thread=42}/runs")] = "",
    body: Annotated[str, typer.Option(help="a file, or the body itself")] = "",
    method: Annotated[str, typer.Option(help="GET, POST, PUT or PATCH")] = "POST",
    header: _Headers = None,
    conversation: Annotated[
        str, typer.Option(help="where its id stands, as body.thread; - for nowhere")
    ] = "",
    user: Annotated[str, typer.Option(help="where the user's id stands, as body.user.id")] = "",
    out: Annotated[Path, typer.Option(help="the file to write")] = Path("cutover.toml"),
) -> None:
    """Ask two services once each, and write a configuration that puts a router before them."""
    from harness.setup.init import Asking, choose_at_terminal, look, refuse_existing, write

    asking = Asking(path, method.upper(), body, _headers(header), conversation, user)
    refuse_existing(out)
    found = asyncio.run(look(old, new, asking, typer.echo, choose_at_terminal))
    typer.echo("\n".join(["", *write(found, out, typer.echo)]))


@cli.command("doctor")
def doctor_command(
    config: Annotated[Path, typer.Option(help="cutover.toml")] = Path("cutover.toml"),
    header: _Headers = None,
    *,
    json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Check a set-up and say what works in it; each service is asked once."""
    from harness.setup.doctor import diagnose, page

    found = asyncio.run(diagnose(config, dict(_headers(header))))
    typer.echo(msgspec.json.encode(found).decode() if json else page(found))
    raise typer.Exit(0 if found.healthy else 1)


@cli.command(
    "forget",
    epilog="Exit status: 0 done, 1 nothing found, 2 not begun or broken off, 3 not all of it.",
)
def forget_command(
    user: Annotated[list[str] | None, typer.Option(help="a user's id")] = None,
    conversation: Annotated[list[str] | None, typer.Option(help="a conversation's id")] = None,
    *,
    config: _Here,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="count, and remove nothing")] = False,
) -> None:
    """Forget users with their conversations, or conversations; options may be repeated."""
    from harness.commands.forget import STORES, forget_configured

    users, ids = set(filter(None, user or ())), set(filter(None, conversation or ()))
    if not users | ids:
        message = "name a --user or a --conversation"
        raise typer.BadParameter(message)
    done = asyncio.run(forget_configured(config, users, ids, dry_run=dry_run))
    for store in STORES:
        typer.echo(f"{store:<10}{done.removed[store]:>8}")
    for one in done.left:
        typer.echo(f"not removed: {one}", err=True)
    again = "mend why it is left, and run this again"
    after = "the same without --dry-run" if dry_run else "remove copies elsewhere (docs/privacy.md)"
    typer.echo(f"next: {again if done.left else after}")
    raise typer.Exit(3 if done.left else 0 if done.removed.total() else 1)


@cli.command("diff", cls=Deciding)
def diff_command(
    captures: Annotated[list[str], typer.Argument(help="folders or buckets; with --dialect two")],
    flow: Annotated[list[str] | None, typer.Option(help="this flow; may be repeated")] = None,
    since: Annotated[str, typer.Option(help="exchanges from then on: 2h, 3d")] = "1970-01-01",
    until: Annotated[str, typer.Option(help="exchanges before then")] = "9999-12-31",
    rules: Annotated[Path | None, typer.Option(help="diff.toml: what does not count")] = None,
    waivers: Annotated[Path, typer.Option(help="accepted causes")] = Path("waivers.toml"),
    against: Annotated[Path | None, typer.Option(help="an older report.json")] = None,
    dialect: Annotated[
        list[str] | None,
        typer.Option(help="compare recorded streams, OLD NEW; twice: each has its own"),
    ] = None,
    scheduler: _Scheduler = "",
    processes: Annotated[int, typer.Option(min=1)] = 1,
    sample: Annotated[int, typer.Option(min=0, help="instead: exchanges to keep as tests")] = 0,
    by: Annotated[Literal["cause", "flow"], typer.Option(help="what a sample covers")] = "cause",
    out: Annotated[Path, typer.Option("-o", "--out", help="the folder to write")] = Path("report"),
    *,
    config: _Here,
    aa: Annotated[bool, typer.Option("--aa", help="legacy against itself, too")] = False,
) -> None:
    """Compare legacy and graph on what was captured, and write a report.

    Exit status: 0 equal, 1 different, 3 nothing to compare, 4 mostly unreadable or lines lost, 64
    wrong usage.
    """
    from compare.differences import NONE, read_rules
    from compare.report.document import read_report
    from compare.segments import workers
    from compare.waivers import read_waivers
    from harness.commands.diff import Comparison, compare_captures, compare_recordings, report_on
    from harness.config import load
    from harness.services import chosen

    # What cannot be read is said before anything is compared.
    accepted, older = read_waivers(waivers), None if against is None else read_report(against)
    known = NONE if rules is None else read_rules(rules.read_text("utf-8", "replace"))
    if dialect and not sample:
        rows, read = compare_recordings(captures, dialect, known)
    else:
        settings = load(config)
        named = chosen(flow, list(settings.flows)) if flow else ()
        job = Comparison(captures, settings, named, known, aa)
        with workers(processes, scheduler) as mapped:
            rows, read = compare_captures(job, moment(since), moment(until), mapped)
        if sample:
            from harness.commands.sample import chosen_pairs, write_sample

            typer.echo(write_sample(job, chosen_pairs(rows, sample, by_cause=by == "cause"), out))
            raise typer.Exit(0)
    status, said = report_on(rows, read, accepted, older, out)
    typer.echo(said)
    raise typer.Exit(status)


@cli.command("waive", cls=Deciding)
def waive_command(
    cause: Annotated[str, typer.Argument(help="a cause's id, as the report has it")],
    *,
    owner: Annotated[str, typer.Option(help="who answers for it")],
    reason: Annotated[str, typer.Option(help="why it is accepted")],
    until: Annotated[datetime, typer.Option(formats=["%Y-%m-%d"], help="the last day")],
    at_most: Annotated[float, typer.Option(help="percent of pairs that may have it")] = 100.0,
    waivers: Annotated[Path, typer.Option(help="the file")] = Path("waivers.toml"),
) -> None:
    """Accept a cause of differences up to a day, in `waivers.toml`."""
    from compare.waivers import Waiver, waive

    waiver = Waiver(owner=owner, reason=reason, until=until.date(), at_most_percent=at_most)
    waive(waivers, cause, waiver, datetime.now(UTC).date())
    typer.echo(f"{waivers}: {cause} is accepted up to and with {waiver.until}")
    typer.echo("next: cutover diff, which counts it as accepted")


_VERDICTS = "Exit status: 0 promote, 1 hold, 2 roll back, 3 cannot tell, 64 wrong command line."


@cli.command("gate", cls=Deciding, epilog=_VERDICTS)
def gate_command(
    captures: _Captures,
    config: _Config = Path("cutover.toml"),
    flow: _Flow = None,
    since: Annotated[str, typer.Option(help="as 2h, 3d or 2026-11-28T10:30")] = "",
    share: Annotated[float | None, typer.Option(help="in percent, if flags set it")] = None,
    report: _Report = None,
    page: Annotated[Path | None, typer.Option(help="an HTML file to write")] = None,
    *,
    json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Decide whether the share of graph may be raised, by what its clients have had."""
    from compare.report.page import render
    from harness.commands.gate import STATUS, FileRollout

    rollout = FileRollout.of(captures, config, flow, report)
    decision = rollout.decide_since(moment(since) if since else 0, share)
    if page is not None:
        page.write_text(render("gate.html.j2", decision=decision), "utf-8", "replace")
    text = msgspec.json.encode(decision).decode() if json else ""
    typer.echo(text or render("gate.txt.j2", decision=decision))
    raise typer.Exit(STATUS[decision.verdict])


@cli.command("ramp", cls=Deciding, epilog=_VERDICTS)
def ramp_command(
    captures: _Captures,
    config: _Config = Path("cutover.toml"),
    flow: _Flow = None,
    steps: Annotated[str, typer.Option(help="shares in percent")] = "1,5,25,50,100",
    least_hours: Annotated[float, typer.Option(help="of each step")] = 1.0,
    most_hours: Annotated[float, typer.Option(help="of each step; then stop")] = 48.0,
    report: _Report = None,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what it would take")] = False,
) -> None:
    """Raise the share of graph step by step, as the gate decides, or roll back."""
    from harness.commands.gate import STATUS, FileRollout, carry_out

    hours, rollout = (least_hours, most_hours), FileRollout.of(captures, config, flow, report)
    raise typer.Exit(STATUS[carry_out(steps, hours, rollout, typer.echo, dry_run=dry_run)])


@cli.command("rollback", cls=Deciding)
def rollback_command(config: _Config = Path("cutover.toml"), flow: _Flow = None) -> None:
    """Switch graph off in the file: servers that run send all to legacy within three seconds."""
    from harness.commands.gate import FileRollout

    rollout = FileRollout.of("", config, flow)
    rollout.roll_back()
    typer.echo(f"{rollout.flow}: all go to legacy, forced and pinned ones, too")
    typer.echo("next: mend graph, replay and diff the captures, and then cutover ramp")


def _rates(text: str) -> tuple[float, ...]:
    rates = tuple(sorted({float(one) for one in text.split(",")}))
    if not 0 < rates[0] <= rates[-1] < float("inf"):
        message = f"a rate is more than 0 requests a second: {text}"
        raise ValueError(message)
    return rates


@cli.command("load", cls=Deciding, epilog="Exit status: 0 within margins, 1 not, 3 cannot tell.")
def load_command(
    flow: _Flow = None,
    url: Annotated[str, typer.Option(help="the router; else as cutover.toml says")] = "",
    legacy: Annotated[str, typer.Option(help="instead: the control's own address")] = "",
    graph: Annotated[str, typer.Option(help="instead: the candidate's own address")] = "",
    header: _Headers = None,
    messages: Annotated[Path | None, typer.Option(help="JSON lines, as docs/load.md says")] = None,
    users: Annotated[int, typer.Option(min=1, help="how many ask")] = 10,
    pace: Annotated[float, typer.Option(min=0.01, help="seconds between a user's requests")] = 2.0,
    think: Annotated[float, typer.Option(min=0, help="mean seconds before a next turn")] = 0.0,
    sweep: Annotated[Any, typer.Option(parser=_rates, help="as 1,5,20 requests a second")] = None,
    bound: Annotated[float, typer.Option(min=0.001, help="seconds to a good first text")] = 2.0,
    seconds: Annotated[int, typer.Option(min=5, help="how long a run is measured")] = 30,
    pairs: Annotated[int, typer.Option(min=1, help="how often each stack is loaded")] = 5,
    out: Annotated[Path, typer.Option(help="for rows and load.html")] = Path("load-test"),
    *,
    config: _Here,
) -> None:
    """Load both stacks in turn, and say whether graph is as fast as legacy."""
    from harness.commands.load import load_test, targets
    from loadtests.plan import load_flows
    from loadtests.report import Terms

    name, *others = (flows := load_flows(config, flow or "", messages, think))
    if others:
        message = f"name a --flow: there are {', '.join([name, *others])}"
        raise typer.BadParameter(message)
    headers = {key.lower(): value for key, value in _headers(header)}
    at = targets(config, name, url, (legacy, graph), headers)
    files = {"cutover-config": config, "messages": messages}
    turns = statistics.mean(map(len, flows[name].conversations))
    every = users * turns if sweep else pace  # of a sweep: for one request a second
    sending = {"users": users, "spawn-rate": users, "pace": every, "think": think, **files}
    ready = 3.0 + think * (turns - 1)  # seconds until later turns are as many as first ones
    terms = Terms(flow=name, seconds=seconds, warm_up=ready, good_ms=bound * 1e3, rates=sweep or ())
    raise typer.Exit(load_test(at, terms, pairs, out, sending))


prompts = typer.Typer(no_args_is_help=True)
cli.add_typer(prompts, name="prompts")
_Values = Annotated[
    Path | None, typer.Option(help="JSON lines, each the parameters of a rendering; else our own")
]


@prompts.callback()
def prompts_commands() -> None:
    """Turn Jinja2 templates into LangChain's prompts, and check that both say the same."""


@prompts.command("check", epilog="Exit status: 0 all are equal, 1 not.")
def check_command(
    templates: Annotated[Path | None, typer.Argument(help="a folder of Jinja2 templates")] = None,
    converted: Annotated[
        str, typer.Argument(help="a folder of NAME.txt and NAME.j2, or a module of PromptTemplates")
    ] = "",
    values: _Values = None,
) -> None:
    """Render both stacks' prompts with the same parameters: your own, or the built-in flows'."""
    from harness.commands.prompts import check, read_values

    if templates is not None and not converted:
        message = "name the converted prompts, too"
        raise typer.BadParameter(message)
    found = check(templates, converted, read_values(values))
    for one in found:
        typer.echo("\n".join(one.problems or [f"{one.name}: equal in {one.proofs} renderings"]))
    wrong = sum(bool(one.problems) for one in found)
    typer.echo(f"next: mend {wrong} of {len(found)} prompts" if wrong else "next: cutover diff")
    raise typer.Exit(1 if wrong else 0)


@prompts.command("convert", epilog="Exit status: 0 all are written, 1 not.")
def convert_command(
    source: Annotated[Path, typer.Argument(help="a template, or a folder of .j2 and .jinja2")],
    to: Annotated[Path | None, typer.Option(help="the folder to write; else nothing is")] = None,
    values: _Values = None,
) -> None:
    """Write templates as LangChain's prompts, where both render equally."""
    from harness.commands.prompts import convert_all, read_values

    lines, wrong = convert_all(source, to, read_values(values))
    typer.echo("\n".join(lines))
    raise typer.Exit(1 if wrong else 0)


@cli.command("demo", epilog="Exit status: 0 all six acts did what they say, 1 one did not.")
def demo_command(
    folder: Annotated[Path, typer.Option(help="a new one, for all that it makes")] = Path("demo"),
) -> None:
    """Show a rollout in a minute: mirror, report, crash and takeover, gate, load; no key needed."""
    from harness.demo import run_demo

    raise typer.Exit(run_demo(folder))


def main() -> None:
    """Run the command line; what the user can mend is said in one line."""
    try:
        cli()
    except CutoverError as error:
        typer.echo(f"cutover: {error}", err=True)
        raise SystemExit(2) from error
