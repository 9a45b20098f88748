"""Turns of a conversation run in the order in which they began."""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from router.shadow.shadows import ConversationOrder


class One(NamedTuple):
    """What takes its turn."""

    exchange: str
    conversation: str


@given(st.lists(st.sampled_from(["", "a", "b"]), max_size=12), st.data())
def test_in_whatever_order_they_get_ready(begun: list[str], data: st.DataObject) -> None:
    """Within a conversation they run as they began, beside others, and each exactly once."""
    line: Any = ConversationOrder()
    ones = [One(str(number), chat) for number, chat in enumerate(begun)]
    for one in ones:
        line.expect(one)
    ran: list[One] = []
    running: list[One] = []
    to_come = list(data.draw(st.permutations(ones)))
    while to_come or running:
        if running and (not to_come or data.draw(st.booleans())):
            left = running.pop(data.draw(st.integers(0, len(running) - 1)))
            following = line.remove(left)
            if following is not None:
                running.append(following)
                ran.append(following)
            continue
        one = to_come.pop()
        if data.draw(st.integers(0, 9)) == 0:  # given up before it could run
            following = line.remove(one)
            if following is not None:
                running.append(following)
                ran.append(following)
        elif not line.wait(one):
            running.append(one)
            ran.append(one)
        chats = [one.conversation for one in running if one.conversation]
        assert len(chats) == len(set(chats))
    assert not line.waiting
    assert len(ran) == len(set(ran))
    for chat in ("a", "b"):
        order = [int(one.exchange) for one in ran if one.conversation == chat]
        assert order == sorted(order)


def test_one_that_was_not_expected_waits_for_nobody() -> None:
    """It is no conversation's."""
    line: Any = ConversationOrder()
    line.expect(One("1", "a"))
    assert not line.wait(One("2", "a"))
    assert line.wait(One("1", "b")) is False
    assert line.remove(One("2", "a")) is None
