"""Finding a call: by name and arguments, n-th occurrence; and what its items are."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from cutover import Exchange, Run, effect
from cutover.tape import Call, Entry
from tests.support.tapes import World, never, play, start, turn, values, within


@effect("spelled")
async def spelled(item: str, grams: int = 100, *more: str, **named: int) -> str:
    """Return its arguments."""
    return f"{item} {grams} {more} {sorted(named.items())}"


async def test_a_call_is_found_by_its_arguments_whatever_the_order(world: World) -> None:
    """Two stacks make the same calls in another order: each finds its own."""
    async with Exchange() as exchange:
        for key in ("a", "b", "c"):
            await within(Run(exchange, "legacy"), lambda key=key: world.read(key))  # type: ignore[misc]
        other = play(exchange)
        answers = [await within(other, lambda k=k: world.read(k)) for k in ("c", "a", "b")]  # type: ignore[misc]
    assert answers == ["c #1", "a #1", "b #1"]
    assert world.done == ["a", "b", "c"]
    assert [one.how for one in other.plays] == ["tape"] * 3


async def test_the_same_call_is_found_by_its_occurrence(world: World) -> None:
    """The n-th equal call finds the n-th entry."""
    async with Exchange() as exchange:
        first, second = Run(exchange, "legacy"), play(exchange)
        said = [await within(first, lambda: world.read("x")) for _ in range(3)]
        heard = [await within(second, lambda: world.read("x")) for _ in range(3)]
    assert said == heard == ["x #1", "x #2", "x #3"]


async def test_equal_calls_at_once_are_calls_of_their_own(world: World) -> None:
    """A run that asks twice at the same time has two entries, not one shared."""
    async with Exchange() as exchange:
        run = Run(exchange, "legacy")
        tasks = [start(run, lambda: world.write("x")) for _ in range(2)]
        assert sorted(await asyncio.gather(*tasks)) == ["x #1", "x #2"]
        assert len(exchange.entries) == 2


@pytest.mark.parametrize(
    ("args", "named"),
    [
        (("tea",), {}),
        (("tea", 100), {}),
        ((), {"item": "tea"}),
        ((), {"grams": 100, "item": "tea"}),
    ],
)
async def test_spellings_of_one_call_are_one_call(
    args: tuple[Any, ...], named: dict[str, Any]
) -> None:
    """Arguments are bound to the signature, with defaults applied."""
    async with Exchange() as exchange:
        await within(Run(exchange, "legacy"), lambda: spelled("tea"))
        other = play(exchange)
        await within(other, lambda: spelled(*args, **named))
        assert [one.how for one in other.plays] == ["tape"]


@pytest.mark.parametrize(
    ("args", "named"),
    [(("tea", 101), {}), (("tea", 100, "more"), {}), (("tea",), {"extra": 1}), (("coffee",), {})],
)
async def test_other_arguments_are_another_call(
    args: tuple[Any, ...], named: dict[str, Any]
) -> None:
    """Nothing that was passed is left out of the key."""
    async with Exchange() as exchange:
        await within(Run(exchange, "legacy"), lambda: spelled("tea"))
        other = play(exchange)
        exchange.finish_recording()
        await within(other, lambda: spelled(*args, **named))
        assert [one.how for one in other.plays] == ["nearest"]


async def test_calls_alike_but_for_a_date_are_told_apart_where_they_can_be() -> None:
    """Of entries with the same folded key, the one that was really asked is found first."""
    async with Exchange() as exchange:
        for canonical in (b"on 2026-01-01", b"on 2026-01-02"):
            exchange.add(
                Entry(Call("model.chat", b"folded", canonical), 0, [(1, canonical)], "done")
            )
        run = play(exchange)

        async def ask(canonical: bytes) -> list[Any]:
            call = Call("model.chat", b"folded", canonical)
            return [item async for item in run.call(call, never)]

        assert await ask(b"on 2026-01-02") == [b"on 2026-01-02"]
        assert await ask(b"on 2026-01-03") == [b"on 2026-01-01"]


@pytest.mark.virtual
async def test_items_have_microseconds_since_the_exchange_began() -> None:
    """Stamps say when the world answered, not when the run read it."""

    @effect("ticks")
    async def ticks() -> AsyncIterator[int]:
        for number in range(3):
            await asyncio.sleep(0.25)
            yield number

    await asyncio.sleep(7)
    async with Exchange() as exchange:
        run = Run(exchange, "legacy")

        async def read_slowly() -> None:
            async for _ in ticks():
                await asyncio.sleep(1)

        await within(run, read_slowly)
        [entry] = exchange.entries
        assert [at for at, _ in entry.items] == [250_000, 500_000, 750_000]
        assert values(entry) == [b"0", b"1", b"2"]
        assert (entry.at, entry.end) == (0, "done")


async def test_items_are_read_while_they_come(world: World) -> None:
    """A second run tails what is under way, and sees the same."""
    world.hold("s/2")
    async with Exchange() as exchange:
        first, second = Run(exchange, "legacy"), play(exchange)
        seen: dict[str, list[int]] = {"legacy": [], "graph": []}

        async def read(run: Run) -> None:
            async for number in world.stream("s"):
                seen[run.stack].append(number)

        tasks = [start(run, lambda run=run: read(run)) for run in (first, second)]  # type: ignore[misc]
        await turn()
        assert seen == {"legacy": [0, 1], "graph": [0, 1]}
        world.let()
        await asyncio.gather(*tasks)
    assert seen == {"legacy": [0, 1, 2, 3, 4], "graph": [0, 1, 2, 3, 4]}
    assert world.begun == ["s"]


async def test_names_keep_calls_apart_that_have_the_same_arguments(world: World) -> None:
    """`world.read("k")` does not answer `world.write("k")`."""
    async with Exchange() as exchange:
        run = Run(exchange, "legacy")
        await within(run, lambda: world.read("k"))
        await within(run, lambda: world.write("k"))
        assert [entry.call.name for entry in exchange.entries] == ["world.read", "world.write"]
