"""The decorator that puts a function's calls on the tape."""

from __future__ import annotations

import inspect
import json
import logging
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from functools import cached_property, wraps
from hashlib import blake2b
from typing import Any, TypeVar, cast, get_args, get_type_hints

import msgspec

from cutover.errors import EffectFailed, NotRecordable
from cutover.flow_spec import plain
from cutover.tape.entry import Call, Fault, Item, LiveValue
from cutover.tape.exchange import Exchange
from cutover.tape.portal import call_blocking
from cutover.tape.run import CallFailed, Run, run_for

log = logging.getLogger(__name__)
F = TypeVar("F", bound=Callable[..., Any])

_UNWRITABLE = (TypeError, ValueError, OverflowError, RecursionError)
"""What encoders raise for what is no JSON."""


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
    `raises` are raised for every reader as `kind(*error.args)`, where `kind` is the class that
    `raises` names; others as `EffectFailed`.

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


@dataclass(eq=False)
class _Codec:
    """How the calls of one function are written on the tape and read from it."""

    name: str
    function: Callable[..., Any]
    writes: bool
    seconds: float
    raises: tuple[type[Exception], ...]
    ignore: tuple[str, ...]
    _warned: bool = False

    def __post_init__(self) -> None:
        self._signature = inspect.signature(self.function)

    def call(self, args: tuple[Any, ...], named: dict[str, Any]) -> Call:
        """Return a call as the tape finds it; raises `NotRecordable`."""
        bound = self._signature.bind(*args, **named)
        bound.apply_defaults()
        values = {key: one for key, one in bound.arguments.items() if key not in self.ignore}
        try:
            canonical = _canonical(values)
        except _UNWRITABLE as error:
            raise NotRecordable(self.name, _culprit(values), str(error)) from error
        key = blake2b(canonical, digest_size=16).digest()
        return Call(self.name, key, canonical, self.writes, seconds=self.seconds)

    def item(self, value: Any, exchange: Exchange) -> Item:
        """Encode a result; one that cannot be encoded stays an object of this process."""
        try:
            return _encode(value)
        except _UNWRITABLE as error:
            if self.name not in exchange.incomplete:
                exchange.incomplete[self.name] = str(error)
                log.warning("result of effect %r is on no tape: %s", self.name, error)
            return LiveValue(value)

    def value(self, item: Item) -> Any:
        """Decode a result by the return annotation."""
        if isinstance(item, LiveValue):
            return item.value
        try:
            return self._decode(item)
        except ValueError as error:
            self._warn("does not return what its annotation says", error)
            return msgspec.json.decode(item)

    def result(self, values: list[Any]) -> Any:
        """Return the one result of a call; raises where it was not stored with its tape."""
        if not values:
            raise EffectFailed(self.name, "NotStored", "its result could not be encoded")
        return values[-1]

    @contextmanager
    def raised(self) -> Iterator[None]:
        """Raise what a reader of a failed call gets to see."""
        try:
            yield
        except CallFailed as failed:
            fault = failed.fault
            error: Exception = EffectFailed(self.name, fault.kind, fault.message)
            kind = next((one for one in self.raises if one.__name__ == fault.kind), None)
            if kind is not None:
                try:
                    error = kind(*msgspec.json.decode(fault.args))
                except (TypeError, ValueError) as wrong:
                    self._warn(f"declares {kind.__name__}, which cannot be made of its args", wrong)
            raise error from failed.error

    @contextmanager
    def declared(self) -> Iterator[None]:
        """Mark an exception that the effect declares with what is stored of it: its arguments."""
        try:
            yield
        except self.raises as error:
            try:
                args = _encode(list(error.args))
            except _UNWRITABLE:
                args = _encode([str(error)])
            kind = next(one for one in type(error).__mro__ if one in self.raises)
            error.cutover_fault = Fault(kind.__name__, str(error), msgspec.Raw(args))  # type: ignore[attr-defined]
            raise

    @cached_property
    def _decode(self) -> Callable[[bytes], Any]:
        pydantic = sys.modules.get("pydantic")
        try:
            wanted = get_type_hints(self.function, include_extras=True).get("return", Any)
            if inspect.isasyncgenfunction(self.function):
                wanted = next(iter(get_args(wanted)), Any)
            try:
                return msgspec.json.Decoder(wanted, dec_hook=_decoded).decode
            except TypeError:  # what msgspec does not know, such as unions of models
                if pydantic is None:
                    raise
                validate: Callable[[bytes], Any] = pydantic.TypeAdapter(wanted).validate_json
                return validate
        except (NameError, TypeError, RuntimeError) as error:  # the last is pydantic's
            self._warn("has an annotation that cannot be read: its results are plain JSON", error)
            return msgspec.json.decode

    def _warn(self, what: str, error: Exception) -> None:
        if not self._warned:
            self._warned = True
            log.warning("effect %r %s: %s", self.name, what, error)


