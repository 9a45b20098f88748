"""`cutover ramp` as it is typed: what it prints, writes and exits with."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import msgspec
import pytest

from contract.flows.chat import CHAT
from cutover.ramp.machine import Flags, begin
from cutover.ramp.state import StateFile
from effects.stores import Pin, SqlPins
from router.config.loader import load_settings
from tests.support.commands import run_command

CONFIG = """
[flows.chat]
enable_langgraph = true
langgraph_percent = PERCENT # begins
[admin]
audit_path = "FOLDER/audit.jsonl"
[stores]
history = ""
pins = "sqlite:///FOLDER/pins.sqlite"
[captures]
path = "FOLDER/captures"
[ramp]
state = "FOLDER/ramp"
"""


def config(folder: Path, percent: float = 0.0, more: str = "") -> Path:
    """Write a configuration, with no captures yet: the gate cannot tell."""
    path = folder / "cutover.toml"
    text = CONFIG.replace("FOLDER", str(folder)).replace("PERCENT", str(percent))
    path.write_text(text + more, "utf-8")
    (folder / "captures").mkdir(exist_ok=True)
    return path


def ramp(folder: Path, *options: object) -> tuple[int, str]:
    """Run `cutover ramp chat`; returns its status and its output."""
    return run_command("ramp", "chat", "--config", folder / "cutover.toml", *options)


def state_of(folder: Path) -> StateFile:
    """Return the file of the state."""
    return StateFile(folder / "ramp", "chat")


def test_a_look_that_cannot_tell_changes_nothing(tmp_path: Path) -> None:
    """One line: when, the step, the verdict, and what it waits for; the state says the same."""
    path = config(tmp_path, 25)
    text = path.read_text("utf-8")
    status, said = ramp(tmp_path, "--once", "--hold", 60, "--passes", 2)
    assert status == 1
    assert " chat 25 % cannot_tell paused: held 0 of 60 s, 0 of 2 passes: " in said
    assert len(said.splitlines()) == 1
    assert path.read_text("utf-8") == text
    state = json.loads((tmp_path / "ramp" / "chat.json").read_bytes())
    assert (state["phase"], state["look"]["verdict"], state["look"]["to"]) == (
        *("running", "cannot_tell"),
        50.0,
    )
    assert f"{state['detail']}: {'; '.join(state['look']['reasons'][:3])}" in said


def test_everything_is_reached_and_pins_remain(tmp_path: Path) -> None:
    """At 100 % it is done after the holding time, and names what stays on legacy."""
    config(tmp_path, 100)

    async def pin() -> None:
        async with SqlPins.open(tmp_path / "pins.sqlite") as store:
            await store.hold("chat", "c1", Pin("legacy", "v", 1), 60.0)

    asyncio.run(pin())
    status, said = ramp(tmp_path, "--hold", 0.001, "--interval", 0.01)
    assert status == 0
    assert "done: 100 % on graph" in said
    assert said.splitlines()[-1] == (
        "1 conversation stays pinned to legacy: cutover pins release chat --stack legacy moves them"
    )


def test_a_redis_that_is_away_ends_no_ramp(tmp_path: Path) -> None:
    """Neither the state nor the gate is in it: only how many pins remain is not known."""
    path = config(tmp_path, 100)
    text = path.read_text("utf-8")
    address = f'"sqlite:///{tmp_path}/pins.sqlite"'
    path.write_text(text.replace(address, '"redis://127.0.0.1:1/0"'), "utf-8")
    status, said = ramp(tmp_path, "--hold", 0.001, "--interval", 0.01)
    assert (status, "how many conversations stay on legacy is not known" in said) == (0, True)


def test_a_persons_change_between_two_looks_stops_it(tmp_path: Path) -> None:
    """With a status of its own, until a person begins the next ramp."""
    config(tmp_path, 25)
    assert ramp(tmp_path, "--once")[0] == 1
    path = config(tmp_path, 30)
    text = path.read_text("utf-8")
    status, said = ramp(tmp_path)
    assert (status, path.read_text("utf-8")) == (3, text)
    assert "changed by someone else: found enable_langgraph = true, langgraph_percent = 30" in said
    status, said = ramp(tmp_path)
    assert (status, "--again begins the next ramp" in said) == (3, True)
    assert ramp(tmp_path, "--again", "--once")[0] == 1
    loaded = state_of(tmp_path).load()
    assert loaded is not None
    assert loaded.flags == Flags(enabled=True, percent=30.0)


def test_what_was_rolled_back_stays_so(tmp_path: Path) -> None:
    """A restart, as by a supervisor, begins no ramp."""
    config(tmp_path, 25)
    (tmp_path / "ramp").mkdir()
    state = begin("chat", Flags(enabled=False, percent=25.0), 1.0)
    ended = msgspec.structs.replace(state, phase="rolled_back", detail="rolled back: off")
    state_of(tmp_path).save(ended)
    assert ramp(tmp_path) == (2, "chat: rolled back: off; --again begins the next ramp\n")


def test_a_rollback_that_was_decided_is_made_after_a_restart(tmp_path: Path) -> None:
    """In the file and on record, without asking the gate again."""
    path = config(tmp_path, 25)
    (tmp_path / "ramp").mkdir()
    state = begin("chat", Flags(enabled=True, percent=25.0), 1.0)
    state_of(tmp_path).save(msgspec.structs.replace(state, phase="rolling_back"))
    status, said = ramp(tmp_path)
    assert status == 2
    assert "rolled back: enable_langgraph = false, langgraph_percent = 25" in said
    flow = load_settings(path, {"chat": CHAT}).flows["chat"]
    assert (flow.enable_langgraph, float(flow.langgraph_percent)) == (False, 25.0)
    (line,) = (tmp_path / "audit.jsonl").read_bytes().splitlines()
    told = json.loads(line)
    assert (told["what"], told["who"].endswith("(cutover ramp)")) == ("rollback", True)


def test_a_rollback_is_reported_as_one_where_the_file_breaks_afterwards(tmp_path: Path) -> None:
    """4 would say that nothing was changed."""
    path = config(tmp_path, 25)
    break_it = f"echo [ >> {path}"
    with_hook = f'after = ["sh", "-c", "{break_it}"]\n'
    path.write_text(path.read_text("utf-8") + with_hook, "utf-8")
    state = begin("chat", Flags(enabled=True, percent=25.0), 1.0)
    state_of(tmp_path).folder.mkdir()
    state_of(tmp_path).save(msgspec.structs.replace(state, phase="rolling_back"))
    status, said = ramp(tmp_path, "--once")
    assert status == 2
    assert "rolled back: enable_langgraph = false" in said
    assert "cutover.toml" in said


def test_a_dry_run_prints_the_plan_and_one_look(tmp_path: Path) -> None:
    """It writes neither flags nor a state."""
    config(tmp_path, 5)
    before = {one.name for one in tmp_path.iterdir()}
    status, said = ramp(tmp_path, "--dry-run", "--steps", "1,5,20.5,100")
    assert status == 1
    assert said.splitlines()[:5] == [
        "now: enable_langgraph = true, langgraph_percent = 5",
        (
            "steps: 20.5 % → 100 %; each held for 3600 s and promoted after 3 passes, "
            "a look every 60 s"
        ),
        "how long steps take is unknown: no requests of the flow are captured",
        "step 20.5 % needs at least 2,439 requests, for 500 on graph",
        "step 100 %: held for 60 minutes",
    ]
    assert {one.name for one in tmp_path.iterdir()} == before


def test_flags_of_a_provider_are_read_only_but_for_advice(tmp_path: Path) -> None:
    """Without a writer for them it refuses to start, and says what goes."""
    config(tmp_path, 5, '[flags]\nprovider = "team.flags:provider"\n')
    status, said = ramp(tmp_path, "--once")
    assert status == 4
    assert "--advise" in said
    status, said = ramp(tmp_path, "--once", "--advise")
    assert (status, " chat 5 % cannot_tell " in said) == (1, True)
    assert not (tmp_path / "ramp").exists()


def test_the_flags_of_flagd_are_turned_where_it_is_the_writer(tmp_path: Path) -> None:
    """A rollback reaches flagd's file; cutover.toml stays."""
    flags = {
        f"chat.{key}": {"state": "ENABLED", "variants": {"is": value}, "defaultVariant": "is"}
        for key, value in {"enable_langgraph": True, "langgraph_percent": 5}.items()
    }
    (tmp_path / "flags.json").write_text(json.dumps({"flags": flags}), "utf-8")
    more = f"""
writer = "cutover.ramp.services:FlagdFile"
options = {{ path = "{tmp_path}/flags.json" }}
[flags]
provider = "openfeature.contrib.provider.flagd:FlagdProvider"
"""
    path = config(tmp_path, 100, more)
    text = path.read_text("utf-8")
    (tmp_path / "ramp").mkdir()
    state = begin("chat", Flags(enabled=True, percent=5.0), 1.0)
    state_of(tmp_path).save(msgspec.structs.replace(state, phase="rolling_back"))
    assert ramp(tmp_path)[0] == 2
    switch = json.loads((tmp_path / "flags.json").read_bytes())["flags"]["chat.enable_langgraph"]
    assert (switch["defaultVariant"], switch["variants"]["off"]) == ("off", False)
    assert path.read_text("utf-8") == text


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--steps", "5,1"), "each larger than the one before"),
        (("--steps", "5,x"), "must be a number"),
        (("--steps", "5,101"), "allowed: 0 to 100"),
        (("--passes", 0), "ramp.passes"),
        (("--hold", -1), "ramp.hold_seconds"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(
    tmp_path: Path, options: tuple[object, ...], why: str
) -> None:
    """By the rules of the configuration; nothing is written."""
    config(tmp_path)
    status, said = ramp(tmp_path, "--once", *options)
    assert status == 4
    assert why in " ".join(said.split())
    assert not (tmp_path / "ramp").exists()


def test_an_unknown_flow_and_a_running_ramp_are_refused(tmp_path: Path) -> None:
    """With the nearest name; with the lock of the other process."""
    path = config(tmp_path)
    status, said = run_command("ramp", "chta", "--config", path)
    assert (status, "did you mean 'chat'?" in said) == (4, True)
    with state_of(tmp_path).only_runner():
        status, said = ramp(tmp_path, "--once")
    assert (status, "runs already" in said) == (4, True)


def test_a_folder_that_cannot_be_written_is_refused_at_the_start(tmp_path: Path) -> None:
    """A ramp begins with a state on disk."""
    config(tmp_path, 25)
    (tmp_path / "ramp").touch()
    status, said = ramp(tmp_path, "--once")
    assert (status, "cannot be opened" in said) == (4, True)
