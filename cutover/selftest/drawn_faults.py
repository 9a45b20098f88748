"""A grammar of faults: scenes × layers × fields × kinds of change, drawn from a seed.

Each fault is a wrapper around the graph stack's flow, its ports or its wire. What is drawn may fit
nothing in its scenes (a digit changed where there is none): such a draw is no fault, and the next
one takes its place. What fits is a fault, whether it is found or not.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from random import Random
from typing import Any, Final, cast

import msgspec

from compare.findings import Layer
from contract import operations as ops
from contract.errors import CutoverError, EffectFailed, Fault, Refused
from contract.flow import Event, Flow, PassedEvent, Request
from contract.model import ToolResult
from contract.operations import Operation
from contract.ports import Effects
from cutover.selftest.cases import Scene
from cutover.selftest.changes import Spoiler, draw_change
from cutover.selftest.deployment import Encode, WireOf, as_it_is
from cutover.selftest.effect_faults import replacing
from cutover.selftest.scenes import SCENES, frame_of, framed_of, name_of
from cutover.selftest.stream_faults import FlowWrapper

Layers = frozenset[Layer]
EFFECTS: Final[Layers] = frozenset({"effects"})
CALLED_OR_SHOWN: Final[Layers] = frozenset({"effects", "frames"})
CALLED_OR_ENDED: Final[Layers] = frozenset({"effects", "outcome"})
ENDING: Final[Layers] = frozenset({"outcome", "grammar"})
ORDER: Final[Layers] = frozenset({"frames", "grammar"})


class Planted(CutoverError):
    """The crash the self-test plants."""


@dataclass
class Probe:
    """Whether a fault has really changed something, and where."""

    fired: bool = False
    what: str = ""

    def fire(self, what: str) -> None:
        """Note that something was changed."""
        self.fired, self.what = True, self.what or what


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

_PARTS: Mapping[str, tuple[Operation, ...]] = {
    "model call": (ops.MODEL_STREAM,),
    "tool call": (ops.TOOLS_RUN,),
    "memory read": (ops.MEMORY_RECALL,),
    "memory write": (ops.MEMORY_WRITE,),
    "stored turn": (ops.TURN_PUT,),
    "history": (ops.TURN_HISTORY,),
    "lock": (ops.LOCK_ACQUIRE,),
    "release": (ops.LOCK_RELEASE,),
    "human question": (ops.HUMAN_OPEN,),
    "lookup": (ops.MODEL_LOOKUP,),
}
_RESULTS: Mapping[str, tuple[Operation, ...]] = {
    "tool result": (ops.TOOLS_RUN,),
    "tool list": (ops.TOOLS_LIST,),
    "memory result": (ops.MEMORY_RECALL,),
    "history result": (ops.TURN_HISTORY,),
    "clock": (ops.CLOCK_NOW,),
    "id": (ops.IDS_NEW,),
    "human answer": (ops.HUMAN_ANSWER,),
}
_READ: Mapping[str, tuple[str, ...]] = {
    "history result": ("turns.[].content",),
    "memory result": ("entries.[].text",),
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
}
"""What a stack takes for the answer of a call it does not make."""
_TWICE = (*_WITHOUT, ops.CLOCK_NOW, ops.IDS_NEW, ops.MODEL_LOOKUP, ops.HUMAN_OPEN)
_FAILS = (ops.TURN_PUT, ops.TURN_HISTORY, ops.MEMORY_RECALL, ops.TOOLS_LIST)
_FAULTS: Mapping[str, Fault] = {
    "memory": Fault("memory_failed"),
    "tools": Fault("tool_list_failed"),
}


def _arguments(operation: Operation, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
    if operation.whole:
        return args[0]
    names = operation.arguments.__struct_fields__
    return operation.arguments(**dict(zip(names, args, strict=False)), **named)


def _unpacked(operation: Operation, arguments: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if operation.whole:
        return (arguments,), {}
    names = operation.arguments.__struct_fields__
    args = tuple(getattr(arguments, name) for name in names if name not in operation.named)
    return args, {name: getattr(arguments, name) for name in operation.named}


def _asked_otherwise(operation: Operation, spoiler: Spoiler, nth: int) -> FlowWrapper:
    sites: list[str] = []

    def spoilt(site: str, args: Any, named: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if site not in sites:
            sites.append(site)
        if sites.index(site) != nth:
            return args, named
        return _unpacked(operation, spoiler.spoil(_arguments(operation, args, named)))

    def stream(real: Any, site: str, *args: Any, **named: Any) -> Any:
        args, named = spoilt(site, args, named)
        return real(site, *args, **named)

    return replacing(operation.port, **{operation.name: stream})


def _call_argument(draw: Random, scenes: str) -> DrawnFault:
    part = draw.choice(list(_PARTS))
    [operation] = _PARTS[part]
    spoiler = Spoiler(draw_change(draw), draw.random())
    nth = draw.choice((0, 0, 1)) if operation in {ops.TURN_PUT, ops.MODEL_STREAM} else 0
    wrap = _asked_otherwise(operation, spoiler, nth)
    return DrawnFault(scenes, part, spoiler.change.name, EFFECTS, wrap, probe=spoiler)


def _prompt_line(draw: Random, scenes: str) -> DrawnFault:
    spoiler = Spoiler(draw_change(draw), draw.random(), ("messages.[].content",))
    wrap = _asked_otherwise(ops.MODEL_STREAM, spoiler, 0)
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
    part = draw.choice(list(_RESULTS))
    [operation] = _RESULTS[part]
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

    wrap = replacing(operation.port, **{operation.name: answered})
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

    wrap = replacing(operation.port, **{operation.name: answered})
    return DrawnFault(scenes, operation.label, "missing", EFFECTS, wrap, probe=probe)


def _call_doubled(draw: Random, scenes: str) -> DrawnFault:
    operation, probe = draw.choice(_TWICE), Probe()

    async def twice(real: Any, *args: Any, **named: Any) -> object:
        first = await real(*args, **named)
        probe.fire(args[0])
        again = await real(*args, **named)
        return first if operation is ops.LOCK_ACQUIRE else again

    wrap = replacing(operation.port, **{operation.name: twice})
    return DrawnFault(scenes, operation.label, "doubled", EFFECTS, wrap, probe=probe)


def _call_renamed(draw: Random, scenes: str) -> DrawnFault:
    operation, probe = draw.choice(_TWICE), Probe()

    async def elsewhere(real: Any, site: str, *args: Any, **named: Any) -> object:
        probe.fire(site)
        return await real(f"{site}_2", *args, **named)

    wrap = replacing(operation.port, **{operation.name: elsewhere})
    return DrawnFault(scenes, operation.label, "site renamed", EFFECTS, wrap, probe=probe)


def _call_raised(draw: Random, scenes: str) -> DrawnFault:
    operation, probe = draw.choice(_FAILS), Probe()

    async def fails(real: Any, *args: Any, **named: Any) -> object:
        await real(*args, **named)
        probe.fire(args[0])
        raise EffectFailed(_FAULTS.get(operation.port, Fault("store_failed")))

    wrap = replacing(operation.port, **{operation.name: fails})
    layers = CALLED_OR_ENDED
    return DrawnFault(scenes, operation.label, "raised", layers, wrap, probe=probe)


def _order(draw: Random, scenes: str) -> DrawnFault:
    """Make a write, or a release, later or earlier than it should be."""
    probe = Probe()
    if draw.choice((True, False)):
        kind, wrap = "released before the model is asked", _released_early(probe)
        return DrawnFault(scenes, "lock", kind, EFFECTS, wrap, probe=probe)
    wrap, layers = _stored_late(SCENES[scenes][0], probe), CALLED_OR_SHOWN
    return DrawnFault(scenes, "stored turn", "after the terminal frame", layers, wrap, probe=probe)


def _released_early(probe: Probe) -> FlowWrapper:
    def wrap(flow: Flow) -> Flow:
        def wrapped(request: Request[Any, Any], effects: Effects) -> AsyncIterator[Event]:
            held: list[tuple[str, str]] = []

            async def acquire(real: Any, site: str, key: str, ttl: float) -> bool:
                if got := await real(site, key, ttl):
                    held.append((site, key))
                return bool(got)

            async def stream(real: Any, site: str, call: Any) -> AsyncIterator[Any]:
                while held:
                    await effects.locks.release(*held.pop())
                    probe.fire("")
                async for chunk in real(site, call):
                    yield chunk

            async def release(_real: Any, *_: Any) -> None:
                """Nothing is left to release."""

            early = replacing("model", stream=stream)(flow)
            return replacing("locks", acquire=acquire, release=release)(early)(request, effects)

        return wrapped

    return wrap


def _stored_late(scene: Scene, probe: Probe) -> FlowWrapper:
    """Store the reply only after the terminal frame was sent."""

    def wrap(flow: Flow) -> Flow:
        async def wrapped(request: Request[Any, Any], effects: Effects) -> AsyncIterator[Event]:
            late: list[Callable[[], Any]] = []

            async def put(real: Any, site: str, turn: Any) -> bool:
                if site != "reply":
                    return bool(await real(site, turn))
                late.append(partial(real, site, turn))
                return True

            changed = replacing("conversations", put=put)(flow)
            produced = cast("AsyncGenerator[Event, None]", changed(request, effects))
            async with aclosing(produced) as events:
                async for event in events:
                    yield event
                    if _tag(scene, event) in scene.spec.grammar.terminal:
                        while late:
                            probe.fire("reply")
                            await late.pop()()
            for store in late:
                await store()

        return wrapped

    return wrap


# Frames: one of them, their order, their number, and the end.


def _events(change: Callable[[int, Event], Sequence[Event]]) -> FlowWrapper:
    """Replace each event by others; gets its index."""

    def wrap(flow: Flow) -> Flow:
        async def wrapped(request: Request[Any, Any], effects: Effects) -> AsyncIterator[Event]:
            produced, index = cast("AsyncGenerator[Event, None]", flow(request, effects)), 0
            async with aclosing(produced) as events:
                async for event in events:
                    for other in change(index, event):
                        yield other
                    index += 1

        return wrapped

    return wrap


def _tag(scene: Scene, event: Event) -> str:
    return event.name if isinstance(event, PassedEvent) else scene.spec.name_of(event)


def _spoilt_event(scene: Scene, spoiler: Spoiler, event: Event) -> Event:
    if not isinstance(event, PassedEvent):
        return spoiler.spoil(event)
    kind, data = framed_of(scene.spec, event.frame)
    if isinstance(data, str):
        return event
    ignore = scene.spec.dialect.ignore
    spoiler.without = tuple(
        path.replace("[*]", ".[]") for path in (*ignore.get("*", ()), *ignore.get(event.name, ()))
    )
    framed = kind, spoiler.spoil(dict(data))
    return PassedEvent(name_of(scene.spec, framed), frame_of(scene.spec, framed))


def _frame_field(draw: Random, scenes: str) -> DrawnFault:
    """Change a field of the frames of one name; usage is told apart."""
    scene, spoiler = SCENES[scenes][0], Spoiler(draw_change(draw), draw.random())
    nth, every = draw.randrange(6), draw.choice((True, False))
    names: list[str] = []

    def change(_: int, event: Event) -> Sequence[Event]:
        tag = _tag(scene, event)
        if tag not in names:
            names.append(tag)
        if names.index(tag) != nth or (spoiler.fired and not every):
            return (event,)
        return (_spoilt_event(scene, spoiler, event),)

    layers: Layers = frozenset({"frames", "text", "grammar"})
    return DrawnFault(scenes, "frame", spoiler.change.name, layers, _events(change), probe=spoiler)


def _usage(draw: Random, scenes: str) -> DrawnFault:
    scene = SCENES[scenes][0]
    spoiler = Spoiler(draw_change(draw), draw.random(), ("data.usage.", "usage."))
    wrap = _events(lambda _, event: (_spoilt_event(scene, spoiler, event),))
    return DrawnFault(
        scenes, "usage", spoiler.change.name, frozenset({"frames"}), wrap, probe=spoiler
    )


def _frame_sequence(draw: Random, scenes: str) -> DrawnFault:
    """Leave out, double or swap the n-th event of every stream."""
    kind, at = draw.choice(("missing", "doubled", "reordered")), draw.randrange(9)
    probe, held = Probe(), list[Event]()

    def change(index: int, event: Event) -> Sequence[Event]:
        if index == 0:
            held.clear()
        if kind == "reordered":
            if held:
                first = held.pop()
                if first != event:
                    probe.fire(f"#{at}")
                return (event, first)
            if index == at:
                held.append(event)
                return ()
            return (event,)
        if index != at:
            return (event,)
        probe.fire(f"#{at}")
        return () if kind == "missing" else (event, event)

    layers: Layers = ORDER | {"text", "outcome"}
    return DrawnFault(scenes, "frame order", kind, layers, _events(change), probe=probe)


def _terminal(draw: Random, scenes: str) -> DrawnFault:
    scene, kind = SCENES[scenes][0], draw.choice(("missing", "doubled", "too early"))
    probe = Probe()

    def change(_: int, event: Event) -> Sequence[Event]:
        last = _tag(scene, event) in scene.spec.grammar.terminal
        if not last:
            return (event,)
        probe.fire("")
        return () if kind == "missing" else (event, event)

    def early(flow: Flow) -> Flow:
        async def wrapped(request: Request[Any, Any], effects: Effects) -> AsyncIterator[Event]:
            produced, before = cast("AsyncGenerator[Event, None]", flow(request, effects)), None
            async with aclosing(produced) as events:
                async for event in events:
                    if _tag(scene, event) in scene.spec.grammar.terminal and before is not None:
                        probe.fire("")
                        yield event
                        yield before
                    else:
                        if before is not None:
                            yield before
                        before = event
                        continue
                    before = None
            if before is not None:
                yield before

        return wrapped

    wrap = early if kind == "too early" else _events(change)
    return DrawnFault(scenes, "terminal frame", kind, ENDING | {"frames"}, wrap, probe=probe)


def _cadence(draw: Random, scenes: str) -> DrawnFault:
    """Send the same text in fewer or in more pieces."""
    scene = SCENES[scenes][0]
    kind = draw.choice(("all at the end", "every second", "in halves"))
    probe, held = Probe(), list[Event]()

    def text_of(event: Event) -> str | None:
        if isinstance(event, PassedEvent):
            return _passed_text(scene, event)
        if _tag(scene, event) in scene.spec.grammar.terminal or _tag(scene, event) == "SUCCESS":
            return None
        if getattr(event, "tool_call_feedback", msgspec.UNSET) is not msgspec.UNSET:
            return None
        return scene.spec.text_of(event)

    def flushed() -> list[Event]:
        if not held:
            return []
        if len(held) > 1:
            probe.fire("")
        if scene.spec.dialect.growth == "cumulative":
            made = held[-1]
        else:
            made = _with_text(scene, held[0], "".join(text_of(one) or "" for one in held))
        held.clear()
        return [made]

    def change(index: int, event: Event) -> Sequence[Event]:
        if index == 0:
            held.clear()
        text = text_of(event)
        if not text:
            return (*flushed(), event)
        if kind == "in halves":
            return _halves(scene, event, text, probe)
        held.append(event)
        second = kind == "every second" and len(held) > 1
        return flushed() if second else ()

    return DrawnFault(scenes, "cadence", kind, frozenset({"frames"}), _events(change), probe=probe)


def _halves(scene: Scene, event: Event, text: str, probe: Probe) -> Sequence[Event]:
    if not text[1:]:
        return (event,)
    probe.fire("")
    half = len(text) // 2
    if scene.spec.dialect.growth == "cumulative":
        return (_with_text(scene, event, text[:-1]), event)
    return (_with_text(scene, event, text[:half]), _with_text(scene, event, text[half:]))


def _passed_text(scene: Scene, event: PassedEvent) -> str | None:
    _, data = framed_of(scene.spec, event.frame)
    if isinstance(data, str) or data.get("done"):
        return None
    found = _text_holder(data)
    return None if found is None else found[0][found[1]]


def _text_holder(data: Any) -> tuple[dict[str, Any], str] | None:
    """Find where the text of a declared wire's frame stands."""
    choices = data.get("choices") or [{}]
    for holder in (choices[0].get("delta"), data.get("delta"), data.get("message")):
        for key in ("content", "text"):
            if isinstance(holder, dict) and isinstance(holder.get(key), str):
                return holder, key
    return None


