"""The decorator for functions that do something to the world."""

from __future__ import annotations

import dataclasses
import inspect
import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

from cutover_client.calls import Call, EffectFailed, Played, Report
from cutover_client.exchange import Exchange, current_exchange
from cutover_client.values import arguments_of, as_json, as_mcp, of_mcp

log = logging.getLogger(__name__)

_P = ParamSpec("_P")
_R = TypeVar("_R")
_Codec = Callable[[Any], Any]


def effect(
    name: str,
    *,
    read_only: bool = False,
    key: Callable[..., str] | None = None,
    ignore: Collection[str] = ("self", "cls"),
    encode: _Codec | None = None,
    decode: _Codec | None = None,
    errors: tuple[type[Exception], ...] = (),
    seconds: float = 10.0,
    mcp: bool = False,
) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Perform a function once in an exchange, and return what it returned in every other run.

    For functions, coroutine functions and generators of both kinds; outside of an exchange it is
    the function alone. Its arguments, those not in `ignore`, decide which call it is, and must be
    JSON; so must what it returns or yields, or `encode` makes JSON of a value and `decode` a value
    of that. Of what it raises, `errors` are raised again in other runs, made from their message;
    anything else is an `EffectFailed` there.

    `read_only`: it changes nothing, and may be done again. `key` is called with its arguments and
    returns an idempotency key: with one it is performed again where its outcome is not known.
    `seconds` is how long a process that has died is waited for. `mcp`: the other service calls this
    as a tool of an MCP server through the gateway; it is named `mcp.SERVER.TOOL` then.

    Raises `NotJson` and `GatewayError` before it is performed.
    """

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        effect = _Effect(
            name,
            inspect.signature(function),
            frozenset(ignore),
            read_only=read_only,
            key=key,
            encode=encode or _same,
            decode=decode or _same,
            errors={kind.__name__: kind for kind in errors},
            seconds=seconds,
            mcp=mcp,
        )
        wrapper: Any
        if inspect.isasyncgenfunction(function):
            wrapper = _async_generator(effect, function)
        elif inspect.iscoroutinefunction(function):
            wrapper = _coroutine(effect, function)
        elif inspect.isgeneratorfunction(function):
            wrapper = _generator(effect, function)
        else:
            wrapper = _function(effect, function)
        return cast("Callable[_P, _R]", wraps(function)(wrapper))

    return decorate


def _same(value: Any) -> Any:
    return value


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    read_only: bool
    key: Callable[..., str] | None
    encode: _Codec
    decode: _Codec
    errors: dict[str, type[Exception]]
    seconds: float
    mcp: bool


class _Effect:
    """One decorated function: how its calls are written and read."""

    def __init__(
        self, name: str, signature: inspect.Signature, ignore: frozenset[str], **options: Any
    ) -> None:
        self.name = name
        self.options = _Options(**options)
        self._signature = signature
        self._ignore = ignore

    def call(self, args: tuple[Any, ...], named: dict[str, Any]) -> Call:
        """Return a call as the effect API gets it; raises `NotJson`."""
        arguments = arguments_of(self.name, self._signature, self._ignore, args, named)
        key = "" if self.options.key is None else self.options.key(*args, **named)
        return Call(self.name, arguments, self.options.read_only, key, self.options.seconds)

    def report(self, values: Iterable[Any] = (), result: Any = None) -> Report:
        """Return what the function gave as it is reported.

        Who called gets it also where it is no JSON: it has happened. Other runs get an error then.
        """
        try:
            items = [as_json("a value", self.name, self.options.encode(value)) for value in values]
            if result is not None:
                result = as_json("the result", self.name, self.options.encode(result))
            if self.options.mcp:
                result = as_mcp(result)
        except Exception as error:  # encode is the caller's own
            log.exception("what %r returned is on no tape: other runs fail there", self.name)
            return Report(error=(type(error).__name__, ""))
        return Report(items, result=result)

    def failed(self, error: Exception, values: Iterable[Any] = ()) -> Report:
        """Return an error as it is reported: only of those that are named, what they say."""
        kind = type(error).__name__
        message = str(error) if kind in self.options.errors else ""
        report = self.report(values)
        return report if report.error else Report(report.items, (kind, message))

    def items(self, told: Played) -> Iterator[Any]:
        """Yield what another run's function yielded; raises what that raised."""
        yield from map(self.options.decode, told.items)
        self._raise_again(told)

    def result(self, told: Played) -> Any:
        """Return what another run's function returned; raises what that raised."""
        self._raise_again(told)
        result = of_mcp(self.name, told.result) if self.options.mcp else told.result
        return None if result is None else self.options.decode(result)

    def _raise_again(self, told: Played) -> None:
        if told.error is None:
            return
        kind, message = told.error
        if (known := self.options.errors.get(kind)) is not None:
            raise known(message)
        raise EffectFailed(self.name, kind)


