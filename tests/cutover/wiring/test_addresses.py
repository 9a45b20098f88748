"""Where stacks keep copies of conversations, unless it is configured."""

from __future__ import annotations

import pytest

from cutover.wiring.addresses import NotShared, resolve_stores
from router.config.schema import StoreSettings

FILE = "sqlite:////var/lib/store.sqlite"


@pytest.mark.parametrize(
    ("conversations", "copies"),
    [
        (FILE, "sqlite:////var/lib/checkpoints.sqlite"),
        ("sqlite:///store.sqlite", "sqlite:///checkpoints.sqlite"),
        ("postgresql://h/db", "postgresql://h/db"),
        ("https://memory.example/turns", ""),
    ],
)
@pytest.mark.parametrize("workers", [1, 2])
def test_copies_are_beside_the_conversations(conversations: str, copies: str, workers: int) -> None:
    """Nowhere where a service stores them: erasure there could not reach the copies."""
    stores = StoreSettings(conversations=conversations, memory=FILE, pauses=FILE)
    assert resolve_stores(stores, {}, workers).checkpoints == copies


def test_workers_keep_no_copies_each_of_its_own() -> None:
    """Deleting a session reaches one of them."""
    stores = StoreSettings(conversations=FILE, memory=FILE, pauses=FILE, checkpoints="memory://")
    assert resolve_stores(stores, {}, 1).checkpoints == "memory://"
    with pytest.raises(NotShared, match="checkpoints"):
        resolve_stores(stores, {}, 2)


def test_pins_last_where_conversations_must_not_move() -> None:
    """In the SQLite file of the stores, unless they are configured."""
    stores = StoreSettings(conversations=FILE)
    assert resolve_stores(stores, {}, 1).pins == "process"
    assert resolve_stores(stores, {}, 1, lasting_pins=True).pins == FILE
    elsewhere = stores.model_copy(update={"pins": "process"})
    assert resolve_stores(elsewhere, {}, 1, lasting_pins=True).pins == "process"


def test_the_audit_is_where_the_pauses_are() -> None:
    """Unless it is configured; workers keep none each of its own."""
    stores = StoreSettings(conversations=FILE, memory=FILE, pauses="postgresql://h/db")
    assert resolve_stores(stores, {}, 2).audit == "postgresql://h/db"
    elsewhere = stores.model_copy(update={"audit": "memory://"})
    assert resolve_stores(elsewhere, {}, 1).audit == "memory://"
    with pytest.raises(NotShared, match="audit"):
        resolve_stores(elsewhere, {}, 2)
