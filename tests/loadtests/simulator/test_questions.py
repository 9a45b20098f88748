"""A text that asks for a question gets one, if the request offers the tool."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.harness import PROBES, QUESTIONS
from contract.human import HumanAnswer
from loadtests.simulator import Profile, script_for
from loadtests.simulator.texts.prose import PHRASES
from loadtests.simulator.texts.tasks import call_rounds, forms
from rules.questions import NAME, answer_result, read_form
from tests.loadtests.simulator.asking import ALL, asked, called, calls, finish, text

DEMO = Path(__file__).resolve().parents[3] / "cutover" / "demo_messages.jsonl"
EVERYTHING = (*ALL, NAME)

WANTED = [
    ("Remind me to call mum: ask me when first", "Remind me to call mum", "when", "text", "When?"),
    ("remind me, but please ask me where.", "Remind me", "where", "text", "Where?"),
    ("Hi! Delete my notes, but ask me first.", "Delete my notes", "go_on", "boolean", "Shall I"),
    ("Ask me for the address first.", "The address?", "what", "text", "The address?"),
    ("Ask me how many guests", "How many guests?", "how_many", "number", "How many guests?"),
    ("提醒我给妈妈打电话：先问我什么时候", "提醒我给妈妈打电话", "when", "text", "什么时候？"),
    ("删掉它，但是请先问我一下", "删掉它", "go_on", "boolean", "可以继续吗？"),
    ("订桌子，问我多少人", "订桌子", "how_many", "number", "多少人？"),
]
NOT_WANTED = [
    "They ask me when I will marry",
    "Don't ask me why",
    "You may ask me anything",
    "Ask me anything",
    "请问我应该怎么做？",
    "你好，请问我什么时候能去",
    "别人总问我什么时候结婚",
]


@pytest.mark.parametrize(("message", "title", "name", "kind", "label"), WANTED)
def test_a_text_that_orders_a_question_gets_one(
    message: str, title: str, name: str, kind: str, label: str
) -> None:
    """By a form that can be put, whose one field must be filled in."""
    script = script_for(asked(message, offer=EVERYTHING), Profile())
    assert finish(script) == "tool_calls"
    ((tool, arguments),) = calls(script)
    form = read_form(arguments)
    assert (tool, form is not None) == (NAME, True)
    assert form is not None
    (field,) = form.fields
    assert (form.title, field.name, field.type, field.required) == (title, name, kind, True)
    assert field.label.startswith(label)


@pytest.mark.parametrize("message", [row[0] for row in WANTED])
def test_no_question_where_the_tool_is_not_offered(message: str) -> None:
    """Other tools are not for that, and one that may not be called is not called."""
    assert call_rounds(message, ALL) == []
    for request in (
        asked(message, offer=ALL),
        asked(message, offer=EVERYTHING, tool_choice="none"),
    ):
        script = script_for(request, Profile())
        assert (finish(script), calls(script)) == ("stop", [])


@pytest.mark.parametrize("message", NOT_WANTED)
def test_a_report_of_others_asking_orders_no_question(message: str) -> None:
    """Nor who asks something themselves."""
    assert forms(message) == []


def test_nothing_that_loads_or_demonstrates_asks_back() -> None:
    """A benchmark whose streams pause would measure something else."""
    lines = DEMO.read_bytes().splitlines()
    bundled = [msgspec.json.decode(line)["content"] for line in lines]
    assert [it for it in (*bundled, *QUESTIONS, *PROBES) if forms(it)] == []


@pytest.mark.parametrize(
    ("message", "options"),
    [
        ("Ask me which colour: red, blue or green.", ("red", "blue", "green")),
        ("先问我哪种颜色：红、蓝还是绿", ("红", "蓝", "绿")),
        ("Ask me which: red, red", ()),
    ],
)
def test_listed_options_become_a_choice(message: str, options: tuple[str, ...]) -> None:
    """One thing is no choice."""
    ((_, form),) = forms(message)
    (field,) = form.fields
    assert (field.options, field.type) == (options, "choice" if options else "text")


def test_what_comes_before_and_after_is_done_in_its_turn() -> None:
    """The answer is what the next round goes on from."""
    message = "What is 12*7? Ask me how many guests first, then multiply it by 3."
    stages = [[call.name for call in stage] for stage in call_rounds(message, EVERYTHING)]
    assert stages == [["calculate", NAME], ["calculate"]]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (HumanAnswer("approve", {"when": "at six"}), "Noted, you say: at six."),
        (HumanAnswer("edit", {"when": "{result}"}), "Noted, you say: {result}."),
        (HumanAnswer("reject"), "All right, I will leave it at that."),
    ],
)
def test_the_text_uses_the_answer(answer: HumanAnswer, said: str) -> None:
    """No question is asked twice."""
    message = WANTED[0][0]
    ((_, arguments),) = calls(script_for(asked(message, offer=EVERYTHING), Profile()))
    form = read_form(arguments)
    assert form is not None
    result = answer_result(form, answer).content
    later = called(("c1", NAME, arguments), result=result)
    script = script_for(asked(message, *later, offer=EVERYTHING), Profile())
    assert (finish(script), calls(script)) == ("stop", [])
    assert text(script).startswith(said)


def test_a_question_calls_no_other_tool() -> None:
    """What is said before the question, if anything, leads to it."""
    said = {
        text(script_for(asked(f"Ask me when. {n}", offer=EVERYTHING), Profile())) for n in range(40)
    }
    assert said == {"", *PHRASES["en"].preface_question}


def test_an_answer_of_another_kind_is_quoted_as_it_is() -> None:
    """Numbers and lists as JSON has them; what is no answer like any tool's."""
    request = "Ask me when"
    for result, said in (
        (
            '{"action":"approve","data":{"a":3,"b":["x"],"c":true}}',
            'Noted, you say: 3, ["x"], true.',
        ),
        ("tomorrow", "The tool says: tomorrow"),
        ("Error: tool_failed", "That did not work this time (Error: tool_failed)."),
    ):
        later = called(("c1", NAME, "{}"), result=result)
        assert text(script_for(asked(request, *later, offer=EVERYTHING), Profile())).startswith(
            said
        )


ASKING = ("ask me", "问我", "先", "first", "for", "when", "how many", "which", "什么时候", "哪")
AROUND = (":", "：", ",", "、", "or", "还是", ".", "\n", '"', "{previous}", "\\", "x" * 90)
WORDS = st.sampled_from((*ASKING, *AROUND))


@given(st.lists(WORDS, max_size=12).map(" ".join))
def test_every_form_can_be_put(message: str) -> None:
    """Whatever stands around the words that ask for it."""
    for stage in call_rounds(message, (NAME,)):
        for call in stage:
            assert read_form(call.arguments) is not None