def _coroutine(effect: _Effect, function: Callable[..., Any]) -> Callable[..., Any]:
    async def wrapper(*args: Any, **named: Any) -> Any:
        exchange = current_exchange()
        if exchange is None:
            return await function(*args, **named)
        told = await exchange.begin(effect.call(args, named))
        if told is None:
            return await function(*args, **named)
        if isinstance(told, Played):
            return effect.result(told)
        try:
            async with exchange.alive(told):
                result = await function(*args, **named)
        except Exception as error:
            await exchange.report(told, effect.failed(error))
            raise
        await exchange.report(told, effect.report(result=result))
        return result

    return wrapper


def _function(effect: _Effect, function: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(*args: Any, **named: Any) -> Any:
        exchange = current_exchange()
        if exchange is None:
            return function(*args, **named)
        told = exchange.begin_blocking(effect.call(args, named))
        if told is None:
            return function(*args, **named)
        if isinstance(told, Played):
            return effect.result(told)
        try:
            with exchange.alive_blocking(told):
                result = function(*args, **named)
        except Exception as error:
            exchange.report_blocking(told, effect.failed(error))
            raise
        exchange.report_blocking(told, effect.report(result=result))
        return result

    return wrapper


def _async_generator(effect: _Effect, function: Callable[..., Any]) -> Callable[..., Any]:
    async def wrapper(*args: Any, **named: Any) -> AsyncIterator[Any]:
        exchange = current_exchange()
        told = None if exchange is None else await exchange.begin(effect.call(args, named))
        if exchange is None or told is None:
            async for value in function(*args, **named):
                yield value
            return
        if isinstance(told, Played):
            for value in effect.items(told):
                yield value
            return
        values: list[Any] = []
        try:
            async with exchange.alive(told):
                async for value in function(*args, **named):
                    values.append(value)
                    yield value
        except Exception as error:
            await exchange.report(told, effect.failed(error, values))
            raise
        except GeneratorExit:  # who reads it wanted no more
            await exchange.report(told, effect.report(values))
            raise
        await exchange.report(told, effect.report(values))

    return wrapper


def _generator(effect: _Effect, function: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(*args: Any, **named: Any) -> Iterator[Any]:
        exchange: Exchange | None = current_exchange()
        told = None if exchange is None else exchange.begin_blocking(effect.call(args, named))
        if exchange is None or told is None:
            yield from function(*args, **named)
            return
        if isinstance(told, Played):
            yield from effect.items(told)
            return
        values: list[Any] = []
        try:
            with exchange.alive_blocking(told):
                for value in function(*args, **named):
                    values.append(value)
                    yield value
        except Exception as error:
            exchange.report_blocking(told, effect.failed(error, values))
            raise
        except GeneratorExit:  # who reads it wanted no more
            exchange.report_blocking(told, effect.report(values))
            raise
        exchange.report_blocking(told, effect.report(values))

    return wrapper
