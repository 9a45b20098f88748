"""Scrapes of a router, and the alerts that Prometheus' engine finds in them.

A minute passes between two scrapes by the stamps the samples get, not on the clock.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from tests.conftest import ROOT
from tests.support.deployment import Deployment
from tests.support.programs import promtool

METRICS = "[metrics]\nenabled = true\n"

LATE = frozenset({"CutoverEventLoopLate"})
"""Left out: its gauge is the longest delay of the last fifteen real seconds, in which many of these
minutes pass. One delay of a busy machine would look like minutes of them."""


async def metrics_page(session: aiohttp.ClientSession, url: str) -> str:
    """Read the metrics of a router."""
    async with session.get(f"{url}/metrics") as response:
        return await response.text()


class Scrapes:
    """What was scraped of a router, by series; `up` as Prometheus would have it."""

    def __init__(self) -> None:
        self.minute = 0
        self.series: dict[str, dict[int, float]] = {}

    async def take(self, place: Deployment) -> None:
        """Scrape once, a minute after the last."""
        self.add(await metrics_page(place.session, place.url))

    def add(self, page: str) -> None:
        """Add a page of metrics as the scrape a minute after the last."""
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                labels = {**sample.labels, "job": "cutover", "instance": "a"}
                shown = ",".join(f"{key}={json.dumps(one)}" for key, one in labels.items())
                self._add(f"{sample.name}{{{shown}}}", sample.value)
        self.missed(1)

    def missed(self, up: int = 0) -> None:
        """Note whether a scrape was answered."""
        self._add('up{job="cutover",instance="a"}', up)
        self.minute += 1

    def _add(self, series: str, value: float) -> None:
        self.series.setdefault(series, {})[self.minute] = value

    def forget(self) -> None:
        """Begin anew: what was scraped until now was the start of the router."""
        self.minute = 0
        self.series.clear()

    def firing(self, folder: Path, minute: int) -> set[str]:
        """Return the alerts that fire at a minute, as Prometheus evaluates the rules."""
        known = (ROOT / "deploy" / "alerts.yml").read_text("utf-8")
        (folder / "alerts.yml").write_text(known, "utf-8")
        silent = [
            {"alertname": name, "eval_time": f"{minute}m", "exp_alerts": []}
            for name in re.findall(r"- alert: (\w+)", known)
        ]
        fired = re.findall(r"alertname=\"(\w+)\"", self._evaluate(folder, alert_rule_test=silent))
        return set(fired)

    def answers(self, folder: Path, queries: Iterable[str]) -> dict[str, list[float]]:
        """Return the values of queries at the last scrape; a query without any is left out."""
        empty = [
            {"expr": query, "eval_time": f"{self.minute - 1}m", "exp_samples": []}
            for query in queries
        ]
        found = self._evaluate(folder, promql_expr_test=empty)
        answered = re.findall(r"expr: (\".*\"), time: .*\n +exp: nil\n +got: (.*)", found)
        return {
            json.loads(query): [float(value) for value in re.findall(r"} (\S+?)(?:,|$)", got)]
            for query, got in answered
        }

    def _evaluate(self, folder: Path, **tests: object) -> str:
        """Let promtool evaluate tests that expect nothing; returns what it found all the same."""
        series = [
            {
                "series": name,
                "values": " ".join(str(values.get(at, "_")) for at in range(self.minute)),
            }
            for name, values in self.series.items()
        ]
        test = {"interval": "1m", "input_series": series, **tests}
        rules = ["alerts.yml"] if "alert_rule_test" in tests else []
        whole = {"rule_files": rules, "evaluation_interval": "1m", "tests": [test]}
        (folder / "scraped.yml").write_text(json.dumps(whole), "utf-8")
        ran = promtool("test", "rules", "scraped.yml", folder=folder)
        found = ran.stdout + ran.stderr
        assert ("got:" in found) == bool(ran.returncode), found
        return found


def firing(scrapes: Scrapes, folder: Path) -> set[str]:
    """Return the alerts that fire at the last scrape, `LATE` left out."""
    return scrapes.firing(folder, scrapes.minute - 1) - LATE


def counted(scrapes: Scrapes, *words: str) -> float:
    """Return the last value of the one series whose text has all of some words."""
    (values,) = (
        values for series, values in scrapes.series.items() if all(word in series for word in words)
    )
    return values[scrapes.minute - 1]
