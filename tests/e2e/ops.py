"""What the ops flow is asked over HTTP, and how it is deployed for that."""

from __future__ import annotations

from pathlib import Path

from tests.support.companion_client import post
from tests.support.deployment import Answer, Deployment, Setup

SESSION_ID = "s"
APPROVER = "ann"


def setup(folder: Path, percent: float, more: str = "", shadow: float = 100) -> Setup:
    """Keep all that a restart needs in one file."""
    store = f"sqlite:///{folder}/store.sqlite"
    section = f"""
[flows.ops]
enable_langgraph = true
langgraph_percent = {percent}
shadow_percent = {shadow}
sticky = "none"
{more}
"""
    return Setup(others=store, locks=store, more=section)


def instruction(message: str) -> dict[str, object]:
    """Make the body of a turn."""
    return {"session_id": SESSION_ID, "input": message}


def decision(approval_id: str, *, approved: bool = True) -> dict[str, object]:
    """Make the body of a decision."""
    return {"approval_id": approval_id, "approved": approved, "by": APPROVER}


async def react(place: Deployment, message: str) -> Answer:
    """Take a turn."""
    return await post(place.session, f"{place.url}/ops/react", instruction(message))


async def resume(place: Deployment, approval_id: str, *, approved: bool = True) -> Answer:
    """Decide, and continue."""
    body = decision(approval_id, approved=approved)
    return await post(place.session, f"{place.url}/ops/resume", body)


def approval_of(answer: Answer) -> str:
    """Return the id of the approval an answer ends with."""
    assert answer.events[-1] == {"status": "approval_required"}
    return str(answer.events[-2]["approval_id"])


def results(answer: Answer) -> list[tuple[str, bool]]:
    """Return action and success of each result of an answer."""
    return [(one["action"], one["ok"]) for one in answer.events if "ok" in one]
