"""`cutover doctor`: what is right in a set-up, what is missing, and what works as it stands."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import permutations
from pathlib import Path
from typing import Final, Literal

import msgspec

from cutover.errors import Completed, CutoverError
from harness.config import ConfigRefused, Settings, load
from harness.setup.init import FULL_SHARE, WITHOUT, check_full_share
from harness.setup.survey import Captured, Survey, survey
from harness.setup.trial import Example, Trial, contradiction, told

State = Literal["ok", "warn", "fail"]
PATIENCE: Final = 3
"""How many times longer than the longest silence seen a limit of silence is to be."""
FAULTS: Final = 500
SHOWN: Final = 40
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
    """All checks, and what works in this set-up."""

    checks: Sequence[Check]
    uses: Sequence[Use] = ()
    running: bool = False
    """Whether the router answers."""

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
    """Return what a survey shows: of each check its first line, or else that all is well."""
    checks = [Check(name, *next(check(found))) for name, check in CHECKS.items()]
    uses = [use for name in found.settings.flows for use in _uses(found, name)]
    return Diagnosis(checks, uses, found.status is not None)


Line = tuple[State, str, str]
"""The state of a check, what was seen, and what to do."""


def _configuration(found: Survey) -> Iterator[Line]:
    settings, status = found.settings, found.status or {}
    if refused := status.get("configuration_refused"):
        yield "fail", f"the running router refuses the file: {refused}", "correct it"
    alone = len(settings.stacks) == 1  # a lone service gets no share
    for flow in settings.flows if not alone else ():
        try:
            check_full_share(settings.model_dump(exclude_unset=True), flow)
        except ConfigRefused as refused:
            yield "fail", refused.problems, "correct it"
    shares = {flow: table.graph_percent for flow, table in settings.flows.items()}
    for flow, now in status.get("flows", {}).items():
        share, effective = shares.get(flow), now["effective_percent"]
        if share is not None and effective != share:
            detail = f"{flow}: {share:g} % to graph, of which {effective:g} % are in force"
            todo = "graph rests after failures, or the router reads another file: see its log"
            yield "warn", detail, todo
    shown = ", ".join(f"{flow} {share:g} % to graph" for flow, share in shares.items())
    yield "ok", f"valid up to {0 if alone else FULL_SHARE:g} %; in force: {shown}", ""


def _services(found: Survey) -> Iterator[Line]:
    stacks = found.settings.stacks
    if found.services:
        yield "fail", "; ".join(found.services.values()), "start it, or correct [stacks]"
    if len(stacks) == 1:
        yield "warn", f"only {min(stacks)}: nothing to compare with", "add the other stack"
    yield "ok", f"{' and '.join(stacks) or 'in this process'}: reached", ""


def _streams(found: Survey) -> Iterator[Line]:
    seen = []
    for flow, declared in found.declared:
        for stack in found.settings.stacks:
            trial = found.trials.get((flow, stack))
            if trial is None or not trial.status:
                todo = f"put a request into flows.{flow}.example, as init does"
                yield "warn", f"{stack} was not asked for {flow}", todo
            elif not trial.accepted:
                todo = f"correct flows.{flow}.example, or add --header"
                if trial.status >= FAULTS:
                    todo = f"look into its log{_needs_gateway(found)}"
                yield "fail", f"{stack} answers {flow} with {trial.status}", todo
            elif not trial.streams:
                seen.append(f"{stack} no stream, passed on whole")
            else:
                size, text, ending = trial.reading(declared.dialect)
                form = found.settings.flows[flow].dialect
                read = f"{stack}: {size} of {form}, text {text[:SHOWN]!r}"
                if not isinstance(ending, Completed) or not text:
                    where = form if Path(form).suffix else f"flows.{flow}.dialect"
                    todo = f"correct {where}{_needs_gateway(found)}"
                    yield "fail", f"{read}, {told(ending)} in {flow}", todo
                seen.append(f"{read}, whole")
    yield "ok", "; ".join(seen) or "the built-in flows", ""


def _needs_gateway(found: Survey) -> str:
    if not found.faults.get("gateway"):
        return ""
    return "; if it asks its model at the gateway, start `cutover serve` first"


def _keys(found: Survey) -> Iterator[Line]:
    shown = []
    for flow, declared in found.declared:
        table, captured = found.settings.flows[flow], found.captured.get(flow, Captured())
        if not declared.keys:
            detail = f"{flow} has none: each request is drawn for itself; {WITHOUT}"
            place = "body" if "POST" in found.settings.flows[flow].methods else "query"
            yield "warn", detail, f'add flows.{flow}.keys, such as conversation = "{place}.thread"'
            continue
        example = Example.of(table.example).received(table.paths[0]) if table.example else None
        for key, place in declared.keys.items():
            missing, where = captured.without_key[key], "example"
            if missing:
                where = f"{missing} of the last {captured.runs.total()} requests"
            if missing or (example and not declared.key(declared.body(example), key)):
                detail = f"nothing at {place} in {where}; such requests are drawn each for itself"
                yield "warn", f"{flow}: {detail}", f"correct flows.{flow}.keys.{key}"
        first = next(iter(declared.keys))
        if not table.sticky:
            detail = f"{flow}: split by {first}; no `sticky`: {WITHOUT}"
            yield "warn", detail, f"set flows.{flow}.sticky to the key of the conversation"
        shown.append(f"{flow} by {table.route_key or first}, sticky by {table.sticky}")
    yield "ok", ", ".join(shown) or "the built-in flows have theirs", ""


def _limits(found: Survey) -> Iterator[Line]:
    limits = {str(stack): at.silence_seconds for stack, at in found.settings.stacks.items()}
    for (_, stack), trial in found.trials.items():
        if trial.gap * PATIENCE > limits[stack]:
            detail = f"{stack} was silent for {trial.gap:.1f} s of {limits[stack]:g} s"
            yield "warn", detail, f"raise stacks.{stack}.silence_seconds"
    drain = found.settings.server.drain_seconds
    longest = max((one.total for one in found.trials.values()), default=0.0)
    if longest > drain:
        detail = f"an answer took {longest:.1f} s, a stopping server waits {drain:g} s"
        yield "warn", detail, "raise server.drain_seconds"
    yield "ok", f"the longest answer took {longest:.1f} s", ""


def _gateway(found: Survey) -> Iterator[Line]:
    settings, url = found.settings, found.settings.gateway_url
    # What makes a service's calls of a model come to the gateway, with their run.
    two_lines = (
        f'OpenAI(base_url="{url or "http://127.0.0.1:8081"}/v1") and '
        'create(..., extra_headers={"traceparent": request.headers.get("traceparent", "")})'
    )
    if not settings.stacks:
        yield "ok", "not needed: the stacks are in this process", ""
    if settings.gateway is None:
        detail = "none: what the services ask of models is not recorded"
        yield "warn", detail, f"add [gateway]; in both services {two_lines}"
    if lost := _uncorrelated(found):
        detail = f"{lost} calls came without their run, and are on no tape"
        if _reasons(found)["unknown_trace"] == lost:  # tracing writes the header anew
            two_lines = two_lines.replace("traceparent", "x-cutover-run")
        yield "warn", detail, f"in the services: {two_lines}"
    if fault := found.faults.get("gateway"):
        detail = f"{url} does not answer: {fault}"
        if found.status is not None:
            yield "fail", detail, "correct gateway.url"
        yield "warn", detail, "it is there while `cutover serve` runs"
    runs, recorded = _recording(found)
    if silent := [f"{one} (0 of {runs[one]} runs)" for one in runs if not recorded[one]]:
        yield "warn", f"no calls on the tape from {', '.join(silent)}", f"there: {two_lines}"
    seen = ", ".join(f"{one} in {recorded[one]} of {runs[one]} runs" for one in runs)
    yield "ok", f"{url}; calls seen: {seen or 'no requests yet'}", ""


def _uncorrelated(found: Survey) -> int:
    """Return how many calls named no run; those of tasks behind the end of theirs are in order."""
    return (reasons := _reasons(found)).total() - reasons["run_over"]


def _reasons(found: Survey) -> Counter[str]:
    return Counter((found.status or {}).get("uncorrelated", {}))


def _recording(found: Survey) -> tuple[Counter[str], Counter[str]]:
    """Return the runs of services that have served, and those with calls on the tape."""
    captured = [found.captured.get(flow, Captured()) for flow, _ in found.declared]
    runs = sum((one.runs for one in captured), Counter[str]())
    return runs, sum((one.recorded for one in captured), Counter[str]())


def _database(found: Survey) -> Iterator[Line]:
    if fault := found.faults.get("database"):
        yield "fail", fault, "correct stores.database, or start it"
    yield "ok", found.settings.stores.database.partition(":")[0], ""


def _redis(found: Survey) -> Iterator[Line]:
    if fault := found.faults.get("redis"):
        yield "fail", fault, "correct stores.redis, or start it"
    shared = "reached" if found.settings.stores.redis else "none: each process has its own locks"
    yield "ok", shared, ""


def _captures(found: Survey) -> Iterator[Line]:
    if found.settings.captures is None:
        detail = "none: nothing is stored, so nothing can be replayed or compared later"
        yield "warn", detail, "add [captures] with a url and a key"
    if fault := found.faults.get("captures"):
        yield "fail", fault, "correct captures.url"
    lines = sum(one.runs.total() for one in found.captured.values())
    yield "ok", f"writable, redacted with a key; {lines} recent requests", ""


def _shadows(found: Survey) -> Iterator[Line]:
    settings = found.settings
    if escaped := sum((one.escaped for one in found.captured.values()), Counter[str]()):
        ran = ", ".join(f"{tool} {count} times" for tool, count in escaped.most_common())
        yield "warn", f"they did more than play the tape: {ran}", "put @effect on what did it"
    if unsafe := [stack for flow in settings.flows for stack in _unsafe(settings, flow)]:
        todo = f"set stacks.{unsafe[0]}.shadow_safe = true if a request may be made twice"
        yield "warn", f"not declared safe: {', '.join(dict.fromkeys(unsafe))}", todo
    if none := [flow for flow, table in settings.flows.items() if not table.shadow_percent]:
        todo = f"set flows.{none[0]}.shadow_percent"
        yield "warn", f"nothing of {', '.join(none)} is mirrored", todo
    ledger = (found.status or {}).get("shadows", {})
    yield "ok", ", ".join(f"{n} {state}" for state, n in ledger.items()) or "none played yet", ""


def _unsafe(settings: Settings, flow: str) -> list[str]:
    """Return the services that would play shadows of a flow, and are not declared safe."""
    table = settings.flows[flow]
    share, declared = table.graph_percent, settings.stacks.items() if table.paths else ()
    play = {"legacy": share > 0, "graph": share < FULL_SHARE}  # who does not serve all of it
    return [name for name, at in declared if play[name] and not at.shadow_safe]


CHECKS: Final[Mapping[str, Callable[[Survey], Iterator[Line]]]] = {
    "configuration": _configuration,
    "services": _services,
    "streams": _streams,
    "keys": _keys,
    "limits": _limits,
    "gateway": _gateway,
    "database": _database,
    "redis": _redis,
    "captures": _captures,
    "shadows": _shadows,
}


def _uses(found: Survey, flow: str) -> Iterator[Use]:
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
        "takeover": (apart or _contradiction(found, flow), anew),
        "replay": (kept, ""),
    }
    for name, (no, partly) in rows.items():
        yield Use(flow, name, "no" if no else "partly" if partly else "yes", no or partly)


def _contradiction(found: Survey, flow: str) -> str:
    """Return why one service could not go on in the other one's text, "" where it could."""
    declared = dict(found.declared).get(flow)
    for one, other in permutations(found.settings.stacks if declared else (), 2):
        began, goes_on = (found.trials.get((flow, stack), Trial()) for stack in (one, other))
        if declared and (why := contradiction(began, goes_on, declared.dialect)):
            return f"{other} cannot go on for {one} (docs/services.md): {why}"
    return ""


def _off_the_tape(found: Survey) -> str:
    """Return why what services ask of models is not on the tape, "" where it is."""
    if found.settings.gateway is None:
        return "there is no [gateway]"
    if lost := _uncorrelated(found):
        return f"{lost} calls at the gateway name no run"
    runs, recorded = _recording(found)
    if silent := [stack for stack in runs if not recorded[stack]]:
        return f"no calls from {' and '.join(silent)} are on the tape"
    return "" if runs else "no request is captured yet that shows it"


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
    follows = "mend what fails, and ask the doctor again"
    if found.healthy:
        follows = "ask the router, and then cutover diff" if found.running else "cutover serve"
    return "\n".join(line.rstrip() for line in [*lines, f"next: {follows}"])
