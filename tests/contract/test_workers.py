"""The table of what workers can do, and the arguments of an instruction."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.workers import (
    WORKER_ACTIONS,
    BadWorkerArguments,
    WorkerAction,
    WorkerArgument,
    complete_arguments,
)

ACTIONS = sorted(WORKER_ACTIONS)
VALUES: st.SearchStrategy[WorkerArgument] = (
    st.text() | st.integers() | st.floats() | st.booleans() | st.sampled_from(["a", 1, 2.0])
)


def test_every_default_is_an_argument_its_action_takes() -> None:
    """Every action's own defaults fit it, and numbers have both bounds."""
    for action in WORKER_ACTIONS.values():
        given = {one.name: one.default for one in action.arguments if one.default is not None}
        required = {
            one.name: "x" if one.type == "string" else 1 for one in action.arguments if one.required
        }
        assert complete_arguments(action, required) == {**required, **given}
        for one in action.arguments:
            bounded = one.type in {"integer", "number"}
            assert bounded == (one.least is not None) == (one.most is not None)


@given(st.data(), st.sampled_from(ACTIONS))
def test_arguments_are_complete_and_typed_or_the_wrong_one_is_named(
    data: st.DataObject, key: tuple[str, str]
) -> None:
    """Whatever a model writes; what was completed is completed already."""
    action = WORKER_ACTIONS[key]
    names = [one.name for one in action.arguments]
    arguments = data.draw(st.dictionaries(st.sampled_from([*names, "shell"]), VALUES))
    wrong, complete = "", {}
    try:
        complete = complete_arguments(action, arguments)
    except BadWorkerArguments as refusal:
        wrong = refusal.argument
    if wrong:
        assert wrong in {*names, "shell"}
        return
    assert list(complete) == names
    assert "shell" not in arguments
    assert all(complete[name] == value for name, value in arguments.items())
    assert complete_arguments(action, complete) == complete


REACH = WORKER_ACTIONS["network", "reach"]


@pytest.mark.parametrize(
    ("action", "arguments", "named"),
    [
        (REACH, {"host": "db", "port": 0}, "port"),
        (REACH, {"host": "db", "port": True}, "port"),
        (REACH, {"host": "db", "port": 5432.5}, "port"),
        (REACH, {"host": "db", "port": "5432"}, "port"),
        (REACH, {"host": "", "port": 1}, "host"),
        (REACH, {"host": "d\0b", "port": 1}, "host"),
        (REACH, {"port": 1}, "host"),
        (REACH, {"host": "db", "port": 1, "timeout": float("nan")}, "timeout"),
        (WORKER_ACTIONS["system", "disk"], {"path": "/"}, "path"),
        (WORKER_ACTIONS["container", "list"], {"all": 1}, "all"),
    ],
)
def test_a_wrong_argument_is_named(
    action: WorkerAction, arguments: dict[str, WorkerArgument], named: str
) -> None:
    """A bool is no number, a text is no port, and what an action does not know is refused."""
    with pytest.raises(BadWorkerArguments, match=f"argument '{named}'"):
        complete_arguments(action, arguments)


def test_a_whole_number_is_an_integer() -> None:
    """Models write both."""
    port = complete_arguments(REACH, {"host": "db", "port": 5432.0})["port"]
    assert (port, type(port)) == (5432, int)
