"""Pauses at the operations API: what waits is listed without what it holds, and expired by hand."""

from __future__ import annotations

import json
from time import time

import pytest

from contract.errors import EffectFailed, Fault
from contract.human import Form, HumanAnswer, OpenQuestion
from effects.stores import MemoryPauses, Waiting
from router.resume.pauses import Pauses
from tests.support.deployment import Deployment
from tests.support.operations_client import Operator
from tests.support.records import a_pause

pytestmark = pytest.mark.sockets

SECRET = "a-secret-word"


def keep_in(place: Deployment, store: MemoryPauses) -> None:
    """Let a router keep its pauses in a store."""
    router = place.services.router
    router.pauses = Pauses(store, 60.0, time)


async def two(store: MemoryPauses) -> None:
    """Open two pauses; the second is answered and being continued."""
    for number in (1, 2):
        pause = a_pause(
            hitl_id=f"h{number}",
            flow="chat",
            session_id="s1",
            question=OpenQuestion(Form(SECRET, ())),
            tape=SECRET.encode(),
            created_at=time() - 30.0,
            expires_at=time() + 3_600.0,
        )
        assert await store.open(pause)
    await store.respond("h2", HumanAnswer("edit", {"word": SECRET}))
    await store.claim("h2", "owner", 3_600.0)


async def test_what_waits_is_listed(place: Deployment, alice: Operator) -> None:
    """Who waits, since when, how large; nothing that was said, asked or answered."""
    router = place.services.router
    router.pauses = None
    assert (await alice.get("/pauses"))[0] == 404, "nothing is kept here"
    store = MemoryPauses()
    keep_in(place, store)
    assert await alice.get("/pauses") == (200, {"pauses": []})
    await two(store)
    status, page = await alice.get("/pauses")
    assert status == 200
    assert SECRET not in json.dumps(page)
    first, second = page["pauses"]
    assert first.pop("age") >= 30.0
    assert 0.0 < first.pop("expires_in") <= 3_600.0
    assert first == {
        "id": "h1",
        "flow": "chat",
        "stack": "graph",
        "session": "s1",
        "state": "open",
        "size": len(SECRET),
    }
    assert (second["id"], second["state"]) == ("h2", "claimed")


async def test_one_is_expired_by_hand(place: Deployment, alice: Operator) -> None:
    """With a name on record; not one that is continued, nor one that does not wait."""
    store = MemoryPauses()
    keep_in(place, store)
    await two(store)
    status, page = await alice.ask("DELETE", "/pauses/h1")
    assert (status, page["id"], page["state"]) == (200, "h1", "expired")
    assert await store.respond("h1", HumanAnswer("approve")) == "expired"
    for hitl_id, problem in (
        ("h1", (404, "unknown_pause")),
        ("h2", (409, "continued_already")),
        ("h3", (404, "unknown_pause")),
        ("a%00b", (404, "unknown_pause")),
    ):
        status, page = await alice.ask("DELETE", f"/pauses/{hitl_id}")
        assert (status, page["code"]) == problem
    (line,) = alice.audited()
    assert line.pop("at") > 0
    assert line == {
        "who": "alice",
        "what": "pause expired",
        "flow": "chat",
        "before": {"h1": "open"},
        "after": {"h1": "expired"},
    }


class Away(MemoryPauses):
    """A store that is away."""

    async def waiting(self) -> tuple[Waiting, ...]:
        """Fail."""
        raise EffectFailed(Fault("store_unavailable", retryable=True))


async def test_a_store_that_is_away_is_a_problem(place: Deployment, alice: Operator) -> None:
    """To be tried again; without a token not even that is shown."""
    keep_in(place, Away())
    for method, path in (("GET", "/pauses"), ("DELETE", "/pauses/h1")):
        status, page = await alice.ask(method, path)
        assert (status, page["code"]) == (503, "store_unavailable")
        assert (await Operator(place, None).ask(method, path))[0] == 401
    assert alice.audited() == []
