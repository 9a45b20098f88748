"""Draws what the clients of two stacks had, exchange by exchange."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from compare.rollout.statistics import Bools, Codes
from compare.rows import ExchangeRow

HOUR_US = 3_600_000_000


@dataclass(frozen=True)
class Drawn:
    """A rollout: 100 exchanges an hour, of users that a share is drawn from.

    With `crowd` below infinity few users write most messages (Pareto). A user's own rate of
    failures is drawn, with the mean `fails`; graph fails `behind` of its exchanges more, and legacy
    answers.
    """

    exchanges: int = 8_000
    users: int = 1_600
    crowd: float = np.inf
    share: float = 0.5
    drawn_by: float | None = None
    """The share that users are really drawn by, where it is another one."""
    fails: float = 0.005
    alike: bool = True
    """Whether the users' rates are one."""
    behind: float = 0.0
    refuses: float = 0.0
    slower: float = 1.0
    text_ms: float = 400.0
    spread: float = 0.6
    dislikes: tuple[float, float] | None = None
    config: str = "now"
    code: str = "new"
    began: int = 0
    known: bool = True
    seed: int = 0

    def outcomes(self) -> tuple[Bools, Bools, Codes]:
        """Return which exchanges failed, which were drawn to graph, and whose they are."""
        rng = np.random.default_rng(self.seed)
        weights = rng.pareto(self.crowd, self.users) if np.isfinite(self.crowd) else None
        if weights is not None:
            weights /= weights.sum()
        users = rng.choice(self.users, self.exchanges, p=weights).astype(np.intp)
        share = self.share if self.drawn_by is None else self.drawn_by
        graph = (rng.random(self.users) < share)[users]
        own = rng.beta(0.2, 0.2 / self.fails - 0.2, self.users) if self.fails else 0.0
        rates = np.full(self.exchanges, self.fails) if self.alike else np.asarray(own)[users]
        failed = rng.random(self.exchanges) < rates
        return failed, graph, users

    def frame(self, **changes: Any) -> pd.DataFrame:
        """Return the exchanges as a frame; `changes` are columns for all of them."""
        failed, graph, users = self.outcomes()
        count, rng = self.exchanges, np.random.default_rng([self.seed, 1])
        behind = graph & (rng.random(count) < self.behind)
        refused = graph & (rng.random(count) < self.refuses)
        text = rng.lognormal(np.log(self.text_ms), self.spread, count)
        text *= np.where(graph, self.slower, 1.0)
        disliked = rng.random(count) < np.take(self.dislikes or (0.0, 0.0), graph.astype(int))
        columns = {
            "exchange": [f"{self.config} {place}" for place in range(count)],
            "flow": "chat",
            "at": self.began + np.arange(count) * HOUR_US // 100,
            "assigned": np.where(graph, "graph", "legacy"),
            "served": np.where(graph & ~behind, "graph", "legacy"),
            "why": "percent",
            "end": np.select([failed, refused], ["failed", "refused"], "completed"),
            "code": np.where(behind | failed, "crashed", ""),
            "failed_behind": np.where(behind, "graph", ""),
            "first_text_ms": text,
            "ended_ms": text * 3,
            "unit": np.char.add("user ", users.astype(str)) if self.known else "",
            "unit_kind": "user_id" if self.known else "",
            "score": np.where(disliked, -1.0, np.nan) if self.dislikes else None,
            "config": self.config,
            "code_version": self.code,
        }
        frame = pd.DataFrame(columns | changes)
        return frame[list(ExchangeRow.__struct_fields__)]

    def later(self, **changes: Any) -> Drawn:
        """Return a rollout that goes on when this one's exchanges are over."""
        began = self.began + self.exchanges * HOUR_US // 100
        return replace(self, began=began, seed=self.seed + 1, **changes)
