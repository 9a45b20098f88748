"""The nodes of a pipeline: shares of tokens, memories on request, failures that end nothing."""

from __future__ import annotations

from typing import Any

import pytest

from contract.errors import Fault, FaultCode
from contract.flows.pipeline import Action, PipelineOptions
from contract.model import AssistantMessage, Chunk, SystemMessage, UserMessage
from contract.stores import Recall
from effects.model import Fail
from rules.pipeline import TEXTS, wishes_to_end
from tests.support.flow_runs import DIRECTIONS, Answer, Played, play, same_on_both
from tests.support.pipeline_turns import (
    HEARD,
    MOTHER,
    NOT_NEEDED,
    Talk,
    body,
    ending,
    house,
    is_check,
    tokens,
)

pytestmark = pytest.mark.virtual

NODES = [
    "admission",
    "input_processor",
    "token_monitor",
    "memory_check",
    "rag_retriever",
    "context_builder",
    "response_generator",
    "token_response",
    "output_formatter",
]
BROKEN = Fault("model_truncated", retryable=True)
SHARES: list[tuple[int, Action]] = [
    (1, "continue"),
    (69, "continue"),
    (70, "warn"),
    (84, "warn"),
    (85, "compress"),
    (94, "compress"),
    (95, "end"),
    (100, "end"),
    (300, "end"),
]


def failed(played: Played) -> list[tuple[str, str]]:
    """Return the nodes that failed, and their codes."""
    return [(error["node"], error["code"]) for error in ending(played)["errors"]]


async def test_a_turn_goes_through_all_nodes(stack: str) -> None:
    """Each is timed under its name; what is sent and stored is what the model answered."""
    talk = Talk(body=body("  Do you remember the park?\n", user_name="Maya", interlocutor=MOTHER))
    played = await play(stack, talk)
    assert list(played.run.session.trace.spent) == NODES
    assert tokens(played) == ["I ", "hear."]
    assert played.frames[-1] == (
        b'event: message\ndata: {"success":true,"message":"I hear.","token_info":{"used":7,'
        b'"limit":8000,"action":"continue","estimated":true},"end_intent":false,'
        b'"memories":["k-1"],"errors":[]}\n\n'
    )
    stored = talk.house.conversations.turns
    assert [(it.role, it.content, it.user_id) for it in stored] == [
        ("user", "Do you remember the park?", "u-1"),
        ("assistant", "I hear.", "u-1"),
    ]
    assert stored[1].reply_to == stored[0].message_id
    system, asked = played.asked[1].messages
    assert isinstance(system, SystemMessage)
    for known in ("Ana", "mother", "Maya", "- the park in May"):
        assert known in system.content
    assert asked == UserMessage("Do you remember the park?")


async def test_an_exact_count_is_not_marked(stack: str) -> None:
    """The key is there only where the number is an estimate."""
    info = ending(await play(stack, Talk(tokens=len)))["token_info"]
    assert info == {"used": len("Do you remember the park?"), "limit": 8000, "action": "continue"}


