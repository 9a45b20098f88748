"""Opening the news routers exchange, where they share a board."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cutover.stores import open_board
from router.news import News

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from router.router import Router


async def open_news(address: str, router: Router, stack: AsyncExitStack) -> News | None:
    """Exchange news until `stack` closes, the last then; None where no board is shared."""
    board = await open_board(address, stack)
    if board is None:
        return None
    breakers, budget = router.admission.breakers, router.shadow_budget
    news = News(board, breakers, budget, lambda: router.parts.specs)
    await stack.enter_async_context(news.running())
    return news
