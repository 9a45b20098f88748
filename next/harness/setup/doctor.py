"""`cutover doctor`: what is right in a set-up, what is missing, and what works as it stands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from cutover.errors import Completed, CutoverError
from harness.config import ConfigRefused, FlowTable, Settings, load, parse
from harness.setup.init import RAMP, WITHOUT
from harness.setup.survey import Captured, Survey, survey
from harness.setup.trial import Example

State = Literal["ok", "warn", "fail"]
PATIENCE: Final = 3
"""How many times longer than the longest silence seen a limit of silence is to be."""
USES: Final = ("fallback", "mirror", "takeover", "replay")


class Check(msgspec.Struct, frozen=True):
    """One part of a set-up: how it is, and what to do about it."""

    name: str
    state: State
    detail: str
    todo: str = ""


class Use(msgspec.Struct, frozen=True):
    """Whether a flow can do something; `why` not, or not wholly."""

    flow: str
    name: str
    works: Literal["yes", "partly", "no"]
    why: str = ""


class Diagnosis(msgspec.Struct, frozen=True):
    """All checks, what works in this set-up, and what shadows and services did off the tape."""

    checks: Sequence[Check]
    uses: Sequence[Use] = ()
    off_the_tape: Mapping[str, int] = {}

    @property
    def healthy(self) -> bool:
        """Whether nothing fails."""
        return all(one.state != "fail" for one in self.checks)


async def diagnose(path: Path | None, headers: Mapping[str, str]) -> Diagnosis:
    """Return what is found of the set-up in a configuration file."""
    try:
        found = await survey(load(path), headers)
    except CutoverError as error:  # what the file says cannot be used at all
        return Diagnosis([Check("configuration", "fail", str(error), "correct the file")])
    return judge(found)


def judge(found: Survey) -> Diagnosis:
    """Return what a survey shows."""
    tools: Counter[str] = Counter()
    for captured in found.captured.values():
        tools.update({f"{name}, in shadows": count for name, count in captured.escaped.items()})
    calls = {f"calls at the gateway, {why}": n for why, n in _uncorrelated(found).items()}
    checks = [one(found) for one in CHECKS]
    uses = [use for name in found.settings.flows for use in _uses(found, name)]
    return Diagnosis(checks, uses, calls | tools)


def _configuration(found: Survey) -> Check:
    name, settings = "configuration", found.settings
    if refused := (found.status or {}).get("configuration_refused"):
        return Check(name, "fail", f"the running router refuses the file: {refused}", "correct it")
    plan = RAMP if len(settings.stacks) != 1 else RAMP[:1]  # a lone service gets no share
    for flow in settings.flows:
        for share in plan:
            tables = settings.model_dump(exclude_unset=True)
            tables["flows"][flow] |= {"enable_langgraph": True, "langgraph_percent": share}
            try:
                parse(tables)
            except ConfigRefused as refused:
                return Check(
                    name, "fail", f"not valid at {share:g} %: {refused.problems}", "correct it"
                )
    shares = {flow: _share(table) for flow, table in settings.flows.items()}
    for flow, now in (found.status or {}).get("flows", {}).items():
        if flow in shares and now["effective_percent"] != shares[flow]:
            detail = f"{flow}: {shares[flow]:g} % to graph, of which {now['effective_percent']:g} %"
            todo = "graph rests after failures, or the router reads another file: see its log"
            return Check(name, "warn", f"{detail} are in force", todo)
    shown = ", ".join(f"{flow} {share:g} % to graph" for flow, share in shares.items())
    return Check(name, "ok", f"valid up to {plan[-1]:g} %; in force: {shown}")


def _share(table: FlowTable) -> float:
    return table.langgraph_percent if table.enable_langgraph else 0.0


def _services(found: Survey) -> Check:
    stacks = found.settings.stacks
    if found.services:
        todo = "start it, or correct [stacks]"
        return Check("services", "fail", "; ".join(found.services.values()), todo)
    if stacks and len(stacks) == 1:
        detail, todo = f"only {next(iter(stacks))}: nothing to compare with", "add the other stack"
        return Check("services", "warn", detail, todo)
    return Check("services", "ok", f"{' and '.join(stacks) or 'in this process'}: reached")


def _streams(found: Survey) -> Check:
    name, seen = "streams", []
    for flow, declared in found.declared:
        for stack in found.settings.stacks:
            trial = found.trials.get((flow, stack))
            if trial is None or not trial.status:
                todo = f"put a request into flows.{flow}.example, as init does"
                return Check(name, "warn", f"{stack} was not asked for {flow}", todo)
            if not trial.accepted:
                todo = f"correct flows.{flow}.example, or add --header"
                return Check(name, "fail", f"{stack} answers {flow} with {trial.status}", todo)
            if not trial.streams:
                seen.append(f"{stack} no stream, passed on whole")
                continue
            events, text, ending = trial.reading(declared.dialect)
            if not isinstance(ending, Completed) or not text:
                detail = f"{stack}: {declared.dialect.name} reads {events} events of {flow}, "
                detail += f"text {text[:40]!r}, which end as {ending}"
                return Check(name, "fail", detail, f"correct flows.{flow}.dialect")
            seen.append(f"{stack} {events} events of {declared.dialect.name}, whole")
    return Check(name, "ok", ", ".join(seen) or "the built-in flows")


def _keys(found: Survey) -> Check:
    name, shown = "keys", []
    for flow, declared in found.declared:
        table, captured = found.settings.flows[flow], found.captured.get(flow, Captured())
        todo = f'add flows.{flow}.keys, such as conversation = "body.thread"'
        if not declared.keys:
            detail = f"{flow} has none: each request is drawn for itself; {WITHOUT}"
            return Check(name, "warn", detail, todo)
        lacking: set[str] = set()
        if table.example:
            example = declared.body(Example.of(table.example).received(table.paths[0]))
            lacking = {key for key in declared.keys if not declared.key(example, key)}
        for key, place in declared.keys.items():
            missing = captured.without_key[key]
            if key in lacking or missing:
                of = f"{missing} of the last {captured.requests} requests" if missing else "example"
                detail = (
                    f"{flow}: nothing at {place} in {of}; such requests are drawn each for itself"
                )
                return Check(name, "warn", detail, f"correct flows.{flow}.keys.{key}")
        if not table.sticky:
            detail = f"{flow}: split by {next(iter(declared.keys))}; no `sticky`: {WITHOUT}"
            todo = f"set flows.{flow}.sticky to the key of the conversation"
            return Check(name, "warn", detail, todo)
        shown.append(
            f"{flow} by {table.route_key or next(iter(declared.keys))}, sticky by {table.sticky}"
        )
    return Check(name, "ok", ", ".join(shown) or "the built-in flows have theirs")


def _limits(found: Survey) -> Check:
    name, drain, longest = "limits", found.settings.server.drain_seconds, 0.0
    for stack, at in found.settings.stacks.items():
        if at.silence_seconds > at.total_seconds:
            detail = f"{stack}: silence_seconds {at.silence_seconds:g} > total_seconds"
            return Check(name, "warn", f"{detail} {at.total_seconds:g}: never in force", "lower it")
        for trial in (one for (_, asked), one in found.trials.items() if asked == stack):
            longest = max(longest, trial.total)
            if trial.gap * PATIENCE > at.silence_seconds:
                detail = f"{stack} was silent for {trial.gap:.1f} s of {at.silence_seconds:g} s"
                return Check(name, "warn", detail, f"raise stacks.{stack}.silence_seconds")
    if longest > drain:
        detail = f"an answer took {longest:.1f} s, a stopping server waits {drain:g} s"
        return Check(name, "warn", detail, "raise server.drain_seconds")
    return Check(name, "ok", f"the longest answer took {longest:.1f} s")


def two_lines(settings: Settings) -> str:
    """Return what makes a service's calls of a model come to the gateway, with their run."""
    base = settings.gateway_url or "http://127.0.0.1:8081"
    return (
        f'OpenAI(base_url="{base}/v1") and '
        'create(..., extra_headers={"traceparent": request.headers["traceparent"]})'
    )