def _with_text(scene: Scene, event: Event, text: str) -> Event:
    if isinstance(event, PassedEvent):
        kind, data = framed_of(scene.spec, event.frame)
        if (found := _text_holder(data)) is not None:
            found[0][found[1]] = text
        return PassedEvent(event.name, frame_of(scene.spec, (kind, data)))
    inner = getattr(event, "data", None)
    if inner is not None:
        return msgspec.structs.replace(event, data=msgspec.structs.replace(inner, content=text))
    return msgspec.structs.replace(event, content=text)


def _ending(draw: Random, scenes: str) -> DrawnFault:
    """Crash, or stop, at the n-th event; or swallow a failure."""
    at, kind = draw.randrange(8), draw.choice(("raised", "truncated", "swallowed"))
    probe = Probe()
    if kind == "swallowed":
        return DrawnFault(
            scenes, "outcome", kind, ENDING | {"text", "frames"}, _swallowing(probe), probe=probe
        )

    def wrap(flow: Flow) -> Flow:
        async def wrapped(request: Request[Any, Any], effects: Effects) -> AsyncIterator[Event]:
            produced, index = cast("AsyncGenerator[Event, None]", flow(request, effects)), 0
            async with aclosing(produced) as events:
                async for event in events:
                    if index == at:
                        probe.fire(f"#{at}")
                        if kind == "raised":
                            raise Planted
                        return
                    yield event
                    index += 1

        return wrapped

    return DrawnFault(scenes, "outcome", kind, ENDING, wrap, probe=probe)


