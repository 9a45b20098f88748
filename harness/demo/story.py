"""The six acts of the demo: each runs commands, prints what came out, and checks it."""

import asyncio
import json
import signal
import socket
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import httpx
import tomlkit
import typer

from harness.commands.gate import STATUS
from harness.demo.stage import ActFailed, Demo
from harness.demo.users import TALKS, Heard, ask_all, script
from loadtests.simulator import Simulator
from rules.flows import FLOWS

SHARE, CROWD = 50.0, 64
"""The percentage that graph gets before it crashes, and how many ask then."""
STOPPED: Final = 128 + signal.SIGINT
"""The exit status after a signal."""
_CRASHING: Final = ("--crash", "4")
_KEYS: Final = {"qa_key": "demo-tester", "key": "demo-pseudonyms-", "flag_token": "demo-operator"}


def run_demo(folder: Path) -> int:
    """Play the acts in a folder that is empty or not there; return the exit status.

    Raises `ActFailed` for a folder that holds something.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ActFailed(str(folder), problem="holds files: name another --folder, or remove it")
    (folder / "temporary").mkdir(parents=True)
    for name in ("monday.log", "tuesday.log", "upload.tmp"):
        (folder / "temporary" / name).touch()
    try:
        asyncio.run(_play(folder.resolve()))
    except ActFailed as failed:
        typer.echo(f"\ncutover demo: {failed}", err=True)
        return 1
    except asyncio.CancelledError:
        typer.echo("\ncutover demo: stopped", err=True)
        return STOPPED
    return 0


async def _play(folder: Path) -> None:
    acting = asyncio.current_task()
    for number in (signal.SIGINT, signal.SIGTERM):  # what runs is ended on the way out
        asyncio.get_running_loop().add_signal_handler(number, acting.cancel)  # type: ignore[union-attr]
    began = time.monotonic()
    port = _write_config(folder)
    async with (
        Simulator(chunk_ms=8) as model,
        httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}",
            headers={"authorization": f"Bearer {_KEYS['flag_token']}"},
            timeout=60,
        ) as client,
    ):
        script(model)
        typer.echo(
            f"A scripted model answers at OPENAI_BASE_URL={model.base_url}: no key is needed.\n"
            f"Commands run in {folder}, with its cutover.toml."
        )
        demo = Demo(folder, model, client)
        try:
            async with demo.serving():
                await _alone(demo)
                await _mirror(demo)
            async with demo.serving(*_CRASHING):  # it starts while captures are compared
                await _compare(demo)
                await _crash(demo)
                await _roll_back(demo)
            async with demo.serving():
                await _load(demo)
        except (TimeoutError, httpx.HTTPError) as error:
            demo.check(holds=False, problem=repr(error))
    typer.echo(
        f"\nAll six acts did what they say, in {time.monotonic() - began:.0f} s. Look at\n"
        f"  {folder / 'report' / 'report.html'}   where the stacks differ\n"
        f"  {folder / 'gate.html'}            why graph was rolled back\n"
        f"  {folder / 'load-test' / 'load.html'}  P50 and P95 of both\n"
        f"  {folder / 'captures'}             what all of it is made from\n"
        f"next: `cd {folder} && cutover serve --simulate`, or your own services: `cutover init`"
    )


def _write_config(folder: Path) -> int:
    """Write the configuration with a port that is free at this moment, and return that."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    tables: dict[str, Any] = {
        "server": {"port": port, "flag_token": _KEYS["flag_token"]},
        "stores": {"database": "sqlite+aiosqlite:///world.db"},
        "rollout": {"qa_key": _KEYS["qa_key"]},
        "captures": {"url": "captures", "key": _KEYS["key"]},
        "workers": {"temporary_root": str(folder / "temporary")},
        "flows": {name: {"shadow_percent": 0.0} for name in FLOWS},
    }
    (folder / "cutover.toml").write_text(tomlkit.dumps(tables), "utf-8")
    return port


async def _alone(demo: Demo) -> None:
    demo.open_act(1, "Legacy serves alone, and what users ask is captured")
    await demo.ready()
    before = _files(demo)
    heard = await ask_all(demo.client, TALKS["alone"])
    _check_served(demo, heard)
    paused = sum('"hitl_id"' in one.stream or '"approval_id"' in one.stream for one in heard)
    deleted = before - _files(demo)
    demo.check(deleted, "the approved instruction deleted no file")
    demo.show(
        f"requests: {_counts(Counter(one.flow for one in heard))}; all served by legacy",
        f"{paused} paused for a person's answer, and went on with it",
        f"one of those was an approval, which deleted {', '.join(sorted(deleted))}",
    )


async def _mirror(demo: Demo) -> None:
    demo.open_act(2, "Graph plays in the shadow: it is served to no one, and performs nothing")
    for flow in FLOWS:
        await demo.change(flow, shadow_percent=100.0)
    heard = await ask_all(demo.client, TALKS["mirrored"])
    _check_served(demo, heard)
    exchanges = sum(one.served != "" for one in heard)
    status = await demo.status(lambda one: sum(one["shadows"].values()) >= exchanges)
    shadows = status["shadows"]
    demo.check(shadows.get("equal"), f"no shadow was equal: {shadows}")
    demo.show(
        f"requests: {_counts(Counter(one.flow for one in heard))}; all served by legacy",
        f"shadows, as GET /cutover/status counts them: {_counts(shadows)}",
    )


