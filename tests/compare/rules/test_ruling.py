"""Rules applied to pairs that differ: what they take out, and what they leave to be found."""

from __future__ import annotations

from typing import Literal

import msgspec
import pytest

from compare.rules import Rules, rules_of
from compare.rules.table import Tolerance
from compare.rules.values import within
from compare.tally import Tally
from compare.verdict import verdict_on
from contract.flows.chat import Send, ToolFeedback
from contract.model import ToolCall
from contract.records import RunRecord
from cutover.selftest.exchanges import Script, exchange, tool
from cutover.selftest.run_faults import SOUND, add, drop, put
from tests.compare.pairs import cluster_kinds, tallied

DATED = r"""
[[replace]]
pattern = '\d{4}-\d\d-\d\d'
with = "<date>"
"""
WARMER = """
[[tolerance]]
call = "model.stream"
path = "temperature"
absolute = 0.05
"""


def compared(text: str, *exchanges: tuple[RunRecord, ...]) -> Tally:
    """Compare exchanges under rules."""
    return tallied(*exchanges, rules=rules_of(text, "diff.toml") if text else Rules())


def causes(text: str, legacy: Script, graph: Script) -> list[str]:
    """List the kinds of what is left between two scripts."""
    return cluster_kinds(compared(text, exchange(legacy, graph)))


def status(word: Literal["done", "error"]) -> Script:
    """Give a script whose second feedback says something else."""
    return SOUND.but(spoil=put(4, Send("", tool_call_feedback=ToolFeedback("get_weather", word))))


def test_a_pattern_holds_for_prompts_and_for_texts_cut_anywhere() -> None:
    """A value may be spread over chunks; no chunk matches, the text does."""
    old = Script(system="今天是 2026-11-21", pieces=("今天 2026-", "11-2", "1，晴"))
    new = Script(system="今天是 2026-11-22", pieces=("今天 2026-", "11-2", "2，晴"))
    assert causes("", old, new) == ["prompt_changed", "text_changed"]
    assert causes(DATED, old, new) == []


def test_a_lost_frame_is_found_beside_what_a_pattern_takes_out() -> None:
    """Cuts are compared in the texts as the rules have them read."""
    old = Script(pieces=("2026-11-21 ", "晴，", "二十一度。", "好。"))
    new = Script(pieces=("2026-11-22 ", "晴，", "二十一度。", "好。"), spoil=drop(4))
    assert causes(DATED, old, new) == ["frame_dropped"]


def test_a_pattern_for_the_text_leaves_prompts_alone() -> None:
    """Rules hold where they say."""
    old, new = (
        Script(system="2026-11-21", pieces=("2026-11-21",)),
        Script(system="2026-11-22", pieces=("2026-11-22",)),
    )
    assert "prompt_changed" in causes(f'{DATED}\nlayer = "text"', old, new)
    assert causes(f'{DATED}\ncall = "model.stream"\npath = "messages"', old, new) == [
        "text_changed"
    ]


@pytest.mark.parametrize("rule", ['event = "SEND"', 'layer = "frames"', "", 'flow = "chat"'])
def test_what_is_ignored_in_events_does_not_count(rule: str) -> None:
    """By event, by layer, by flow, or everywhere."""
    text = f'[[ignore]]\n{rule}\npath = "tool_call_feedback.status"'
    assert causes("", SOUND, status("error")) == ["frame_changed"]
    assert causes(text, SOUND, status("error")) == []


@pytest.mark.parametrize("rule", ['event = "SUCCESS"', 'layer = "effects"', 'flow = "ops"'])
def test_a_rule_for_something_else_changes_nothing(rule: str) -> None:
    """Another event, another layer, another flow."""
    text = f'[[ignore]]\n{rule}\npath = "tool_call_feedback.status"'
    assert causes(text, SOUND, status("error")) == ["frame_changed"]


def test_an_inserted_frame_is_found_among_frames_whose_ids_are_ignored() -> None:
    """Rules come before alignment: a frame too many pushes nothing along."""
    extra = Send("", tool_call_feedback=ToolFeedback("get_time", "done"))
    ids = '[[ignore]]\npath = "tool_call_feedback.status"'
    assert causes(ids, SOUND, SOUND.but(spoil=add(6, extra))) == ["frame_added"]


