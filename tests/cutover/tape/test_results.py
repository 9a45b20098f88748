"""Results and errors of effects: encoded once, decoded for each reader by the annotation."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pydantic
import pytest

from cutover import EffectFailed, Exchange, Run, effect
from cutover.errors import NotRecordable
from cutover.records import TapeRecord, decode, encode
from cutover.tape import load, tape_record
from tests.support.tapes import play, within


class Turn(msgspec.Struct, frozen=True):
    """A struct."""

    role: str
    at: datetime


class Order(pydantic.BaseModel):
    """A model of pydantic."""

    item: str
    price: Decimal


class Refund(pydantic.BaseModel):
    """Another one."""

    refunded: bool


@dataclass(frozen=True)
class Point:
    """A dataclass."""

    x: int
    y: float = 0.5


class Opaque:
    """What cannot be encoded."""


async def both(call: Callable[[], Awaitable[Any]]) -> tuple[Any, Any]:
    """Return what a live run and a run on the stored tape get to see."""
    async with Exchange() as exchange:
        first = await within(Run(exchange, "legacy"), call)
        tape = decode(encode(tape_record(exchange)), TapeRecord)
    async with Exchange() as again:
        load(again, tape)
        again.finish_recording()
        run = play(again)
        second = await within(run, call)
        assert [one.how for one in run.plays] == ["tape"]
    return first, second


_TURN = Turn("user", datetime(2026, 1, 2, tzinfo=UTC))
_ORDER = Order(item="tea", price=Decimal("1.50"))


@effect("r.struct")
async def _struct(turns: list[Turn]) -> list[Turn]:
    return turns


@effect("r.model")
async def _model(order: Order) -> Order | None:
    return order


@effect("r.union")
async def _union(order: Order) -> Order | Refund:
    return order


@effect("r.models")
async def _models(orders: list[Order]) -> dict[str, Order]:
    return {one.item: one for one in orders}


@effect("r.dataclass")
async def _dataclass(point: Point) -> tuple[Point, date]:
    return point, date(2026, 1, 2)


@effect("r.keys")
async def _keys(counts: dict[int, str]) -> dict[int, str]:
    return counts


@effect("r.big")
async def _big(number: int) -> int:
    return number


@effect("r.bytes")
async def _bytes(data: bytes) -> bytes:
    return data


@effect("r.uuid")
async def _uuid(known: UUID) -> UUID:
    return known


@effect("r.none")
async def _none() -> None:
    return None


@effect("r.plain")
async def _plain(value: Any) -> Any:
    return value


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (_struct, [_TURN]),
        (_model, _ORDER),
        (_union, _ORDER),
        (_dataclass, Point(1)),
        (_keys, {2: "b", 10: "a"}),
        (_big, 2**70),
        (_bytes, b"\x00\xff"),
        (_uuid, UUID(int=7)),
        (_plain, {"a": [1, None, "文"]}),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
async def test_every_reader_gets_what_the_annotation_says(
    call: Callable[[Any], Awaitable[Any]], argument: Any
) -> None:
    """Live and played from a stored tape: the same value of the same type."""
    live, played = await both(lambda: call(argument))
    assert live == played
    assert type(live) is type(played)
    assert live == (argument if call is not _dataclass else (argument, date(2026, 1, 2)))


async def test_models_within_containers_are_models_again() -> None:
    """Pydantic's models stay models, not dicts."""
    live, played = await both(lambda: _models([_ORDER]))
    assert live == played == {"tea": _ORDER}
    assert await both(_none) == (None, None)


class Store:
    """An effect may be a method: its object is no argument."""

    def __init__(self, name: str) -> None:
        self.name = name

    @effect("store.get")
    async def get(self, key: str) -> str:
        """Return a value."""
        return f"{self.name} {key}"

    @classmethod
    @effect("store.make")
    async def make(cls, name: str) -> str:
        """Return the class's name."""
        return f"{cls.__name__} {name}"


async def test_methods_are_found_whatever_their_object() -> None:
    """Each stack has an object of its own."""
    async with Exchange() as exchange:
        assert await within(Run(exchange, "legacy"), lambda: Store("one").get("k")) == "one k"
        run = play(exchange)
        assert await within(run, lambda: Store("two").get("k")) == "one k"
    assert (await both(lambda: Store.make("n")))[0] == "Store n"


async def test_ignored_arguments_are_no_part_of_the_call() -> None:
    """A client or a logger may differ between stacks."""

    @effect("r.ignore", ignore=("client",))
    async def ask(text: str, client: object = None) -> str:
        return text if client is not None else "without"

    async with Exchange() as exchange:
        await within(Run(exchange, "legacy"), lambda: ask("a", client=Opaque()))
        run = play(exchange)
        assert await within(run, lambda: ask("a", Opaque())) == "a"


@pytest.mark.parametrize(
    "value", [Opaque(), {"deep": Opaque()}, lambda: None], ids=["object", "deep", "function"]
)
async def test_arguments_that_are_no_json_are_refused_by_name(value: Any) -> None:
    """The message names effect and argument, and how to leave it out."""
    async with Exchange() as exchange:
        with pytest.raises(NotRecordable, match=r"'value' of effect 'r\.plain'.*ignore="):
            await within(Run(exchange, "legacy"), lambda: _plain(value))