async def _compare(demo: Demo) -> None:
    demo.open_act(3, "What graph makes of all that was captured, and where it differs")
    demo.show(*await demo.run("replay", "captures", "--stack", "graph", ends={0, 1}))
    lines = demo.lines()
    bought = sum(
        play.how == "live" and play.name.startswith("model.") for one in lines for play in one.plays
    )
    played = sum(one.policy == "play" for one in lines)
    demo.check(bought == demo.bought, f"{bought} model calls are captured, of {demo.bought}")
    demo.show(f"the model was asked {bought} times, all for legacy: {played} runs of graph cost 0")
    demo.show(*await demo.run("diff", "captures", ends={1}))


async def _crash(demo: Demo) -> None:
    demo.open_act(4, f"Graph gets {SHARE:g} % of the users, and crashes in mid-stream")
    await demo.ready(*_CRASHING)
    await demo.change("chat", enable_langgraph=True, langgraph_percent=SHARE, shadow_percent=0.0)
    before = demo.bought
    crowd = [
        {"flow": "chat", "user": f"user{n}", "turns": [[f"What is {n} * {n + 5}?"]]}
        for n in range(2, CROWD + 2)
    ]
    heard = await ask_all(demo.client, crowd)
    taken = [one for one in heard if ": served-by legacy" in one.stream]
    for one in heard:
        once = all(one.stream.count(f'"step":"{step}"') == 1 for step in ("ACCEPT", "SUCCESS"))
        demo.check(once, f"a stream is not whole: {one.stream!r}")
    demo.check(taken, "no stream was taken over")
    asked = demo.bought - before
    demo.check(asked == 2 * len(heard), f"{len(heard)} sums asked the model {asked} times")
    rests = (await demo.status())["flows"]["chat"]["breakers"]["graph"]
    demo.show(
        *(line for line in taken[0].stream.splitlines() if line),
        f"{len(taken)} streams like this one; all {len(heard)} are whole, graph's breaker: {rests}",
        f"the model was asked {asked} times, {asked // len(heard)} for each: none was repeated",
    )


async def _roll_back(demo: Demo) -> None:
    demo.open_act(5, "The gate decides, and one command takes all users back")
    await demo.status(lambda one: one["captures"]["written"] >= CROWD)
    gate = ("gate", "captures", "--flow", "chat", "--page", "gate.html")
    demo.show(*await demo.run(*gate, ends={STATUS["hold"], STATUS["roll_back"]}))
    demo.show(*await demo.run("rollback", "--flow", "chat"))
    began = time.monotonic()
    await demo.status(lambda one: one["flows"]["chat"]["effective_percent"] == 0)
    seconds = time.monotonic() - began
    again = [{"flow": "chat", "user": f"user{n}", "turns": [["Hi!"]]} for n in range(12)]
    heard = await ask_all(demo.client, again)
    _check_served(demo, heard)
    demo.show(f"in force {seconds:.1f} s later; {len(heard)} more requests: all served by legacy")


async def _load(demo: Demo) -> None:
    demo.open_act(6, "Graph is mended. Is it as fast as legacy?")
    await demo.ready()
    await demo.change("chat", enable_langgraph=True, langgraph_percent=0.0)
    sizes = ("--users", "5", "--pace", "0.5", "--seconds", "5", "--pairs", "1")
    await demo.run("load", "--flow", "chat", *sizes, ends={0, 3})
    report = json.loads((demo.folder / "load-test" / "load.json").read_bytes())
    for one in report["stacks"]:
        figures = {(row["metric"], row["quantile"]): row["value"] for row in one["figures"]}
        parts = [
            f"{metric} P50 {figures[metric, 0.5]:.0f} ms, P95 {figures[metric, 0.95]:.0f} ms"
            for metric in ("TTFT", "E2E")
            if figures
        ]
        demo.show(f"{one['stack']}: {one['requests']} sound requests; {'; '.join(parts)}")
    demo.show(f"{report['verdict']}: {' '.join(report['reasons'])}")
    demo.show("that is one short pair; a real test has five: cutover load --flow chat")


def _files(demo: Demo) -> set[str]:
    return {one.name for one in (demo.folder / "temporary").iterdir()}


def _check_served(demo: Demo, heard: Sequence[Heard]) -> None:
    """Check that legacy answered each request, alone."""
    for one in heard:
        demo.check(one.status < httpx.codes.BAD_REQUEST, f"{one.flow}: {one.status} {one.stream}")
        alone = one.served in {"", "legacy"} and ": served-by" not in one.stream
        demo.check(alone, f"{one.flow} was served by {one.served}")


def _counts(counted: Mapping[str, int]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in counted.items())