def _culprit(values: dict[str, Any]) -> str:
    for key, value in values.items():
        try:
            _encode(value)
        except _UNWRITABLE:
            return key
    return ", ".join(values)


def _coroutine(codec: _Codec) -> Callable[..., Any]:
    async def wrapper(*args: Any, **named: Any) -> Any:
        run = run_for(codec.name, writes=codec.writes)
        if run is None:
            return await codec.function(*args, **named)
        return codec.result([value async for value in _values(codec, run, args, named)])

    return wrapper


def _generator(codec: _Codec) -> Callable[..., Any]:
    async def wrapper(*args: Any, **named: Any) -> AsyncIterator[Any]:
        run = run_for(codec.name, writes=codec.writes)
        values = _values(codec, run, args, named) if run else codec.function(*args, **named)
        async with aclosing(values):
            async for value in values:
                yield value

    return wrapper


async def _values(
    codec: _Codec, run: Run, args: tuple[Any, ...], named: dict[str, Any]
) -> AsyncGenerator[Any, None]:
    async def perform() -> AsyncIterator[Item]:
        with codec.declared():
            if inspect.iscoroutinefunction(codec.function):
                yield codec.item(await codec.function(*args, **named), run.exchange)
                return
            async with aclosing(codec.function(*args, **named)) as values:
                async for value in values:
                    yield codec.item(value, run.exchange)

    with codec.raised():
        async with aclosing(run.call(codec.call(args, named), perform)) as items:
            async for item in items:
                yield codec.value(item)


def _blocking(codec: _Codec) -> Callable[..., Any]:
    def wrapper(*args: Any, **named: Any) -> Any:
        run = run_for(codec.name, writes=codec.writes)
        if run is None:
            return codec.function(*args, **named)

        def perform() -> Iterator[Item]:
            with codec.declared():
                result = codec.function(*args, **named)
            yield codec.item(result, run.exchange)

        with codec.raised():
            items = list(call_blocking(run, codec.call(args, named), perform))
        return codec.value(codec.result(items))

    return wrapper


def _canonical(values: dict[str, Any]) -> bytes:
    try:
        return _encode(values)
    except UnicodeEncodeError:  # half characters, as models write them, are escaped
        built = msgspec.to_builtins(values, str_keys=True, enc_hook=_encoded)
        return json.dumps(built, sort_keys=True, separators=(",", ":")).encode()


def _encode(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value, enc_hook=_encoded, order="sorted")
    except TypeError:  # keys that are numbers or dates can be sorted as text alone
        built = msgspec.to_builtins(value, str_keys=True, enc_hook=_encoded)
        return msgspec.json.encode(built, order="sorted")


def _encoded(value: Any) -> Any:
    """Return a model of pydantic, which msgspec does not know, as JSON."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    return plain(value)


def _decoded(kind: type[Any], value: Any) -> Any:
    if hasattr(kind, "model_validate"):
        return kind.model_validate(value)
    message = f"{kind.__name__} cannot be made of JSON"
    raise TypeError(message)
