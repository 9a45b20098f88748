"""Takeover: whatever breaks, after whichever frame, the client's stream is whole."""

import pytest

from router.driver import Candidate
from tests.flows.samples import SAMPLES, Sample
from tests.support.stage import HOWS, Stage, Told, breaking

pytestmark = pytest.mark.virtual

OTHER = {"legacy": "graph", "graph": "legacy"}


def joined(told: Told) -> list[object]:
    """Return what a client has been told, read from the frames: text joined, events as they are.

    It shares nothing with the router: only names of fields that hold text are known here.
    """
    out: list[object] = []
    for name, data in told.events:
        kind = name or data.get("step") or data.get("type")
        text = data["content"] if kind in {"token", "text"} and "content" in data else None
        if kind == "text" and "data" in data:
            text = data["data"]["content"]
        if kind == "SEND" and "tool_call_feedback" not in data:
            continue  # cumulative: what follows has it all
        if text is not None and out and isinstance(out[-1], str):
            out[-1] += text
        else:
            out.append(text if text is not None else (kind, data))
    return out


@pytest.mark.parametrize("every", [8, pytest.param(1, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", OTHER)
@pytest.mark.parametrize("sample", SAMPLES)
async def test_another_stack_goes_on_after_every_frame(
    stage: Stage, sample: str, name: str, every: int
) -> None:
    """The stream is whole, and model, tools and stores are asked as often as without a break.

    A crash is tried after each frame, of the stacks in turn, the other ways after each eighth; at
    night all of them.
    """
    chosen = SAMPLES[sample]
    whole = await _tell(stage, chosen, name, [name])
    asked, frames = len(stage.sim.requests), range(len(whole.frames))
    assert asked
    crashes = frames[list(OTHER).index(name) :: min(every, 2)]
    others = [(how, at) for how in HOWS if how != "exception" for at in frames[::every]]
    for how, at in [*(("exception", at) for at in crashes), *others]:
        before = len(stage.sim.requests)
        candidates: list[Candidate | str] = [
            stage.candidate(chosen.flow, name, breaking(at, how)),
            OTHER[name],
        ]
        told = await _tell(stage, chosen, f"{name}-{how}-{at}", candidates)
        assert _anonymous(told, f"-{name}-{how}-{at}") == _anonymous(whole, f"-{name}"), (how, at)
        assert len(stage.sim.requests) - before == asked, (how, at)
        assert told.calls == whole.calls, (how, at)


async def _tell(
    stage: Stage, sample: Sample, suffix: str, candidates: list[Candidate | str]
) -> Told:
    body = {**sample.body, **{key: f"{sample.body[key]}-{suffix}" for key in sample.own}}
    request = stage.request(sample.flow, body, sample.path, **sample.options)
    stage.sim.script(sample.answers)
    return await stage.tell(sample.flow, request, candidates)


def _anonymous(told: Told, suffix: str) -> str:
    """Return what was told without what is new in each exchange: ids drawn, and the suffix."""
    text = repr(joined(told)).replace(suffix, "")
    drawn = [
        one.items[0][1].decode().strip('"')
        for one in told.exchange.tape.entries
        if one.call.name == "ids.new" and one.items and isinstance(one.items[0][1], bytes)
    ]
    for number, one in enumerate(drawn):
        text = text.replace(one, f"<id {number}>")
    return text
