"""Two prompt engines, one text: Jinja2 and PromptTemplate render the same bytes."""

import logging
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.flows.chat import ChatRequest, PromptValue
from contract.model import Chunk, SystemMessage
from graph_impl.chat import chat as graph
from graph_impl.templates import system_prompt as new
from legacy.chat import chat as legacy
from legacy.templates import system_prompt as old
from router.serving.stack import LocalStack
from rules.prompts import parameters
from tests.flows.playing import Case, Played, record, replay

OLD, NEW = old("chat_system.j2"), new("chat_system.md")
NOW = datetime(2026, 1, 31, 23, 59, 58, tzinfo=UTC)
BODY = ChatRequest(message_id="m", content="hi", prompt_params={"self": 1, "city": "{{x}}"})

values = st.one_of(
    st.none(), st.integers(), st.floats(allow_nan=False), st.text(st.characters(codec="utf-8"))
)
names = st.one_of(
    st.sampled_from(["current_date", "current_time", "self", "template", "args", "loop", "a b"]),
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=9),
)


@given(st.dictionaries(names, values, max_size=4))
def test_any_parameters_render_alike(params: dict[str, PromptValue]) -> None:
    """Also names that mean something to an engine, braces, None, unicode."""
    given_ = parameters(NOW, "UTC", params)
    assert OLD(given_) == NEW(given_)


@given(st.dictionaries(names, values, max_size=4))
def test_the_stand_in_for_a_missing_file_renders_alike(params: dict[str, PromptValue]) -> None:
    """It is one text in `rules`, rendered by each engine."""
    given_ = parameters(NOW, "UTC", params)
    nowhere = Path("no such folder")
    assert old("none.j2", nowhere)(given_) == new("none.md", nowhere)(given_)


def test_dates_are_of_the_configured_zone() -> None:
    """A minute before midnight in UTC is the next day in Shanghai."""
    assert parameters(NOW, "Asia/Shanghai", None) == {
        "current_date": "2026-02-01",
        "current_time": "07:59:58",
    }
    assert "2026-02-01" in OLD(parameters(NOW, "Asia/Shanghai", None))


@pytest.mark.virtual
async def test_a_missing_prompt_file_is_said_in_the_log_and_stood_in_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Both stacks go on with the built-in default and put the same bytes on the wire."""
    with caplog.at_level(logging.WARNING):
        stacks = [
            LocalStack("legacy", {"chat": legacy(tmp_path)}, "l"),
            LocalStack("graph", {"chat": graph(tmp_path)}, "g"),
        ]
    assert [record_.name for record_ in caplog.records] == [
        "legacy.templates",
        "graph_impl.templates",
    ]
    assert all("built-in default" in record_.getMessage() for record_ in caplog.records)
    case = Case(BODY, answers=((Chunk(text="ok"), Chunk(finish="stop")),))
    for first, second in (stacks, stacks[::-1]):
        served, _ = await record(first, case)
        system = served.asked[0].messages[0]
        assert isinstance(system, SystemMessage)
        assert system.content.startswith(
            "你是一个AI助手，当前时间是 00:00:00，当前日期是 2026-01-01。"
        )
        played: Played = await replay(second, case, served.tape)
        assert played.frames == served.frames
        assert played.calls == served.calls
