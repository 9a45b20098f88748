"""A grammar of faults: scenes × layers × fields × kinds of change, drawn from a seed.

Each fault is a wrapper around the graph stack's flow, its ports or its wire. What is drawn may fit
nothing in its scenes (a digit changed where there is none): such a draw is no fault, and the next
one takes its place. What fits is a fault, whether it is found or not.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Any, Final

import msgspec

from compare.findings import Layer
from contract import operations as ops
from contract.errors import EffectFailed, Fault, Refused
from contract.flow import Event
from contract.model import ToolResult
from contract.operations import Operation
from cutover.selftest.deployment import WireOf, as_it_is
from cutover.selftest.drawn.changes import Spoiler, draw_change
from cutover.selftest.drawn.wrappers import (
    Probe,
    asked_otherwise,
    at_end,
    encoded_otherwise,
    in_sequence,
    recut,
    refusing_otherwise,
    released_early,
    spoilt_event,
    stopped,
    stored_late,
    swallowing,
    tag_of,
)
from cutover.selftest.effect_faults import replacing, replacing_calls
from cutover.selftest.scenes import SCENES
from cutover.selftest.stream_faults import FlowWrapper, rewritten

Layers = frozenset[Layer]
EFFECTS: Final[Layers] = frozenset({"effects"})
CALLED_OR_SHOWN: Final[Layers] = frozenset({"effects", "frames"})
CALLED_OR_ENDED: Final[Layers] = frozenset({"effects", "outcome"})
ENDING: Final[Layers] = frozenset({"outcome", "grammar"})
ORDER: Final[Layers] = frozenset({"frames", "grammar"})


@dataclass(frozen=True)
class DrawnFault:
    """A fault in the graph stack of some scenes; `layers` are those it may be found on."""

    scenes: str
    part: str
    change: str
    layers: Layers
    flow: FlowWrapper = lambda flow: flow
    wire: WireOf = as_it_is
    probe: Probe | Spoiler = field(default_factory=Probe)

    @property
    def name(self) -> str:
        """What is changed, and how; the place is known once the fault was tried."""
        place = f" {self.probe.what}" if self.probe.what else ""
        return f"{self.scenes}: {self.part}{place}: {self.change}"


Draw = Callable[[Random, str], DrawnFault]


# Calls: what is asked, what is answered, and whether it is asked at all.

_PARTS: Mapping[str, Operation] = {
    "model call": ops.MODEL_STREAM,
    "tool call": ops.TOOLS_RUN,
    "memory read": ops.MEMORY_RECALL,
    "memory write": ops.MEMORY_WRITE,
    "stored turn": ops.TURN_PUT,
    "history": ops.TURN_HISTORY,
    "lock": ops.LOCK_ACQUIRE,
    "release": ops.LOCK_RELEASE,
    "human question": ops.HUMAN_OPEN,
    "lookup": ops.MODEL_LOOKUP,
    "instruction": ops.WORKERS_RUN,
    "audit entry": ops.AUDIT_APPEND,
}
_RESULTS: Mapping[str, Operation] = {
    "tool result": ops.TOOLS_RUN,
    "tool list": ops.TOOLS_LIST,
    "memory result": ops.MEMORY_RECALL,
    "history result": ops.TURN_HISTORY,
    "clock": ops.CLOCK_NOW,
    "id": ops.IDS_NEW,
    "human answer": ops.HUMAN_ANSWER,
}
_READ: Mapping[str, tuple[str, ...]] = {
    "history result": ("turns.[].content",),
    "memory result": ("entries.[].text",),
    "tool result": ("content",),  # its stamp is the tape's
}
"""Fields of an answer the stacks read; what they do not read cannot make a difference."""
_WITHOUT: Mapping[Operation, object] = {
    ops.TOOLS_LIST: (),
    ops.TOOLS_RUN: ToolResult("好的"),
    ops.MEMORY_RECALL: (),
    ops.MEMORY_WRITE: 1,
    ops.TURN_PUT: True,
    ops.TURN_HISTORY: (),
    ops.LOCK_ACQUIRE: True,
    ops.LOCK_RELEASE: None,
    ops.AUDIT_APPEND: None,
}
"""What a stack takes for the answer of a call it does not make."""
_TWICE = (*_WITHOUT, ops.CLOCK_NOW, ops.IDS_NEW, ops.MODEL_LOOKUP, ops.HUMAN_OPEN)
_FAILS = (ops.TURN_PUT, ops.TURN_HISTORY, ops.MEMORY_RECALL, ops.TOOLS_LIST)
_FAULTS: Mapping[str, Fault] = {
    "memory": Fault("memory_failed"),
    "tools": Fault("tool_list_failed"),
}


def _call_argument(draw: Random, scenes: str) -> DrawnFault:
    part, operation = draw.choice(list(_PARTS.items()))
    spoiler = Spoiler(draw_change(draw), draw.random())
    nth = draw.choice((0, 0, 1)) if operation in {ops.TURN_PUT, ops.MODEL_STREAM} else 0
    wrap = asked_otherwise(operation, spoiler, nth)
    return DrawnFault(scenes, part, spoiler.change.name, EFFECTS, wrap, probe=spoiler)


def _prompt_line(draw: Random, scenes: str) -> DrawnFault:
    spoiler = Spoiler(draw_change(draw), draw.random(), ("messages.[].content",))
    wrap = asked_otherwise(ops.MODEL_STREAM, spoiler, 0)
    return DrawnFault(scenes, "prompt line", spoiler.change.name, EFFECTS, wrap, probe=spoiler)


def _model_parameter(draw: Random, scenes: str) -> DrawnFault:
    fields = ("model_id", "temperature", "max_tokens", "tools", "tool_choice", "json_object")
    name, probe = draw.choice(fields), Probe()
    value, kind = draw.choice(
        {
            "model_id": (("gpt-4o", "other"), ("gpt-4.1 ", "white space")),
            "temperature": ((None, "missing"), (0.0, "zero"), (1.3, "number")),
            "max_tokens": ((None, "missing"), (17, "number"), (4_096, "added")),
            "tools": (((), "missing"),),
            "tool_choice": (("required", "other"), ("none", "other word")),
            "json_object": ((True, "added"),),
        }[name]
    )

    def stream(real: Any, site: str, call: Any) -> Any:
        if getattr(call, name) == value:
            return real(site, call)
        probe.fire(name)
        return real(site, msgspec.structs.replace(call, **{name: value}))

    wrap = replacing("model", stream=stream)
    return DrawnFault(scenes, "model parameter", kind, EFFECTS, wrap, probe=probe)


def _call_result(draw: Random, scenes: str) -> DrawnFault:
    part, operation = draw.choice(list(_RESULTS.items()))
    spoiler = Spoiler(draw_change(draw), draw.random(), _READ.get(part, ()))
    days = draw.choice((1, -1, 31, 365))

    async def answered(real: Any, *args: Any, **named: Any) -> object:
        answer = await real(*args, **named)
        if isinstance(answer, datetime):
            spoiler.fired, spoiler.what = True, f"{days} days"
            return answer + timedelta(days=days)
        if isinstance(answer, tuple):
            held = operation.item(answer)
            return getattr(spoiler.spoil(held), str(operation.result))
        return spoiler.spoil(answer)

    wrap = replacing_calls(operation, answered)
    return DrawnFault(scenes, part, spoiler.change.name, CALLED_OR_SHOWN, wrap, probe=spoiler)


def _call_missing(draw: Random, scenes: str) -> DrawnFault:
    operation, probe = draw.choice(list(_WITHOUT)), Probe()
    sites: list[str] = []
    nth = draw.choice((0, 1))

    async def answered(real: Any, site: str, *args: Any, **named: Any) -> object:
        if site not in sites:
            sites.append(site)
        if operation is ops.TURN_PUT and sites.index(site) != nth:
            return await real(site, *args, **named)
        probe.fire(site)
        return _WITHOUT[operation]

    wrap = replacing_calls(operation, answered)
    return DrawnFault(scenes, operation.label, "missing", EFFECTS, wrap, probe=probe)


def _call_doubled(draw: Random, scenes: str) -> DrawnFault:
    operation, probe = draw.choice(_TWICE), Probe()

    async def twice(real: Any, *args: Any, **named: Any) -> object:
        first = await real(*args, **named)
        probe.fire(args[0])
        again = await real(*args, **named)
        return first if operation is ops.LOCK_ACQUIRE else again

    wrap = replacing_calls(operation, twice)
    return DrawnFault(scenes, operation.label, "doubled", EFFECTS, wrap, probe=probe)


def _call_renamed(draw: Random, scenes: str) -> DrawnFault:
    operation, probe = draw.choice(_TWICE), Probe()

    async def elsewhere(real: Any, site: str, *args: Any, **named: Any) -> object:
        probe.fire(site)
        return await real(f"{site}_2", *args, **named)

    wrap = replacing_calls(operation, elsewhere)
    return DrawnFault(scenes, operation.label, "site renamed", EFFECTS, wrap, probe=probe)


def _call_raised(draw: Random, scenes: str) -> DrawnFault:
    operation, probe = draw.choice(_FAILS), Probe()

    async def fails(real: Any, *args: Any, **named: Any) -> object:
        await real(*args, **named)
        probe.fire(args[0])
        raise EffectFailed(_FAULTS.get(operation.port, Fault("store_failed")))

    wrap = replacing_calls(operation, fails)
    layers = CALLED_OR_ENDED
    return DrawnFault(scenes, operation.label, "raised", layers, wrap, probe=probe)


def _order(draw: Random, scenes: str) -> DrawnFault:
    """Make a write, or a release, later or earlier than it should be."""
    probe = Probe()
    if draw.choice((True, False)):
        kind, wrap = "released before the model is asked", released_early(probe)
        return DrawnFault(scenes, "lock", kind, EFFECTS, wrap, probe=probe)
    wrap, layers = stored_late(SCENES[scenes][0], probe), CALLED_OR_SHOWN
    return DrawnFault(scenes, "stored turn", "after the terminal frame", layers, wrap, probe=probe)


# Frames: one of them, their order, their number, and the end.


def _frame_field(draw: Random, scenes: str) -> DrawnFault:
    """Change a field of the frames of one name; usage is told apart."""
    scene, spoiler = SCENES[scenes][0], Spoiler(draw_change(draw), draw.random())
    nth, every = draw.randrange(6), draw.choice((True, False))
    names: list[str] = []

    def change(_: object, event: Event) -> Sequence[Event]:
        tag = tag_of(scene, event)
        if tag not in names:
            names.append(tag)
        if names.index(tag) != nth or (spoiler.fired and not every):
            return (event,)
        return (spoilt_event(scene, spoiler, event),)

    layers: Layers = frozenset({"frames", "text", "grammar"})
    return DrawnFault(
        scenes, "frame", spoiler.change.name, layers, rewritten(change), probe=spoiler
    )


def _usage(draw: Random, scenes: str) -> DrawnFault:
    scene = SCENES[scenes][0]
    spoiler = Spoiler(draw_change(draw), draw.random(), ("data.usage.", "usage."))
    wrap = rewritten(lambda _, event: (spoilt_event(scene, spoiler, event),))
    return DrawnFault(
        scenes, "usage", spoiler.change.name, frozenset({"frames"}), wrap, probe=spoiler
    )


def _frame_sequence(draw: Random, scenes: str) -> DrawnFault:
    """Leave out, double or swap the n-th event of every stream."""
    kind, at = draw.choice(("missing", "doubled", "reordered")), draw.randrange(9)
    probe = Probe()
    layers: Layers = ORDER | {"text", "outcome"}
    wrap = in_sequence(at, kind, probe)
    return DrawnFault(scenes, "frame order", kind, layers, wrap, probe=probe)


def _terminal(draw: Random, scenes: str) -> DrawnFault:
    kind, probe = draw.choice(("missing", "doubled", "too early")), Probe()
    wrap = at_end(SCENES[scenes][0], kind, probe)
    return DrawnFault(scenes, "terminal frame", kind, ENDING | {"frames"}, wrap, probe=probe)


def _cadence(draw: Random, scenes: str) -> DrawnFault:
    """Send the same text in fewer or in more pieces."""
    kind, probe = draw.choice(("all at the end", "every second", "in halves")), Probe()
    wrap = recut(SCENES[scenes][0], kind, probe)
    return DrawnFault(scenes, "cadence", kind, frozenset({"frames"}), wrap, probe=probe)


def _ending(draw: Random, scenes: str) -> DrawnFault:
    """Crash, or stop, at the n-th event; or swallow a failure."""
    at, kind = draw.randrange(8), draw.choice(("raised", "truncated", "swallowed"))
    probe, layers = Probe(), ENDING
    if kind == "swallowed":
        wrap, layers = swallowing(probe), ENDING | {"text", "frames"}
    else:
        wrap = stopped(at, kind, probe)
    return DrawnFault(scenes, "outcome", kind, layers, wrap, probe=probe)


def _model_answer(draw: Random, scenes: str) -> DrawnFault:
    """Read a piece of the model's answer wrongly, or lose it."""
    probe, at, kind = Probe(), draw.randrange(3), draw.choice(("missing", "doubled", "wording"))

    async def stream(real: Any, site: str, call: Any) -> AsyncIterator[Any]:
        seen = -1
        async for chunk in real(site, call):
            seen += bool(chunk.text)
            if not chunk.text or seen != at:
                yield chunk
                continue
            probe.fire(f"piece {at}")
            texts = {"missing": "", "doubled": chunk.text * 2, "wording": f"{chunk.text[:-1]}？"}
            yield msgspec.structs.replace(chunk, text=texts[kind])

    layers: Layers = frozenset({"text"})
    wrap = replacing("model", stream=stream)
    return DrawnFault(scenes, "model answer", kind, layers, wrap, probe=probe)


