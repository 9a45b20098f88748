"""Two prompt engines, one text: Jinja2 and PromptTemplate render the same bytes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import graph_impl.chat
import graph_impl.templates
import legacy.chat
import legacy.templates
from contract.flows.chat import ChatRequest, PromptValue
from contract.model import Chunk, SystemMessage
from router.serving.stack import LocalStack
from rules import chat, companion, pipeline
from rules.conversation import parameters
from rules.ops import flow as ops
from rules.prompts import Prompt
from tests.support.flow_runs import Case, record, replay

Render = Callable[[Mapping[str, Any]], Prompt]

NOW = datetime(2026, 1, 31, 23, 59, 58, tzinfo=UTC)
BODY = ChatRequest(message_id="m", content="hi", prompt_params={"self": 1, "city": "{{x}}"})
NOWHERE = Path("no such folder")
FOLDERS = ((legacy.templates.FOLDER, graph_impl.templates.FOLDER), (NOWHERE, NOWHERE))
CHAT = [
    (
        legacy.templates.read_prompt("chat_system.j2", old, chat.DEFAULT_SYSTEM_PROMPT),
        graph_impl.templates.read_prompt("chat_system.md", new, chat.DEFAULT_SYSTEM_PROMPT),
    )
    for old, new in FOLDERS
]
COMPANION, OPS, PIPELINE = (
    [
        (
            legacy.templates.read_prompts(flow, old, defaults),
            graph_impl.templates.read_prompts(flow, new, defaults),
        )
        for old, new in FOLDERS
    ]
    for flow, defaults in (
        ("companion", companion.PROMPTS),
        ("ops", ops.PROMPTS),
        ("pipeline", pipeline.PROMPTS),
    )
)

values = st.one_of(
    st.none(), st.integers(), st.floats(allow_nan=False), st.text(st.characters(codec="utf-8"))
)
names = st.one_of(
    st.sampled_from(["current_date", "current_time", "self", "template", "args", "loop", "a b"]),
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=9),
)
of_a_companion = st.fixed_dictionaries(
    dict.fromkeys(
        (
            *("current_date", "current_time", "emotion", "intensity", "intent"),
            *("working_memory", "memories", "no_text"),
        ),
        st.text(max_size=20),
    )
)
of_a_pipeline = st.fixed_dictionaries(
    dict.fromkeys(
        ("system_prompt", "speakers", "memories", "needed", "not_needed"), st.text(max_size=20)
    )
)


@pytest.mark.parametrize("engines", CHAT, ids=["file", "default"])
@given(st.dictionaries(names, values, max_size=4))
def test_any_parameters_render_alike(
    engines: tuple[Render, Render], params: dict[str, PromptValue]
) -> None:
    """Also names that mean something to an engine, braces, None, unicode, and without the file."""
    given_ = parameters(NOW, "UTC", params)
    old, new = engines
    assert old(given_) == new(given_)


@pytest.mark.parametrize("engines", COMPANION, ids=["file", "default"])
@given(of_a_companion)
def test_prompts_of_a_companion_render_alike(
    engines: tuple[dict[str, Render], dict[str, Render]], values: dict[str, str]
) -> None:
    """Also with braces in what is filled in, and where the files are missing."""
    old, new = engines
    assert old.keys() == new.keys() == {"system", "vision", "extraction"}
    for name in old:
        assert old[name](values) == new[name](values)


@pytest.mark.parametrize("engines", OPS, ids=["file", "default"])
@given(st.text(max_size=20))
def test_the_prompt_of_ops_renders_alike(
    engines: tuple[dict[str, Render], dict[str, Render]], workers: str
) -> None:
    """With braces of its own, for the JSON it asks for."""
    old, new = engines
    assert old.keys() == new.keys() == {"system"}
    rendered = old["system"]({"workers": workers})
    assert rendered == new["system"]({"workers": workers})
    assert '{"final":' in str(rendered)


@pytest.mark.parametrize("engines", PIPELINE, ids=["file", "default"])
@given(of_a_pipeline)
def test_prompts_of_a_pipeline_render_alike(
    engines: tuple[dict[str, Render], dict[str, Render]], values: dict[str, str]
) -> None:
    """Also with braces in what is filled in, and where the files are missing."""
    old, new = engines
    assert old.keys() == new.keys() == {"system", "memory_check"}
    for name in old:
        assert old[name](values) == new[name](values)


@pytest.mark.virtual
async def test_a_missing_prompt_file_is_reported_and_the_default_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Both stacks go on with the built-in default and put the same bytes on the wire."""
    with caplog.at_level(logging.WARNING):
        stacks = [
            LocalStack("legacy", {"chat": legacy.chat.chat(tmp_path)}, "l"),
            LocalStack("graph", {"chat": graph_impl.chat.chat(tmp_path)}, "g"),
        ]
    logged = [record_.name for record_ in caplog.records]
    assert logged == ["legacy.templates", "graph_impl.templates"]
    assert all("built-in default" in record_.getMessage() for record_ in caplog.records)
    case = Case(BODY, answers=((Chunk(text="ok"), Chunk(finish="stop")),))
    for first, second in (stacks, stacks[::-1]):
        served, _ = await record(first, case)
        system = served.asked[0].messages[0]
        assert isinstance(system, SystemMessage)
        assert system.content.startswith(
            "你是一个AI助手，当前时间是 00:00:00，当前日期是 2026-01-01。"
        )
        played = await replay(second, case, served.tape)
        assert played.frames == served.frames
        assert played.calls == served.calls
