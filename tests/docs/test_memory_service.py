"""docs/memory-service.md names what there is: requests, fields and the suite."""

from __future__ import annotations

import re

from starlette.routing import Route

from contract.stores import Turn
from effects.stores import MemoryConversations
from effects.stores.http import conversation_service
from tests.conftest import ROOT
from tests.effects.stores.test_conversations import SERVICE_TOKEN, SERVICE_URL, opened_service

PAGE = (ROOT / "docs" / "memory-service.md").read_text("utf-8")


def test_every_request_of_the_reference_is_listed() -> None:
    """Method and path, and no other."""
    routes = conversation_service(MemoryConversations()).routes
    known = {
        (method, re.sub(r"{\w+(:path)?}", "{id}", route.path))
        for route in routes
        if isinstance(route, Route)
        for method in (route.methods or set()) - {"HEAD"}
    }
    assert set(re.findall(r"^\| `([A-Z]+) (/[^?`]+)\?", PAGE, re.MULTILINE)) == known


def test_every_field_of_a_turn_is_listed() -> None:
    """In the order of the contract."""
    table = PAGE.split("| field | |")[1].split("\n\n")[0]
    cells = [row.split("|")[1] for row in table.splitlines()[2:]]
    assert re.findall(r"`(\w+)`", "".join(cells)) == list(Turn.__struct_fields__)


def test_the_suite_is_called_as_the_page_says() -> None:
    """Its file, and the variables it reads."""
    (path,) = re.findall(r"python -m pytest (\S+) -k service\n", PAGE)
    assert (ROOT / path).is_file()
    assert opened_service.__module__ == path.removesuffix(".py").replace("/", ".")
    for variable in (SERVICE_URL, SERVICE_TOKEN):
        assert variable in PAGE