# Refusals, and the wire itself.


def _refusal(draw: Random, scenes: str) -> DrawnFault:
    kind = draw.choice(("other status", "other sentence", "other code", "swallowed", "added"))
    if kind == "added":
        return _refusing(scenes)
    status, probe = draw.choice((400, 403, 404, 422, 423, 429)), Probe()
    wrap = _locking(probe) if kind == "swallowed" else refusing_otherwise(kind, status, probe)
    return DrawnFault(scenes, "refusal", kind, frozenset({"outcome"}), wrap, probe=probe)


def _locking(probe: Probe) -> FlowWrapper:
    """Go on without the lock."""

    async def acquire(real: Any, site: str, *args: Any) -> bool:
        if not await real(site, *args):
            probe.fire("lock")
        return True

    return replacing("locks", acquire=acquire)


def _refusing(scenes: str) -> DrawnFault:
    """Refuse every request."""
    probe = Probe()

    def refused(_: object, event: Event) -> Sequence[Event]:
        probe.fire(event.__class__.__name__)
        raise Refused(409, "session_busy", "another turn is under way")

    return DrawnFault(
        scenes, "refusal", "added", frozenset({"outcome"}), rewritten(refused), probe=probe
    )


def _wire(draw: Random, scenes: str) -> DrawnFault:
    """Write a frame otherwise: its `event:` line, or its data as it stands in the bytes."""
    kind = draw.choice(("event renamed", "event missing", "event added", "key renamed"))
    nth, probe = draw.randrange(4), Probe()
    layers: Layers = ORDER | {"text"}
    wire = encoded_otherwise(kind, nth, probe)
    return DrawnFault(scenes, "wire", kind, layers, wire=wire, probe=probe)


DRAWS: Final[tuple[Draw, ...]] = (
    _call_argument,
    _prompt_line,
    _model_parameter,
    _call_result,
    _call_missing,
    _call_doubled,
    _call_renamed,
    _call_raised,
    _order,
    _frame_field,
    _usage,
    _frame_sequence,
    _terminal,
    _cadence,
    _ending,
    _model_answer,
    _refusal,
    _wire,
)


def draw_fault(draw: Random) -> DrawnFault:
    """Draw one fault: the scenes, the part, and what is wrong with it."""
    scenes = draw.choice(list(SCENES))
    return draw.choice(DRAWS)(draw, scenes)