def test_numbers_may_be_apart_by_a_tolerance_and_no_more() -> None:
    """Absolute; beyond it the finding stands."""
    assert causes(WARMER, Script(temperature=0.7), Script(temperature=0.72)) == []
    assert causes(WARMER, Script(temperature=0.7), Script(temperature=0.8)) == ["parameter_changed"]


def test_an_integer_beyond_any_float_is_near_itself_alone() -> None:
    """JSON may hold one of some thousand digits."""
    rule, vast = Tolerance(path="a", relative=0.5), 10**400
    assert within(rule, vast, vast)
    assert not within(rule, vast, vast + 1)
    assert not within(rule, 1.5, vast)


def test_arguments_of_tools_are_entered_though_they_are_text() -> None:
    """JSON in JSON: near numbers, bags and keys that do not count."""
    old = Script(tools=(tool(0, '{"at":1.00,"cities":["北京","上海"],"trace":"x"}'),))
    new = Script(tools=(tool(0, '{"at":1.01,"cities":["上海","北京"],"trace":"y"}'),))
    text = """
    [[ignore]]
    path = "**.trace"
    [[unordered]]
    call = "tools.run"
    path = "arguments.cities"
    [[tolerance]]
    path = "**.at"
    relative = 0.02
    [[unordered]]
    path = "messages.*.tool_calls.*.arguments.cities"
    """
    assert causes("", old, new) == ["tool_arguments"]
    assert causes(text, old, new) == []


def test_each_rule_counts_the_pairs_in_which_the_sides_differed() -> None:
    """A value that is equal on both sides is no hit, wherever the rule applies."""
    cold = exchange(Script(), Script(system="冷"), number=1)
    dated = exchange(Script(), Script(system=Script().system.replace("21", "22")), number=2)
    tally = compared(DATED + WARMER, exchange(number=0), cold, dated)
    assert tally.rule_hits == {"replace[0]": 2}
    assert (tally.equal, tally.equal_by_rules, tally.different) == (2, 1, 1)


def test_the_verdict_says_what_is_equal_by_the_rules_only() -> None:
    """The verdict does not claim parity."""
    dated = Script(system=Script().system.replace("21", "22"))
    tally = compared(DATED, exchange(Script(), dated), exchange(number=1))
    assert verdict_on(tally).reasons[0] == "all 2 pairs are equal, 1 of them by the rules"


def test_rows_are_equal_under_the_rules_and_say_what_was_sent() -> None:
    """The first divergence is the first that counts."""
    text = '[[ignore]]\npath = "tool_call_feedback.status"'
    spoilt = status("error").but(final="今天北京雨。")
    [cluster] = compared(text, exchange(SOUND, spoilt)).clusters.ordered()
    rows = cluster.exemplars[0].rows
    assert [row.mark for row in rows].index("changed") == len(rows) - 2
    assert rows[4].graph is not None
    assert "error" in rows[4].graph.said


def test_renamed_ids_are_matched_once_they_are_ignored() -> None:
    """Calls are compared as the rules have them read, tool ids included."""
    other = Script(tools=(ToolCall("other", "get_weather", '{"city":"北京"}'),))
    paths = ("id", "messages.*.tool_calls.*.id", "messages.*.tool_call_id")
    text = "".join(f'[[ignore]]\nlayer = "effects"\npath = "{path}"\n' for path in paths)
    assert causes(text, Script(tools=(tool(0),)), other) == []


def test_what_is_no_json_is_left_alone() -> None:
    """Rules never fail on what was captured."""
    legacy, graph = exchange()
    frames = (*graph.frames[:-1], (9, "data: {torn\n\n"), graph.frames[-1])
    torn = msgspec.structs.replace(graph, frames=frames)
    tally = compared(
        '[[ignore]]\npath = "*"\n[[tolerance]]\npath = "*"\nabsolute = 1', (legacy, torn)
    )
    assert [cluster.kind for cluster in tally.clusters.ordered()] == ["grammar_broken"]
