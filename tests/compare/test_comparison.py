"""Two runs compared: each cause is found once, on its own layer."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import cast

import msgspec
import pytest

from compare.comparison import Comparer
from compare.findings import Finding, kind_of, signature_of
from contract.equality import Chunking, raw_equal
from contract.flows.chat import CHAT, Send
from contract.model import ModelCall, UserMessage
from contract.wire.sse import comment
from cutover.selftest.exchanges import Events, Script, ScriptedCall, exchange, tool
from cutover.selftest.run_faults import SOUND, add, drop
from tests.compare.pairs import causes, findings, paired


def found(
    legacy: Script, graph: Script, *, served: str = "legacy", chunking: Chunking = "ignore"
) -> tuple[Finding, ...]:
    """Compare what two scripts leave behind."""
    runs = exchange(legacy, graph, served=served)
    return Comparer(CHAT, chunking).compare(paired(*runs))


@pytest.mark.parametrize("served", ["legacy", "graph"])
@pytest.mark.parametrize("script", [Script(), SOUND], ids=["plain", "tools"])
def test_equal_runs_have_no_findings(script: Script, served: str) -> None:
    """Whichever stack served, with tools or without."""
    assert found(script, script, served=served) == ()


def test_findings_read_from_legacy_to_graph_whoever_served() -> None:
    """The stack that serves is not what a finding is relative to."""
    cold = Script(system="冷")
    for served in ("legacy", "graph"):
        [finding] = found(Script(), cold, served=served)
        assert finding.graph == "冷"
        assert finding.legacy == Script().system


def test_only_the_cuts_of_a_text_differ_and_that_is_equal() -> None:
    """Where cumulative text is cut does not count by default."""
    recut = Script(pieces=("今天北", *Script().pieces[1:-1], "带一件外套。"))
    whole = "".join(Script().pieces)
    pieces = (whole[:3], whole[3:9], whole[9:11], whole[11:])
    assert found(Script(), recut.but(pieces=pieces)) == ()


def test_the_cuts_of_a_text_count_when_asked() -> None:
    """With exact chunking the same streams differ, on the layer of frames."""
    whole = "".join(Script().pieces)
    recut = Script(pieces=(whole[:3], *Script().pieces[1:-1], whole[3:9]))
    moved = recut.but(pieces=(whole[:3], whole[3:11], whole[11:]))
    layers = {layer for layer, _ in causes(found(Script(), moved, chunking="exact"))}
    assert layers == {"frames"}


@pytest.mark.parametrize(
    ("cuts", "kind"),
    [((3, 10, 20), "chunks_moved"), ((3, 6, 9, 20), "frame_added"), ((9, 20), "frame_dropped")],
)
def test_each_boundary_on_one_tape_counts_when_asked(cuts: tuple[int, ...], kind: str) -> None:
    """One moved, one more, one less."""
    whole = Script().text

    def cut(*at: int) -> tuple[str, ...]:
        return tuple(whole[a:b] for a, b in pairwise((0, *at, len(whole))))

    legacy, graph = Script(pieces=cut(3, 9, 20)), Script(pieces=cut(*cuts))
    assert causes(found(legacy, graph, chunking="exact")) == [("frames", kind)]


def test_comment_frames_are_no_part_of_a_stream() -> None:
    """The proof of who served after a takeover does not differ from nothing."""
    control, candidate = exchange()
    served_by = (1, comment("served-by graph abc").decode())
    marked = msgspec.structs.replace(
        candidate, frames=(*candidate.frames[:3], served_by, *candidate.frames[3:])
    )
    assert findings(control, marked) == ()


def test_the_same_breach_on_both_sides_is_one_finding() -> None:
    """Equal runs can be equally wrong, and that is said once."""
    wrong = Script(spoil=add(99, Send("x")))
    [finding] = found(wrong, wrong)
    assert kind_of(finding) == "grammar_broken"
    assert finding.path.startswith("both.")


def test_a_changed_prompt_is_found_once_though_every_round_repeats_it() -> None:
    """The second round's copy follows from the first."""
    assert [f.after is None for f in found(SOUND, SOUND.but(system="冷"))] == [True, False]


