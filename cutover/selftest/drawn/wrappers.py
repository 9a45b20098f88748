"""Wrappers: how a fault is put into the running graph flow, into its ports or into its wire."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from contract.errors import EffectFailed, Refused
from contract.flow import Event, Flow, PassedEvent, Request
from contract.operations import Operation
from contract.ports import Effects
from cutover.selftest.cases import Scene
from cutover.selftest.deployment import Encode, WireOf
from cutover.selftest.drawn.changes import Spoiler
from cutover.selftest.effect_faults import replacing, replacing_calls
from cutover.selftest.scenes import frame_of, framed_of, name_of
from cutover.selftest.stream_faults import (
    FlowWrapper,
    Planted,
    closing,
    rewritten,
    transformed,
)


@dataclass
class Probe:
    """Whether a fault has really changed something, and where."""

    fired: bool = False
    what: str = ""

    def fire(self, what: str) -> None:
        """Note that something was changed."""
        self.fired, self.what = True, self.what or what


# Calls.


def asked_otherwise(operation: Operation, spoiler: Spoiler, nth: int) -> FlowWrapper:
    """Change an argument of the calls of an operation at the n-th of its sites."""
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

    return replacing_calls(operation, stream)


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


def released_early(probe: Probe) -> FlowWrapper:
    """Release locks before the model is asked."""

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


def stored_late(scene: Scene, probe: Probe) -> FlowWrapper:
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
            async with closing(changed(request, effects)) as sent:
                async for event in sent:
                    yield event
                    if tag_of(scene, event) in scene.spec.grammar.terminal:
                        while late:
                            probe.fire("reply")
                            await late.pop()()
            for store in late:
                await store()

        return wrapped

    return wrap


def swallowing(probe: Probe) -> FlowWrapper:
    """End a model's answer that fails as if it were whole."""

    async def stream(real: Any, site: str, call: Any) -> AsyncIterator[Any]:
        try:
            async for chunk in real(site, call):
                yield chunk
        except EffectFailed:
            probe.fire("model.stream")

    return replacing("model", stream=stream)


# Frames.


def in_sequence(at: int, kind: str, probe: Probe) -> FlowWrapper:
    """Leave out, double or swap the n-th event of every stream."""
    held: list[Event] = []

    def change(before: Sequence[Event], event: Event) -> Sequence[Event]:
        if not before:
            held.clear()
        if kind == "reordered":
            if held:
                first = held.pop()
                if first != event:
                    probe.fire(f"#{at}")
                return (event, first)
            if len(before) == at:
                held.append(event)
                return ()
            return (event,)
        if len(before) != at:
            return (event,)
        probe.fire(f"#{at}")
        return () if kind == "missing" else (event, event)

    return rewritten(change)


def at_end(scene: Scene, kind: str, probe: Probe) -> FlowWrapper:
    """Leave out or double the terminal frame, or send it one frame too early."""
    if kind == "too early":
        return _ended_early(scene, probe)

    def change(_: object, event: Event) -> Sequence[Event]:
        if tag_of(scene, event) not in scene.spec.grammar.terminal:
            return (event,)
        probe.fire("")
        return () if kind == "missing" else (event, event)

    return rewritten(change)


def _ended_early(scene: Scene, probe: Probe) -> FlowWrapper:
    async def transform(events: AsyncIterator[Event]) -> AsyncGenerator[Event, None]:
        before: Event | None = None
        async for event in events:
            terminal = tag_of(scene, event) in scene.spec.grammar.terminal
            if terminal and before is not None:
                probe.fire("")
                yield event
                yield before
                before = None
                continue
            if before is not None:
                yield before
            before = event
        if before is not None:
            yield before

    return transformed(transform)


def recut(scene: Scene, kind: str, probe: Probe) -> FlowWrapper:
    """Send the same text in fewer or in more pieces."""
    held: list[Event] = []

    def flushed() -> list[Event]:
        if not held:
            return []
        if len(held) > 1:
            probe.fire("")
        if scene.spec.dialect.growth == "cumulative":
            made = held[-1]
        else:
            whole = "".join(_text_of(scene, one) or "" for one in held)
            made = _with_text(scene, held[0], whole)
        held.clear()
        return [made]

    def change(before: Sequence[Event], event: Event) -> Sequence[Event]:
        if not before:
            held.clear()
        text = _text_of(scene, event)
        if not text:
            return (*flushed(), event)
        if kind == "in halves":
            return _halves(scene, event, text, probe)
        held.append(event)
        second = kind == "every second" and len(held) > 1
        return flushed() if second else ()

    return rewritten(change)


def _text_of(scene: Scene, event: Event) -> str | None:
    if isinstance(event, PassedEvent):
        return _passed_text(scene, event)
    if tag_of(scene, event) in scene.spec.grammar.terminal | {"SUCCESS"}:
        return None
    if getattr(event, "tool_call_feedback", msgspec.UNSET) is not msgspec.UNSET:
        return None
    return scene.spec.text_of(event)


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


def tag_of(scene: Scene, event: Event) -> str:
    """Return the name under which an event is sent."""
    return event.name if isinstance(event, PassedEvent) else scene.spec.name_of(event)


def spoilt_event(scene: Scene, spoiler: Spoiler, event: Event) -> Event:
    """Change a field of an event, on a declared wire one that its dialect does not ignore."""
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


# Endings, refusals, and the wire itself.


def stopped(at: int, kind: str, probe: Probe) -> FlowWrapper:
    """Crash, or stop, at the n-th event."""

    async def transform(events: AsyncIterator[Event]) -> AsyncGenerator[Event, None]:
        index = 0
        async for event in events:
            if index == at:
                probe.fire(f"#{at}")
                if kind == "raised":
                    raise Planted
                return
            yield event
            index += 1

    return transformed(transform)


def refusing_otherwise(kind: str, status: int, probe: Probe) -> FlowWrapper:
    """Change a refusal: another status, sentence or code."""

    async def transform(events: AsyncIterator[Event]) -> AsyncGenerator[Event, None]:
        try:
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

    return transformed(transform)


def encoded_otherwise(kind: str, nth: int, probe: Probe) -> WireOf:
    """Write every fourth kind of frame otherwise: its `event:` line, or its data."""
    seen: list[bytes] = []

    def wire(encode: Encode) -> Encode:
        def encoded(event: Event) -> bytes:
            frame = encode(event)
            head = frame[:24]
            if head not in seen:
                seen.append(head)
            if seen.index(head) % 4 != nth:
                return frame
            other = _rewritten(kind, frame)
            if other != frame:
                probe.fire("")
            return other

        return encoded

    return wire


def _rewritten(kind: str, frame: bytes) -> bytes:
    head, line, rest = frame.partition(b"data: ")
    if kind == "event added":
        return frame if head or not line else b"event: message_2\n" + frame
    if kind == "event missing":
        return line + rest
    if kind == "event renamed":
        return head.replace(b"event: ", b"event: x_", 1) + line + rest
    return head + line + rest.replace(b'"content":', b'"contents":', 1)