def _swallowing(probe: Probe) -> FlowWrapper:
    """End a model's answer that fails as if it were whole."""

    async def stream(real: Any, site: str, call: Any) -> AsyncIterator[Any]:
        try:
            async for chunk in real(site, call):
                yield chunk
        except EffectFailed:
            probe.fire("model.stream")

    return replacing("model", stream=stream)


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
    outcome: Layers = frozenset({"outcome"})
    if kind == "swallowed":

        async def acquire(real: Any, site: str, *args: Any) -> bool:
            if not await real(site, *args):
                probe.fire("lock")
            return True

        wrap = replacing("locks", acquire=acquire)
        return DrawnFault(scenes, "refusal", kind, outcome, wrap, probe=probe)

    def wrapped_flow(flow: Flow) -> Flow:
        async def wrapped(request: Request[Any, Any], effects: Effects) -> AsyncIterator[Event]:
            produced = cast("AsyncGenerator[Event, None]", flow(request, effects))
            try:
                async with aclosing(produced) as events:
                    async for event in events:
                        yield event
            except Refused as refused:
                if status == refused.status:
                    raise
                probe.fire(refused.code)
                raise Refused(
                    status if kind == "other status" else refused.status,
                    "busy" if kind == "other code" else refused.code,
                    f"{refused.detail}." if kind == "other sentence" else refused.detail,
                ) from None

        return wrapped

    return DrawnFault(scenes, "refusal", kind, outcome, wrapped_flow, probe=probe)


