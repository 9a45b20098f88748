"""The decorator that puts a function's calls on the tape."""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from functools import cached_property, wraps
from hashlib import blake2b
from typing import Any, TypeVar, cast, get_args, get_type_hints

import msgspec

from cutover.errors import EffectFailed, NotRecordable
from cutover.tape.entry import Call, Fault, Item, Live
from cutover.tape.exchange import Exchange
from cutover.tape.run import CallFailed, Run, run_for

log = logging.getLogger(__name__)
F = TypeVar("F", bound=Callable[..., Any])


def effect(
    name: str,
    *,
    writes: bool = False,
    seconds: float = 30.0,
    raises: tuple[type[Exception], ...] = (),
    ignore: tuple[str, ...] = ("self", "cls"),
) -> Callable[[F], F]:
    """Put the calls of a function on the tape of the run they belong to.

        @effect("orders.create", writes=True, raises=(OrderNotFound,))
        async def create_order(item: str, grams: int) -> str: ...

    For coroutine functions, asynchronous generator functions, and blocking functions. In a run, a
    call that is on the tape (same name and arguments, n-th occurrence) gives what it gave before;
    otherwise a live run performs it, for at most `seconds`. Outside a run the function is called.

    Arguments, those in `ignore` apart, must be JSON as msgspec or pydantic encode it; defaults are
    applied. Results are encoded once and decoded for each reader by the return annotation; one that
    cannot be encoded is handed on in this process, and marks the tape as incomplete. Exceptions in
    `raises` are raised for every reader as `type(error)(*error.args)`, others as `EffectFailed`.

    `writes`: the effect changes the world. It is never performed twice, and runs on when its client
    leaves. Raises `NotRecordable` for arguments that are no JSON, `TypeError` for generator
    functions that block.
    """

    def decorate(function: F) -> F:
        codec = _Codec(name, function, writes, seconds, raises, ignore)
        if inspect.isasyncgenfunction(function):
            wrapper = _generator(codec)
        elif inspect.iscoroutinefunction(function):
            wrapper = _coroutine(codec)
        elif inspect.isgeneratorfunction(function):
            message = f"effect {name!r} is a blocking generator: make it asynchronous, or a list"
            raise TypeError(message)
        else:
            wrapper = _blocking(codec)
        return cast("F", wraps(function)(wrapper))

    return decorate


class _Codec:
    """How the calls of one function are written on the tape and read from it."""

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        writes: bool,  # noqa: FBT001 - positional where it is built, once
        seconds: float,
        raises: tuple[type[Exception], ...],
        ignore: tuple[str, ...],
    ) -> None:
        self.name, self.function, self.writes, self.seconds = name, function, writes, seconds
        self._raises = {kind.__name__: kind for kind in raises}
        self._ignore = ignore
        self._signature = inspect.signature(function)

    def call(self, args: tuple[Any, ...], named: dict[str, Any]) -> Call:
        """Return a call as the tape finds it; raises `NotRecordable`."""
        bound = self._signature.bind(*args, **named)
        bound.apply_defaults()
        values = {key: one for key, one in bound.arguments.items() if key not in self._ignore}
        try:
            canonical = _encode(values)
        except (TypeError, ValueError, RecursionError) as error:
            raise NotRecordable(self.name, self._culprit(values), str(error)) from error
        key = blake2b(canonical, digest_size=16).digest()
        return Call(self.name, key, canonical, self.writes, seconds=self.seconds)

    def item(self, value: Any, exchange: Exchange) -> Item:
        """Encode a result; one that cannot be encoded stays an object of this process."""
        try:
            return _encode(value)
        except (TypeError, ValueError, RecursionError) as error:
            if self.name not in exchange.incomplete:
                exchange.incomplete[self.name] = str(error)
                log.warning("result of effect %r is on no tape: %s", self.name, error)
            return Live(value)

    def value(self, item: Item) -> Any:
        """Decode a result by the return annotation."""
        if isinstance(item, Live):
            return item.value
        try:
            return self._decoder.decode(item)
        except (msgspec.ValidationError, ValueError):
            log.warning("effect %r does not return what its annotation says", self.name)
            return msgspec.json.decode(item)

    def raised(self, failed: CallFailed) -> Exception:
        """Return what a reader of a failed call gets to see."""
        kind = self._raises.get(failed.fault.kind)
        if kind is None:
            return EffectFailed(self.name, failed.fault.kind, failed.fault.message)
        args = msgspec.json.decode(failed.fault.args or b"[]")
        return kind(*args)

    @contextmanager
    def declared(self) -> Iterator[None]:
        """Mark an exception that the effect declares with what is stored of it: its arguments."""
        try:
            yield
        except tuple(self._raises.values()) as error:
            try:
                args = _encode(list(error.args))
            except (TypeError, ValueError, RecursionError):
                args = _encode([str(error)])
            error.cutover_fault = Fault(type(error).__name__, str(error), msgspec.Raw(args))  # type: ignore[attr-defined]
            raise

    @cached_property
    def _decoder(self) -> msgspec.json.Decoder[Any]:
        try:
            wanted = get_type_hints(self.function, include_extras=True).get("return", Any)
            if inspect.isasyncgenfunction(self.function):
                wanted = next(iter(get_args(wanted)), Any)
            return msgspec.json.Decoder(wanted, dec_hook=_decoded)
        except (TypeError, NameError):
            return msgspec.json.Decoder()

    def _culprit(self, values: dict[str, Any]) -> str:
        for key, value in values.items():
            try:
                _encode(value)
            except (TypeError, ValueError, RecursionError):
                return key
        return ", ".join(values)


