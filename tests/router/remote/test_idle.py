"""Which connection is used again, and which has been idle for too long."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from router.remote.http1.client import Idle

SECONDS = 3.0
STEPS = st.lists(
    st.tuples(st.sampled_from(["give", "take", "sweep", "discard"]), st.integers(0, 20)),
    max_size=40,
)


@given(STEPS)
def test_what_is_given_is_young_and_given_once(steps: list[tuple[str, int]]) -> None:
    """The youngest first; none twice, none that is too old, and none is lost."""
    idle: Idle[int] = Idle(SECONDS)
    now, kept = 0.0, dict[int, float]()
    for number, (step, tenths) in enumerate(steps):
        now += tenths / 10
        if step == "give":
            idle.give(number, now)
            kept[number] = now
        elif step == "take":
            young = [one for one, since in kept.items() if now - since < SECONDS]
            taken = idle.take(now)
            assert taken == (young[-1] if young else None)
            kept.pop(-1 if taken is None else taken, None)
        elif step == "sweep":
            old = [one for one, since in kept.items() if now - since >= SECONDS]
            assert idle.stale(now) == old
            kept = {one: since for one, since in kept.items() if one not in old}
        else:
            idle.discard(next(iter(kept), -1))
            kept.pop(next(iter(kept), -1), None)
        assert len(idle) == len(kept)
        assert idle.due == (min(kept.values()) + SECONDS if kept else None)
