"""What is left to do before legacy can be removed, and the last step."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from compare.input.damage import CapturesUnreadable, Damage
from compare.input.outcomes import read_outcomes
from compare.waivers import Waivers
from contract.errors import CutoverError, EffectFailed
from cutover.flows import flows_of
from cutover.pins import reaching_pins
from cutover.stores import open_pauses, pause_encryption
from cutover.wiring.addresses import store_addresses
from effects.stores import sqlite_file
from evidence.pages import PageTemplates
from router.admin.audit import Change
from router.config.schema import FlowSettings, Settings

LEGACY: Final = "legacy"
ALL: Final = 100
LAST_STEP: Final = (
    "rm -r legacy",
    'remove the line "legacy": "legacy:FLOWS", from cutover/wiring/stacks.py',
    "remove legacy from the lists of packages in pyproject.toml, and the tests of what is gone",
)
"""To the letter; tests/cutover/test_retirement.py does it on a copy of the tree."""
_DAY_US: Final = 86_400_000_000


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to do before legacy goes: `done` is None where that cannot be told.

    `flow` is "" for what concerns all of them; `advice` says what to do. `left` counts what is left
    of it: exchanges, waivers, pauses, conversations, settings; None where that is unknown.
    """

    name: str
    flow: str = ""
    done: bool | None
    detail: str
    advice: str = ""
    left: int | None = 0


class Retirement(msgspec.Struct, frozen=True, kw_only=True):
    """Whether legacy can be removed: what is left, by captures of the last `days`."""

    ready: bool
    days: int
    tasks: tuple[Task, ...]
    last_step: tuple[str, ...]


@dataclass(slots=True)
class _Served:
    """Captured exchanges of a flow: recent ones, those that legacy served, and fallbacks to it.

    `unknown` is why that legacy served none of the recent ones would prove nothing, "" if it would.
    """

    recent: int = 0
    recent_legacy: int = 0
    fallbacks: int = 0
    legacy: int = 0
    unknown: str = ""


async def examine(
    settings: Settings,
    environ: Mapping[str, str],
    captures: str,
    waivers: Waivers,
    who: str,
    days: int,
    now: int,
) -> Retirement:
    """Look at configuration, captures, stores and waivers; `now` in microseconds since the epoch.

    What cannot be reached is a task that cannot be told. Nothing is changed.
    """
    served: dict[str, _Served] | str
    try:
        served = _read(captures, settings, days, now)
    except (CapturesUnreadable, OSError) as error:
        served = str(error)
    tasks = [
        *(
            task
            for name, flow in settings.flows.items()
            for task in _flow(name, flow, served, days)
        ),
        _captures(served),
        *_waivers(waivers),
        *[task async for task in _stores(settings, environ, who)],
    ]
    ready = all(task.done for task in tasks)
    return Retirement(ready=ready, days=days, tasks=tuple(tasks), last_step=LAST_STEP)


def _read(captures: str, settings: Settings, days: int, now: int) -> dict[str, _Served]:
    """Count captured exchanges by flow; raises `CapturesUnreadable`."""
    found = {name: _Served() for name in settings.flows}
    since, oldest, damage = now - days * _DAY_US, now, 0
    for one in read_outcomes(captures, flows_of(settings)):
        if isinstance(one, Damage):
            damage += one.kind != "duplicate"
            continue
        flow, oldest = found[one.flow], min(oldest, one.began)
        legacy, recent = one.served == LEGACY, one.began >= since
        flow.legacy += legacy
        flow.recent += recent
        flow.recent_legacy += recent and legacy
        flow.fallbacks += recent and legacy and one.assigned != LEGACY
    unknown = f"{damage:,} parts of the captures cannot be read" if damage else ""
    if oldest > since + _DAY_US:  # a day's grace: [captures] keep_days counts whole days
        unknown = f"the captures reach back {(now - oldest) / _DAY_US:.1f} of {days} days"
    for flow in found.values():
        flow.unknown = unknown
    return found


def _flow(
    name: str, flow: FlowSettings, served: dict[str, _Served] | str, days: int
) -> Iterator[Task]:
    seen = None if isinstance(served, str) else served[name]
    if seen is not None and not seen.recent and not flow.enable_langgraph:
        detail = f"off, and no exchange of the last {days} days is captured: graph will serve it"
        yield Task(name="share", flow=name, done=True, detail=detail)
        return
    whole = flow.enable_langgraph and flow.langgraph_percent == ALL
    yield Task(
        name="share",
        flow=name,
        done=whole,
        detail=f"{flow.configured_share:g} % on graph",
        left=int(not whole),
        advice="" if whole else f"cutover ramp {name}",
    )
    keys = {
        "shadow_percent": flow.shadow_percent > 0,
        "langgraph_fallback": flow.langgraph_fallback,
    }
    keys["force_legacy"] = bool(flow.force_legacy)
    uses = [key for key, used in keys.items() if used]
    yield Task(
        name="configuration",
        flow=name,
        done=not uses,
        left=len(uses),
        detail=f"{', '.join(uses)} use legacy" if uses else "nothing else uses legacy",
        advice=f"in [flows.{name}]: {', '.join(_UNUSED[key] for key in uses)}" if uses else "",
    )
    yield _fallbacks(name, seen, days)


_UNUSED: Final = {
    "shadow_percent": "shadow_percent = 0.0",
    "langgraph_fallback": "langgraph_fallback = false",
    "force_legacy": "force_legacy = []",
}


