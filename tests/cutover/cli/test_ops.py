"""`cutover ops`: what a terminal shows of a turn, and how it approves."""

from __future__ import annotations

import asyncio
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from contract.flows import SPECS
from contract.flows.ops import OPS, OpsOptions, OpsRequest
from contract.workers import WorkerCall
from cutover.cli.operate.ops import TerminalTurn, TurnRefused, UnknownApproval, refusing
from router.config.loader import parse_settings
from tests.support.commands import run_command
from tests.support.ops_turns import DISK, FINAL, RESTART, OpsDesk, Shift, good, shift, steps

RESTARTED = WorkerCall("container", "restart", {"name": "web", "grace": 10})
YES, NO = True, False
BODY = OpsRequest(input="restart web", session_id="s")


class Terminal:
    """A person who decides as scripted, in front of a console."""

    def __init__(self, turn: Shift, *decisions: bool | None) -> None:
        self.desk = OpsDesk(turn)
        self.asked: list[str] = []
        self.written = StringIO()
        self._decisions = list(decisions)
        console = Console(file=self.written, width=200)
        self.turn = TerminalTurn(self.desk.router, self.desk.pauses, console, "ann", self._ask)

    def _ask(self, question: str) -> bool | None:
        self.asked.append(question)
        return self._decisions.pop(0)

    @property
    def lines(self) -> list[str]:
        """What is on the console."""
        return self.written.getvalue().splitlines()


@pytest.mark.virtual
async def test_a_turn_is_shown_step_by_step_and_each_risky_one_asked_for() -> None:
    """With its progress, and what came of it; control characters are spelt out."""
    workers = {
        "system.disk": ("half [red]\x1b[2J", good("two disks")),
        "container.restart": ("stopping", good("restarted")),
    }
    database = RESTART.replace("web", "db")
    turn = shift("hm", steps(DISK), steps(RESTART, database), FINAL, workers=workers)
    terminal = Terminal(turn, YES, YES)
    assert await terminal.turn.take(turn.body) == "completed"
    assert terminal.lines == [
        "system.disk low",
        "  half [red]⟨U+001B⟩[2J",
        "  ✓ two disks",
        'container.restart {"name":"web","grace":10} high',
        "  stopping",
        "  ✓ restarted",
        'container.restart {"name":"db","grace":10} critical',
        "  stopping",
        "  ✓ restarted",
        "all done",
    ]
    assert len(terminal.asked) == 2
    assert [by for event, _, by in terminal.desk.audited if event == "approved"] == ["ann"] * 2


@pytest.mark.virtual
async def test_a_reply_that_repeats_the_results_is_not_shown_again() -> None:
    """And a turn whose last instruction did not go well has failed, by the exit status."""
    terminal = Terminal(shift("check the disks"))
    assert await terminal.turn.take(OpsRequest(input="check the disks", session_id="s")) == (
        "completed"
    )
    assert terminal.lines[-1] == "  ✓ two disks"
    refused = Terminal(shift("restart web", options=OpsOptions(approvals="refuse")))
    assert await refused.turn.take(BODY) == "failed"
    assert refused.lines[-1] == "all done"


@pytest.mark.virtual
async def test_a_rejected_one_ends_the_turn() -> None:
    """And nothing is executed."""
    terminal = Terminal(shift("restart web"), NO)
    assert await terminal.turn.take(BODY) == "rejected"
    assert terminal.lines[-1] == "rejected: nothing more is done"
    assert terminal.desk.world.workers.calls == []


@pytest.mark.virtual
async def test_a_decision_that_is_left_open_is_made_later() -> None:
    """By its id, which the terminal names; another time it is over."""
    terminal = Terminal(shift("restart web"), None, YES)
    assert await terminal.turn.take(BODY) == "approval_required"
    hint, _, approval = terminal.lines[-1].rpartition(" ")
    assert hint == "It waits until the next turn of its session: cutover ops --resume"
    assert await terminal.turn.resume(approval) == "completed"
    assert terminal.desk.world.workers.calls == [RESTARTED]
    await asyncio.sleep(1)  # until the exchange is closed
    for unknown in (approval, "another's"):
        with pytest.raises(UnknownApproval):
            await terminal.turn.resume(unknown)


@pytest.mark.virtual
async def test_an_interrupted_turn_does_nothing_more_until_it_is_resumed() -> None:
    """The stage under way comes to its end; the rest of a deployment waits for its approval."""
    terminal = Terminal(shift("deploy"), YES, YES)
    turn = asyncio.create_task(terminal.turn.take(OpsRequest(input="deploy", session_id="s")))
    await asyncio.sleep(10)  # half of the build
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    await asyncio.sleep(60)
    calls = terminal.desk.world.workers
    assert (
        [call.action for call in calls.ended]
        == ["plan", "build"]
        == [call.action for call in calls.calls]
    )
    assert terminal.desk.audited[-1] == ("executed", "build", "ann")
    assert terminal.lines[-2].startswith("interrupted")
    hint, _, approval = terminal.lines[-1].rpartition(" ")
    assert hint == "To go on: cutover ops --resume"
    assert await terminal.turn.resume(approval) == "completed"
    assert [call.action for call in calls.calls] == ["plan", "build", "release", "verify"]


@pytest.mark.virtual
async def test_a_turn_that_is_refused_says_why() -> None:
    """Before anything is done."""
    terminal = Terminal(shift("restart web", busy=True))
    locks = terminal.desk.world.live().locks
    assert await locks.acquire("other", "session_lock:s", 60)
    with pytest.raises(TurnRefused, match="session_busy"):
        await terminal.turn.take(BODY)


def test_without_a_terminal_risky_instructions_are_refused(tmp_path: Path) -> None:
    """By the option of the flow; nothing else of the configuration changes."""
    settings = parse_settings("[flows.ops.options]\nmax_iterations = 3", "c.toml", SPECS)
    changed = refusing(settings)
    options = changed.flows[OPS.name].options
    assert (options.approvals, options.max_iterations) == ("refuse", 3)
    assert changed.flows["chat"] == settings.flows["chat"]
    assert settings.flows[OPS.name].options.approvals == "ask"
    for arguments, said in (
        (("--resume", "h-1"), "without a terminal nobody can approve"),
        ((), "name what is to be done"),
        (("check", "--resume", "h-1"), "name what is to be done"),
        (("check", "--config", str(tmp_path / "none.toml")), "none.toml"),
    ):
        status, shown = run_command("ops", *arguments)
        assert status == 2
        assert said in " ".join(shown.split())