@pytest.mark.parametrize(("used", "action"), SHARES)
@pytest.mark.parametrize("limit", [100, 1_000])
async def test_an_action_begins_where_its_share_is_reached(
    stack: str, used: int, action: Action, limit: int
) -> None:
    """Exactly there, and not a token before; the model answers whatever it is."""
    used = used * limit // 100
    talk = Talk(
        body=body("x" * (used - used // 2)),
        options=PipelineOptions(token_limit=limit),
        tokens=len,
        check=NOT_NEEDED,
        house=house("y" * (used // 2)) if used > 1 else house(),
    )
    played = await play(stack, talk)
    assert ending(played)["token_info"] == {"used": used, "limit": limit, "action": action}
    notice = TEXTS.get(action, "")
    assert tokens(played) == ["I ", "hear.", *([notice] if notice else [])]
    assert ending(played)["message"] == f"I hear.{notice}"
    reply = talk.house.conversations.turns[-1]
    assert reply.content == "I hear."  # the notice is no part of the conversation
    sent = len(played.asked[-1].messages)
    assert sent == (3 if action in {"continue", "warn"} and used > 1 else 2)


@pytest.mark.parametrize(
    ("turns", "used", "shown"),
    [
        (["a" * 10] * 7, 80, 7),
        (["a" * 10] * 8, 90, 7),
        (["a" * 10] * 40, 410, 7),
        (["a" * 74, "a"], 85, 1),
        (["a" * 90, "b" * 74], 174, 1),
        (["a" * 90, "b" * 75], 175, 0),
    ],
)
async def test_the_oldest_turns_are_dropped_until_the_rest_fits(
    stack: str, turns: list[str], used: int, shown: int
) -> None:
    """Under the share that calls for it; `used` is what it was before."""
    talk = Talk(
        body=body("0123456789"),
        options=PipelineOptions(token_limit=100),
        tokens=len,
        house=house(*turns),
    )
    played = await play(stack, talk)
    assert ending(played)["token_info"]["used"] == used
    _, *history, asked = played.asked[-1].messages
    texts = turns[len(turns) - shown :]
    assert [it.content for it in history if isinstance(it, UserMessage | AssistantMessage)] == texts
    assert asked == UserMessage("0123456789")


async def test_of_a_history_longer_than_the_window_the_newest_turns_are_read(stack: str) -> None:
    """The rest is not counted, either."""
    turns = [f"turn {number}" for number in range(30)]
    talk = Talk(options=PipelineOptions(history_limit=4), house=house(*turns), tokens=lambda _: 1)
    played = await play(stack, talk)
    assert ending(played)["token_info"]["used"] == 5
    history = played.asked[-1].messages[1:-1]
    assert [it.content for it in history if not isinstance(it, SystemMessage)] == turns[-4:]


@pytest.mark.parametrize(
    ("said", "needed"),
    [
        ("需要检索", True),
        (" “需要检索”。\n", True),
        ("不需要检索", False),
        ("需要检索？不需要检索", False),
        ("我不认为需要检索", False),
        ("需要", False),
        ("yes", False),
        ("", False),
    ],
)
async def test_only_a_clear_yes_retrieves_memories(stack: str, said: str, needed: bool) -> None:
    """The check is a short call at a low temperature; an unclear answer is no failure."""
    played = await play(stack, Talk(check=(Chunk(text=said), Chunk(finish="stop"))))
    assert is_check(played.asked[0])
    assert played.world.count("memory.recall") == needed
    assert ("rag_retriever" in played.run.session.trace.spent) == needed
    assert ending(played)["memories"] == (["k-4", "k-2", "k-1"] if needed else [])
    assert failed(played) == []


async def test_memories_are_those_of_the_user_and_the_relation(stack: str) -> None:
    """Without an interlocutor those of any relation."""
    played = await play(stack, Talk(body=body(interlocutor=MOTHER)))
    (call,) = [args for label, _, args in played.calls if label == "memory.recall"]
    assert b'"relation":"mother"' in call
    assert ending(played)["memories"] == ["k-1"]
    query = Recall(user_id="u-1", query="the park", relation="friend")
    (other,) = await Talk().house.memory.recall("test", query)
    assert other.memory_id == "k-2"


@pytest.mark.parametrize(
    ("site", "code", "node"),
    [
        ("history", "store_failed", "token_monitor"),
        ("count", "adapter_failed", "token_monitor"),
        ("recall", "memory_unavailable", "rag_retriever"),
        ("message", "store_failed", "output_formatter"),
        ("reply", "store_unavailable", "output_formatter"),
    ],
)
async def test_a_node_that_fails_is_recorded_and_the_turn_succeeds(
    site: str, code: FaultCode, node: str, caplog: pytest.LogCaptureFixture
) -> None:
    """On both stacks, in both directions; the log names it, since nothing else ends badly."""
    for first, second in DIRECTIONS:
        talk = Talk(fails={site: Fault(code)}, house=house("earlier", "reply"))
        played = await same_on_both(talk, first, second)
        assert failed(played) == [(node, code)]
        assert (ending(played)["success"], ending(played)["message"]) == (True, "I hear.")
        assert played.ended[0] == "completed"
    logged = {
        record.name for record in caplog.records if f"{node} failed: {code}" in record.getMessage()
    }
    assert logged == {"legacy.pipeline", "graph_impl.pipeline"}


async def test_the_history_is_shown_though_it_cannot_be_counted(stack: str) -> None:
    """Its tokens are estimated then."""
    talk = Talk(fails={"count": Fault("adapter_failed")}, house=house("earlier", "reply"))
    played = await play(stack, talk)
    assert len(played.asked[-1].messages) == 4
    assert ending(played)["token_info"]["estimated"] is True


@pytest.mark.parametrize("check", [(Fail(BROKEN),), (Chunk(text="需要检索"), Fail(BROKEN))])
async def test_a_check_that_fails_retrieves_nothing(check: Answer) -> None:
    """Also where it failed behind a clear answer."""
    for first, second in DIRECTIONS:
        played = await same_on_both(Talk(check=check), first, second)
        assert failed(played) == [("memory_check", "model_truncated")]
        assert ending(played)["success"]
        assert ending(played)["memories"] == []


@pytest.mark.parametrize(
    ("answer", "code", "sent"),
    [
        ((Fail(BROKEN),), "model_truncated", []),
        ((Chunk(text="I "), Fail(BROKEN)), "model_truncated", ["I "]),
        ((Chunk(finish="stop"),), "empty_response", []),
        ((Chunk(text=" \n"), Chunk(finish="stop")), "empty_response", [" \n"]),
    ],
)
async def test_without_a_response_the_turn_fails(
    answer: Answer, code: str, sent: list[str]
) -> None:
    """No notice follows, nothing is stored, and the session is free for another try.

    The run failed with the code of what ended it, not of what failed before.
    """
    for first, second in DIRECTIONS:
        check = (Fail(Fault("model_rate_limited")),)
        talk = Talk(answer=answer, check=check, options=PipelineOptions(token_limit=1))
        played = await same_on_both(talk, first, second)
        end = ending(played)
        assert (end["success"], end["message"], end["token_info"]["action"]) == (False, "", "end")
        earlier = ("memory_check", "model_rate_limited")
        assert failed(played) == [earlier, ("response_generator", code)]
        assert tokens(played) == sent
        assert played.ended == ("failed", code, None)
        assert talk.house.conversations.turns == ()
        again = await play(second, Talk(house=talk.house))
        assert ending(again)["success"]


async def test_every_failure_is_in_the_message_in_the_order_of_the_nodes() -> None:
    """And no exception's text."""
    fails = {"history": Fault("store_failed", data={"secret": "text"})}
    for first, second in DIRECTIONS:
        talk = Talk(fails=fails, check=(Fail(BROKEN),), answer=(Fail(Fault("model_error")),))
        played = await same_on_both(talk, first, second)
        assert failed(played) == [
            ("token_monitor", "store_failed"),
            ("memory_check", "model_truncated"),
            ("response_generator", "model_error"),
        ]
        assert "secret" not in played.wire


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        *(
            (said, True)
            for said in ("再见", "拜拜~", "好的，那我们明天再聊吧", "晚安！", "先这样了")
        ),
        *(
            (said, True)
            for said in ("就到这里吧。", "我要走了", "结束对话", "今天先不聊了，再见啦")
        ),
        *((said, True) for said in ("Goodbye!", "Thanks, bye", "ok, see you tomorrow.", "BYE BYE")),
        *(
            (said, False)
            for said in ("我们什么时候再见面？", "再见是什么意思", "你好", "不想走了吗？")
        ),
        *((said, True) for said in ("Good-bye", "That’s all.", "bye 👋🏽", "晚安❤️", "再见！😭！")),
        *((said, False) for said in ("What does bye mean?", "I never said goodbye", "", "。。")),
        ("我不想说再见" + "!" * 62, False),
        ("x" * 10_000 + "。再见", True),
        ("再见" * 10_000, False),
    ],
)
def test_a_goodbye_ends_a_message(text: str, ends: bool) -> None:
    """As its last clause, not as a part of another sentence."""
    assert wishes_to_end(text) is ends


@pytest.mark.parametrize(("said", "wish"), [("好的，再见！", True), ("好的", False)])
async def test_the_wish_to_end_is_told_and_changes_nothing_else(
    stack: str,
    said: str,
    wish: bool,
) -> None:
    """The client decides what follows."""
    played = await play(stack, Talk(body=body(said), check=NOT_NEEDED))
    assert ending(played)["end_intent"] is wish
    assert tokens(played) == ["I ", "hear."]


async def test_fixed_texts_are_those_of_the_deployment(stack: str) -> None:
    """An empty one is no frame."""
    said: list[dict[str, Any]] = []
    for text in ("", " Bye."):
        options = PipelineOptions(token_limit=1, texts={"end": text})
        played = await play(stack, Talk(options=options, answer=HEARD))
        said.append({"message": ending(played)["message"], "tokens": tokens(played)})
    assert said == [
        {"message": "I hear.", "tokens": ["I ", "hear."]},
        {"message": "I hear. Bye.", "tokens": ["I ", "hear.", " Bye."]},
    ]
