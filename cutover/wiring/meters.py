"""Metrics of a house: made when they are wanted, kept up to date while it is open."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from router.telemetry.metrics.books import Books
from router.telemetry.metrics.exchanges import Exchanges
from router.telemetry.metrics.instruments import FOLDER
from router.telemetry.metrics.pulse import beating

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from effects.model import ModelRegistry
    from router.telemetry.metrics.books import Sources
    from router.telemetry.metrics.page import Page
    from router.telemetry.metrics.panel import Panel


@dataclass(frozen=True, slots=True)
class Meters:
    """The panel of a house, and the observer of its exchanges."""

    panel: Panel
    exchanges: Exchanges

    @asynccontextmanager
    async def running(self, sources: Sources) -> AsyncIterator[Page]:
        """Keep the panel up to date from these sources; gives the page that shows it."""
        books = Books(self.panel, sources)
        pages = _module("page")
        async with beating(self.panel, books):
            page: Page = pages.Page(self.panel, books, os.environ.get(FOLDER, ""))
            yield page


def open_meters(models: ModelRegistry) -> Meters:
    """Make the metrics of a house; calls are labelled with the models it has registered."""
    panel: Panel = _module("panel").Panel()
    return Meters(panel, Exchanges(panel, lambda: models.entries))


def _module(name: str) -> Any:
    """Import what needs Prometheus' client, which nobody pays for who does not want metrics."""
    return import_module(f"router.telemetry.metrics.{name}")
