"""`cutover gate`, `ramp` and `rollback`: the share of graph in the file, and what it has led to."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import msgspec
import pandas as pd
import typer
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from compare import gate
from compare.gate import Decision, Terms, Verdict
from compare.pairs import exchange_rows
from compare.ramp import ALL, Plan, forecast, ramp
from compare.report.page import render
from effects import feedback
from harness import root
from harness.config import ConfigRefused, Settings, load
from harness.deciding import chosen
from harness.edit import check, edit
from harness.services import flow_of
from harness.versions import versions
from router.captures import Reader, Store

STATUS: Final[dict[Verdict, int]] = {"promote": 0, "hold": 1, "roll_back": 2, "cannot_tell": 3}
"""Exit statuses."""
_SECOND_US = 1_000_000
_DAY = timedelta(days=1)


def exchanges(settings: Settings, captures: str, flow: str, since: int) -> pd.DataFrame:
    """Return what the clients of a flow had since a time, in microseconds, with their feedback."""
    store = Store(captures)
    first = (datetime.fromtimestamp(since / _SECOND_US, UTC) - _DAY).date() if since else ""
    names = [one for one in store.names(flow) if one.split("/date=")[1] >= str(first)]
    known, drawn_by = flow_of(flow, settings), settings.flows[flow].route_key
    drawn_by = drawn_by or next(iter(known.key_names), "")
    rows = list(exchange_rows(Reader(store, flow, names), {flow: known}, {flow: drawn_by}))
    url = make_url(settings.stores.database)
    stored = url.get_backend_name() != "sqlite" or Path(url.database or "").is_file()
    scores = asyncio.run(_scores(settings, since)) if stored else {}
    return gate.frame(msgspec.structs.replace(one, score=scores.get(one.exchange)) for one in rows)


async def _scores(settings: Settings, since: int) -> dict[str, int]:
    """Return the feedback given since a time by exchange; raises `ConfigRefused`."""
    try:
        async with root.stores(settings):
            return {one.exchange_id: one.score for one in await feedback.since(since / _SECOND_US)}
    except (SQLAlchemyError, OSError) as error:
        problem = f"stores.database: feedback cannot be read: {type(error).__name__}"
        raise ConfigRefused(None, [problem]) from error


@dataclass(frozen=True, slots=True)
class FileRollout:
    """A flow's share in a configuration file (`compare.ramp.Rollout`)."""

    captures: str
    path: Path
    flow: str
    clock: Callable[[], float] = time.time

    def percent(self) -> float:
        """Return the share in the file, 0 where graph is switched off."""
        table = load(self.path).flows[self.flow]
        return table.langgraph_percent if table.enable_langgraph else 0.0

    def changes(self, percent: float) -> dict[str, dict[str, object]]:
        """Return what is written for a share."""
        return {self.flow: {"enable_langgraph": True, "langgraph_percent": percent}}

    def raise_to(self, percent: float) -> None:
        """Write a share."""
        edit(self.path, self.changes(percent))

    def roll_back(self) -> None:
        """Switch graph off: from the next request on all go to legacy, also forced and pinned."""
        edit(self.path, {self.flow: {"enable_langgraph": False}})

    def hours(self) -> float:
        """Return for how long the file has been as it is."""
        return (self.clock() - self.path.stat().st_mtime) / 3_600

    def decide(self) -> Decision:
        """Return what the exchanges since the file was written say."""
        return self.decide_on(round(self.path.stat().st_mtime * _SECOND_US))

    def decide_on(self, since: int, share: float | None = None) -> Decision:
        """Return what the exchanges since a time say, with a share that is not the file's."""
        settings = load(self.path)
        if settings.flags and share is None:
            problem = "flags: a provider sets shares; say with --share which one is in force"
            raise ConfigRefused(self.path, [problem])
        config = versions(settings, self.flow)["config"] if share is None else ""
        percent = self.percent() if share is None else share
        now = round(self.clock() * _SECOND_US)
        rows = exchanges(settings, self.captures, self.flow, since)
        terms = Terms(self.flow, percent / ALL, config, now, since)
        return gate.decide(rows, terms)


def rollout(captures: str, path: Path, flow: str | None) -> FileRollout:
    """Return the rollout of the flow that is named, or the only one.

    Raises `typer.BadParameter`, which lists the flows.
    """
    flows = chosen([flow] if flow else [], list(load(path).flows))
    if len(flows) > 1:
        message = f"name a --flow: there are {', '.join(flows)}"
        raise typer.BadParameter(message)
    return FileRollout(captures, path, flows[0])


def plan(steps: str, least_hours: float, most_hours: float) -> Plan:
    """Return a plan; raises `typer.BadParameter` for steps that are no numbers."""
    try:
        return Plan(tuple(map(float, steps.split(","))), least_hours, most_hours)
    except ValueError as error:
        message = f"--steps: {steps!r} are no shares, as 1,5,25,50,100"
        raise typer.BadParameter(message) from error


def switch_off(path: Path, flow: str | None) -> str:
    """Switch graph off in the file, and return what that means.

    Raises `ConfigRefused`, with the file changed, where a flag provider may say otherwise.
    """
    one = rollout("", path, flow)
    one.roll_back()
    if load(path).flags:
        problem = f"changed, but flags: switch {one.flow}.enable_langgraph off there, too"
        raise ConfigRefused(path, [problem])
    return f"{one.flow}: all go to legacy, forced and pinned ones, too ({path})"


def summary(decision: Decision) -> str:
    """Return a decision for a terminal."""
    verdict = decision.verdict.replace("_", " ").upper()
    lines = [
        f"{decision.flow} at {decision.share * ALL:g} %: {verdict}",
        *(f"  {one}" for one in decision.reasons),
        f"next: {decision.next}",
    ]
    by = f" by {decision.unit}" if decision.unit else ", each an exchange"
    for name, arm in decision.arms.items():
        lines.append(
            f"{name}: {arm.exchanges} exchanges of {arm.units} units{by}; {arm.failed} failed"
        )
    return "\n".join(lines)


def write_page(decision: Decision, path: Path) -> None:
    """Write a decision's page; raises `ConfigRefused` where it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(render("gate.html.j2", decision=decision), "utf-8", "replace")
    except OSError as error:
        raise ConfigRefused(path, [f"not written: {error.strerror or error}"]) from error


def carry_out(
    plan: Plan,
    rollout: FileRollout,
    tell: Callable[[str], object],
    wait: Callable[[float], object] = time.sleep,
    *,
    dry_run: bool = False,
) -> Verdict:
    """Check a whole plan, and carry it out, or say what it would take; raises `ConfigRefused`."""
    settings, percent = load(rollout.path), rollout.percent()
    problems = plan.problems()
    if settings.flags:
        problems.append("flags: a provider sets shares, so that the file cannot")
    if settings.captures is None:
        problems.append("captures: without [captures] there is nothing to decide by")
    if problems:
        raise ConfigRefused(rollout.path, problems)
    for step in plan.after(percent):
        check(rollout.path, rollout.changes(step))
    if not dry_run:
        return ramp(plan, rollout, wait, tell)
    now = round(rollout.clock() * _SECOND_US)
    latest = exchanges(settings, rollout.captures, rollout.flow, now - 86_400 * _SECOND_US)
    for line in forecast(plan, percent, gate.hourly(latest["at"], now)):
        tell(line)
    return "promote"
