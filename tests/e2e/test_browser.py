"""A page of another origin at the router: `fetch` and `EventSource`, over a service that breaks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.support.browser import IN_CHROMIUM, browsing
from tests.support.processes import RouterProcess, share
from tests.support.services import serving
from tests.support.shop import event

pytestmark = IN_CHROMIUM

WORDS = [f"word{number} " for number in range(20)]
HEARD = """(router) => {
  const text = (data) => data === "[DONE]" ? "" : JSON.parse(data).choices[0].delta.content ?? "";
  const said = (block) => block.split("\\n").filter((one) => one.startsWith("data: "))
    .map((one) => text(one.slice(6))).join("");
  const fetched = async () => {
    const headers = { "content-type": "application/json" };
    const asked = { method: "POST", headers, body: '{"id":"u1"}' };
    return said(await (await fetch(router + "/ask", asked)).text());
  };
  const listened = () => new Promise((resolve) => {
    const source = new EventSource(router + "/events?id=u1");
    let all = "";
    source.onmessage = (event) => {
      all += text(event.data);
      if (event.data === "[DONE]") { source.close(); resolve(all); }
    };
    source.onerror = () => { source.close(); resolve("broken: " + all); };
  });
  return Promise.all([fetched(), listened()].map((one) => one.catch((error) => String(error))));
}"""


def service(last: int) -> Starlette:
    """Return a service that says `last` of the words, and breaks where that is not all of them."""

    async def words() -> AsyncIterator[str]:
        for word in WORDS[:last]:
            yield event({"content": word})
        if last < len(WORDS):
            message = "broke"
            raise RuntimeError(message)
        yield event({}, "stop") + "data: [DONE]\n\n"

    async def answer(_: Request) -> Response:
        return StreamingResponse(words(), media_type="text/event-stream")

    return Starlette(
        routes=[Route("/ask", answer, methods=["POST"]), Route("/events", answer, methods=["GET"])]
    )


@pytest.mark.parametrize(
    ("origins", "expected"),
    [
        (lambda origin: [origin], ["".join(WORDS)] * 2),
        (lambda _: [], ["TypeError: Failed to fetch", "broken: "]),
    ],
    ids=["its origin is configured", "its origin is not"],
)
async def test_a_browser_hears_all_words_once_where_graph_breaks_in_the_midst(
    tmp_path: Path, origins: Callable[[str], list[str]], expected: list[str]
) -> None:
    """Both ways of reading a stream; a page of an origin that is not configured hears nothing."""

    async def shown(_: Request) -> Response:
        return HTMLResponse("")

    keys = {"keys": {"user": "query.id"}}
    async with (
        serving(service(len(WORDS))) as old,
        serving(service(5)) as new,
        serving(Starlette(routes=[Route("/", shown)])) as origin,
        RouterProcess(
            tmp_path,
            {
                "server": {"origins": origins(origin)},
                "stacks": {"legacy": {"url": old}, "graph": {"url": new}},
                "flows": {
                    "asked": share(100.0, paths=["/ask"], keys={"user": "body.id"}),
                    "heard": share(100.0, paths=["/events"], methods=["GET"], **keys),
                },
            },
        ) as router,
        browsing() as (page, _),
    ):
        await page.goto(origin)
        assert await page.evaluate(HEARD, router.url) == expected