def _coroutine(codec: _Codec) -> Callable[..., Any]:
    async def wrapper(*args: Any, **named: Any) -> Any:
        run = run_for(codec.name, writes=codec.writes)
        if run is None:
            return await codec.function(*args, **named)

        async def perform() -> AsyncIterator[Item]:
            with codec.declared():
                result = await codec.function(*args, **named)
            yield codec.item(result, run.exchange)

        return [value async for value in _values(codec, run, codec.call(args, named), perform)][-1]

    return wrapper


def _generator(codec: _Codec) -> Callable[..., Any]:
    async def wrapper(*args: Any, **named: Any) -> AsyncIterator[Any]:
        run = run_for(codec.name, writes=codec.writes)
        if run is None:
            async for value in codec.function(*args, **named):
                yield value
            return

        async def perform() -> AsyncIterator[Item]:
            with codec.declared():
                async for value in codec.function(*args, **named):
                    yield codec.item(value, run.exchange)

        async for value in _values(codec, run, codec.call(args, named), perform):
            yield value

    return wrapper


async def _values(
    codec: _Codec, run: Run, call: Call, perform: Callable[[], AsyncIterator[Item]]
) -> AsyncIterator[Any]:
    try:
        async for item in run.call(call, perform):
            yield codec.value(item)
    except CallFailed as failed:
        raise codec.raised(failed) from failed.error


def _blocking(codec: _Codec) -> Callable[..., Any]:
    def wrapper(*args: Any, **named: Any) -> Any:
        run = run_for(codec.name, writes=codec.writes)
        if run is None:
            return codec.function(*args, **named)

        def perform() -> Iterator[Item]:
            with codec.declared():
                result = codec.function(*args, **named)
            yield codec.item(result, run.exchange)

        try:
            [item] = run.call_blocking(codec.call(args, named), perform)
        except CallFailed as failed:
            raise codec.raised(failed) from failed.error
        return codec.value(item)

    return wrapper


def _encode(value: Any) -> bytes:
    return msgspec.json.encode(value, enc_hook=_encoded, order="sorted")


def _encoded(value: Any) -> Any:
    """Return a model of pydantic, which msgspec does not know, as JSON."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    message = f"{type(value).__name__} is no JSON"
    raise TypeError(message)


def _decoded(kind: type[Any], value: Any) -> Any:
    if hasattr(kind, "model_validate"):
        return kind.model_validate(value)
    message = f"{kind.__name__} cannot be made of JSON"
    raise TypeError(message)
