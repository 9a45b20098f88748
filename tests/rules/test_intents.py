"""What a message asks for, and what it refers to."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.stores import Turn
from rules.ops.instructions import assessed
from rules.ops.intents import items_of, last_items, understand

LISTED = ("web", "orders-db", "/var/log/a b.log")


def told(*items: str, **data: object) -> Turn:
    """Return a reply with the items of its last result."""
    beside: dict[str, Any] = {"items": list(items), **data}
    return Turn(message_id="m", role="assistant", content="…", data=beside)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("check the disks", ["system.disk"]),
        ("Please check disk usage!", ["system.disk"]),
        ("check the disks and memory", ["system.disk", "system.memory"]),
        ("请检查一下磁盘空间和内存", ["system.disk", "system.memory"]),
        ("列出所有容器", ["container.list"]),
        ("list all containers, show processes", ["container.list", "system.processes"]),
        ("can db.local:5432 be reached?", ["network.reach db.local 5432"]),
        ("能否连接 db:80", ["network.reach db 80"]),
        ("restart web", ["container.restart web"]),
        ("重启第一个", ["container.restart web"]),
        ("restart the second one", ["container.restart orders-db"]),
        ("restart the 2nd container", ["container.restart orders-db"]),
        ("show the logs of the first", ["container.logs web"]),
        ("查看第二个的日志", ["container.logs orders-db"]),
        ("delete temporary files *.log", ["system.delete_temporary *.log"]),
        ("deploy release v2", ["deploy.run v2"]),
        ("部署", ["deploy.run"]),
        ("roll back the release", ["deploy.rollback"]),
        # for the model
        ("restart the ninth one", None),
        ("restart the last one", None),
        ("restart the 0th one", None),
        ("重启第0个", None),
        ("restart it", None),
        ("restart everything", None),
        ("restart the server", None),
        ("restart server-2", ["container.restart server-2"]),
        ("list containers and restart the first one", None),
        ("why is the disk so full, check the disks", None),
        ("check the disks, then delete what is large", None),
        ("how are you?", None),
        ("{x} {{y}}", None),
    ],
)
def test_a_message_is_understood_or_left_to_the_model(
    message: str, expected: list[str] | None
) -> None:
    """A clause counts only whole; what is not certain is the model's."""
    found = understand(message, (told(*LISTED), told()))
    assert found.certain == (expected is not None)
    if expected is not None:
        said = [
            " ".join((f"{one.worker}.{one.action}", *map(str, one.args.values())))
            for one in found.instructions
        ]
        assert said == expected
        assert all(not assessed(one).refused for one in found.instructions)


@pytest.mark.parametrize(
    ("message", "resolved"),
    [
        ("why did the second one stop", "why did orders-db stop"),
        ("最后一个为什么大", "/var/log/a b.log为什么大"),
        ("第9个呢", "第9个呢"),
        ("is the first's log longer than the second?", "is web's log longer than orders-db?"),
        ("how full was it in the last hour?", "how full was it in the last hour?"),
        ("the first 5 of the last run", "the first 5 of the last run"),
        ("最后一个小时的内存", "最后一个小时的内存"),
        ("第一个月的第二个容器", "第一个月的orders-db"),
        ("check disks, and the first one", "check disks, and the first one"),
    ],
)
def test_references_are_resolved_for_the_model_too(message: str, resolved: str) -> None:
    """Not those to what another clause will list."""
    assert understand(message, (told(*LISTED),)).text == resolved


def test_without_a_result_nothing_is_referred_to() -> None:
    """The newest list counts; turns without one are passed over."""
    assert not understand("restart the first one", ()).certain
    assert last_items(
        (told("old"), told("new"), told(), Turn(message_id="u", role="user", content="x"))
    ) == ("new",)


@given(st.text(), st.lists(st.text(), max_size=3))
def test_any_message_is_understood_somehow(message: str, items: list[str]) -> None:
    """What is certain has instructions."""
    found = understand(message, (told(*items),))
    assert found.instructions or not found.certain


@pytest.mark.parametrize(
    ("data", "items"),
    [
        ([{"name": "web", "id": "1"}, {"id": "2"}, {}], ("web", "2", "")),
        ({"containers": [{"name": "web"}], "count": 1}, ("web",)),
        ({"a": [1], "b": [2]}, ()),
        ([{"pid": 7}, {"path": None}], ("7", "")),
        ({"name": "web", "lines": ["a", "b"]}, ()),
        ([{"path": "a" * 201}, {"path": "\0"}], ("", "")),
        ([{"id": number} for number in range(99)], tuple(map(str, range(60)))),
        ({"used": 0.4}, ()),
        (None, ()),
    ],
)
def test_what_a_result_lists(data: object, items: tuple[str, ...]) -> None:
    """By name, path, id or pid; what has none keeps its place."""
    assert items_of(data) == items