def _gateway(found: Survey) -> Check:
    name, settings = "gateway", found.settings
    if not settings.stacks:
        return Check(name, "ok", "not needed: the stacks are in this process")
    if settings.gateway is None:
        detail = "none: what the services ask of models is not recorded"
        return Check(name, "warn", detail, f"add [gateway]; in both services {two_lines(settings)}")
    if lost := _uncorrelated(found).total():
        detail = f"{lost} calls came without their run, and are on no tape"
        return Check(name, "warn", detail, f"in the services: {two_lines(settings)}")
    if found.gateway:
        running = found.status is not None
        detail = f"{settings.gateway_url} does not answer: {found.gateway}"
        todo = "correct gateway.url" if running else "it is there while `cutover serve` runs"
        return Check(name, "fail" if running else "warn", detail, todo)
    silent = [f"{stack} (0 of {total} runs)" for stack, total, n in _recording(found) if not n]
    if silent:
        detail = f"no calls on the tape from {', '.join(silent)}"
        return Check(name, "warn", detail, f"there: {two_lines(settings)}")
    seen = ", ".join(f"{stack} in {n} of {total} runs" for stack, total, n in _recording(found))
    return Check(name, "ok", f"{settings.gateway_url}; calls seen: {seen or 'no requests yet'}")


def _uncorrelated(found: Survey) -> Counter[str]:
    return Counter((found.status or {}).get("uncorrelated", {}))


def _recording(found: Survey) -> Iterator[tuple[str, int, int]]:
    """Yield each service that has served, its runs, and those with calls on the tape."""
    runs: Counter[str] = Counter()
    recorded: Counter[str] = Counter()
    for flow, _ in found.declared:
        captured = found.captured.get(flow, Captured())
        runs += captured.runs
        recorded += captured.recorded
    yield from ((stack, runs[stack], recorded[stack]) for stack in runs)


def _database(found: Survey) -> Check:
    url = found.settings.stores.database
    if found.database:
        return Check("database", "fail", found.database, "correct stores.database, or start it")
    return Check("database", "ok", url.partition(":")[0])


