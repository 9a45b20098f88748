"""Outcomes of a rollout whose times, failures and ratings are drawn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evidence.outcomes import ExchangeOutcome

BEGAN = 1_795_000_000_000_000  # 2026-11-18
BUCKETS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnRollout:
    """A rollout of `requests` at `percent`, in conversations of one request each.

    Graph is `slower` times as slow as legacy, `failing` of its requests are served by legacy, and
    `disliked` of its ratings are bad; those of legacy are one in ten.
    """

    requests: int = 4_000
    percent: float = 50.0
    slower: float = 1.0
    failing: float = 0.0
    disliked: float = 0.1
    seed: int = 0

    def outcomes(self) -> list[ExchangeOutcome]:
        """Draw the outcomes, the oldest first."""
        random = np.random.default_rng(self.seed)
        buckets = random.integers(BUCKETS, size=self.requests)
        graph = buckets < self.percent * BUCKETS / 100
        slow = np.where(graph, self.slower, 1.0)
        first = 200_000 * slow * np.exp(0.3 * random.standard_normal(self.requests))
        text = first + 50_000 * slow * np.exp(0.3 * random.standard_normal(self.requests))
        last = text + 2_000_000 * slow * np.exp(0.3 * random.standard_normal(self.requests))
        gaps = 60_000 * np.exp(0.3 * random.standard_normal(self.requests))
        failed = graph & (random.random(self.requests) < self.failing)
        rated = random.random(self.requests) < 0.2
        bad = random.random(self.requests) < np.where(graph, self.disliked, 0.1)
        return [
            ExchangeOutcome(
                exchange=f"x{i:06}",
                flow="chat",
                assigned="graph" if graph[i] else "legacy",
                served="graph" if graph[i] and not failed[i] else "legacy",
                began=BEGAN + 100_000 * i,
                end="completed",
                reason="bug" if failed[i] else "percent",
                assigned_by="percent",
                bucket=int(buckets[i]),
                config="c1",
                conversation=f"chat {i}",
                fallback="fallback" if failed[i] else "",
                first_frame=int(first[i]),
                first_text=int(text[i]),
                longest_gap=int(gaps[i]),
                last_frame=int(last[i]),
                prompt_tokens=100,
                completion_tokens=int(50 + last[i] / 20_000 / slow[i]),
                feedback=None if not rated[i] else -1 if bad[i] else 1,
            )
            for i in range(self.requests)
        ]