def test_each_role_of_a_prompt_that_differs_is_a_finding_of_its_own() -> None:
    """Later rounds repeat each."""
    system, user, *others = found(SOUND, SOUND.but(system="冷", user="?"))
    assert (system.path, system.graph) == ("model.stream@reply[0].messages[0].system", "冷")
    assert (user.path, user.graph) == ("model.stream@reply[0].messages[1].user", "?")
    assert (system.after, user.after) == (None, None)
    assert [(f.path, f.after) for f in others] == [
        ("model.stream@reply[1].messages[0].system", signature_of(system)),
        ("model.stream@reply[1].messages[1].user", signature_of(user)),
    ]
    [alone, _] = found(SOUND, SOUND.but(system="冷"))
    assert alone == system


def test_a_prompt_that_changes_again_in_a_later_round_has_another_cause() -> None:
    """What the first round's copy explains is told apart from what is new."""

    def otherwise(asked: list[ScriptedCall]) -> list[ScriptedCall]:
        last = max(k for k, call in enumerate(asked) if isinstance(call.arguments, ModelCall))
        call = cast("ModelCall", asked[last].arguments)
        messages = call.messages[0], UserMessage("?"), *call.messages[2:]
        return [
            *asked[:last],
            replace(asked[last], arguments=msgspec.structs.replace(call, messages=messages)),
            *asked[last + 1 :],
        ]

    changed = found(SOUND, SOUND.but(system="冷", upset=otherwise))
    assert [(f.path, f.after is None) for f in changed] == [
        ("model.stream@reply[0].messages[0].system", True),
        ("model.stream@reply[1].messages[0].system", False),
        ("model.stream@reply[1].messages[1].user", True),
    ]


def test_a_changed_tool_argument_explains_the_next_prompt() -> None:
    """The assistant's turn quotes the call, and so differs after it."""
    graph = SOUND.but(tools=(tool(0, '{"city":"天津"}'), SOUND.tools[1]))
    cause, follows = found(SOUND, graph)
    assert (cause.path, cause.detail) == ("tools.run@tool[0]", "get_weather.city")
    assert kind_of(follows) == "prompt_changed"
    assert follows.after is not None


def test_several_dropped_frames_apart_are_several_findings() -> None:
    """Two holes in a stream are two causes of one signature."""
    assert causes(found(SOUND, SOUND.but(spoil=drop(7, 10)))) == [("frames", "frame_dropped")] * 2


def test_a_failed_run_is_compared_with_its_successor() -> None:
    """After a takeover: the outcome differs, and all that lacks follows from it."""
    broken = SOUND.but(spoil=lambda e: _first(e, 8), outcome="failed")
    runs = exchange(legacy=SOUND, graph=broken, served="graph", second="fallback")
    assert causes(findings(*runs)) == [("outcome", "outcome_changed")]


def _first(events: Events, count: int) -> Events:
    return events[:count]


def test_a_frame_that_is_no_json_is_a_changed_frame_not_a_crash() -> None:
    """Bytes of a remote stack can be anything."""
    control, candidate = exchange()
    frames = (*candidate.frames[:2], (5, "data: {oops\n\n"), *candidate.frames[3:])
    spoilt = msgspec.structs.replace(candidate, frames=frames)
    wrong = findings(control, spoilt)
    assert {layer for layer, _ in causes(wrong)} <= {"grammar", "frames"}
    assert wrong


def test_equal_runs_are_told_without_parsing() -> None:
    """Bytes and calls alone: frames are not even read as JSON."""
    control, candidate = exchange()
    assert raw_equal(paired(control, candidate))
    late = msgspec.structs.replace(
        candidate, frames=tuple((at + 7, text) for at, text in candidate.frames)
    )
    assert raw_equal(paired(control, late))
    other = msgspec.structs.replace(candidate, frames=candidate.frames[:-1])
    assert not raw_equal(paired(control, other))


def test_runs_on_tapes_of_their_own_are_read_to_the_end() -> None:
    """Entries of two tapes bear the same numbers and may hold different questions."""
    legacy = exchange()[0]
    other = exchange(Script(system="冷", temperature=0.1))[0]
    graph = msgspec.structs.replace(other, stack="graph", role="replay", assigned="graph")
    assert {finding.layer for finding in findings(legacy, graph)} == {"effects"}