def _refusing(scenes: str) -> DrawnFault:
    """Refuse every request."""
    probe = Probe()

    def refused(_: int, event: Event) -> Sequence[Event]:
        probe.fire(event.__class__.__name__)
        raise Refused(409, "session_busy", "another turn is under way")

    return DrawnFault(
        scenes, "refusal", "added", frozenset({"outcome"}), _events(refused), probe=probe
    )


def _wire(draw: Random, scenes: str) -> DrawnFault:
    """Write a frame otherwise: its `event:` line, or its data as it stands in the bytes."""
    kind = draw.choice(("event renamed", "event missing", "event added", "key renamed"))
    nth, probe = draw.randrange(4), Probe()
    seen: list[bytes] = []

    def spoilt(frame: bytes) -> bytes:
        head, line, rest = frame.partition(b"data: ")
        if kind == "event added":
            return frame if head or not line else b"event: message_2\n" + frame
        if kind == "event missing":
            return line + rest
        if kind == "event renamed":
            return head.replace(b"event: ", b"event: x_", 1) + line + rest
        return head + line + rest.replace(b'"content":', b'"contents":', 1)

    def wire(encode: Encode) -> Encode:
        def encoded(event: Event) -> bytes:
            frame = encode(event)
            head = frame[:24]
            if head not in seen:
                seen.append(head)
            if seen.index(head) % 4 != nth:
                return frame
            other = spoilt(frame)
            if other != frame:
                probe.fire("")
            return other

        return encoded

    layers: Layers = ORDER | {"text"}
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