async def test_half_characters_in_arguments_are_recorded() -> None:
    """A model writes half of a surrogate pair into a tool's arguments: the call is found."""
    async with Exchange() as exchange:
        with_half = {"q": "\ud83d", "order": _ORDER}
        live = await within(Run(exchange, "legacy"), lambda: _plain(with_half))
        run = play(exchange)
        assert await within(run, lambda: _plain(with_half)) is live
        assert [one.how for one in run.plays] == ["tape"]


async def test_what_cannot_be_encoded_is_served_on_and_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The object is handed on in this process; the tape is incomplete, and names the effect."""
    made = Opaque()

    @effect("r.opaque")
    async def opaque() -> Opaque:
        return made

    async with Exchange() as exchange:
        run = Run(exchange, "legacy")
        for _ in range(2):
            assert await within(run, opaque) is made
        assert await within(play(exchange), opaque) is made
        assert "Opaque" in exchange.incomplete["r.opaque"]
        record = tape_record(exchange)
    assert record.incomplete == ("r.opaque",)
    assert [r.message for r in caplog.records].count(caplog.records[0].message) == 1
    async with Exchange() as again:
        load(again, record)
        again.finish_recording()
        with pytest.raises(EffectFailed, match="NotStored"):
            await within(play(again), opaque)


@effect("r.lies")
async def _lies() -> list[int]:
    return "text"  # type: ignore[return-value]


async def test_an_annotation_that_lies_is_said_once_and_readers_agree(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The result is plain JSON then, for the live run as well."""
    with caplog.at_level(logging.WARNING):
        assert await both(_lies) == ("text", "text")
        assert await both(_lies) == ("text", "text")
    assert [one.getMessage().count("r.lies") for one in caplog.records] == [1]


@effect("r.unknown")
async def _unknown() -> "Nowhere":  # type: ignore[name-defined] # noqa: F821 - imported for checkers only
    return {"a": 1}


async def test_an_annotation_that_cannot_be_read_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """A name only the type checker sees: plain JSON, for everyone."""
    assert await both(_unknown) == ({"a": 1}, {"a": 1})
    assert "r.unknown" in caplog.text


# Errors.


class OrderNotFound(Exception):
    """Declared: rebuilt from its arguments."""

    def __init__(self, order: int, where: str = "shop") -> None:
        super().__init__(order, where)
        self.order = order


class OrderHidden(OrderNotFound):
    """Not declared itself, but its base is."""


class Picky(Exception):
    """Cannot be made of its args."""

    def __init__(self, *, why: str) -> None:
        super().__init__(why)


@effect("e.find", raises=(OrderNotFound, Picky))
async def _find(kind: str) -> str:
    match kind:
        case "declared":
            raise OrderNotFound(7, "attic")
        case "subclass":
            raise OrderHidden(8)
        case "picky":
            raise Picky(why="so")
        case "opaque":
            raise OrderNotFound(Opaque())  # type: ignore[arg-type]
        case _:
            raise KeyError("secret")


@pytest.mark.parametrize(
    ("kind", "raised", "args"),
    [
        ("declared", OrderNotFound, (7, "attic")),
        ("subclass", OrderNotFound, (8, "shop")),
        ("picky", EffectFailed, None),
        ("other", EffectFailed, None),
        ("opaque", OrderNotFound, None),
    ],
)
async def test_errors_are_raised_for_every_reader(
    kind: str, raised: type[Exception], args: tuple[Any, ...] | None
) -> None:
    """Declared ones are rebuilt, others are `EffectFailed` with the original's name."""
    seen = []

    async def call() -> None:
        with pytest.raises(raised) as caught:
            await _find(kind)
        seen.append(caught.value)

    await both(call)
    live, played = seen
    assert type(live) is type(played) is raised
    assert live.args == played.args
    assert args is None or live.args == args
    if isinstance(live, EffectFailed):
        assert live.kind == {"picky": "Picky", "other": "KeyError"}[kind]


async def test_a_generator_that_fails_gave_what_it_gave() -> None:
    """Readers get the items before the error, then the error."""

    @effect("e.stream", raises=(OrderNotFound,))
    async def stream() -> AsyncIterator[Point]:
        yield Point(1)
        yield Point(2)
        raise OrderNotFound(1)

    seen: list[list[Point]] = []

    async def read() -> None:
        got: list[Point] = []
        seen.append(got)
        with suppress(OrderNotFound):
            async for point in stream():
                got.append(point)  # noqa: PERF401 - what came before the error counts
            got.clear()

    await both(read)
    assert seen == [[Point(1), Point(2)]] * 2


async def test_a_generator_closed_early_is_closed_in_the_effect() -> None:
    """Its `finally` runs when the read is cut, and the tape keeps what came before."""
    closed = []

    @effect("e.closed")
    async def numbers() -> AsyncIterator[int]:
        try:
            for number in range(100):
                yield number
        finally:
            closed.append(1)

    async def first() -> int:
        async for number in numbers():
            return number
        raise AssertionError

    async with Exchange() as exchange:
        assert await within(Run(exchange, "legacy"), first) == 0
    assert closed == [1]
    assert await within(play(exchange), first) == 0
    outside = [number async for number in numbers()]
    assert outside == list(range(100))


def test_blocking_generators_are_refused() -> None:
    """They can neither be streamed nor be awaited."""
    with pytest.raises(TypeError, match="blocking generator"):

        @effect("e.blocking")
        def numbers() -> Any:
            yield 1


async def test_wrong_arguments_are_the_callers_type_error() -> None:
    """As without the decorator."""
    async with Exchange() as exchange:
        with pytest.raises(TypeError, match="missing"):
            await within(Run(exchange, "legacy"), _find)  # type: ignore[arg-type]
