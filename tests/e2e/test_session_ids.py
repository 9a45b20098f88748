"""Ids of sessions in paths: whatever a body may name can be listed and deleted."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
from yarl import URL

from tests.e2e.session import say
from tests.e2e.session import setup as session_setup
from tests.support.companion_client import setup
from tests.support.deployment import Deployment, deployed

pytestmark = [pytest.mark.sockets, pytest.mark.slow]

IDS = ("a/b", "../../x", "/", "a/messages", "%2F", "?#&", "..", "\x7f\u200b\u202e", "中😀" * 64)


async def status(place: Deployment, method: str, path: str) -> int:
    """Ask at a path as it is written."""
    url = URL(f"{place.url}/api/v1/sessions/{path}", encoded=True)
    async with place.session.request(method, url) as response:
        return response.status


async def test_every_session_can_be_listed_and_deleted(tmp_path: Path) -> None:
    """Slashes, escapes and invisible characters."""
    async with deployed(
        tmp_path, session_setup(tmp_path, 0, 'unknown_session = "create"')
    ) as place:
        for one in IDS:
            assert (await say(place.session, place.url, "hi", one)).status == 200
            await place.settled()
            written = quote(one, safe="")
            assert await status(place, "GET", f"{written}/messages") == 200
            assert await status(place, "DELETE", written) == 204
            assert await status(place, "GET", f"{written}/messages") == 404


@pytest.mark.parametrize("wrong", ["x" * 129, "%01", ""])
async def test_what_no_body_may_name_is_refused(tmp_path: Path, wrong: str) -> None:
    """Before any store is asked."""
    async with deployed(tmp_path, setup(tmp_path, "legacy")) as place:
        assert await status(place, "GET", f"{wrong}/messages") == 422
        assert await status(place, "DELETE", wrong) == 422