def _fallbacks(name: str, seen: _Served | None, days: int) -> Task:
    advice = "wait until graph has served alone for as long as you want to be able to go back"
    if seen is None or not seen.recent:
        detail = f"no exchange of the last {days} days is captured"
        return Task(name="served", flow=name, done=None, detail=detail, advice=advice, left=None)
    detail = (
        f"legacy served {seen.recent_legacy:,} of {seen.recent:,} exchanges of the last {days} "
        f"days, {seen.fallbacks:,} as fallback"
    )
    if seen.unknown and not seen.recent_legacy:
        detail = f"{detail}; {seen.unknown}"
        return Task(
            name="served",
            flow=name,
            done=None,
            detail=detail,
            advice=f"{advice}, or --days",
            left=None,
        )
    done = not seen.recent_legacy
    advice = "" if done else advice
    return Task(
        name="served", flow=name, done=done, detail=detail, advice=advice, left=seen.recent_legacy
    )


def _captures(served: dict[str, _Served] | str) -> Task:
    if isinstance(served, str):
        advice = "--captures names others"
        return Task(name="captures", done=None, detail=served, advice=advice, left=None)
    count = sum(one.legacy for one in served.values())
    return Task(
        name="captures",
        done=not count,
        left=count,
        detail=f"{count:,} captured exchanges were served by legacy, and cannot be replayed on it "
        "once it is gone"
        if count
        else "no captured exchange was served by legacy",
        advice="let them go by [captures] keep_days, or keep this version for them"
        if count
        else "",
    )


def _waivers(waivers: Waivers) -> Iterator[Task]:
    by_flow = Counter(one.flow for one in waivers.by_id.values() if waivers.in_force(one))
    for flow, count in sorted(by_flow.items()):
        yield Task(
            name="waivers",
            flow=flow,
            done=False,
            left=count,
            detail=f"{count:,} differences from legacy are accepted for a time",
            advice="decide which stay for good, and remove them from waivers.toml",
        )
    if not by_flow:
        yield Task(name="waivers", done=True, detail="no waiver is in force")


async def _stores(settings: Settings, environ: Mapping[str, str], who: str) -> AsyncIterator[Task]:
    """Yield what pauses and pins of legacy are left."""
    try:
        yield await _pauses(settings, environ)
    except (CutoverError, OSError) as error:
        detail = f"cannot be read: {error}"
        yield Task(name="pauses", done=None, detail=detail, advice="cutover doctor", left=None)
    try:
        async with reaching_pins(settings, environ, who, _unaudited) as control:
            pinned = {one.flow: one.legacy for one in (await control.count()).flows if one.legacy}
    except CutoverError as error:
        yield Task(name="pins", done=None, detail=str(error), left=None)
        return
    for flow, count in sorted(pinned.items()):
        yield Task(
            name="pins",
            flow=flow,
            done=False,
            left=count,
            detail=f"{count:,} conversations are pinned to legacy",
            advice=f"cutover pins release {flow} --stack legacy",
        )
    if not pinned:
        yield Task(name="pins", done=True, detail="no conversation is pinned to legacy")


async def _pauses(settings: Settings, environ: Mapping[str, str]) -> Task:
    address = store_addresses(settings, environ, settings.server.workers).pauses
    waiting = 0
    if not address.startswith("sqlite") or sqlite_file(address).exists():  # reading makes no file
        async with AsyncExitStack() as stack:
            store = await open_pauses(address, stack, pause_encryption(settings.pauses, environ))
            try:
                waiting = sum(one.stack == LEGACY for one in await store.waiting())
            except EffectFailed as failure:
                detail = f"the store reports {failure.fault.code}"
                return Task(
                    name="pauses", done=None, detail=detail, advice="cutover doctor", left=None
                )
    detail = f"{waiting:,} pauses of legacy are open" if waiting else "no pause of legacy is open"
    advice = "wait until they are answered or expire" if waiting else ""
    return Task(name="pauses", done=not waiting, detail=detail, advice=advice, left=waiting)


_TILES: Final = {
    "share": "flows not at 100 %",
    "served": "exchanges legacy served",
    "waivers": "waivers in force",
    "captures": "captures of legacy",
    "pauses": "open pauses of legacy",
    "pins": "conversations on legacy",
}


def retirement_page(found: Retirement) -> str:
    """Render what is left as one HTML file that needs nothing but itself."""
    groups = (
        ("To do", [one for one in found.tasks if one.done is False]),
        ("Unknown", [one for one in found.tasks if one.done is None]),
        ("Done", [one for one in found.tasks if one.done]),
    )
    return _templates().render(
        "retirement.html.j2",
        found=found,
        groups=[(title, tasks) for title, tasks in groups if tasks],
        left=sum(not one.done for one in found.tasks),
        tiles=[(title, _left(found, name), True) for name, title in _TILES.items()],
    )


def _left(found: Retirement, name: str) -> int | str:
    counts = [one.left for one in found.tasks if one.name == name]
    known = [count for count in counts if count is not None]
    if len(known) == len(counts):
        return sum(known)
    return f"{sum(known):,}+?" if sum(known) else "?"


@cache
def _templates() -> PageTemplates:
    return PageTemplates(Path(__file__).parent)


def _unaudited(change: Change) -> None:
    """Pins are only counted here."""
    del change
