"""`cutover gate`, `ramp` and `rollback`: the share of graph in the file, and what it has led to."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import msgspec
import pandas as pd
import typer
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from compare.pairs import exchange_rows
from compare.report.document import read_report
from compare.rollout import ALL, Decision, RampPlan, Scope, Verdict, decide, planned, ramp
from compare.rows import frame
from compare.verdict import LOST_AT_MOST
from effects import rollout
from harness import root
from harness.commands.diff import opened
from harness.config import ConfigRefused, Settings, load
from harness.edit import edit
from harness.live import versions
from harness.services import chosen, flow_of
from router.captures import CaptureReader

STATUS: Final[dict[Verdict, int]] = {"promote": 0, "hold": 1, "roll_back": 2, "cannot_tell": 3}
"""Exit statuses."""
_SECOND_US = 1_000_000


def exchanges(
    settings: Settings, captures: str, flow: str, since: int
) -> tuple[pd.DataFrame, list[str]]:
    """Return what the clients of a flow had since a time, in microseconds, with their feedback.

    And what of it cannot be read, by the measure of `compare.verdict`.
    """
    store, before = opened(captures), datetime.fromtimestamp(since / _SECOND_US, UTC)
    first = f"{(before - timedelta(since > 0)).date()}"  # a file has the day of its first line
    names = [one for one in store.names(flow) if one.split("/date=")[1] >= first]
    reader, drawn_by = CaptureReader(store, flow, names), settings.flows[flow].route_key
    rows = list(exchange_rows(reader, {flow: flow_of(flow, settings)}, {flow: drawn_by}))
    url = make_url(settings.stores.database)
    stored = url.get_backend_name() != "sqlite" or Path(url.database or "").is_file()
    scores = asyncio.run(_scores(settings, since)) if stored else {}
    torn, foreign = reader.damage["torn"] + reader.damage["gone"], reader.damage["foreign"]
    lost = f"{torn} of {reader.files} files and {foreign} lines of the captures cannot be read"
    scored = (msgspec.structs.replace(one, score=scores.get(one.exchange)) for one in rows)
    spoilt = torn or foreign > LOST_AT_MOST * (reader.lines + foreign)
    return frame(scored), [lost] if spoilt else []


async def _scores(settings: Settings, since: int) -> dict[str, int]:
    """Return the feedback given since a time by exchange; raises `ConfigRefused`."""
    try:
        async with root.stores(settings):
            feedback = await rollout.feedback_since(since / _SECOND_US)
            return {one.exchange_id: one.score for one in feedback}
    except (SQLAlchemyError, OSError) as error:
        problem = f"stores.database: feedback cannot be read: {type(error).__name__}"
        raise ConfigRefused(None, [problem]) from error


def findings(report: Path, flow: str) -> list[str]:
    """Return why a report of `cutover diff` holds a flow: causes not waived, or no verdict on it.

    Raises `Unusable`.
    """
    found = read_report(report)
    if found.fork:
        return [f"the comparison is with a fork, which is no evidence: {found.fork}"]
    causes = [
        f"cause {one.id}: {one.title}, in {one.pairs.count} of {one.pairs.of} pairs"
        for one in found.causes
        if one.flow == flow and not one.accepted
    ]
    if found.causes_left_out and not found.causes[-1].accepted:  # open ones stand first
        causes.append(f"{found.causes_left_out} more causes are not in the report")
    if causes:
        return causes
    if found.verdict.label not in {"equal", "different"}:
        return [f"the comparison is {found.verdict.label}: {'; '.join(found.verdict.reasons)}"]
    compared = any(one.flow == flow and one.differing.of for one in found.flows)
    return [] if compared else [f"the comparison has no pair of {flow}"]


class Judged(msgspec.Struct, frozen=True):
    """A decision as the console shows it: `at` in microseconds since 1970, a ramp's steps."""

    decision: Decision
    at: int
    steps: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class FileRollout:
    """A flow's share in a configuration file (`compare.rollout.ramp.Rollout`)."""

    captures: str
    path: Path
    flow: str
    report: Path | None = None
    """Of `cutover diff`."""
    clock: Callable[[], float] = time.time
    steps: tuple[float, ...] = ()
    """Of the ramp that asks."""

    @classmethod
    def of(
        cls, captures: str, path: Path, flow: str | None, report: Path | None = None
    ) -> FileRollout:
        """Return that of a flow, or of the only one; raises `typer.BadParameter`."""
        flows = chosen([flow] if flow else [], list(load(path).flows))
        if len(flows) > 1:
            message = f"name a --flow: there are {', '.join(flows)}"
            raise typer.BadParameter(message)
        return cls(captures, path, flows[0], report)

    def percent(self) -> float:
        """Return the share in the file, 0 where graph is switched off."""
        return load(self.path).flows[self.flow].graph_percent

    def raise_to(self, percent: float, *, dry_run: bool = False) -> None:
        """Write a share."""
        changes = {"enable_langgraph": True, "langgraph_percent": percent}
        edit(self.path, {self.flow: changes}, dry_run=dry_run)

    def roll_back(self) -> None:
        """Switch graph off: from then on all go to legacy, also forced and pinned.

        Raises `ConfigRefused`, with the file changed, where a flag provider may say otherwise.
        """
        edit(self.path, {self.flow: {"enable_langgraph": False}})
        if load(self.path).flags:
            problem = f"changed, but flags: switch {self.flow}.enable_langgraph off there, too"
            raise ConfigRefused(self.path, [problem])

    def hours(self) -> float:
        """Return how long ago the file was written."""
        return (self.clock() - self.path.stat().st_mtime) / 3_600

    def decide(self) -> Decision:
        """Return what the exchanges since the file was written say."""
        return self.decide_since(round(self.path.stat().st_mtime * _SECOND_US))

    def decide_since(self, since: int, share: float | None = None) -> Decision:
        """Return what the exchanges since a time say, and leave it where the console shows it.

        `share`: in percent, where it is not the file's.
        """
        settings = load(self.path)
        if settings.flags and share is None:
            problem = "flags: a provider sets shares; say with --share which one is in force"
            raise ConfigRefused(self.path, [problem])
        config = versions(settings, self.flow)["config"] if share is None else ""
        percent, now = self.percent() if share is None else share, round(self.clock() * _SECOND_US)
        rows, held = exchanges(settings, self.captures, self.flow, since)
        held += findings(self.report, self.flow) if self.report else []
        decision = decide(rows, Scope(self.flow, percent / ALL, config, now, since), held)
        if settings.console is not None:
            shown = Path(settings.console.reports) / f"gate-{self.flow}.json"
            try:
                shown.parent.mkdir(parents=True, exist_ok=True)
                shown.write_bytes(msgspec.json.encode(Judged(decision, now, self.steps)))
            except OSError as error:  # the decision counts
                typer.echo(f"not shown on the console: {error}", err=True)
        return decision


def carry_out(
    steps: str,
    hours: tuple[float, float],
    rollout: FileRollout,
    tell: Callable[[str], object],
    wait: Callable[[float], object] = time.sleep,
    *,
    dry_run: bool = False,
) -> Verdict:
    """Check a whole plan, say what it needs, and carry it out; raises `ConfigRefused`."""
    try:
        shares = tuple(map(float, steps.split(",")))
    except ValueError:
        shares = ()
    settings, plan = load(rollout.path), RampPlan(shares, *hours)
    if wrong := plan.problems():
        raise typer.BadParameter("; ".join(wrong))
    if settings.flags:
        problem = "flags: a provider sets shares, so that the file cannot"
        raise ConfigRefused(rollout.path, [problem])
    if settings.captures is None:
        problem = "captures: without [captures] there is nothing to decide by"
        raise ConfigRefused(rollout.path, [problem])
    for step in plan.after(rollout.percent()):
        rollout.raise_to(step, dry_run=True)
        tell(f"{step:g} %: {planned(step / ALL) if step < ALL else 'no'} exchanges needed, or more")
    if dry_run:
        tell("next: the same without --dry-run")
        return "promote"
    return ramp(plan, replace(rollout, steps=shares), wait, tell)