def _redis(found: Survey) -> Check:
    if found.redis:
        return Check("redis", "fail", found.redis, "correct stores.redis, or start it")
    shared = "reached" if found.settings.stores.redis else "none: each process has its own locks"
    return Check("redis", "ok", shared)


def _captures(found: Survey) -> Check:
    if found.settings.captures is None:
        detail = "none: nothing is stored, so nothing can be replayed or compared later"
        return Check("captures", "warn", detail, "add [captures] with a url and a key")
    if found.captures:
        return Check("captures", "fail", found.captures, "correct captures.url")
    lines = sum(one.requests for one in found.captured.values())
    return Check("captures", "ok", f"writable, redacted with a key; {lines} recent requests")


def _shadows(found: Survey) -> Check:
    name, settings = "shadows", found.settings
    unsafe = [stack for flow in settings.flows for stack in _unsafe(settings, flow)]
    none = [flow for flow, table in settings.flows.items() if not table.shadow_percent]
    if escaped := sum((one.escaped for one in found.captured.values()), Counter[str]()):
        ran = ", ".join(f"{tool} {count} times" for tool, count in escaped.most_common())
        detail = f"they did more than play the tape: {ran}"
        return Check(name, "warn", detail, "put @effect on what did it")
    if unsafe:
        todo = f"set stacks.{unsafe[0]}.shadow_safe = true if a request may be made twice"
        return Check(name, "warn", f"not declared safe: {', '.join(dict.fromkeys(unsafe))}", todo)
    if none:
        todo = f"set flows.{none[0]}.shadow_percent"
        return Check(name, "warn", f"nothing of {', '.join(none)} is mirrored", todo)
    ledger = ", ".join(
        f"{n} {state}" for state, n in (found.status or {}).get("shadows", {}).items()
    )
    return Check(name, "ok", ledger or "none played yet")


def _unsafe(settings: Settings, flow: str) -> list[str]:
    """Return the services that would play shadows of a flow, and are not declared safe."""
    share = _share(settings.flows[flow])
    play = {"legacy": share > 0, "graph": share < RAMP[-1]}  # who does not serve all of it
    declared = settings.stacks.items() if settings.flows[flow].paths else ()
    return [name for name, at in declared if play[name] and not at.shadow_safe]


CHECKS: Final = (
    *(_configuration, _services, _streams, _keys, _limits),
    *(_gateway, _database, _redis, _captures, _shadows),
)


def _uses(found: Survey, flow: str) -> Iterator[Use]:
    """Yield what a flow can do in this set-up."""
    settings, table = found.settings, found.settings.flows[flow]
    alone = "there is one stack only" if table.paths and len(settings.stacks) <= 1 else ""
    apart = alone or ("" if table.langgraph_fallback else f"flows.{flow}.langgraph_fallback is off")
    unsafe = [f"stacks.{stack}.shadow_safe is false" for stack in _unsafe(settings, flow)]
    unasked = "" if table.shadow_percent else f"flows.{flow}.shadow_percent is 0"
    missing = _off_the_tape(found) if table.paths else ""
    twice = missing and f"each service asks its own model, and two answers are compared: {missing}"
    anew = missing and f"only where the other service's model says the same once more: {missing}"
    kept = missing if settings.captures else "there is no [captures]"
    rows = {  # why not, and why only partly
        "fallback": (apart, ""),
        "mirror": (alone or next(iter(unsafe), unasked), twice),
        "takeover": (apart, anew),
        "replay": (kept, ""),
    }
    for name, (no, partly) in rows.items():
        yield Use(flow, name, "no" if no else "partly" if partly else "yes", no or partly)


def _off_the_tape(found: Survey) -> str:
    """Return why what services ask of models is not on the tape, "" where it is."""
    if found.settings.gateway is None:
        return "there is no [gateway]"
    if lost := _uncorrelated(found).total():
        return f"{lost} calls at the gateway name no run"
    seen = list(_recording(found))
    if silent := [stack for stack, _, recorded in seen if not recorded]:
        return f"no calls from {' and '.join(silent)} are on the tape"
    return "" if seen else "no request is captured yet that shows it"


def page(found: Diagnosis) -> str:
    """Return a diagnosis as text: a line for each check, and one table."""
    lines = [
        f"{one.state:5} {one.name:14} {one.detail}{f'  -> {one.todo}' if one.todo else ''}"
        for one in found.checks
    ]
    flows = list(dict.fromkeys(one.flow for one in found.uses))
    width = max(map(len, ("works", *flows)))
    if flows:
        lines += ["", "  ".join(["works".ljust(width), *(one.ljust(8) for one in USES)])]
    for flow in flows:
        mine = {one.name: one for one in found.uses if one.flow == flow}
        lines.append("  ".join([flow.ljust(width), *(mine[one].works.ljust(8) for one in USES)]))
        lines += [f"  {one.name}: {one.why}" for one in mine.values() if one.why]
    if found.off_the_tape:
        shown = ", ".join(f"{name}: {count}" for name, count in found.off_the_tape.items())
        lines += ["", f"not on the tape: {shown}"]
    return "\n".join(line.rstrip() for line in lines)
