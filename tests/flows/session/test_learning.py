"""What a session learns: what the model is sure enough of."""

from __future__ import annotations

import pytest

from contract.flows.session import SessionOptions, SessionRequest
from contract.model import Chunk
from contract.stores import Recall
from tests.flows.playing import play
from tests.flows.session.conversing import Saying

FACTS = (
    '{"facts":["tea",{"text":"tea at five","confidence":0.29},'
    '{"text":"green tea","confidence":0.3},{"text":"no tea","confidence":"high"}]}'
)


@pytest.mark.virtual
@pytest.mark.parametrize(
    ("options", "learnt"),
    [
        (SessionOptions(extract_from=1), {"tea", "green tea"}),
        (SessionOptions(extract_from=1, least_confidence=1.0), {"tea"}),
        (
            SessionOptions(extract_from=1, least_confidence=0.0),
            {"tea", "tea at five", "green tea", "no tea"},
        ),
    ],
)
async def test_what_is_unsure_is_not_learnt(
    stack: str, options: SessionOptions, learnt: set[str]
) -> None:
    """What comes without a confidence is certain; one that is no number is none at all."""
    saying = Saying(
        body=SessionRequest(message="I like tea", user_id="u"),
        begins="s",
        options=options,
        answers=((Chunk(text="Good."),),),
        learnt=(Chunk(text=FACTS),),
    )
    await play(stack, saying)
    found = await saying.house.memory.recall("test", Recall(user_id="u", query="tea", limit=9))
    assert {entry.text for entry in found} == learnt
