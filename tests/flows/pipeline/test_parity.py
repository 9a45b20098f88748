"""Both stacks hold drawn conversations alike: same bytes, same effects, whatever fails."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random

import pytest

from contract.errors import Fault, FaultCode
from contract.flows.pipeline import Interlocutor, PipelineOptions
from contract.model import Chunk
from cutover.selftest.cases import FAULTS, INFO, Answer, likely, text
from effects.model import Fail, Wait
from tests.support.flow_runs import DIRECTIONS, drawn_conversations, same_on_both
from tests.support.pipeline_turns import Talk, body, ending, house, tokens

SAID = (
    *("还记得我们上次去公园吗？", "hello there", " the park \n", "好的，再见！", "Thanks. Bye!"),
    *("再见面是什么时候", "x" * 300, "{x} {{y}} {% z %}", "🍅", "晚安~"),
)
CHECKS = (
    *(
        "需要检索",
        "不需要检索",
        "需要检索",
        "不需要检索",
        " 需要检索。\n",
        "“需要检索”",
        "无需检索",
    ),
    *("需要检索？不需要检索", "yes", "", "检索", "我不认为需要检索"),
)
SPEAKERS = (None, Interlocutor("Ana", "mother"), Interlocutor("{x}", "朋友"))
SITES: tuple[tuple[str, FaultCode], ...] = (
    ("history", "store_failed"),
    ("count", "adapter_failed"),
    ("recall", "memory_unavailable"),
    ("message", "store_unavailable"),
    ("reply", "store_failed"),
)


def conversation(seed: int) -> Iterator[Talk]:
    """Draw the turns of one conversation, all in one store."""
    draw = Random(seed)
    stores = house(*(text(draw, 0, 6) for _ in range(draw.choice((0, 3, 12)))))
    options = _options(draw)
    for _ in range(draw.randint(1, 6)):
        yield Talk(
            body=body(
                draw.choice(SAID),
                user_id=draw.choice(("u-1", "u-1", "u-2")),
                user_name=draw.choice((None, "Maya", "{n}")),
                interlocutor=draw.choice(SPEAKERS),
            ),
            options=options,
            check=_answer(draw, draw.choice(CHECKS)),
            answer=_answer(draw, text(draw, 0, 9)),
            house=stores,
            models=(INFO,),
            tokens=len if likely(draw, 0.5) else None,
            fails=_fails(draw),
            busy=likely(draw, 0.02),
        )


def _options(draw: Random) -> PipelineOptions:
    warn, compress, end = draw.choice(((70, 85, 95), (1, 2, 95), (1, 50, 100), (1, 90, 100)))
    return PipelineOptions(
        system_prompt=draw.choice(("你是一个有用的助手。", "{x} {{y}} {% z %}\n", "")),
        model_id=draw.choice(("gpt-4.1",) * 20 + ("no-such-model",)),
        max_tokens=draw.choice((0,) * 9 + (4_096, 4_097)),
        history_limit=draw.choice((100, 100, 1, 3)),
        token_limit=draw.choice((8_000, 400, 200, 80, 40)),
        warn_percent=warn,
        compress_percent=compress,
        end_percent=end,
        recall_limit=draw.choice((5, 1)),
        texts=draw.choice(({}, {}, {"warn": "", "end": "End."})),
    )


def _fails(draw: Random) -> dict[str, Fault]:
    if likely(draw, 0.02):
        return {"lookup": Fault("model_unavailable")}
    return {site: Fault(code) for site, code in SITES if likely(draw, 0.06)}


def _answer(draw: Random, said: str) -> Answer:
    half = draw.randrange(len(said) + 1)
    pieces = (Chunk(text=said[:half]), Wait(0.3), Chunk(text=said[half:], reasoning="hm"))
    if likely(draw, 0.1):
        return (*pieces[: draw.randrange(4)], Fail(Fault(draw.choice(FAULTS), retryable=True)))
    return (*pieces, Chunk(finish=draw.choice(("stop", "stop", "length"))))


pytestmark = pytest.mark.virtual


@pytest.mark.slow
@drawn_conversations(48, per_test=16, traced=(0,))
async def test_drawn_conversations_are_held_alike(seeds: range) -> None:
    """Each turn recorded by one stack, tailed and replayed by the other, taking turns.

    A message is what its tokens were; a turn that succeeded is stored with its reply, unless the
    store failed, and no other is.
    """
    seen = Counter[object]()
    for seed in seeds:
        for number, talk in enumerate(conversation(seed)):
            before = len(talk.house.conversations.turns)
            played = await same_on_both(talk, *DIRECTIONS[(seed + number) % 2])
            stored = len(talk.house.conversations.turns) - before
            seen[played.ended[0]] += 1
            if played.ended[0] == "refused" or not played.frames:
                assert stored == 0
                continue
            end = ending(played)
            seen[end["token_info"]["action"]] += 1
            seen.update((error["node"], error["code"]) for error in end["errors"])
            assert end["success"] == (end["message"] != "") == (played.ended[0] == "completed")
            if end["success"]:
                assert "".join(tokens(played)) == end["message"]
            fault_at = [name for name in ("message", "reply") if name in talk.fails]
            kept = {"message": 0, "reply": 1}[fault_at[0]] if fault_at else 2
            assert stored == (kept if end["success"] else 0)
    assert {"continue", "warn", "compress", "end"} <= seen.keys()
    assert seen["completed"] > seen.total() / 9
